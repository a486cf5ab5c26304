"""Kernel families: what a kernel does, by its name.

The names are those of torch 2.11, sglang 0.4.3 to 0.5.23, FlashInfer, cuBLAS, CUTLASS, NCCL,
DeepGEMM and Triton kernels as traces show them. The first pattern that fits counts, so the
particular stand before the general.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache


class Family(str, Enum):
    """What a kernel does; the value is how people read it."""

    FULL_CAST = "full-pool KV cast"
    CAST = "other casts"
    ATTENTION = "attention"
    MOE = "experts (MoE)"
    GEMM = "matrix products"
    QUANTISE = "quantisation"
    NORM = "norms"
    COMMUNICATION = "communication"
    KV_WRITE = "KV write"
    GATHER = "gather and scatter"
    ROPE = "rotary embedding"
    SAMPLING = "sampling"
    COPY = "copies"
    ELEMENTWISE = "elementwise"
    MEMORY = "memcpy, memset"
    OTHER = "unattributed"

    def __str__(self) -> str:
        return self.value


CAST_COPY = re.compile(r"direct_copy_kernel.*LoadWithCast", re.S)
"""torch's copy kernel with a run-time dtype on both sides, one element at a time."""

MLA = re.compile(r"mla(?![a-z])|MLA|flash_mla|flashmla", re.S)
"""An attention kernel that reads MLA's pool, by its name alone."""

FA3 = re.compile(r"flash::\w*(?:FlashAttnFwd|flash_fwd)|FlashAttnFwdSm90|flash_fwd_splitkv|fmha")
"""FlashAttention's kernels, which sglang's ``fa3`` backend runs for MLA too."""

_PATTERNS: tuple[tuple[Family, str], ...] = (
    (Family.COMMUNICATION, r"nccl|allreduce|all_reduce|allgather|reducescatter|cross_device_reduce"
                           r"|one_?shot|two_?shot|multimem|nvshmem|deep_?ep|rccl"),
    (Family.KV_WRITE, r"set_mla_kv|set_kv_buffer|set_k_and_s|concat_and_cache|reshape_and_cache"
                      r"|store_kv|write_req_to_token|index_put"),
    (Family.MOE, r"fused_moe|moe_|_moe|GroupProblemShape|grouped_?gemm|topk_softmax|topk_sigmoid"
                 r"|router|expert|act_and_mul|silu_and_mul|count_and_sort"),
    (Family.ATTENTION, r"[Aa]ttention|[Aa]ttn|fmha|flash_fwd|flash_mla|flashmla|mla(?![a-z])|MLA"
                       r"|[Mm]erge_?[Ss]tate|paged_?mqa|indexer|_fwd_grouped_kernel|splitkv"),
    (Family.QUANTISE, r"float8_copy_kernel|quant|cvt_fp16_to_fp4|to_fp8|fp8_cast|scaled_fp"),
    (Family.NORM, r"rms_?norm|layer_?norm|RMSNorm|LayerNorm"),
    (Family.ROPE, r"rope|rotary|Rotary"),
    (Family.SAMPLING, r"argmax|ArgMax|sampl|softmax|top_?k|topp|multinomial|penalt|cumsum|sort"
                      r"|radix|RadixSort"),
    (Family.GEMM, r"gemm|GEMM|nvjet|cutlass|cublas|splitKreduce|gemv|_mm_|matmul|bmm|wgmma"),
    (Family.CAST, r"direct_copy_kernel.*LoadWithCast"),
    (Family.GATHER, r"gather|scatter|index_elementwise_kernel|index_select|indexSelect|embedding"
                    r"|CatArray|create_flashinfer_kv_indices|kv_indices"),
    (Family.COPY, r"direct_copy_kernel|copy_kernel|Memcpy"),
    (Family.ELEMENTWISE, r"elementwise|triton_(?:poi|red|per)|FillFunctor|CUDAFunctor|reduce_kernel"
                         r"|clamp|fill|arange|where|resolve_future_token|DeviceScan|multi_tensor_apply"),
)  # fmt: skip

_COMPILED = tuple((family, re.compile(pattern, re.S)) for family, pattern in _PATTERNS)


@lru_cache(maxsize=4096)
def family_of(name: str) -> Family:
    """Return the family of a kernel's name; copies and fills of the driver are MEMORY."""
    if name.startswith(("Memcpy", "Memset")):
        return Family.MEMORY
    for family, pattern in _COMPILED:
        if pattern.search(name):
            return family
    return Family.OTHER


_WRAPPERS = re.compile(r"void |at::native::|\(anonymous namespace\)::|sgl_kernel::|cutlass::")


def short_name(name: str, width: int = 48) -> str:
    """Return a kernel's name without namespaces and template arguments, in so many columns."""
    plain = _WRAPPERS.sub("", name)
    if "<" in plain:
        head, _, inner = plain.partition("<")
        functor = re.search(r"(FlashAttn\w+|Group\w+|\w+_kernel(?:_\w+)?|\w*Functor\w*)", inner)
        plain = head + (f"<{functor.group(1)}>" if functor else "")
    plain = plain.partition("(")[0].rsplit("::", 1)[-1] if "<" not in plain else plain
    return plain if len(plain) <= width else plain[: width - 1] + "…"
