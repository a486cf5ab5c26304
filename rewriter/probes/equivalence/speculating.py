"""What is served in the speculative modes: verification, and drafts of one and several steps."""

from __future__ import annotations

from typing import Any

from rewriter.probes.equivalence.driving import DraftRunner, GraphRunner, eager, eager_draft
from rewriter.probes.equivalence.externals import ForwardMode as Forward
from rewriter.probes.equivalence.serving import Batch, Server
from rewriter.probes.equivalence.tensors import OnHost


def _draft(*lengths: int, first: int = 0) -> Batch:
    return Batch(Forward.DECODE, lengths, first=first, spec="draft")


def _verify(*lengths: int, spec: str = "verify", first: int = 0) -> Batch:
    return Batch(Forward.TARGET_VERIFY, lengths, first=first, window=3, spec=spec)


def verify_eager(server: Server) -> None:
    """Verify drafted tokens without graphs."""
    backend = server.backend()
    eager(server, backend, _verify(5, 3, 9))
    eager(server, backend, _verify(2, first=3))


def _verify_graphs(server: Server, spec: str) -> None:
    backend = server.backend()
    graphs = GraphRunner(server, backend, (3, 2), _verify(1, spec=spec))
    for batch in (
        _verify(5, 3, 9, spec=spec),
        _verify(2, 11, first=2, spec=spec),
        _verify(7, spec=spec, first=1),
        _verify(11, 11, 11, spec=spec, first=1),
    ):
        graphs.replay(batch)


def verify_graphs(server: Server) -> None:
    """Verify on graphs: full, padded, other lengths."""
    _verify_graphs(server, "verify")


def dflash_graphs(server: Server) -> None:
    """Verify block drafts: indices go straight into the graph's buffer."""
    _verify_graphs(server, "dflash")


def draft_extend(server: Server) -> None:
    """Extend a draft by what was accepted, without graphs."""
    backend = server.backend()
    for lengths, first in (((5, 6, 9), 0), ((12,), 3)):
        batch = Batch(Forward.DRAFT_EXTEND, lengths, first=first, window=2, spec="extend")
        eager(server, backend, batch)


def draft_extend_window(server: Server) -> None:
    """Extend a draft by a fixed window, without graphs."""
    backend = server.backend()
    for lengths, first in (((5, 6, 9), 0), ((12,), 3)):
        batch = Batch(Forward.DRAFT_EXTEND_V2, lengths, first=first, window=2, spec="extend")
        eager(server, backend, batch)


def draft_extend_graphs(server: Server) -> None:
    """The same on graphs."""
    backend = server.backend()
    like = Batch(Forward.DRAFT_EXTEND, (2,), window=2, spec="extend")
    graphs = GraphRunner(server, backend, (3, 2), like)
    for lengths, first in (((5, 6, 9), 0), ((14, 3), 2), ((12,), 3), ((4, 8, 13), 1)):
        graphs.replay(Batch(Forward.DRAFT_EXTEND, lengths, first=first, window=2, spec="extend"))


def _draft_backend(server: Server) -> Any:
    with OnHost():
        return server.module.FlashInferMLAMultiStepDraftBackend(
            server.runner(), topk=1, speculative_num_steps=4
        )


def draft_steps(server: Server) -> None:
    """Draft several steps without graphs."""
    backend = _draft_backend(server)
    for lengths, first in (((5, 3, 9), 0), ((10,), 2)):
        eager_draft(server, backend, _draft(*lengths, first=first))


def draft_steps_graphs(server: Server) -> None:
    """Draft several steps on one graph: full, padded, other lengths."""
    graphs = DraftRunner(server, _draft_backend(server), (3, 2), _draft(1))
    for lengths, first in (((5, 3, 9), 0), ((10, 12), 2), ((7,), 1), ((4, 8, 11), 1)):
        graphs.replay(_draft(*lengths, first=first))
