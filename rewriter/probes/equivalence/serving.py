"""The stand-in server around a backend: pools, model runner, layers, batches."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from rewriter.probes.equivalence.externals import ForwardMode, Settings, names
from rewriter.probes.equivalence.indices import Translator
from rewriter.probes.equivalence.tensors import FP8


@dataclass(frozen=True)
class Shape:
    """Sizes of the stand-in model and its pool; small, as the bits do not depend on them.

    Attributes:
        rank: kv_lora_rank, elements of a compressed key.
        rope: qk_rope_head_dim; a row of the pool holds ``rank + rope`` elements.
        slots: tokens that the pool holds; it has one more row, for padding.
        context: the longest request.
        requests: rows of the request table.
        shared: tokens at the start of all requests that lie in the same slots.
        pool_dtype: what the pool holds.
        dtype: the model's dtype, the query's.
        strided: whether the layers of a token lie side by side, so that a layer's rows do not.
        packed_width: bytes of a row in a packed layout, instead of ``rank + rope`` elements.
        mapped: whether requests hold virtual ids, which a translator maps to rows.
        page: tokens that lie side by side; the pool's padding is a page.
    """

    heads: int = 2
    rank: int = 16
    rope: int = 8
    layers: int = 2
    slots: int = 96
    context: int = 14
    requests: int = 6
    shared: int = 0
    pool_dtype: torch.dtype = torch.float8_e4m3fn
    dtype: torch.dtype = torch.bfloat16
    strided: bool = False
    packed_width: int | None = None
    mapped: bool = False
    page: int = 1

    @property
    def width(self) -> int:
        """Elements of a row that attention reads."""
        return self.rank + self.rope

    @property
    def rows(self) -> int:
        """Rows of the pool, the padding page included."""
        return self.slots + self.page


class Pool:
    """An MLA pool: ``kv_buffer`` holds (rows, 1, width) bytes or model values, layer by layer."""

    def __init__(self, shape: Shape, generator: torch.Generator) -> None:
        self.dtype = shape.pool_dtype
        self.store_dtype = torch.uint8 if self.dtype in FP8 else self.dtype
        self._shape = shape
        width = shape.packed_width or shape.width
        size = (shape.rows, shape.layers, 1, width)
        values = torch.randn(size, generator=generator).to(self.dtype)
        stored = values.view(self.store_dtype)
        layers = [stored[:, layer] for layer in range(shape.layers)]
        self.kv_buffer = layers if shape.strided else [layer.contiguous() for layer in layers]
        self.reads = 0

    def get_key_buffer(self, layer_id: int) -> torch.Tensor:
        """Return a layer's rows, (rows, 1, width) in the pool's dtype: a view."""
        self.reads += 1
        return self.kv_buffer[layer_id].view(self.dtype)

    def set_kv_buffer(
        self, layer: Any, loc: torch.Tensor, cache_k: torch.Tensor, cache_v: torch.Tensor
    ) -> None:
        """Store (tokens, 1, width) keys in the slots ``loc``."""
        buffer = self.kv_buffer[layer.layer_id]
        rows = cache_k.reshape(-1, 1, self._shape.width).to(self.dtype).view(self.store_dtype)
        buffer[loc, :, : self._shape.width] = rows

    def set_mla_kv_buffer(
        self, layer: Any, loc: torch.Tensor, cache_k_nope: torch.Tensor, cache_k_rope: torch.Tensor
    ) -> None:
        """Store keys that come as (tokens, 1, rank) and (tokens, 1, rope)."""
        self.set_kv_buffer(layer, loc, torch.cat([cache_k_nope, cache_k_rope], -1), cache_k_nope)


@dataclass(frozen=True)
class Batch:
    """The requests of one step.

    Attributes:
        kind: the kind of forward pass.
        lengths: keys of each request, this step's included unless ``window`` counts them apart.
        extends: tokens computed for each request; empty for one each.
        first: row of the request table of the first request, the others follow it.
        window: drafted tokens a request, for verification and draft extension.
        spec: the kind of ``spec_info``, for speculative passes.
        overstated: how much more the host's sum of lengths says than there is.
    """

    kind: ForwardMode
    lengths: tuple[int, ...]
    extends: tuple[int, ...] = ()
    first: int = 0
    window: int = 0
    spec: str = ""
    overstated: int = 0

    @property
    def tokens(self) -> tuple[int, ...]:
        """Tokens computed for each request."""
        if self.window:
            return (self.window,) * len(self.lengths)
        return self.extends or (1,) * len(self.lengths)

    @property
    def reads(self) -> tuple[int, ...]:
        """Keys that each request's attention reads."""
        if self.kind is ForwardMode.TARGET_VERIFY:
            return tuple(length + self.window for length in self.lengths)
        return self.lengths


@dataclass
class Call:
    """What one layer's forward did: its output, the rows it referred to, the rows it converted."""

    output: torch.Tensor
    listed: int
    converted: float


@dataclass
class Server:
    """One copy of the file, loaded, with its pool, its random numbers and its records."""

    module: ModuleType
    shape: Shape
    settings: Settings
    companion: ModuleType | None = None
    seed: int = 0
    calls: list[Call] = field(default_factory=list)

    names = staticmethod(names)

    def __post_init__(self) -> None:
        shape = self.shape
        self.random = torch.Generator().manual_seed(self.seed)
        self.pool = Pool(shape, self.random)
        self.table = self._request_table()
        self.mapping = (
            torch.cat([torch.zeros(1), 1 + torch.randperm(shape.slots, generator=self.random)])
            .to(torch.int64)
            if shape.mapped
            else None
        )  # fmt: skip
        self.translator = Translator(self.table, self.mapping)
        self.layers = [
            SimpleNamespace(
                layer_id=layer, tp_q_head_num=shape.heads, tp_k_head_num=1, tp_v_head_num=1,
                head_dim=shape.width, qk_head_dim=shape.width, v_head_dim=shape.rank,
                scaling=shape.width**-0.5, logit_cap=0.0,
            )
            for layer in range(shape.layers)
        ]  # fmt: skip

    def _request_table(self) -> torch.Tensor:
        """Return (requests, context + 8) int32 slots: shared at the start, else each its own.

        Under context parallelism ids are those of all ranks; this rank holds ``id // ranks``.
        """
        shape, ranks = self.shape, self.settings.shards.size
        if shape.page > 1:
            pages = 1 + torch.randperm(shape.slots // shape.page, generator=self.random)
            slots = pages[:, None] * shape.page + torch.arange(shape.page)
            width = (shape.context + 8) // shape.page * shape.page
            return slots.flatten()[: shape.requests * width].view(shape.requests, -1).int()
        own = shape.context + 8 - shape.shared
        order = 1 + torch.randperm(shape.slots, generator=self.random)
        needed = shape.shared + own * shape.requests
        order = order.repeat(-(-needed // shape.slots))
        head = order[: shape.shared].expand(shape.requests, -1)
        tail = order[shape.shared : needed].view(shape.requests, own)
        table = torch.cat([head, tail], 1).to(torch.int32)
        if ranks > 1:
            table = table * ranks + torch.arange(table.shape[1], dtype=torch.int32) % ranks
        return table

    def runner(self) -> SimpleNamespace:
        """Return the model runner that backends are made with."""
        shape = self.shape
        config = SimpleNamespace(
            context_len=shape.context + 8, num_attention_heads=shape.heads,
            kv_lora_rank=shape.rank, qk_nope_head_dim=shape.rank, qk_rope_head_dim=shape.rope,
            v_head_dim=shape.rank, scaling=shape.width**-0.5,
        )  # fmt: skip
        return SimpleNamespace(
            model_config=config,
            device="cpu",
            dtype=shape.dtype,
            kv_cache_dtype=shape.pool_dtype,
            page_size=shape.page,
            req_to_token_pool=SimpleNamespace(size=shape.requests + 2, req_to_token=self.table),
            token_to_kv_pool=self.pool,
            token_to_kv_pool_allocator=SimpleNamespace(mapping=self.mapping),
            kv_index_translator=self.translator,
            server_args=self.settings.arguments(),
        )

    def backend(self) -> Any:
        """Make the attention backend."""
        return self.module.FlashInferMLAAttnBackend(self.runner())

    def numbers(self, *size: int) -> torch.Tensor:
        """Return the next random numbers, in the model's dtype."""
        return torch.randn(size, generator=self.random).to(self.shape.dtype)

    def rows_of(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the pool's rows of ids that requests hold."""
        ids = ids.long()
        if self.mapping is not None:
            return self.mapping[ids]
        return ids // self.settings.shards.size

    def forward_batch(self, batch: Batch) -> SimpleNamespace:
        """Return ``batch`` as a ForwardBatch, with every attribute that a release reads."""
        lengths = torch.tensor(batch.lengths, dtype=torch.int64)
        tokens = batch.tokens
        prefixes = [r - t for r, t in zip(batch.reads, tokens, strict=True)]
        requests = torch.arange(batch.first, batch.first + len(tokens))
        new = [
            self.table[batch.first + i, prefix : prefix + count]
            for i, (prefix, count) in enumerate(zip(prefixes, tokens, strict=True))
        ]
        ids = torch.cat(new) if new else torch.zeros(0, dtype=torch.int32)
        positions = [
            torch.arange(prefix, prefix + count)
            for prefix, count in zip(prefixes, tokens, strict=True)
        ]
        return SimpleNamespace(
            forward_mode=batch.kind,
            batch_size=len(tokens),
            req_pool_indices=requests,
            seq_lens=lengths,
            seq_lens_cpu=lengths.clone(),
            seq_lens_sum=int(lengths.sum()) + batch.overstated,
            positions=torch.cat(positions) if positions else torch.zeros(0, dtype=torch.int64),
            out_cache_loc=self.rows_of(ids),
            extend_prefix_lens=torch.tensor(prefixes, dtype=torch.int64),
            extend_prefix_lens_cpu=prefixes,
            extend_seq_lens=torch.tensor(tokens, dtype=torch.int64),
            attn_attend_prefix_cache=None,
            attn_dcp_metadata=None,
            mha_return_lse=False,
            mha_one_shot=False,
            num_prefix_chunks=None,
            encoder_lens=None,
            kv_loc_plan=SimpleNamespace(),
            spec_info=self.spec_info(batch),
            token_to_kv_pool=self.pool,
            req_to_token_pool=SimpleNamespace(req_to_token=self.table),
        )

    def spec_info(self, batch: Batch) -> Any:
        """Return the ``spec_info`` that goes with ``batch``."""
        from rewriter.probes.equivalence import spec_inputs as spec

        if batch.spec == "verify":
            return spec.EagleVerifyInput(batch.window)
        if batch.spec == "dflash":
            return spec.EagleVerifyInput(batch.window, spec.SpecInputType.DFLASH_VERIFY)
        if batch.spec == "extend":
            accepted = torch.full((len(batch.lengths),), batch.window, dtype=torch.int32)
            return spec.EagleDraftInput(accepted, batch.window)
        if batch.spec == "draft":
            return spec.EagleDraftInput()
        return None


def padded(batch: Batch, lanes: int, fill: int) -> Batch:
    """Return ``batch`` with idle lanes of ``fill`` keys behind it, as a captured graph pads it."""
    return replace(batch, lengths=batch.lengths + (fill,) * (lanes - len(batch.lengths)))
