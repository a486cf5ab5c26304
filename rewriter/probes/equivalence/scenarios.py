"""What is served in each mode: the batches, on one side; called for both copies of the file.

The speculative ones are in ``speculating``.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from rewriter.probes.equivalence.driving import GraphRunner, eager, run
from rewriter.probes.equivalence.externals import ForwardMode as Forward
from rewriter.probes.equivalence.serving import Batch, Server
from rewriter.probes.equivalence.tensors import OnHost


class Refuted(AssertionError):
    """A scenario saw something wrong on one side by itself."""


def _decode(*lengths: int, first: int = 0, **more: Any) -> Batch:
    return Batch(Forward.DECODE, lengths, first=first, **more)


def _extend(lengths: tuple[int, ...], tokens: tuple[int, ...], first: int = 0) -> Batch:
    return Batch(Forward.EXTEND, lengths, tokens, first)


def eager_decode(server: Server) -> None:
    """Decode three batches of different sizes, one after the other."""
    backend = server.backend()
    for batch in (_decode(5, 3, 9), _decode(14, first=2), _decode(1, 2, 3, 4)):
        eager(server, backend, batch)


def paged_prefill(server: Server) -> None:
    """Prefill without a prefix through the paged wrapper, as with ragged prefill off."""
    backend = server.backend()
    eager(server, backend, _extend((5, 7), (5, 7)))
    eager(server, backend, _extend((14,), (14,), first=3))


def mixed_prefill(server: Server) -> None:
    """Prefix reuse and a chunk on top of earlier chunks, between ragged prefills and decodes."""
    backend = server.backend()
    eager(server, backend, _extend((6, 4), (6, 4)))  # ragged: plans no paged wrapper
    eager(server, backend, _extend((12, 4, 9), (6, 1, 3)))
    eager(server, backend, _decode(12, 5, 10))
    eager(server, backend, _extend((14, 14), (2, 9)))


def ragged_prefill(server: Server) -> None:
    """A ragged prefill between the plan and the run of a paged one leaves its rows alone."""
    backend = server.backend()
    planned = _extend((12, 9), (6, 3))
    forward_batch = server.forward_batch(planned)
    with OnHost():
        backend.init_forward_metadata(forward_batch)
    metadata = backend.forward_metadata
    eager(server, backend, _extend((5, 3), (5, 3), first=2))
    backend.forward_metadata = metadata
    run(server, backend, forward_batch, planned)
    del server.calls[: server.shape.layers]  # the ragged one reads nothing of the pool


def empty_batches(server: Server) -> None:
    """No request, then requests without keys, between decodes."""
    backend = server.backend()
    eager(server, backend, _decode(5, 3))
    eager(server, backend, Batch(Forward.IDLE, ()))
    eager(server, backend, _decode(4, 2))


def zero_copy(server: Server) -> None:
    """The wrapper gets the pool's own memory."""
    backend = server.backend()
    for batch, wrapper in ((_decode(5, 3), "decode_wrapper"),
                           (_extend((9, 4), (3, 2)), "prefill_wrapper_paged")):  # fmt: skip
        eager(server, backend, batch)
        got = getattr(backend, wrapper).last_keys
        if got.data_ptr() != server.pool.kv_buffer[server.shape.layers - 1].data_ptr():
            raise Refuted("the wrapper was handed a copy of the BF16 pool")


def long_tail(server: Server) -> None:
    """The host's sum of lengths is too high: indices go on behind the last row pointer."""
    backend = server.backend()
    eager(server, backend, _decode(5, 3, overstated=7))
    if "prefill_wrapper_verify" in vars(backend):
        batch = Batch(Forward.TARGET_VERIFY, (5, 3), window=3, spec="verify", overstated=9)
        eager(server, backend, batch)


def decode_graphs(server: Server) -> None:
    """Two graphs; replays with other lengths and requests, full and padded, eager in between."""
    backend = server.backend()
    graphs = GraphRunner(server, backend, (4, 2), _decode(1))
    for batch in (
        _decode(5, 3, 9, 2),
        _decode(14, 13, first=2),
        _decode(7, 1, 4),
        _decode(6),
        _decode(2, 11, 14, 3, first=1),
    ):
        graphs.replay(batch)
    eager(server, backend, _decode(8, 5))
    graphs.replay(_decode(14, 9, 1))


def interleaved(server: Server) -> None:
    """Plan A, plan B, run A, run B: two wrappers of a backend, then those of two backends."""
    one, two = server.backend(), server.backend()
    for first, second, batches in (
        (one, one, (_decode(5, 3, 9), _extend((12, 9, 4), (4, 2, 1), first=2))),
        (one, two, (_decode(14, 2), _decode(3, 9, 1, first=2))),
    ):
        steps = []
        for backend, batch in zip((first, second), batches, strict=True):
            forward_batch = server.forward_batch(batch)
            with OnHost():
                backend.init_forward_metadata(forward_batch)
            steps.append((backend, backend.forward_metadata, forward_batch, batch))
        for backend, metadata, forward_batch, batch in steps:
            backend.forward_metadata = metadata
            run(server, backend, forward_batch, batch)


def interleaved_graphs(server: Server) -> None:
    """The graphs of two backends take turns: buffers are shared, counts are not."""
    one = GraphRunner(server, server.backend(), (2,), _decode(1))
    two = GraphRunner(server, server.backend(), (3,), _decode(1))
    for batch in (_decode(14, 9), _decode(2, 1, first=2)):
        one.replay(batch)
        two.replay(_decode(3, 13, 1, first=1))
        one.replay(batch)


def crowded(server: Server) -> None:
    """Requests share a prefix: together they list more rows than the pool has."""
    backend = server.backend()
    for batch in (_decode(12, 12, 12, 12), _decode(14, 13), _extend((12, 14, 13), (2, 3, 1))):
        eager(server, backend, batch)


def crowded_graphs(server: Server) -> None:
    """The same on graphs, going back and forth."""
    graphs = GraphRunner(server, server.backend(), (4, 2), _decode(1))
    for batch in (_decode(12, 12, 12, 12), _decode(3, 2), _decode(14, 13, 9), _decode(1, 1, 2, 1)):
        graphs.replay(batch)


def translated(server: Server) -> None:
    """Requests hold virtual ids; decode and prefill read the rows they stand for."""
    backend = server.backend()
    eager(server, backend, _decode(5, 3, 9))
    eager(server, backend, _extend((9, 4), (3, 2)))
    graphs = GraphRunner(server, backend, (3,), _decode(1))
    graphs.replay(_decode(14, 3))
    graphs.replay(_decode(2, 9, 11, first=1))


def sharded_prefill(server: Server) -> None:
    """Prefill under context parallelism reads a buffer gathered from all ranks, not the pool."""
    backend = server.backend()
    batch = _extend((9, 4), (3, 2))
    forward_batch = server.forward_batch(batch)
    listed = sum(batch.reads)
    rows = torch.randperm(listed, generator=server.random).to(torch.int32)
    buffer = server.numbers(listed, 1, server.shape.width).to(server.shape.pool_dtype)
    indptr = torch.tensor([0, 9, 13], dtype=torch.int32)
    forward_batch.attn_dcp_metadata = SimpleNamespace(
        dcp_kv_indices=rows, dcp_kv_indptr=indptr, dcp_kv_buffer=buffer
    )
    with OnHost():
        backend.init_forward_metadata(forward_batch)
    run(server, backend, forward_batch, batch)


def sharded_decode(server: Server) -> None:
    """Decode under context parallelism reads this rank's share, eager and on graphs."""
    backend = server.backend()
    eager(server, backend, _decode(5, 3, 9))
    eager(server, backend, _decode(14, 1, first=2))
    graphs = GraphRunner(server, backend, (3, 2), _decode(1))
    for batch in (_decode(5, 3, 9), _decode(14, 2, first=2), _decode(7)):
        graphs.replay(batch)


def subclass(server: Server) -> None:
    """A backend on top of this one: its own decode wrapper, this one's ``forward_extend``."""
    base = server.module.FlashInferMLAAttnBackend

    class OnTop(base):  # type: ignore[misc, valid-type]
        def forward_extend(
            self, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any,
            save_kv_cache: bool = True, q_rope: Any = None, k_rope: Any = None,
        ) -> Any:  # fmt: skip
            return super().forward_extend(
                q, k, v, layer, forward_batch, save_kv_cache, q_rope, k_rope
            )

    backend = OnTop(server.runner())
    eager(server, backend, _extend((9, 4), (3, 2)))
    eager(server, backend, _decode(5, 3))


def foreign_plan(server: Server) -> None:
    """A wrapper that something else planned, with rows of the pool: nothing is gathered."""
    backend = server.backend()
    batch = _extend((9, 4), (3, 2))
    forward_batch = server.forward_batch(batch)
    with OnHost():
        backend.init_forward_metadata(forward_batch)
    planned = backend.forward_metadata.prefill_wrapper
    wrapper = type(planned)(backend.workspace_buffer)
    rows = torch.cat([server.table[0, :9], server.table[1, :4]])
    indptr = torch.tensor([0, 9, 13], dtype=torch.int32)
    shape = server.shape
    wrapper.plan(
        torch.tensor([0, 3, 5], dtype=torch.int32), indptr, rows, indptr.diff(), shape.heads,
        shape.rank, shape.rope, 1, True, shape.width**-0.5, shape.dtype, shape.dtype,
    )  # fmt: skip
    backend.forward_metadata = type(backend.forward_metadata)(wrapper, False)
    run(server, backend, forward_batch, batch)


def pages(server: Server) -> None:
    """Indices stand for pages of several tokens: nothing is gathered."""
    eager_decode(server)
    backend = server.backend()
    eager(server, backend, _extend((9, 4), (3, 2)))
    graphs = GraphRunner(server, backend, (3,), _decode(1))
    graphs.replay(_decode(14, 3))
