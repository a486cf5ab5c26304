"""Gather-then-cast for MLA's paged KV cache: convert the rows a batch reads, not the whole pool.

FlashInfer's MLA kernels and FlashAttention 3 want keys in the query's dtype. With an FP8 pool the
backends therefore convert the WHOLE pool on every layer of every step. This module converts only
what is read. Its five functions are called from the patched backends and nowhere else:

``attach``  in the backend's constructor: what kind of pool is served, known once.
``plan``    around the index argument of every plan call: decides the mode for this wrapper.
``gather``  around the pool's buffer, in front of the cast: hands over converted rows, or the
            untouched pool, which the cast that still follows converts as it always did.
``pages``   the same for a kernel with a page table: converts the pages that the table refers to.
            It keeps nothing between two calls; table and lengths are those of the kernel.
``writer``  around the pool's write method: this step's keys are narrowed to FP8 by one kernel
            instead of two, before the method that would do it itself.

So whatever this module leaves alone behaves exactly as without it. It imports torch and, where
there is one, Triton; nothing else. ``SGLANG_KV_GATHER`` in the environment, read at import:
``on`` (default), ``off`` (the original), ``debug`` (compact mode is compared bit by bit with the
whole cast on every run and raises on a difference; slow, and eager only).
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any

import torch

try:
    import triton
    import triton.language as tl
except ImportError:  # CPU builds: the pure-torch path below does the same work
    triton = None

VERSION = "1"

logger = logging.getLogger(__name__)

SWITCH = os.environ.get("SGLANG_KV_GATHER", "on").strip().lower()
if SWITCH not in ("on", "off", "debug"):
    raise ValueError(f"SGLANG_KV_GATHER must be on, off or debug, not {SWITCH!r}")

_FORMATS = {
    torch.float8_e4m3fn: "e4m3fn",
    torch.float8_e5m2: "e5m2",
    torch.float8_e4m3fnuz: "e4m3fnuz",
}


class Mode(Enum):
    """How a planned wrapper gets its keys."""

    UNTOUCHED = "untouched"
    WHOLE = "whole pool"
    COMPACT = "compact"
    SCATTER = "scatter"


@dataclass(frozen=True)
class Pool:
    """What the constructor knows of the pool. ``rows`` counts the padding page too."""

    rows: int
    width: int
    dtype: torch.dtype
    query_dtype: torch.dtype


@dataclass
class Planned:
    """What ``plan`` leaves on a wrapper for ``gather``.

    Attributes:
        mode: the decision; it holds until the wrapper is planned again.
        count: (1,) int32 on the device, the rows in use; written at every plan, never moved, so
            that a captured graph finds the count of the replay here.
        rows: (n,) pool rows in the order of the plan, for COMPACT only. A graph reads the
            wrapper's own index buffer instead: what a plan call names at capture time is the
            whole static buffer.
        buffer: (rows, 1, width) in the query's dtype, for SCATTER only.
    """

    mode: Mode
    count: torch.Tensor
    rows: torch.Tensor | None = None
    buffer: torch.Tensor | None = None


_buffers: dict[tuple[torch.device, int, int, torch.dtype], torch.Tensor] = {}
_told = False


def attach(backend: Any, model_runner: Any) -> None:
    """Note on ``backend`` what pool it reads, or None where there is nothing to gain.

    Nothing to gain: keys already in the query's dtype, packed rows (656 bytes, or 4-bit: their
    width is not kv_lora_rank + qk_rope_head_dim), or a pool of a kind unknown here.
    """
    backend._kv_gather_pool = None
    config = model_runner.model_config
    rank, rope = (getattr(config, n, None) for n in ("kv_lora_rank", "qk_rope_head_dim"))
    if rank is None or rope is None:
        return  # a model without latent attention, on a backend that serves both
    pool = model_runner.token_to_kv_pool
    pool = getattr(pool, "full_kv_pool", pool)  # hybrid models keep the MLA layers in here
    buffers = getattr(pool, "kv_buffer", None)
    width = rank + rope
    if buffers and buffers[0].shape[-1] == width and pool.dtype in _FORMATS:
        backend._kv_gather_pool = Pool(buffers[0].shape[0], width, pool.dtype, model_runner.dtype)
        _past_range(buffers[0].device)


def decide(pool: Pool | None, listed: int, graph: bool, elsewhere: bool, fused: bool) -> Mode:
    """Choose a wrapper's mode from what the host knows; no device value is read.

    ==========================================================  =========  =====================
    case                                                        mode       indices of the plan
    ==========================================================  =========  =====================
    switched off, or no pool that gains (see ``attach``)        untouched  as given
    the indices are no rows of the pool: they point into        untouched  as given
    another buffer (DCP prefill) or stand for pages
    CUDA-graph wrapper (decode, verify, draft): any row count,  scatter    as given
    the kernel bounds itself by the pool
    CUDA-graph wrapper without Triton                           untouched  as given
    eager, as many rows listed as the pool has, or more         whole      as given
    (shared prefixes list a row once a request)
    eager, fewer rows                                           compact    0 .. n-1
    ==========================================================  =========  =====================

    Args:
        pool: what ``attach`` found.
        listed: length of the index argument, an upper bound of the rows in use.
        graph: whether the wrapper was built for CUDA graphs.
        elsewhere: whether the plan's indices are something else than rows of the pool.
        fused: whether the Triton kernel can run.
    """
    if SWITCH == "off" or pool is None or elsewhere:
        return Mode.UNTOUCHED
    if graph:
        return Mode.SCATTER if fused else Mode.UNTOUCHED
    return Mode.COMPACT if listed < pool.rows else Mode.WHOLE


def plan(
    wrapper: Any,
    kv_indices: torch.Tensor,
    kv_indptr: torch.Tensor,
    backend: Any,
    other_buffer: Any = None,
    page_size: int = 1,
) -> torch.Tensor:
    """Decide the mode for ``wrapper`` and return the indices that its plan call shall get.

    Args:
        wrapper: the wrapper that is being planned; the decision is kept on it.
        kv_indices: (n,) int32 pool rows, request after request; n may exceed the rows in use.
        kv_indptr: (requests + 1,) int32 on the device; its last value is the rows in use. Always
            the local device tensor: replays hand a host tensor to the plan itself, and the
            wrapper's own copy is not refreshed by the fast plans.
        backend: the backend that ``attach`` saw.
        other_buffer: metadata of another buffer that the indices may point into, or None.
        page_size: tokens an index stands for; 1 but in release 0.5.1.
    """
    pool = getattr(backend, "_kv_gather_pool", None)
    graph = bool(getattr(wrapper, "_use_cuda_graph", False))
    elsewhere = other_buffer is not None or page_size != 1
    mode = decide(pool, kv_indices.shape[0], graph, elsewhere, _fused(kv_indices))
    planned: Planned | None = getattr(wrapper, "_kv_gather", None)
    if planned is None:
        planned = Planned(mode, kv_indptr.new_zeros(1))
        wrapper._kv_gather = planned
    planned.mode, planned.rows = mode, None
    if pool is None or mode is Mode.UNTOUCHED or mode is Mode.WHOLE:
        return kv_indices
    planned.count.copy_(kv_indptr[-1:])
    if mode is Mode.SCATTER:
        if planned.buffer is None:
            planned.buffer = _pool_shaped(pool, kv_indices.device)
        return kv_indices
    planned.rows = kv_indices
    return torch.arange(kv_indices.shape[0], dtype=kv_indices.dtype, device=kv_indices.device)


def gather(wrapper: Any, pool: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the keys for ``wrapper.run``, converted to ``dtype`` where that was decided.

    Runs per layer and after this step's keys were written: what it reads is what a cast at this
    place would have read. Rows behind the count are not written; no kernel reads them.

    Args:
        wrapper: the wrapper about to run.
        pool: (rows, 1, width), one layer's keys; rows may be strided.
        dtype: the query's dtype.

    Returns:
        ``pool`` itself (untouched, whole pool), (n, 1, width) rows in the order of the plan
        (compact), or (rows, 1, width) with the rows in use converted in place (scatter).
    """
    planned: Planned | None = getattr(wrapper, "_kv_gather", None)
    if planned is None:
        return pool
    if not _told:
        _tell(planned.mode.value, pool)
    rows = planned.rows
    if planned.mode is Mode.COMPACT and rows is not None:
        out = torch.empty((rows.shape[0], *pool.shape[1:]), dtype=dtype, device=pool.device)
        convert(pool, rows, planned.count, out, scatter=False)
        if SWITCH == "debug":
            _compare(pool, rows, planned.count, out)
        return out
    shared = planned.buffer
    if planned.mode is Mode.SCATTER and shared is not None:
        rows = wrapper._kv_indices_buf
        if rows is not None and shared.shape == pool.shape and shared.dtype == dtype:
            convert(pool, rows, planned.count, shared, scatter=True)
            return shared
    return pool


def convert(
    pool: torch.Tensor, rows: torch.Tensor, count: torch.Tensor, out: torch.Tensor, scatter: bool
) -> None:
    """Convert ``pool[rows[:count]]`` into ``out``: densely, or each row at its own place.

    Never more than ``pool.shape[0]`` rows when scattering: from there on the pool is converted
    once, in order. One pass: a row of w elements costs w bytes read and 2 w written.

    Args:
        pool: (p, 1, w) FP8, read as bytes.
        rows: (n,) int32.
        count: (1,) int32 on the device.
        out: (n, 1, w) or, when scattering, (p, 1, w); 16-bit floats.
    """
    if rows.shape[0] == 0:
        return
    if _fused(pool):
        _convert_fused(pool, rows, count, out, scatter)
    else:
        _convert_torch(pool, rows, count, out, scatter)


def _convert_torch(
    pool: torch.Tensor, rows: torch.Tensor, count: torch.Tensor, out: torch.Tensor, scatter: bool
) -> None:
    """Do the same without Triton, in several passes; scattering is for the host only."""
    if _on_host(pool):  # reading a value costs nothing here
        rows = rows[: int(count)]
        if scatter and rows.shape[0] >= pool.shape[0]:
            out.copy_(pool)
            return
    else:  # the tail is no index: read row 0 in its place
        places = torch.arange(rows.shape[0], device=rows.device)
        rows = torch.where(places < count, rows, 0)
    # Indexing is not implemented for every FP8 dtype on every device: bytes always work.
    part = pool.view(torch.uint8)[rows.long()].view(pool.dtype).to(out.dtype)
    if scatter:
        out[rows.long()] = part
    else:
        out[: rows.shape[0]] = part


def pages(
    backend: Any,
    pool: torch.Tensor,
    page_table: torch.Tensor,
    cache_seqlens: torch.Tensor,
    dtype: torch.dtype,
    whole: bool = False,
) -> torch.Tensor:
    """Return the keys that a kernel with a page table reads, converted to ``dtype``.

    ==========================================================  ================================
    case                                                        returned
    ==========================================================  ================================
    switched off; the pool has that dtype; a dtype that is no   the pool: the cast that follows
    FP8 or no float; another kernel reads it by another table   does what it always did
    (``whole``); FlashAttention 4; a layout that is not known;
    a GPU without Triton
    as many rows in use as the pool has, or more (pages that    a new tensor, all of it converted
    requests share count once a request)
    fewer                                                       a new tensor of the pool's shape,
                                                                the pages in use converted
    ==========================================================  ================================

    The new tensor takes the place of the one that the cast would make: the same memory, from the
    same allocator, on the same stream, inside a graph or not. Pages that nothing refers to are not
    written; no kernel reads them. A page that several requests share is converted by each of
    them: the same bytes into the same place. No device value is read on the host.

    Args:
        backend: has ``page_size``, the tokens of a page.
        pool: (rows, 1, width), one layer's keys; rows may be strided.
        page_table: (requests, n) pages, as the kernel gets them; behind a request's length
            anything may stand. A slice of a wider table will do.
        cache_seqlens: (requests,) tokens of each request, as the kernel gets them.
        dtype: the query's dtype.
        whole: whether another kernel reads the converted keys as well, by a table of its own.
    """
    if whole or pool.dtype == dtype or SWITCH == "off":
        return pool
    size = backend.page_size
    if not _paged(pool, page_table, cache_seqlens, dtype, size):
        return pool
    if getattr(backend, "fa_impl_ver", 3) != 3 or not (_fused(pool) or _on_host(pool)):
        return pool
    if not _told:
        _tell("pages", pool)
    out = torch.empty(pool.shape, dtype=dtype, device=pool.device)
    if page_table.numel() > 0:
        convert = _convert_pages_fused if _fused(pool) else _convert_pages_torch
        convert(pool, page_table, cache_seqlens, out, size)
        if SWITCH == "debug":
            _compare_pages(pool, page_table, cache_seqlens, out, size)
    return out


def _paged(
    pool: torch.Tensor, table: torch.Tensor, lengths: torch.Tensor, dtype: torch.dtype, size: int
) -> bool:
    """Return whether the kernel for pages is right for these tensors; no device value is read."""
    return (
        pool.dtype in _FORMATS
        and dtype in (torch.bfloat16, torch.float16, torch.float32)
        and pool.dim() == 3
        and pool.shape[1] == 1
        and pool.stride(2) == 1
        and pool.shape[0] % size == 0
        and table.dim() == 2
        and lengths.dim() == 1
        and table.shape[0] == lengths.shape[0]
        and table.device == lengths.device == pool.device
    )


def _pages_in_use(table: torch.Tensor, lengths: torch.Tensor, size: int) -> torch.Tensor:
    """Return the pages in use, request after request; reads device values."""
    used = -(-lengths.clamp(min=0) // size)
    return table[torch.arange(table.shape[1], device=table.device) < used[:, None]].long()


def _convert_pages_torch(
    pool: torch.Tensor, table: torch.Tensor, lengths: torch.Tensor, out: torch.Tensor, size: int
) -> None:
    """Do what the kernel does, on the host."""
    listed = _pages_in_use(table, lengths, size)
    if listed.shape[0] * size >= pool.shape[0]:
        out.copy_(pool)
        return
    part = pool.view(torch.uint8).view(-1, size, 1, pool.shape[2])[listed]
    out.view(-1, size, 1, pool.shape[2])[listed] = part.view(pool.dtype).to(out.dtype)


def _on_host(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu"


def _fused(tensor: torch.Tensor) -> bool:
    return triton is not None and tensor.is_cuda


def _capturing() -> bool:
    return torch.cuda.is_current_stream_capturing()


def _pool_shaped(pool: Pool, device: torch.device) -> torch.Tensor:
    """Return the buffer that all graph wrappers and layers of a device share.

    Zeroed once: rows outside a batch are never read, but must not hold NaN for kernels that load
    whole tiles. Asked for while planning, so outside of any capture.
    """
    key = (device, pool.rows, pool.width, pool.query_dtype)
    if key not in _buffers:
        _buffers[key] = torch.zeros(
            (pool.rows, 1, pool.width), dtype=pool.query_dtype, device=device
        )
    return _buffers[key]


def _tell(mode: str, pool: torch.Tensor) -> None:
    global _told
    _told = True
    logger.info(
        "kv_gather runs: version %s, %s, first mode %s, pool of %d rows",
        VERSION,
        pool.device,
        mode,
        pool.shape[0],
    )


def _compare(
    pool: torch.Tensor, rows: torch.Tensor, count: torch.Tensor, out: torch.Tensor
) -> None:
    used = int(count)
    whole = pool.to(out.dtype)[rows[:used].long()]
    bad = (whole != out[:used]) & ~(whole.isnan() & out[:used].isnan())
    if bool(bad.any()):
        first = int(bad.flatten(1).any(1).nonzero()[0])
        raise RuntimeError(
            f"SGLANG_KV_GATHER=debug: row {int(rows[first])} (place {first} of {used}) differs "
            f"from the whole cast in {int(bad[first].sum())} of {out.shape[-1]} values"
        )


def _compare_pages(
    pool: torch.Tensor, table: torch.Tensor, lengths: torch.Tensor, out: torch.Tensor, size: int
) -> None:
    if _capturing():
        return
    for page in sorted(set(_pages_in_use(table, lengths, size).tolist())):
        rows = slice(page * size, (page + 1) * size)
        whole, got = pool[rows].to(out.dtype), out[rows]
        if bool(((whole != got) & ~(whole.isnan() & got.isnan())).any()):
            raise RuntimeError(
                f"SGLANG_KV_GATHER=debug: page {page} of {size} tokens differs from the whole cast"
            )


if triton is not None:

    @triton.jit
    def _to_float(byte, FORMAT: tl.constexpr):  # noqa: N803
        """Decode FP8 by its bits: exact, and the same on every architecture.

        A float16 holds the bits of all three formats, subnormals included, up to a power of two.
        No float32 on the way is subnormal: nothing depends on whether those are flushed to zero.
        """
        if FORMAT == "native":  # e4m3fn where the hardware has it
            return byte.to(tl.float8e4nv, bitcast=True).to(tl.float32)
        bits = byte.to(tl.uint32)
        if FORMAT == "e5m2":  # a float16 without its low byte, infinities and NaN included
            value = (bits << 8).to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)
        else:
            half = ((bits & 0x7F) << 7 | (bits & 0x80) << 8).to(tl.uint16)
            value = half.to(tl.float16, bitcast=True).to(tl.float32)
            if FORMAT == "e4m3fn":
                value = value * 256.0  # 2 ** (15 - 7), the biases
                value = tl.where((bits & 0x7F) == 0x7F, float("nan"), value)
            else:
                value = value * 128.0  # 2 ** (15 - 8)
                value = tl.where(bits == 0x80, float("nan"), value)
        return value

    @triton.jit
    def _rows_in_use(length, columns, PAGE: tl.constexpr):  # noqa: N803
        """Return the rows of all pages that a request of this length refers to."""
        return tl.minimum((tl.maximum(length, 0) + PAGE - 1) // PAGE, columns).to(tl.int32) * PAGE

    @triton.jit
    def _page_in_pool(page, pages):
        """Return a page for every entry of a table: one that is no page becomes page 0.

        The kernel writes where an entry leads; page 0 then gets what it would get anyway. A mask
        would cost more.
        """
        return tl.where((page >= 0) & (page < pages), page, 0)

    @triton.jit
    def _convert_kernel(
        pool, entries, count, out, pool_rows, pool_stride, limit,
        WIDTH: tl.constexpr, VEC: tl.constexpr, CHUNKS: tl.constexpr,  # noqa: N803
        PAGE: tl.constexpr, TABLE: tl.constexpr,  # noqa: N803
        FORMAT: tl.constexpr, SCATTER: tl.constexpr, PDL: tl.constexpr,  # noqa: N803
    ):  # fmt: skip
        """Convert the pages of one list in chunks of VEC elements, one a thread: 16 bytes in, 32
        out.

        The list holds rows (pages of 1), or is one request's line of a page table. Its entries
        are loaded beside the count, not behind it, and one turn ahead: at small counts the
        kernel's time is the latency of dependent loads. Chunks are counted in 32 bits: enough for
        59 million rows of 576; addresses are 64 bits wide.
        """
        per_row: tl.constexpr = WIDTH // VEC
        per_page: tl.constexpr = per_row * PAGE
        step = tl.num_programs(0) * CHUNKS
        lane = tl.arange(0, VEC)[None, :]
        chunk = tl.program_id(0) * CHUNKS + tl.arange(0, CHUNKS)
        page = tl.load(entries + chunk // per_page, mask=chunk < limit * per_page, other=0)
        used = _rows_in_use(tl.load(count), limit, PAGE)
        whole = SCATTER and used >= pool_rows
        total = used * per_row
        if PDL:
            # The kernel before writes this step's keys. Entries and count are older: they were
            # written before kernels that have all completed by now.
            tl.extra.cuda.gdc_wait()
        for _ in range(tl.program_id(0) * CHUNKS, total, step):
            ahead = chunk + step
            next_page = tl.load(entries + ahead // per_page, mask=ahead < limit * per_page, other=0)
            live = (chunk < total)[:, None]
            place = chunk // per_row
            if TABLE:
                page = _page_in_pool(page, pool_rows // PAGE)
            row = page * PAGE + place % PAGE
            if whole:
                row = place
            column = (chunk % per_row) * VEC
            source = row.to(tl.int64) * pool_stride + column
            if SCATTER:
                target = row.to(tl.int64) * WIDTH + column
            else:
                target = place.to(tl.int64) * WIDTH + column
            # Read once: leaving L1 to the row numbers took 1.6 us a layer off a served step at
            # 8,000 rows (one H200), and changes nothing alone.
            byte = tl.load(
                pool + source[:, None] + lane, mask=live, other=0, eviction_policy="evict_first"
            )
            value = _to_float(byte, FORMAT).to(out.dtype.element_ty)
            tl.store(out + target[:, None] + lane, value, mask=live)
            chunk = ahead
            page = next_page

    @triton.jit(do_not_specialize=["batch", "columns", "table_stride"])
    def _convert_pages_kernel(
        pool, table, lengths, out, pool_rows, pool_stride, batch, columns,
        table_stride, entry_stride, length_stride,
        WIDTH: tl.constexpr, VEC: tl.constexpr, CHUNKS: tl.constexpr,  # noqa: N803
        GRAIN: tl.constexpr, PAGE: tl.constexpr, BATCH: tl.constexpr,  # noqa: N803
        FORMAT: tl.constexpr, PDL: tl.constexpr,  # noqa: N803
    ):  # fmt: skip
        """Convert the pages in use, every program an equal share of them whatever the lengths.

        Chunks are those of ``_convert_kernel``, counted through all requests. A program finds the
        request that its share begins in from all lengths at once and walks on from there. Lengths
        are summed in 64 bits: pages that requests share count once a request.
        """
        per_row: tl.constexpr = WIDTH // VEC
        lane = tl.arange(0, VEC)[None, :]
        request = tl.arange(0, BATCH)
        there = request < batch
        used = _rows_in_use(
            tl.load(lengths + request * length_stride, mask=there, other=0), columns, PAGE
        )
        rows = tl.sum(used.to(tl.int64))
        whole = rows >= pool_rows
        total = tl.minimum(rows, pool_rows).to(tl.int32) * per_row
        share = tl.cdiv(tl.cdiv(total, tl.num_programs(0)), GRAIN) * GRAIN
        position = tl.program_id(0) * share
        stop = tl.minimum(position + share, total)
        at = tl.full([], 0, tl.int32)
        first = tl.full([], 0, tl.int32)
        last = total
        if not whole:
            ends = tl.cumsum(used) * per_row
            at = tl.sum((ends <= position).to(tl.int32))  # empty requests are passed over
            first = tl.sum(tl.where(request == at, ends - used * per_row, 0))
            last = tl.sum(tl.where(request == at, ends, 0))
        chunk = position - first + tl.arange(0, CHUNKS)
        limit = tl.minimum(stop, last) - first
        entries = table + at.to(tl.int64) * table_stride
        page = tl.load(
            entries + chunk // (per_row * PAGE) * entry_stride, mask=chunk < limit, other=0
        )
        if PDL:
            # As above: table and lengths are older than the kernel before.
            tl.extra.cuda.gdc_wait()
        while position < stop:
            for start in range(position, tl.minimum(stop, last), CHUNKS):
                chunk = start - first + tl.arange(0, CHUNKS)
                ahead = chunk + CHUNKS
                next_page = tl.load(
                    entries + ahead // (per_row * PAGE) * entry_stride,
                    mask=ahead < limit, other=0,
                )  # fmt: skip
                place = chunk // per_row
                live = (chunk < limit)[:, None]
                row = _page_in_pool(page, pool_rows // PAGE).to(tl.int64) * PAGE + place % PAGE
                row = tl.where(whole, place, row)
                column = (chunk % per_row) * VEC
                source = row * pool_stride + column
                byte = tl.load(
                    pool + source[:, None] + lane,
                    mask=live, other=0, eviction_policy="evict_first",
                )  # fmt: skip
                value = _to_float(byte, FORMAT).to(out.dtype.element_ty)
                target = row * WIDTH + column
                tl.store(out + target[:, None] + lane, value, mask=live)
                page = next_page
            position = last
            if position < stop:
                at += 1
                first = last
                used_here = _rows_in_use(tl.load(lengths + at * length_stride), columns, PAGE)
                last = first + used_here * per_row
                limit = tl.minimum(stop, last) - first
                chunk = tl.arange(0, CHUNKS)
                entries = table + at.to(tl.int64) * table_stride
                page = tl.load(
                    entries + chunk // (per_row * PAGE) * entry_stride, mask=chunk < limit, other=0
                )

    @triton.jit
    def _narrow_kernel(
        nope, rope, nope_out, rope_out, nope_stride, rope_stride,
        NOPE: tl.constexpr, ROPE: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,  # noqa: N803
        TOO_LARGE: tl.constexpr, INFINITE: tl.constexpr,  # noqa: N803
    ):  # fmt: skip
        """Narrow one token's keys to e4m3fn by their bits, rounding to even.

        TOO_LARGE is the code of finite values that round past 448, INFINITE that of infinities:
        both are what this torch makes of them.
        """
        if PDL:
            # The write may be set up at once: it waits for all of this kernel, whose own wait
            # stands in front of what it reads.
            tl.extra.cuda.gdc_launch_dependents()
            tl.extra.cuda.gdc_wait()
        token = tl.program_id(0).to(tl.int64)
        i = tl.arange(0, BLOCK)
        j = i - NOPE
        is_nope, is_rope = i < NOPE, (j >= 0) & (j < ROPE)
        x = tl.load(nope + token * nope_stride + i, mask=is_nope, other=0.0)
        y = tl.load(rope + token * rope_stride + j, mask=is_rope, other=0.0)
        bits = tl.where(is_nope, x, y).to(tl.float32).to(tl.uint32, bitcast=True)
        size = bits & 0x7FFFFFFF
        # Re-bias by 120, add half a unit of the last of 3 mantissa bits, ties to even; cut.
        normal = (size - 0x3C000000 + 0x7FFFF + ((size >> 20) & 1)) >> 20
        # Below 2 ** -6 a step is 2 ** -9: the last bit of a float32 between 2 ** 14 and 2 ** 15.
        steps = (size.to(tl.float32, bitcast=True) + 16384.0).to(tl.uint32, bitcast=True)
        code = tl.where(size < 0x3C800000, steps - 0x46800000, normal)
        code = tl.where(size > 0x43E80000, TOO_LARGE, code)  # 464, half a step past 448
        code = tl.where(size == 0x7F800000, INFINITE, code)
        code = tl.where(size > 0x7F800000, 0x7F, code) | ((bits >> 24) & 0x80)
        tl.store(nope_out + token * NOPE + i, code.to(tl.uint8), mask=is_nope)
        tl.store(rope_out + token * ROPE + j, code.to(tl.uint8), mask=is_rope)


# Measured on one H200: of some 60 shapes the best or near it at 200 to 262,144 rows, alone and
# inside a CUDA graph (docs/performance.md).
_VEC, _CHUNKS, _WARPS, _PROGRAMS_PER_SM = 16, 256, 8, 8


@cache
def _device(index: int) -> tuple[int, bool, bool]:
    """Return a GPU's multiprocessors, and what it does by itself: e4m3, dependent launches.

    With a programmatic dependent launch a kernel is set up while the one before still runs, and
    waits on the device; worth about 0.4 us a launch.
    """
    if index < 0:  # Triton's interpreter
        return 1, False, False
    found = torch.cuda.get_device_properties(index)
    cuda = torch.version.hip is None
    arch = (found.major, found.minor)
    pdl = cuda and arch >= (9, 0) and hasattr(tl.extra.cuda, "gdc_wait")
    return found.multi_processor_count, cuda and arch >= (8, 9), pdl


def _convert_fused(
    pool: torch.Tensor, rows: torch.Tensor, count: torch.Tensor, out: torch.Tensor, scatter: bool
) -> None:
    _convert_list(pool, rows, count, out, scatter)


def _convert_list(
    pool: torch.Tensor,
    entries: torch.Tensor,
    count: torch.Tensor,
    out: torch.Tensor,
    scatter: bool,
    size: int = 0,
) -> None:
    """Launch the kernel for one list: one grid for any count, which it reads on the device.

    Args:
        pool: (p, 1, w) FP8.
        entries: (n,) int32 rows, or with a page ``size`` the pages of one request.
        count: (1,) int32 on the device, in rows; a page in use is converted whole.
        out: as ``convert`` says.
        scatter: as ``convert`` says; pages are always scattered.
        size: tokens of a page, or 0 for rows.
    """
    width = pool.shape[-1]
    vec = min(_VEC, width & -width)  # the largest power of two in it
    page = size or 1
    processors, native, pdl = _device(pool.get_device())
    limit = min(entries.shape[0], pool.shape[0] // page)  # no mode reads further
    grid = min(processors * _PROGRAMS_PER_SM, -(-limit * page * (width // vec) // _CHUNKS))
    form = _FORMATS[pool.dtype]
    _convert_kernel[(grid,)](
        pool.view(torch.uint8), entries, count, out, pool.shape[0], pool.stride(0), limit,
        width, vec, _CHUNKS, page, size > 0,
        "native" if native and form == "e4m3fn" else form, scatter, pdl,
        num_warps=_WARPS, **({"launch_pdl": True} if pdl else {}),
    )  # fmt: skip


_GRAIN = 32  # chunks: a warp's, and what a program's share is a multiple of
_REQUESTS = 256  # lengths that one block of threads holds, one each; more take twice, and so on


def _convert_pages_fused(
    pool: torch.Tensor, table: torch.Tensor, lengths: torch.Tensor, out: torch.Tensor, size: int
) -> None:
    """Launch the kernel for pages: one grid for any lengths, which it reads on the device."""
    if table.shape[0] == 1 and table.stride(1) == 1:  # a list: fewer loads that wait for others
        _convert_list(pool, table[0], lengths, out, True, size)
        return
    width = pool.shape[-1]
    vec = min(_VEC, width & -width)
    processors, native, pdl = _device(pool.get_device())
    batch, columns = table.shape
    limit = min(batch * columns * size, pool.shape[0])
    grid = min(processors * _PROGRAMS_PER_SM, -(-limit * (width // vec) // _GRAIN))
    requests = max(_REQUESTS, 1 << (batch - 1).bit_length())
    form = _FORMATS[pool.dtype]
    _convert_pages_kernel[(grid,)](
        pool.view(torch.uint8), table, lengths, out, pool.shape[0], pool.stride(0),
        batch, columns, table.stride(0), table.stride(1), lengths.stride(0),
        width, vec, _CHUNKS, _GRAIN, size, requests,
        "native" if native and form == "e4m3fn" else form, pdl,
        num_warps=_WARPS, **({"launch_pdl": True} if pdl else {}),
    )  # fmt: skip


@cache
def _past_range(device: torch.device) -> tuple[int, int]:
    """Return the codes that torch gives to 1000 and to infinity: NaN in some releases (seen in
    2.11), 448 in others (2.13). Asked for in a constructor: it waits for the device.
    """
    values = torch.tensor([1000.0, float("inf")], device=device)
    large, infinite = values.to(torch.float8_e4m3fn).view(torch.uint8).tolist()
    return large, infinite


def writer(backend: Any, method: Any) -> Any:
    """Return ``method``, or a function that narrows the keys first and calls it with FP8 ones.

    The method (``set_mla_kv_buffer``) converts both parts of the keys itself, one kernel each,
    where they are not in the pool's dtype yet; everything else it does, it still does.

    Args:
        backend: the backend that ``attach`` saw.
        method: takes layer, locations, (n, 1, kv_lora_rank) and (n, 1, rope) keys.
    """
    pool = getattr(backend, "_kv_gather_pool", None)
    if SWITCH == "off" or pool is None or pool.dtype != torch.float8_e4m3fn:
        return method

    def write(layer: Any, loc: Any, nope: torch.Tensor, rope: torch.Tensor, *rest: Any) -> Any:
        if _can_narrow(nope, rope):
            nope, rope = narrow(nope, rope)
        return method(layer, loc, nope, rope, *rest)

    return write


def _can_narrow(nope: torch.Tensor, rope: torch.Tensor) -> bool:
    return (
        _fused(nope)
        and _capturing()  # outside of a graph the host's time counts, and launching costs more
        and torch.version.hip is None  # its pools narrow in their own kernel
        and nope.dtype in (torch.bfloat16, torch.float16)
        and rope.dtype == nope.dtype
        and nope.dim() == 3
        and nope.shape[:2] == rope.shape[:2]
        and nope.shape[1] == 1
        and nope.stride(2) == rope.stride(2) == 1
        and nope.numel() > 0
    )


def narrow(nope: torch.Tensor, rope: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both parts as e4m3fn, bit for bit as ``.to`` gives them, by one kernel.

    Args:
        nope: (n, 1, a) 16-bit floats, last dimension dense.
        rope: (n, 1, b), the same.
    """
    _, _, pdl = _device(nope.get_device())
    a, b = nope.shape[-1], rope.shape[-1]
    outs = tuple(torch.empty(t.shape, dtype=torch.uint8, device=t.device) for t in (nope, rope))
    _narrow_kernel[(nope.shape[0],)](
        nope, rope, *outs, nope.stride(0), rope.stride(0),
        a, b, 1 << (a + b - 1).bit_length(), pdl, *_past_range(nope.device),
        **({"launch_pdl": True} if pdl else {}),
    )  # fmt: skip
    return outs[0].view(torch.float8_e4m3fn), outs[1].view(torch.float8_e4m3fn)
