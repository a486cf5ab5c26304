"""How a bench reaches one server: its requests and its cache."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rewriter.probes.load import client
from rewriter.probes.load.measure import Send
from rewriter.probes.load.reply import Reply
from rewriter.probes.load.streams import Endpoint

_NOT_FOR_US = (401, 403, 404, 405)
"""Statuses of a server that does not let us, or know how to, empty its cache."""


@dataclass(frozen=True)
class Access:
    """A server and how to talk to it.

    Attributes:
        url: where.
        endpoint: which of its endpoints generates.
        api_key: sent with every request.
        stall_s: seconds without a token that count as a stall.
        flush: whether the prefix cache is emptied between trials.
    """

    url: str
    endpoint: Endpoint = "native"
    api_key: str | None = None
    stall_s: float = client.STALL_S
    flush: bool = True

    def info(self) -> dict[str, Any]:
        """Return what the server says about itself; raises LoadError."""
        return client.server_info(self.url, api_key=self.api_key)

    def sender(self, info: Mapping[str, Any], *, logprobs: bool = False) -> Send:
        """Return how to send a request.

        Args:
            info: what the server said about itself; its model's name is what it is asked for.
            logprobs: whether to ask for log-probabilities.
        """
        model = str(info.get("served_model_name") or info.get("model_path") or "default")

        def send(prompt: Sequence[int], tokens: int) -> Reply:
            return client.generate(
                self.url,
                prompt,
                tokens,
                endpoint=self.endpoint,
                model=model,
                logprobs=logprobs,
                api_key=self.api_key,
                stall_s=self.stall_s,
            )

        return send

    def flusher(self) -> tuple[Callable[[], None], str]:
        """Return how to empty the cache, and a note where that cannot be done.

        Raises:
            LoadError: other requests are running, or the server does not answer.
        """
        if not self.flush:
            return _nothing, "the prefix cache was not emptied between trials (--no-flush)"
        flush = functools.partial(client.flush_cache, self.url, api_key=self.api_key)
        try:
            flush()
        except client.LoadError as error:
            if error.status not in _NOT_FOR_US:
                raise
            return _nothing, f"the prefix cache cannot be emptied: {error}"
        return flush, ""


def _nothing() -> None: ...
