"""The stand-in server for a backend with page tables: its names, its constructor, its metadata.

The release's own constructor, ``forward_extend`` and ``forward_decode`` run; the metadata between
them are made here, in the way that lets a wrong reader be seen: tables are slices of wider ones,
and behind a request's length, and in the padding, stand numbers that are no page.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from types import SimpleNamespace
from typing import Any

import torch

from rewriter.probes.equivalence import externals, flash_attention
from rewriter.probes.equivalence.driving import Inputs, by_name, record
from rewriter.probes.equivalence.externals import Settings
from rewriter.probes.equivalence.graph import Graph
from rewriter.probes.equivalence.serving import Batch, Server
from rewriter.probes.equivalence.tensors import Conversions, OnHost

NO_PAGE = 2**31 - 1
"""What stands in a page table where nothing may be read."""


class Off:
    """An option that is off, whatever is asked of it."""

    def __init__(self, **known: Any) -> None:
        vars(self).update(known)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Off()

    def __bool__(self) -> bool:
        return False

    def __call__(self, *arguments: Any, **more: Any) -> Off:
        return self


class AttentionArch(Enum):
    """The kinds of attention of a model."""

    MLA = "latent"
    MHA = "multi-head"


class AttentionType(Enum):
    """What a layer attends to."""

    DECODER = "decoder"
    DECODER_BIDIRECTIONAL = "decoder, both sides"
    ENCODER_ONLY = "encoder"


class _InTwoHalves:
    """Context parallelism of one rank: the queries of one request in two halves, one by one."""

    @staticmethod
    def materialize_full_mla_kv(batch: Any, layer: Any, k: torch.Tensor, rope: Any) -> None:
        """Write the keys of all ranks, which are this rank's."""
        batch.token_to_kv_pool.set_mla_kv_buffer(layer, batch.out_cache_loc, k, rope)

    @staticmethod
    def run_attention(
        q: torch.Tensor, batch: Any, device: Any, attend: Any, **more: Any
    ) -> torch.Tensor:
        """Attend with each half, by its own row pointers and length."""
        half, total, length = q.shape[0] // 2, q.shape[0], int(batch.seq_lens[0])
        parts = []
        for first, last in ((0, half), (half, total)):
            ends = torch.tensor([length - total + last], dtype=torch.int32)
            starts = torch.tensor([0, last - first], dtype=torch.int32)
            parts.append(attend(q[first:last], starts, ends, last - first))
        return torch.cat(parts)


def names(settings: Settings) -> dict[str, Any]:
    """Return every name that has a stand-in, for one loaded copy of the file."""
    options = Off(speculative_num_draft_tokens=None, speculative_algorithm=None)
    two_halves = _InTwoHalves()
    known: dict[str, Any] = dict.fromkeys(
        ("get_exec", "get_memory", "get_model", "get_schedule", "get_spec",
         "get_global_server_args", "get_server_args"),
        lambda: options,
    )  # fmt: skip
    return {
        **externals.names(settings),
        **known,
        "AttentionArch": AttentionArch,
        "AttentionType": AttentionType,
        "SpeculativeAlgorithm": options,
        "CPAttentionBackendKind": SimpleNamespace(FLASH_ATTENTION="flash attention"),
        "cp_attn_forward_extend": lambda batch, q, device, attend: two_halves.run_attention(
            q, batch, device, attend
        ),
        "flash_attn_with_kvcache": flash_attention.flash_attn_with_kvcache,
        "get_compiler_backend": lambda *a, **k: "eager",
        "get_cp_strategy": lambda: two_halves,
        "get_device_capability": lambda *a, **k: (9, 0),
        "get_parallel": lambda: Off(attn_tp_size=1, attn_cp_size=1),
        "get_kv_shard_pool": lambda pool: None,
        "is_cp_active": lambda batch: batch.attn_cp_metadata is not None,
        "is_cp_v2_active": lambda batch: batch.attn_cp_metadata is not None,
        "jit": lambda function=None, **more: function or (lambda inner: inner),
        "merge_state_v2": flash_attention.merge_state_v2,
        "paged_view": flash_attention.paged_view,
        "register_custom_op": lambda function=None, **more: function or (lambda inner: inner),
    }


class _Inputs(Inputs):
    """The key comes in two parts to every layer; layers take turns with the query alone."""

    def forward(self, backend: Any, forward_batch: Any, tokens: int) -> list[Any]:
        """Run all layers; return what each returned."""
        shape = self._server.shape
        decode = forward_batch.forward_mode.is_decode_or_idle()
        method = backend.forward_decode if decode else backend.forward_extend
        outputs = []
        for layer in self._server.layers:
            q, k = self.q[layer.layer_id, :tokens], self.k[layer.layer_id, :tokens]
            nope, rope = k[..., : shape.rank], k[..., shape.rank :]
            parts: dict[str, Any] = {"q": q}
            if layer.layer_id % 2 == 0:
                parts = {"q": q[..., : shape.rank].contiguous(),
                         "q_rope": q[..., shape.rank :].contiguous()}  # fmt: skip
            outputs.append(by_name(
                method, layer=layer, forward_batch=forward_batch, k=nope, v=nope, k_rope=rope,
                **parts,
            ))  # fmt: skip
        return outputs


class PagedServer(Server):
    """One copy of a backend with page tables, its pool and its records."""

    names = staticmethod(names)

    def __post_init__(self) -> None:
        super().__post_init__()
        for layer in self.layers:
            vars(layer).update(
                is_cross_attention=False, attn_type=AttentionType.DECODER, use_irope=False,
                sliding_window_size=-1, k_scale=None, v_scale=None,
            )  # fmt: skip

    def runner(self) -> SimpleNamespace:
        """Return the model runner that the backend is made with."""
        runner = super().runner()
        kinds = {torch.float8_e4m3fn: "fp8_e4m3", torch.float8_e5m2: "fp8_e5m2"}
        kind = kinds.get(self.shape.pool_dtype, "auto")
        vars(runner.model_config).update(
            attention_arch=AttentionArch.MLA, is_encoder_decoder=False, head_dim=self.shape.width,
            is_local_attention_model=False, get_num_kv_heads=lambda size: 1,
            hf_text_config=SimpleNamespace(num_attention_heads=self.shape.heads),
        )  # fmt: skip
        vars(runner).update(
            server_args=Off(kv_cache_dtype=kind, speculative_num_draft_tokens=None),
            kv_cache_dtype_str=kind, sliding_window_size=None, attention_chunk_size=None,
            is_hybrid=False, is_draft_worker=False, attn_cp_size=1, tp_size=1,
            ps=SimpleNamespace(attn_cp_size=1, tp_size=1), is_hybrid_swa=False,
        )  # fmt: skip
        runner.kv_index_translator = SimpleNamespace(is_translating=False)
        return runner

    def backend(self) -> Any:
        """Make the attention backend."""
        with OnHost():
            made = self.module.FlashAttentionBackend(self.runner())
        made.num_attention_heads, made.attn_cp_size = self.shape.heads, 1
        return made

    def forward_batch(self, batch: Batch) -> SimpleNamespace:
        """Return ``batch`` as a ForwardBatch."""
        made = super().forward_batch(batch)
        made.attn_cp_metadata = None
        made.encoder_out_cache_loc = None
        return made

    def pages(self, batch: Batch, lengths: Sequence[int]) -> torch.Tensor:
        """Return the page table of a batch: a slice with columns to spare, no pages behind."""
        size = self.shape.page
        used = [-(-length // size) for length in lengths]
        wide = torch.full((len(used) + 2, max(used, default=0) + 5), NO_PAGE, dtype=torch.int32)
        for row, count in enumerate(used):
            slots = self.rows_of(self.table[batch.first + row])
            wide[row, :count] = (slots[::size] // size)[:count]
        return wide[: len(used), : max(used, default=0) + 1]

    def metadata(self, batch: Batch, lengths: Sequence[int]) -> Any:
        """Return the metadata of a batch whose requests have ``lengths`` keys in the table."""
        made = self.module.FlashAttentionMetadata()
        made.cache_seqlens_int32 = torch.tensor(lengths, dtype=torch.int32)
        made.cu_seqlens_q = _starts(batch.tokens)
        made.cu_seqlens_k = _starts(lengths)
        made.max_seq_len_q = max(batch.tokens, default=1)
        made.max_seq_len_k = max(lengths, default=0)
        made.page_table = self.pages(batch, lengths)
        return made

    def whole_pages(self, lengths: Sequence[int]) -> int:
        """Return the rows of all pages that requests of these lengths refer to."""
        size = self.shape.page
        return sum(-(-length // size) * size for length in lengths)


def _starts(lengths: Sequence[int]) -> torch.Tensor:
    ends = torch.tensor([0, *lengths], dtype=torch.int32)
    return ends.cumsum(0).to(torch.int32)


def step(
    server: PagedServer, backend: Any, batch: Batch, metadata: Any = None, **changes: Any
) -> None:
    """Run one step without graphs and record it."""
    backend.forward_metadata = metadata or server.metadata(batch, batch.reads)
    forward_batch = server.forward_batch(batch)
    vars(forward_batch).update(changes)
    tokens = sum(batch.tokens)
    inputs = _Inputs(server, tokens)
    with OnHost(), Conversions() as conversions:
        outputs = inputs.forward(backend, forward_batch, tokens)
    record(server, outputs, [server.whole_pages(batch.reads)], conversions)


class PagedGraphs:
    """One graph for every batch size: tables and lengths in memory that replays write in place.

    Idle lanes have one key and whatever page an earlier batch left in the first place of their
    row; behind a length stand no pages.
    """

    def __init__(
        self, server: PagedServer, backend: Any, sizes: Sequence[int], like: Batch
    ) -> None:
        self.server, self.backend, self.like = server, backend, like
        self.per_lane = like.window or 1
        lanes = max(sizes)
        columns = -(-server.table.shape[1] // server.shape.page)
        self.table = torch.zeros(lanes + 1, columns + 3, dtype=torch.int32)
        self.lengths = torch.ones(lanes, dtype=torch.int32)
        self.out_cache_loc = torch.zeros(lanes * self.per_lane, dtype=torch.int64)
        self.inputs = _Inputs(server, lanes * self.per_lane)
        self.graphs = {size: self._capture(size) for size in sorted(sizes, reverse=True)}

    def _capture(self, lanes: int) -> tuple[Graph, list[Any]]:
        batch = Batch(self.like.kind, (1,) * lanes, window=self.like.window, spec=self.like.spec)
        view = self.server.forward_batch(batch)
        view.out_cache_loc = self.out_cache_loc[: lanes * self.per_lane]
        metadata = self.server.metadata(batch, batch.reads)
        metadata.page_table = self.table[:lanes, :-3]
        metadata.cache_seqlens_int32 = self.lengths[:lanes]
        self.backend.forward_metadata = metadata
        tokens = lanes * self.per_lane
        with OnHost():
            self.inputs.forward(self.backend, view, tokens)  # the warm-up
            with Graph() as graph:
                outputs = self.inputs.forward(self.backend, view, tokens)
        return graph, outputs

    def replay(self, batch: Batch) -> None:
        """Replay ``batch`` on the smallest graph that holds it, and record the real lanes."""
        real = len(batch.lengths)
        lanes = min(size for size in self.graphs if size >= real)
        tokens = real * self.per_lane
        pages = self.server.pages(batch, batch.reads)
        self.table[:, 1:] = NO_PAGE
        self.table[:real, : pages.shape[1]] = pages
        self.lengths.fill_(1)
        self.lengths[:real] = torch.tensor(batch.reads, dtype=torch.int32)
        self.out_cache_loc.zero_()
        self.out_cache_loc[:tokens] = self.server.forward_batch(batch).out_cache_loc
        self.inputs.refill(tokens)
        graph, outputs = self.graphs[lanes]
        with Conversions() as conversions:
            graph.replay()
        listed = self.server.whole_pages([*batch.reads, *(1,) * (lanes - real)])
        record(self.server, [output[:tokens] for output in outputs], [listed], conversions)
