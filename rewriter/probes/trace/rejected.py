"""Other explanations of the time, each with the number that speaks against it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rewriter.probes.trace.cast import CastGroup
from rewriter.probes.trace.facts import Context, Judgement, Verdict
from rewriter.probes.trace.families import Family, short_name
from rewriter.probes.trace.prediction import CAST_BYTES
from rewriter.probes.trace.usage import KernelUse

_QUANTISE = re.compile(r"float8_copy_kernel")
_STRIDED = re.compile(
    r"elementwise_kernel<\d+, \d+, at::native::gpu_kernel_impl_nocast<.*direct_copy"
)
_GATHER = re.compile(r"index_elementwise_kernel.*(?<!put_kernel_impl)|_gather_|index_select")


@dataclass(frozen=True)
class Rejected:
    """An explanation that does not hold, and why."""

    hypothesis: str
    reason: str


def rejected(
    kernels: Sequence[KernelUse],
    gpu_us: float,
    cause: Judgement | None,
    context: Context,
    peak: int | None,
) -> list[Rejected]:
    """Return the explanations that the trace rules out.

    Args:
        kernels: of the steps taken.
        gpu_us: GPU time a step.
        cause: what the verdict names, if any.
        context: of the largest group of casts.
        peak: the GPU's bandwidth in GB/s, if known.
    """
    found = []
    if cause is not None:
        found += _about_cause(cause, context, peak)
    for hypothesis, pattern in (
        ("KV quantised on write", _QUANTISE),
        ("strided copies", _STRIDED),
        ("gather of the batch's rows", _GATHER),
    ):
        uses = [
            use
            for use in kernels
            if pattern.search(use.name) and use.family is not Family.FULL_CAST
        ]
        found.append(Rejected(hypothesis, _small(uses, gpu_us)))
    return found


def _about_cause(cause: Judgement, context: Context, peak: int | None) -> list[Rejected]:
    group = cause.group
    found = []
    if context.moe_layers:
        reason = f"{group.calls_a_step:g} calls a step, {context.moe_layers:g} MoE layers"
        if group.calls_a_step != context.moe_layers:
            found.append(Rejected("a copy in each expert layer", reason))
    if group.before_attention > 0.5:
        reason = f"{short_name(group.follower, 34)} follows, no matrix product"
        found.append(Rejected("dequantised weights", reason))
    limit = _limit(group, peak)
    if limit is not None and cause.verdict is Verdict.FULL_POOL:
        found.append(limit)
    return found


def _limit(group: CastGroup, peak: int | None) -> Rejected | None:
    """Say what part of the bandwidth the counted bytes take; the count is the geometry's."""
    if group.rate is None:
        return None
    counted = group.rate * CAST_BYTES / 1e9
    part = f" = {counted / peak:.0%} of {peak:,}" if peak else ""
    return Rejected("memory bandwidth is the limit", f"{counted:,.0f} GB/s counted{part}")


def _small(uses: Sequence[KernelUse], gpu_us: float) -> str:
    if not uses:
        return "no such kernel"
    calls, us = sum(use.calls for use in uses), sum(use.us for use in uses)
    return f"{calls:,.4g} calls, {us / 1e3:.3f} ms a step, {us / gpu_us:.1%} of the GPU time"
