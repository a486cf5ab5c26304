"""The modes of a backend with page tables that are proved, and what is served in each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch

from rewriter.probes.equivalence.externals import ForwardMode as Forward
from rewriter.probes.equivalence.modes import Expect, Scenario
from rewriter.probes.equivalence.paged_serving import NO_PAGE, PagedGraphs, PagedServer, step
from rewriter.probes.equivalence.serving import Batch, Shape

BACKEND = "FlashAttentionBackend"
EXTEND = f"{BACKEND}.forward_extend"


def _decode(*lengths: int, first: int = 0, **more: Any) -> Batch:
    return Batch(Forward.DECODE, lengths, first=first, **more)


def _extend(lengths: tuple[int, ...], tokens: tuple[int, ...], first: int = 0) -> Batch:
    return Batch(Forward.EXTEND, lengths, tokens, first)


def _verify(*lengths: int, first: int = 0) -> Batch:
    return Batch(Forward.TARGET_VERIFY, lengths, first=first, window=3, spec="verify")


def _accepted(kind: Forward, *lengths: int, first: int = 0) -> Batch:
    return Batch(kind, lengths, first=first, window=2, spec="extend")


def decode(server: PagedServer) -> None:
    """Decode batches of different sizes, one after the other; lengths at and across pages."""
    backend = server.backend()
    for batch in (
        _decode(5, 3, 9), _decode(14, first=2), _decode(1, 2, 3, 4), _decode(16, 17, 32), _decode(7)
    ):  # fmt: skip
        step(server, backend, batch)


def decode_graphs(server: PagedServer) -> None:
    """Two graphs; replays with other lengths and requests, full and padded, eager in between."""
    backend = server.backend()
    graphs = PagedGraphs(server, backend, (4, 2, 1), _decode(1))
    for batch in (
        _decode(5, 3, 9, 2), _decode(14, 33, first=2), _decode(7, 1, 4), _decode(6),
        _decode(2, 11, 14, 3, first=1), _decode(16, 32, 17),
    ):  # fmt: skip
        graphs.replay(batch)
    step(server, backend, _decode(8, 5))
    graphs.replay(_decode(14, 9, 1))


def extend(server: PagedServer) -> None:
    """Extend requests with and without prefixes, between decodes."""
    backend = server.backend()
    step(server, backend, _extend((12, 4, 9), (6, 1, 3)))
    step(server, backend, _decode(12, 5, 10))
    step(server, backend, _extend((33, 14), (2, 9)))
    step(server, backend, _extend((5, 17), (5, 17), first=1))


def empty(server: PagedServer) -> None:
    """No request, requests without keys, and requests between such."""
    backend = server.backend()
    step(server, backend, _decode(5, 3))
    step(server, backend, Batch(Forward.IDLE, ()))
    metadata = server.metadata(_decode(4, 4, 4), (0, 7, 0))
    step(server, backend, _decode(4, 7, 4), metadata)
    step(server, backend, _decode(4, 2))


def verify(server: PagedServer) -> None:
    """Verify chains of drafted tokens, eager and on graphs."""
    backend = server.backend()
    step(server, backend, _verify(5, 3, 9))
    graphs = PagedGraphs(server, backend, (3, 2), _verify(1))
    for batch in (_verify(5, 13, 30), _verify(2, 11, first=2), _verify(14, first=1)):
        graphs.replay(batch)


def _draft_extend(kind: Forward) -> Callable[[PagedServer], None]:
    def serve(server: PagedServer) -> None:
        backend = server.backend()
        step(server, backend, _accepted(kind, 5, 6, 9))
        graphs = PagedGraphs(server, backend, (3, 2), _accepted(kind, 2))
        for batch in (_accepted(kind, 5, 30, 9), _accepted(kind, 14, 3, first=2)):
            graphs.replay(batch)

    return serve


def draft(server: PagedServer) -> None:
    """Decode the steps of a draft of one branch, eager and on graphs."""
    backend = server.backend()
    backend.topk = 1
    for ahead in range(3):
        step(server, backend, _decode(5 + ahead, 3 + ahead, 9 + ahead, spec="draft"))
    graphs = PagedGraphs(server, backend, (3, 2), _decode(1, spec="draft"))
    for batch in (_decode(5, 3, 19, spec="draft"), _decode(12, 2, first=2, spec="draft")):
        graphs.replay(batch)


def _branches(server: PagedServer, backend: Any, batch: Batch) -> Any:
    """Hand the backend the table of a second kernel: each query's own last tokens."""
    backend.topk = 2
    width, rows = batch.tokens[0], sum(batch.tokens)
    table = torch.full((rows, width + 2), NO_PAGE, dtype=torch.int32)
    for row in range(rows):
        request, query = divmod(row, width)
        slots = server.rows_of(server.table[batch.first + request])
        at = batch.lengths[request]
        table[row, : query + 1] = slots[at : at + query + 1]
    expand = server.module.FlashAttentionMetadata()
    expand.cache_seqlens_int32 = torch.arange(rows, dtype=torch.int32) % width + 1
    expand.cu_seqlens_q = torch.arange(rows + 1, dtype=torch.int32)
    expand.cu_seqlens_k = torch.arange(rows + 1, dtype=torch.int32)
    expand.page_table, expand.max_seq_len_q = table, 1
    backend.forward_metadata_spec_decode_expand = expand
    return server.metadata(batch, batch.lengths)


def branching_verify(server: PagedServer) -> None:
    """Verify drafts of two branches: a second kernel reads other rows of the same buffer."""
    backend = server.backend()
    for batch in (_verify(5, 3, 9), _verify(14, first=2)):
        step(server, backend, batch, _branches(server, backend, batch))


def branching_draft(server: PagedServer) -> None:
    """Decode a draft of two branches."""
    backend = server.backend()
    batch = replace(_decode(5, 3, 9, spec="draft"), window=2)
    step(server, backend, batch, _branches(server, backend, batch))


def local(server: PagedServer) -> None:
    """Attend to a table of local blocks in place of the batch's own."""
    backend = server.backend()
    backend.has_local_attention, backend.attention_chunk_size = True, 8
    backend.local_attn_builder = SimpleNamespace(applies=lambda layer, metadata: True)
    for layer in server.layers:
        layer.use_irope = True
    batch = _extend((12, 4, 9), (6, 1, 3))
    metadata = server.metadata(batch, batch.reads)
    table = server.pages(batch, batch.reads)
    metadata.local_attn_metadata = SimpleNamespace(
        local_block_table=table.flip(0), local_query_start_loc=metadata.cu_seqlens_q,
        local_seqused_k=torch.tensor([7, 4, 3], dtype=torch.int32), local_max_query_len=6,
        local_max_seq_len=9,
    )  # fmt: skip
    step(server, backend, batch, metadata)


def sliding(server: PagedServer) -> None:
    """Attend to the table of a pool for sliding windows in place of the batch's own."""
    backend = server.backend()
    backend.use_sliding_window_kv_pool = True
    for layer in server.layers:
        layer.sliding_window_size = 4
    batch = _extend((12, 4, 9), (6, 1, 3))
    metadata = server.metadata(batch, batch.reads)
    metadata.swa_page_table = server.pages(replace(batch, first=2), batch.reads)
    metadata.page_table = torch.full_like(metadata.page_table, NO_PAGE)
    step(server, backend, batch, metadata)


def halves(server: PagedServer) -> None:
    """Extend under context parallelism: a nested function attends with lengths of its own."""
    backend = server.backend()
    backend.attn_cp_size = 2
    step(server, backend, _extend((13,), (6,)), attn_cp_metadata=SimpleNamespace())


def crowded(server: PagedServer) -> None:
    """Requests share a prefix: together they list more rows than the pool has."""
    backend = server.backend()
    for batch in (_decode(12, 12, 12, 12), _decode(14, 13), _extend((12, 14, 13), (2, 3, 1))):
        step(server, backend, batch)
    graphs = PagedGraphs(server, backend, (4, 2), _decode(1))
    for batch in (_decode(12, 12, 12, 12), _decode(3, 2), _decode(14, 13, 9), _decode(1, 1, 2, 1)):
        graphs.replay(batch)


def zero_copy(server: PagedServer) -> None:
    """A pool in the query's dtype is read where it is."""
    backend = server.backend()
    step(server, backend, _decode(5, 3))
    step(server, backend, _extend((9, 4), (3, 2)))


def _pages(size: int, **more: Any) -> Shape:
    context = -(-40 // size) * size
    return Shape(rank=256, rope=16, page=size, context=context - 8, slots=6 * context, **more)


_PLAIN = _pages(1)
_CROWDED = Shape(rank=256, rope=16, slots=30, shared=11)
_LOCAL = (((EXTEND,), "local_attn_metadata"),)
_WINDOWS = (((EXTEND,), "swa_page_table"),)
_PARALLEL = (((EXTEND,), "_mla_cp_attn"),)


def _mode(
    name: str, run: Callable[[Any], None], expect: Expect = Expect.FEWER, **more: Any
) -> Scenario:
    return Scenario(name, run, expect, **{"shape": _PLAIN, "server": PagedServer, **more})


PAGED_SCENARIOS: tuple[Scenario, ...] = (
    *(
        _mode(f"{name}, pages of {size}", run, shape=_pages(size))
        for size in (1, 16, 64, 128)
        for name, run in (
            ("decode, eager", decode), ("decode, CUDA graphs", decode_graphs),
            ("extend with prefixes", extend), ("target verify", verify),
        )
    ),
    _mode("decode, eager, e5m2 pool", decode, shape=_pages(16, pool_dtype=torch.float8_e5m2)),
    _mode("decode, CUDA graphs, e5m2, FP16 model, strided", decode_graphs,
          shape=_pages(16, pool_dtype=torch.float8_e5m2, dtype=torch.float16, strided=True)),
    _mode("extend with prefixes, strided pool", extend, shape=_pages(64, strided=True)),
    _mode("decode, eager, on a host", decode, gpu=False),
    _mode("idle and empty batches", empty),
    _mode("draft extend", _draft_extend(Forward.DRAFT_EXTEND)),
    _mode("draft extend by a window", _draft_extend(Forward.DRAFT_EXTEND_V2)),
    _mode("multi-step draft, one branch", draft),
    _mode("local attention", local, needs=_LOCAL),
    _mode("sliding windows", sliding, needs=_WINDOWS),
    _mode("more rows listed than the pool has", crowded, shape=_CROWDED),
    _mode("target verify, branches", branching_verify, Expect.UNTOUCHED),
    _mode("multi-step draft, branches", branching_draft, Expect.UNTOUCHED),
    _mode("context parallel extend", halves, Expect.UNTOUCHED, needs=_PARALLEL),
    _mode("BF16 pool", zero_copy, Expect.UNTOUCHED, shape=_pages(16, pool_dtype=torch.bfloat16)),
    _mode("queries in FP8", zero_copy, Expect.UNTOUCHED, shape=Shape(slots=6 * 40, context=32)),
    _mode("SGLANG_KV_GATHER=off", decode_graphs, Expect.UNTOUCHED, switch="off"),
    _mode("SGLANG_KV_GATHER=debug", extend, Expect.SAME, shape=_pages(16), switch="debug"),
)  # fmt: skip
