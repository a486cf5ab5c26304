"""Torch models of FlashInfer's wrappers: what they keep, copy and read, not how fast.

The contract is that of ``BatchMLAPagedAttentionWrapper`` from 0.2.5 to 0.7.2 as sglang uses it:

- ``plan`` hands the row pointers and lengths to ``_cached_module.plan``, on the host; what the
  kernel needs of them goes into the integer workspace, where a captured graph finds it again.
- Made for CUDA graphs, a wrapper copies the indices into the buffer it was given (as far as they
  reach); else it keeps a reference to them.
- ``run`` reads rows through ``_kv_indices_buf`` only, and the mask from the last plan.
"""

from __future__ import annotations

from typing import Any

import torch

from rewriter.probes.equivalence.graph import launch
from rewriter.probes.equivalence.tensors import attention_runs

_WORKSPACE = 512
"""Numbers that a plan may write; a batch of 100 requests needs 304."""


class _PlanOperator:
    """The compiled module's ``plan``: host numbers into the integer workspace.

    Older modules are called through ``plan.default``, newer ones as they are.
    """

    @property
    def default(self) -> _PlanOperator:
        return self

    def __call__(
        self,
        float_workspace: torch.Tensor,
        int_workspace: torch.Tensor,
        pinned: torch.Tensor,
        qo_indptr: torch.Tensor,
        kv_indptr: torch.Tensor,
        kv_len: torch.Tensor,
        num_heads: int,
        head_dim: int,
        causal: bool,
        *more: Any,
    ) -> list[int]:
        """Write ``[batch, qo_indptr, kv_indptr, kv_len]`` into ``int_workspace``."""
        batch = kv_len.shape[0]
        if qo_indptr.shape[0] != batch + 1 or kv_indptr.shape[0] < batch + 1:
            raise ValueError(
                f"plan: {batch} lengths, but {qo_indptr.shape[0]} query and "
                f"{kv_indptr.shape[0]} key row pointers"
            )
        numbers = [torch.tensor([batch]), qo_indptr, kv_indptr[: batch + 1], kv_len]
        plan = torch.cat([n.to(torch.int64) for n in numbers])
        int_workspace[: plan.shape[0]] = plan
        return [batch]


class PlanModule:
    """The part of FlashInfer's compiled module that sglang's fast plans call by themselves."""

    def __init__(self) -> None:
        self.plan = _PlanOperator()


class BatchMLAPagedAttentionWrapper:
    """Paged MLA attention over one buffer of ``[rows, page, ckv + kpe]`` keys."""

    def __init__(
        self,
        float_workspace_buffer: torch.Tensor,
        use_cuda_graph: bool = False,
        qo_indptr: torch.Tensor | None = None,
        kv_indptr: torch.Tensor | None = None,
        kv_indices: torch.Tensor | None = None,
        kv_len_arr: torch.Tensor | None = None,
        backend: str = "auto",
    ) -> None:
        self._float_workspace_buffer = float_workspace_buffer
        self.device = float_workspace_buffer.device
        self._int_workspace_buffer = torch.zeros(_WORKSPACE, dtype=torch.int64)
        self._pin_memory_int_workspace_buffer = torch.zeros(0)
        self._use_cuda_graph = use_cuda_graph
        self._qo_indptr_buf = qo_indptr
        self._kv_indptr_buf = kv_indptr
        self._kv_indices_buf = kv_indices
        self._kv_len_arr_buf = kv_len_arr
        self._backend = "fa2"

    def plan(
        self,
        qo_indptr: torch.Tensor,
        kv_indptr: torch.Tensor,
        kv_indices: torch.Tensor,
        kv_len_arr: torch.Tensor,
        num_heads: int,
        head_dim_ckv: int,
        head_dim_kpe: int,
        page_size: int,
        causal: bool,
        sm_scale: float,
        q_data_type: torch.dtype,
        kv_data_type: torch.dtype,
        use_profiler: bool = False,
    ) -> None:
        """Plan as the stock wrapper does; see the module's docstring."""
        given = (qo_indptr, kv_indptr, kv_indices, kv_len_arr)
        for tensor in given:
            if tensor.dtype != torch.int32:
                raise ValueError(f"plan: expected int32, got {tensor.dtype}")
        bound = (self._qo_indptr_buf, self._kv_indptr_buf, None, self._kv_len_arr_buf)
        if self._use_cuda_graph:
            for buffer, tensor in zip(bound, given, strict=True):
                if buffer is not None:
                    buffer.copy_(tensor)
            assert self._kv_indices_buf is not None
            self._kv_indices_buf[: len(kv_indices)].copy_(kv_indices)
        else:
            self._qo_indptr_buf, self._kv_indptr_buf = qo_indptr, kv_indptr
            self._kv_indices_buf, self._kv_len_arr_buf = kv_indices, kv_len_arr
        self._causal, self._page_size, self._sm_scale = causal, page_size, sm_scale
        self._q_data_type, self._kv_data_type = q_data_type, kv_data_type
        self._cached_module = PlanModule()
        self._plan_info = self._cached_module.plan(
            self._float_workspace_buffer,
            self._int_workspace_buffer,
            self._pin_memory_int_workspace_buffer,
            qo_indptr,
            kv_indptr,
            kv_len_arr,
            num_heads,
            head_dim_ckv,
            causal,
        )

    begin_forward = plan

    def run(
        self,
        q_nope: torch.Tensor,
        q_pe: torch.Tensor,
        ckv_cache: torch.Tensor,
        kpe_cache: torch.Tensor,
        out: torch.Tensor | None = None,
        lse: torch.Tensor | None = None,
        return_lse: bool = False,
        **more: Any,
    ) -> Any:
        """Attend from (tokens, heads, ckv) and (tokens, heads, kpe) queries; return the former."""
        for name, tensor in (("ckv_cache", ckv_cache), ("kpe_cache", kpe_cache)):
            if tensor.dtype != self._kv_data_type:
                raise ValueError(f"run: {name} is {tensor.dtype}, planned {self._kv_data_type}")
        out = torch.empty_like(q_nope) if out is None else out
        lse = q_nope.new_zeros(q_nope.shape[:2], dtype=torch.float32) if lse is None else lse
        assert self._kv_indices_buf is not None
        self.last_keys = ckv_cache
        launch(
            _attend, q_nope, q_pe, ckv_cache, kpe_cache, self._kv_indices_buf,
            self._int_workspace_buffer, out, lse, self._causal, self._page_size, self._sm_scale,
        )  # fmt: skip
        return (out, lse) if return_lse else out


def _attend(
    q_nope: torch.Tensor,
    q_pe: torch.Tensor,
    ckv: torch.Tensor,
    kpe: torch.Tensor,
    indices: torch.Tensor,
    workspace: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    causal: bool,
    page: int,
    scale: float,
) -> None:
    """Fill ``out`` and ``lse``; queries beyond the plan get zeros, as do requests without keys."""
    attention_runs()
    numbers = workspace.tolist()
    batch = numbers[0]
    queries = numbers[1 : batch + 2]
    starts = numbers[batch + 2 : 2 * batch + 3]
    lengths = numbers[2 * batch + 3 : 3 * batch + 3]
    out.zero_()
    lse.fill_(float("-inf"))
    for request, length in enumerate(lengths):
        first, last = queries[request], min(queries[request + 1], q_nope.shape[0])
        if length <= 0 or first >= last:
            continue
        pages = indices[starts[request] : starts[request] + -(-length // page)].long()
        keys = ckv[pages].flatten(0, 1)[:length].float()
        ropes = kpe[pages].flatten(0, 1)[:length, : q_pe.shape[-1]].float()
        logits = torch.einsum("qhc,kc->qhk", q_nope[first:last].float(), keys)
        logits += torch.einsum("qhr,kr->qhk", q_pe[first:last].float(), ropes)
        logits *= scale
        if causal:
            at = torch.arange(length - (last - first), length)
            logits.masked_fill_(torch.arange(length) > at[:, None, None], float("-inf"))
        lse[first:last] = logits.logsumexp(-1)
        weights = logits.softmax(-1).nan_to_num()
        out[first:last] = torch.einsum("qhk,kc->qhc", weights, keys).to(out.dtype)


class BatchPrefillWithRaggedKVCacheWrapper:
    """Attention over the keys of the extended tokens alone; the pool plays no part in it."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        self._qo_indptr: list[int] = []

    def begin_forward(self, qo_indptr: torch.Tensor, **more: Any) -> None:
        """Keep where each request's tokens start."""
        self._qo_indptr = qo_indptr.tolist()

    plan = begin_forward

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sm_scale: float, **more: Any
    ) -> torch.Tensor:
        """Attend causally: q (tokens, heads, d), k and v (tokens, 1, d or dv)."""
        out = q.new_zeros((*q.shape[:2], v.shape[-1]))
        for first, last in zip(self._qo_indptr, self._qo_indptr[1:], strict=False):
            logits = torch.einsum("qhd,kd->hqk", q[first:last].float(), k[first:last, 0].float())
            mask = torch.ones(last - first, last - first, dtype=torch.bool).triu(1)
            weights = (logits * sm_scale).masked_fill(mask, float("-inf")).softmax(-1)
            out[first:last] = torch.einsum("hqk,kd->qhd", weights, v[first:last, 0].float()).to(
                out.dtype
            )
        return out
