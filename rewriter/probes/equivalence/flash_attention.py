"""A torch model of FlashAttention 3's paged kernel: what it reads, not how fast.

The contract is that of ``flash_attn_with_kvcache`` as sglang calls it for latent attention:

- Request i reads the pages ``page_table[i, : ceil(cache_seqlens[i] / page)]`` and nothing behind
  them in the table; of the last page it may load all rows and masks those behind the length.
- Query, keys and values have one dtype. ``qv`` is the part of the query that meets the values:
  logits are ``q @ k + qv @ v``, the output is made of ``v``.
- Query row j of a request of n sees the keys up to ``length - n + j`` if ``causal``, and of those
  ``window_size[0]`` to the left.
- With ``return_softmax_lse`` the logarithms come along as (heads, rows).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from rewriter.probes.equivalence.graph import launch
from rewriter.probes.equivalence.tensors import FP8, attention_runs


def flash_attn_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k: None = None,
    v: None = None,
    qv: torch.Tensor | None = None,
    rotary_cos: None = None,
    rotary_sin: None = None,
    cache_seqlens: torch.Tensor | None = None,
    cache_batch_idx: None = None,
    cache_leftpad: None = None,
    page_table: torch.Tensor | None = None,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k_new: torch.Tensor | None = None,
    max_seqlen_q: int | None = None,
    rotary_seqlens: None = None,
    q_descale: None = None,
    k_descale: None = None,
    v_descale: None = None,
    softmax_scale: float = 1.0,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    return_softmax_lse: bool = False,
    **more: Any,
) -> Any:
    """Attend from (rows, heads, d) queries to pages of (page, heads, d) keys; return (rows, …)."""
    given = (k, v, rotary_cos, rotary_sin, cache_batch_idx, cache_leftpad, k_descale, v_descale)
    if any(thing is not None for thing in given):
        raise NotImplementedError("new keys, rotation, batch indices, padding or scales")
    if qv is None or page_table is None or cache_seqlens is None or cu_seqlens_q is None:
        raise NotImplementedError("attention without qv, page table, lengths or row pointers")
    if not q.dtype == qv.dtype == k_cache.dtype == v_cache.dtype:
        raise ValueError(f"query {q.dtype}, keys {k_cache.dtype}, values {v_cache.dtype}")
    for name, tensor in (("page_table", page_table), ("cache_seqlens", cache_seqlens)):
        if tensor.dtype != torch.int32:
            raise ValueError(f"{name} is {tensor.dtype}, not int32")
    if k_cache.shape[1] != v_cache.shape[1] or page_table.stride(-1) != 1:
        raise ValueError("keys and values have pages of different sizes, or the table has strides")
    out = torch.empty_like(qv, dtype=torch.bfloat16 if qv.dtype in FP8 else qv.dtype)
    lse = torch.empty((qv.shape[1], qv.shape[0]), dtype=torch.float32)
    kernel = SimpleNamespace(causal=causal, left=window_size[0], scale=softmax_scale, cap=softcap)
    launch(_attend, q, qv, k_cache, v_cache, page_table, cache_seqlens, cu_seqlens_q, out, lse,
           kernel)  # fmt: skip
    return (out, lse, None, None) if return_softmax_lse else out


def _attend(
    q: torch.Tensor,
    qv: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    starts: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    kernel: SimpleNamespace,
) -> None:
    attention_runs()
    out.zero_()
    lse.fill_(float("-inf"))
    size = keys.shape[1]
    for request, length in enumerate(lengths.tolist()):
        first, last = int(starts[request]), min(int(starts[request + 1]), q.shape[0])
        if length <= 0 or first >= last:
            continue
        pages = table[request, : -(-length // size)].long()
        k, v = (cache[pages].flatten(0, 1)[:, 0].float() for cache in (keys, values))
        logits = torch.einsum("qhr,kr->qhk", q[first:last].float(), k)
        logits += torch.einsum("qhc,kc->qhk", qv[first:last].float(), v)
        logits *= kernel.scale
        if kernel.cap > 0:
            logits = kernel.cap * (logits / kernel.cap).tanh()
        hidden = _hidden(last - first, length, k.shape[0], kernel)
        logits.masked_fill_(hidden[:, None], float("-inf"))
        lse[:, first:last] = logits.logsumexp(-1).T
        weights = logits.softmax(-1).nan_to_num()
        out[first:last] = torch.einsum("qhk,kc->qhc", weights, v).to(out.dtype)


def _hidden(queries: int, length: int, loaded: int, kernel: SimpleNamespace) -> torch.Tensor:
    """Return (queries, loaded): the keys that a query does not see."""
    at = torch.arange(length - queries, length)[:, None]
    key = torch.arange(loaded)
    hidden = (key >= length).expand(queries, loaded)
    if kernel.causal:
        hidden = hidden | (key > at)
    if kernel.left >= 0:
        hidden = hidden | (key < at - kernel.left)
    return hidden


def merge_state_v2(
    one: torch.Tensor, lse_one: torch.Tensor, other: torch.Tensor, lse_other: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Merge attention over two sets of keys: (rows, heads, d) outputs, (rows, heads) logarithms."""
    both = torch.logaddexp(lse_one, lse_other)
    weights = [(lse - both).exp().nan_to_num()[..., None] for lse in (lse_one, lse_other)]
    return (one.float() * weights[0] + other.float() * weights[1]).to(one.dtype), both


def paged_view(flat: torch.Tensor, page_size: int) -> torch.Tensor:
    """Return (slots, …) as (pages, page, …), rows where they are."""
    row = flat.stride(0)
    return flat.as_strided(
        (flat.shape[0] // page_size, page_size, *flat.shape[1:]),
        (row * page_size, row, *flat.stride()[1:]),
    )
