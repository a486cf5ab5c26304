"""Gather-then-cast for MLA's paged KV cache: convert the rows a batch reads, not the whole pool.

FlashInfer's MLA kernels want keys in the query's dtype. With an FP8 pool the backend therefore
converts the WHOLE pool on every layer of every step. This module converts only what is read.
Its three functions are called from the patched backend and nowhere else:

``attach``  in the backend's constructor: what kind of pool is served, known once.
``plan``    around the index argument of every plan call: decides the mode for this wrapper.
``gather``  around the pool's buffer, in front of the cast: hands over converted rows, or the
            untouched pool, which the cast that still follows converts as it always did.

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
    pool = model_runner.token_to_kv_pool
    pool = getattr(pool, "full_kv_pool", pool)  # hybrid models keep the MLA layers in here
    buffers = getattr(pool, "kv_buffer", None)
    config = model_runner.model_config
    width = config.kv_lora_rank + config.qk_rope_head_dim
    backend._kv_gather_pool = None
    if buffers and buffers[0].shape[-1] == width and pool.dtype in _FORMATS:
        backend._kv_gather_pool = Pool(buffers[0].shape[0], width, pool.dtype, model_runner.dtype)


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
        _tell(planned.mode, pool)
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


def _on_host(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu"


def _fused(tensor: torch.Tensor) -> bool:
    return triton is not None and tensor.is_cuda


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


def _tell(mode: Mode, pool: torch.Tensor) -> None:
    global _told
    _told = True
    logger.info(
        "mla_kv_gather runs: version %s, %s, first mode %s, pool of %d rows",
        VERSION,
        pool.device,
        mode.value,
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


if triton is not None:

    @triton.jit
    def _to_float(byte, FORMAT: tl.constexpr):  # noqa: N803
        """Decode FP8 by its bits: exact, and the same on every architecture.

        A float16 holds the bits of all three formats, subnormals included, up to a power of two.
        No float32 on the way is subnormal: nothing depends on whether those are flushed to zero.
        """
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
    def _convert_kernel(
        pool, rows, count, out, pool_rows, pool_stride,
        WIDTH: tl.constexpr, HEAD: tl.constexpr, TAIL: tl.constexpr,  # noqa: N803
        TILE: tl.constexpr, FORMAT: tl.constexpr, SCATTER: tl.constexpr,  # noqa: N803
    ):  # fmt: skip
        """Convert TILE rows at a time, each as HEAD + TAIL elements (512 + 64: powers of two)."""
        used = tl.load(count)
        whole = SCATTER and used >= pool_rows
        if whole:
            used = pool_rows
        head = tl.arange(0, HEAD)
        tail = HEAD + tl.arange(0, TAIL)
        for start in range(tl.program_id(0) * TILE, used, tl.num_programs(0) * TILE):
            place = start + tl.arange(0, TILE)
            live = place < used
            row = tl.load(rows + place, mask=live, other=0)
            if whole:
                row = place
            # 64 bits: a pool of 3.7 million rows has more than 2 ** 31 elements.
            source = row.to(tl.int64)[:, None] * pool_stride
            if SCATTER:
                target = row.to(tl.int64)[:, None] * WIDTH
            else:
                target = place.to(tl.int64)[:, None] * WIDTH
            keep = live[:, None]
            x = tl.load(pool + source + head[None, :], mask=keep, other=0)
            y = tl.load(pool + source + tail[None, :], mask=keep & (tail[None, :] < WIDTH), other=0)
            kind = out.dtype.element_ty
            tl.store(out + target + head[None, :], _to_float(x, FORMAT).to(kind), mask=keep)
            tl.store(
                out + target + tail[None, :],
                _to_float(y, FORMAT).to(kind),
                mask=keep & (tail[None, :] < WIDTH),
            )


_TILE = 8
_PROGRAMS_PER_SM = 8
_sms: dict[int, int] = {}


def _convert_fused(
    pool: torch.Tensor, rows: torch.Tensor, count: torch.Tensor, out: torch.Tensor, scatter: bool
) -> None:
    """Launch the kernel: one grid for any count, which it reads on the device."""
    width = pool.shape[-1]
    head = 1 << (width.bit_length() - 1)
    tail = max(16, 1 << (width - head - 1).bit_length()) if width > head else 16
    index = pool.get_device()
    if index not in _sms:
        _sms[index] = (
            torch.cuda.get_device_properties(index).multi_processor_count if pool.is_cuda else 1
        )
    grid = min(_sms[index] * _PROGRAMS_PER_SM, -(-rows.shape[0] // _TILE))
    _convert_kernel[(grid,)](
        pool.view(torch.uint8), rows, count, out, pool.shape[0], pool.stride(0),
        width, head, tail, _TILE, _FORMATS[pool.dtype], scatter,
    )  # fmt: skip
