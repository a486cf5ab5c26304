"""Kernels of a decoding server by the names that traces give them, and a layer made of them."""

from __future__ import annotations

_LAMBDA = (
    "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() "
    "const::{lambda()#12}::operator()() const::{lambda(c10::BFloat16)#1}"
)
_CALCULATORS = "TrivialOffsetCalculator<1, unsigned int>, TrivialOffsetCalculator<1, unsigned int>"
_CASTS = "at::native::memory::LoadWithCast<1>, at::native::memory::StoreWithCast<1>"
CAST = (
    f"void at::native::unrolled_elementwise_kernel<{_LAMBDA}, std::array<char*, 2ul>, 4, "
    f"{_CALCULATORS}, {_CASTS} >(int, {_LAMBDA}, std::array<char*, 2ul>, {_CALCULATORS}, {_CASTS})"
)
QUANTISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::float8_copy_kernel_cuda("
    "at::TensorIteratorBase&)::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul> >(int)"
)
STRIDED = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
    f"{_LAMBDA}> >(int)"
)
ATTENTION = {
    "flashinfer": "void flashinfer::mla::BatchMLAPagedAttentionKernel<flashinfer::mla::"
    "KernelTraits<true, 1u, 2u, 512u, 64u, 16u, 64u> >(flashinfer::MLAParams<__nv_bfloat16>)",
    "fa3": "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<flash::"
    "CollectiveMainloopFwdSm90<2, cute::tuple<cute::C<64> > > > > >(flash::Params)",
}
GEMM = "nvjet_sm120_tst_64x8_64x16_4x1_v_bz_NNT"
GROUPED = (
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::"
    "GroupProblemShape<cute::tuple<int, int, int> > > >(cutlass::gemm::kernel::Params)"
)
ROUTING = "void sglang::topk_softmax_kernel<float, 256, 8>(float const*, bool const*, float*)"
_NORM = "void vllm::rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, float, int, int)"
_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
_ROPE = "triton_poi_fused_rope_0"
_WRITE = "void set_mla_kv_buffer_kernel(int)"

# A layer: kernel, its part of the time that is not the cast's, calls; before and after attention.
BEFORE = ((_NORM, 0.03, 2), (GEMM, 0.10, 2), (_ROPE, 0.02, 1), (QUANTISE, 0.01, 1),
           (_WRITE, 0.01, 1))  # fmt: skip
AFTER = ((GEMM, 0.10, 1), (STRIDED, 0.02, 1), (_NORM, 0.03, 2), (_REDUCE, 0.08, 2))
EXPERTS = ((ROUTING, 0.05, 1), (GROUPED, 0.25, 2))
DENSE = ((GEMM, 0.30, 2),)
ATTENTION_PART = 0.30

FRAMES = ("sglang/srt/models/deepseek_v2.py(1893): forward",
           "sglang/srt/layers/attention/flashinfer_mla_backend.py(596): forward_decode",
           "sglang/srt/layers/radix_attention.py(102): forward")  # fmt: skip
