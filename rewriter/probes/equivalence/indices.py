"""Torch models of what fills index tensors: sglang's Triton kernels and its translators.

Each has the interface of all releases at once (a keyword that a release does not pass has its
plain meaning), so that no version is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


class Kernel:
    """``kernel[grid](…)`` as a call of a plain function, with the grid in front if it asks."""

    def __init__(self, function: Callable[..., None], grid: bool = False) -> None:
        self._function = function
        self._grid = grid

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        if not self._grid:
            return self._function

        def call(*args: Any, **kwargs: Any) -> None:
            self._function(grid, *args, **kwargs)

        return call


def _fill_rows(
    source: torch.Tensor,
    row_ids: torch.Tensor,
    lengths: torch.Tensor,
    indptr: torch.Tensor,
    starts: torch.Tensor | None,
    out: torch.Tensor,
    stride: int,
    page_size: int = 1,
    *,
    ENTRY_PAGE_SIZE: int = 1,  # noqa: N803 - a keyword of the kernel
    **more: Any,
) -> None:
    """Write each request's ids ``source[row, :length]`` to ``out[indptr[i]:]``; pages if asked."""
    for request, length in enumerate(lengths.tolist()):
        positions = torch.arange(0, length, page_size)
        ids = source[int(row_ids[request]), positions // ENTRY_PAGE_SIZE]
        if ENTRY_PAGE_SIZE > 1:
            ids = ids * ENTRY_PAGE_SIZE + positions % ENTRY_PAGE_SIZE
        first = int(indptr[request])
        out[first : first + len(positions)] = (ids // page_size).to(out.dtype)


create_flashinfer_kv_indices_triton = Kernel(_fill_rows)


def _fill_draft_steps(
    grid: tuple[int, int, int],
    row_ids: torch.Tensor,
    source: torch.Tensor,
    lengths: torch.Tensor,
    out: torch.Tensor,
    indptr: torch.Tensor,
    positions: torch.Tensor,
    *more: Any,
    v2p: torch.Tensor | None = None,
    **keywords: Any,
) -> None:
    """Write step i's ids, length + i + 1 a request, to ``out[i]``; row pointers to ``indptr[i]``.

    Step i's last row pointer is ``sum(positions) + requests * (i + 1)``, as the kernel sums
    positions there and not lengths: they differ on padded lanes.
    """
    steps, requests, topk = grid
    if topk != 1:
        raise NotImplementedError("drafts with topk > 1 are refused by the backend")
    for step in range(steps):
        first = 0
        for request, length in enumerate(lengths.tolist()):
            ids = source[int(row_ids[request]), : length + step + 1]
            out[step, first : first + ids.shape[0]] = (ids if v2p is None else v2p[ids]).to(
                out.dtype
            )
            first += ids.shape[0]
        sums = positions[:requests].cumsum(0)
        indptr[step, 1 : requests + 1] = sums + torch.arange(1, requests + 1) * (step + 1)


generate_draft_decode_kv_indices = Kernel(_fill_draft_steps, grid=True)


def draft_kv_indices_buffer_width(num_seqs: int, topk: int, max_context_len: int) -> int:
    """Return the ids that one draft step of a batch may need."""
    return num_seqs * topk * max_context_len


def draft_kv_indices_used_len(seq_lens_sum: int, topk: int, bs: int, num_steps: int) -> int:
    """Return the ids that a batch lists after ``num_steps`` draft steps."""
    return seq_lens_sum * topk + bs * num_steps


def assert_buffer_fits(required: int, available: int, *what: Any, **more: Any) -> None:
    """Refuse a list that its buffer cannot hold."""
    if required > available:
        raise AssertionError(f"{required} ids for a buffer of {available}: {what}")


@dataclass(frozen=True)
class Table:
    """What a batch's ids are read from: ``ids[row_ids[request], position]``."""

    ids: torch.Tensor
    row_ids: torch.Tensor
    row_stride: int
    entry_page_size: int = 1
    is_translated: bool = False
    v2p: torch.Tensor | None = None


class Translator:
    """From the ids that requests hold to the pool's rows; the identity without a ``mapping``."""

    def __init__(self, req_to_token: torch.Tensor, mapping: torch.Tensor | None) -> None:
        self.req_to_token = req_to_token
        self.mapping = mapping
        self.is_translating = mapping is not None
        self.needs_read_translate = False  # rows leave the methods below translated

    def _rows(self) -> torch.Tensor:
        if self.mapping is None:
            return self.req_to_token
        return self.mapping[self.req_to_token.long()].to(torch.int32)

    def build_index_table(self, *, req_pool_indices: torch.Tensor, **more: Any) -> Table:
        """Return the table of a batch."""
        return Table(self._rows(), req_pool_indices, self.req_to_token.stride(0))

    def index_table_for_batch(self, forward_batch: Any) -> Table:
        """Return the table of a batch."""
        return self.build_index_table(req_pool_indices=forward_batch.req_pool_indices)

    def make_capture_tables(self, **more: Any) -> None:
        """Allocate nothing: tables are made anew for every batch."""

    def read_source(self, plan: Any, *, req_pool_indices: torch.Tensor, bs: int) -> Table:
        """Return ids to read, with the mapping for the reader to apply."""
        ids, stride = self.req_to_token, self.req_to_token.stride(0)
        return Table(ids, req_pool_indices, stride, 1, self.is_translating, self.mapping)

    def pack_read_stream(
        self,
        plan: Any = None,
        *,
        req_pool_indices: torch.Tensor,
        seq_lens: torch.Tensor,
        indptr: torch.Tensor,
        out: torch.Tensor,
        **more: Any,
    ) -> bool:
        """Write a batch's rows to ``out``; return whether they are the pool's."""
        stride = self.req_to_token.stride(0)
        _fill_rows(self._rows(), req_pool_indices, seq_lens, indptr, None, out, stride)
        return self.is_translating

    fill_packed_read_stream = pack_read_stream

    def translate_dcp_read_ids(self, ids: torch.Tensor) -> torch.Tensor:
        """Return ``ids``: what shards them here has translated them."""
        return ids


@dataclass(frozen=True)
class Shards:
    """Decode context parallelism: rank ``rank`` of ``size`` holds every size-th token."""

    size: int = 1
    rank: int = 0

    def local(self, lengths: torch.Tensor) -> torch.Tensor:
        """Return how many of each request's tokens this rank holds."""
        return (lengths - self.rank + self.size - 1) // self.size

    def shorten(self, lengths: torch.Tensor) -> None:
        """Rewrite ``lengths`` in place to this rank's."""
        if self.size > 1:
            lengths.copy_(self.local(lengths))

    def plan_decode(
        self,
        kv_lens: torch.Tensor,
        kv_indptr: torch.Tensor,
        kv_indices: torch.Tensor,
        init_metadata_replay: bool,
        fast_decode_kwargs: dict[str, Any],
        bs: int,
    ) -> int:
        """Rewrite lengths, row pointers and the head of the ids in place to this rank's share.

        The tail keeps the ids of all ranks, which may lie beyond this rank's pool.
        """
        first, shares = 0, []
        for length in kv_lens.tolist():
            ids = kv_indices[first : first + length]
            shares.append(ids[self.rank :: self.size] // self.size)
            first += length
        share = torch.cat(shares)
        kv_indices[: share.shape[0]] = share
        kv_lens.copy_(self.local(kv_lens))
        kv_indptr[1 : bs + 1] = kv_lens.cumsum(0)
        return share.shape[0]
