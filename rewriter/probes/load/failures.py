"""What can go wrong between a client and a server, told in one message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from rewriter.errors import RewriterError

if TYPE_CHECKING:
    from rewriter.probes.load.reply import Reply

Kind = Literal["refused", "status", "garbage", "broken", "stalled", "server"]
"""``refused``: no connection. ``status``: an HTTP error code. ``garbage``: not what sglang says.
``broken``: the connection ended early. ``stalled``: nothing came for too long. ``server``: the
server itself reported an error or gave the request up."""


class LoadError(RewriterError):
    """A server did not answer as a server should.

    Attributes:
        kind: which of the ways to fail.
        status: the HTTP status, where there was one that says so.
        reply: what had arrived of a streamed reply, unfinished; None where nothing had.
    """

    def __init__(
        self, kind: Kind, message: str, *, status: int | None = None, reply: Reply | None = None
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status
        self.reply = reply
