"""The modes that are proved, as a table: what each needs of a release, runs, and must show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch

from rewriter.probes.equivalence import scenarios as serve
from rewriter.probes.equivalence import speculating as speculate
from rewriter.probes.equivalence.externals import Settings
from rewriter.probes.equivalence.indices import Shards
from rewriter.probes.equivalence.serving import Server, Shape

BACKEND = "FlashInferMLAAttnBackend"
DRAFT = "FlashInferMLAMultiStepDraftBackend"
PREFILL = "FlashInferMLAIndicesUpdaterPrefill"
DECODE = "FlashInferMLAIndicesUpdaterDecode"
CAPTURE = (
    f"{BACKEND}.init_forward_metadata_capture_cuda_graph",
    f"{BACKEND}.init_forward_metadata_out_graph",
)


class Expect(Enum):
    """What the patched copy must show besides the same bits."""

    FEWER = "at most the rows referred to, or the pool's; the original converts the pool"
    NO_MORE = "at most the rows of the original"
    UNTOUCHED = "the same rows as the original"
    SAME = "the same bits only"


@dataclass(frozen=True)
class Scenario:
    """One mode.

    Attributes:
        name: what a user calls it.
        run: drives one side, a server of the kind ``server``; called for the original and the
            patched copy alike.
        expect: what is required of the rows converted.
        needs: a name that must occur in one of these definitions, as ``(definitions, name)``;
            with an empty name it is enough that one of the definitions is there.
        shape: sizes and dtypes.
        settings: how the server is started.
        switch: the value of SGLANG_KV_GATHER.
        gpu: whether the companion takes a GPU's paths, with Triton; else those of a plain host.
    """

    name: str
    run: Callable[[Any], None]
    expect: Expect = Expect.FEWER
    needs: tuple[tuple[tuple[str, ...], str], ...] = ()
    shape: Shape = field(default_factory=Shape)
    settings: Settings = field(default_factory=Settings)
    switch: str = "on"
    gpu: bool = True
    server: type[Server] = Server


_RAGGED_OFF = Settings(disable_ragged=True)
_CROWDED = Shape(slots=30, shared=11)
_GRAPHS = ((CAPTURE, ""),)
_SHARDED = (((f"{DECODE}.call_begin_forward",), "plan_dcp_decode_metadata"),)
_TRANSLATED = (
    (
        (f"{DECODE}.call_begin_forward", f"{DECODE}.__init__", f"{BACKEND}.__init__"),
        "kv_index_translator|unified_mla_hooks",
    ),
)
_WINDOW = (((f"{BACKEND}.init_forward_metadata",), "is_target_verify"),)

SCENARIOS: tuple[Scenario, ...] = (
    Scenario("decode, eager", serve.eager_decode),
    Scenario("decode, eager, e5m2 pool", serve.eager_decode,
             shape=Shape(pool_dtype=torch.float8_e5m2)),
    Scenario("decode, eager, FP16 model", serve.eager_decode, shape=Shape(dtype=torch.float16)),
    Scenario("decode, eager, strided pool", serve.eager_decode, shape=Shape(strided=True)),
    Scenario("decode, eager, without Triton", serve.eager_decode, gpu=False),
    Scenario("decode, CUDA graphs", serve.decode_graphs, needs=_GRAPHS),
    Scenario("decode, CUDA graphs, e5m2 pool", serve.decode_graphs, needs=_GRAPHS,
             shape=Shape(pool_dtype=torch.float8_e5m2, dtype=torch.float16, strided=True)),
    Scenario("decode, CUDA graphs, without Triton", serve.decode_graphs, Expect.NO_MORE,
             needs=_GRAPHS, gpu=False),
    Scenario("prefill, paged", serve.paged_prefill, settings=_RAGGED_OFF),
    Scenario("prefill, captured in pieces", serve.paged_prefill,
             needs=(((f"{BACKEND}.init_forward_metadata",),
                     "is_in_piecewise_cuda_graph|is_in_tc_piecewise_cuda_graph"),),
             settings=Settings(captured_prefill=True)),
    Scenario("prefill on prefixes and chunks", serve.mixed_prefill, settings=_RAGGED_OFF),
    Scenario("prefill, ragged in between", serve.ragged_prefill),
    Scenario("idle and empty batches", serve.empty_batches),
    Scenario("BF16 pool", serve.zero_copy, Expect.UNTOUCHED,
             shape=Shape(pool_dtype=torch.bfloat16), settings=_RAGGED_OFF),
    Scenario("more rows listed than the pool has", serve.crowded, shape=_CROWDED,
             settings=_RAGGED_OFF),
    Scenario("more rows listed than the pool has, CUDA graphs", serve.crowded_graphs, needs=_GRAPHS,
             shape=_CROWDED),
    Scenario("indices longer than in use", serve.long_tail),
    Scenario("two plans before two runs", serve.interleaved),
    Scenario("two sets of CUDA graphs in turns", serve.interleaved_graphs, needs=_GRAPHS),
    Scenario("target verify, eager", speculate.verify_eager, needs=_WINDOW),
    Scenario("target verify, CUDA graphs", speculate.verify_graphs,
             needs=((CAPTURE, "is_target_verify"),)),
    Scenario("DFLASH verify, CUDA graphs", speculate.dflash_graphs,
             needs=(((CAPTURE[1],), "DFLASH_VERIFY"),)),
    Scenario("draft extend, eager", speculate.draft_extend,
             needs=(((f"{BACKEND}.init_forward_metadata",), "is_draft_extend"),)),
    Scenario("draft extend by a window, eager", speculate.draft_extend_window,
             needs=(((f"{BACKEND}.init_forward_metadata",), "is_draft_extend_v2"),)),
    Scenario("draft extend, CUDA graphs", speculate.draft_extend_graphs,
             needs=((CAPTURE, "is_draft_extend"),)),
    Scenario("multi-step draft, eager", speculate.draft_steps, needs=(((DRAFT,), ""),)),
    Scenario("multi-step draft, CUDA graphs", speculate.draft_steps_graphs,
             needs=(((DRAFT,), ""),)),
    Scenario("translated indices", serve.translated, needs=_TRANSLATED, shape=Shape(mapped=True),
             settings=_RAGGED_OFF),
    Scenario("context parallel prefill", serve.sharded_prefill, Expect.UNTOUCHED,
             needs=_SHARDED, settings=Settings(disable_ragged=True, shards=Shards(2, 1))),
    Scenario("context parallel decode", serve.sharded_decode, needs=_SHARDED,
             settings=Settings(shards=Shards(2, 1))),
    Scenario("subclass with super().forward_extend", serve.subclass, settings=_RAGGED_OFF),
    Scenario("wrapper planned elsewhere", serve.foreign_plan, Expect.UNTOUCHED,
             settings=_RAGGED_OFF),
    Scenario("pages of several tokens", serve.pages, Expect.UNTOUCHED,
             needs=(((f"{DECODE}.call_begin_forward",), "page_size"),),
             shape=Shape(page=4, slots=160), settings=_RAGGED_OFF),
    Scenario("packed rows", serve.eager_decode, Expect.UNTOUCHED, shape=Shape(packed_width=32)),
    Scenario("SGLANG_KV_GATHER=off", serve.decode_graphs, Expect.UNTOUCHED, needs=_GRAPHS,
             switch="off"),
    Scenario("SGLANG_KV_GATHER=debug", serve.mixed_prefill, Expect.SAME, settings=_RAGGED_OFF,
             switch="debug"),
)  # fmt: skip
