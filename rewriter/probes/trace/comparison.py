"""Before and after: what vanished, what is new, how much of the prediction came true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rewriter.probes.trace.bandwidth import peak_bandwidth
from rewriter.probes.trace.facts import LONGEST_CONTEXT, Verdict
from rewriter.probes.trace.families import Family
from rewriter.probes.trace.findings import Diagnosis
from rewriter.probes.trace.geometry import blocks_of
from rewriter.probes.trace.prediction import cast_ms
from rewriter.probes.trace.usage import KernelUse

_NOTEWORTHY = 0.002
"""Part of a step's GPU time from which a kernel that came or went is named."""
_ENOUGH = 0.9
"""From this part of the prediction on, nothing is left to explain."""
_NOTHING = 0.02
"""A smaller part of a step is no prediction to measure a cure by."""
_IDLE = 0.5
_SLOPPY = 0.05
# A gather of single rows reaches these parts of the peak bandwidth (0.9 and 1.5 of 1.79 TB/s).
_GATHER_PARTS = (0.50, 0.84)


@dataclass(frozen=True)
class Hypothesis:
    """An explanation of a shortfall: ``fits`` is None where the figures cannot tell."""

    name: str
    fits: bool | None
    number: str


@dataclass(frozen=True)
class FamilyChange:
    """GPU time a step of one family, before and after, in microseconds."""

    family: Family
    before_us: float
    after_us: float


@dataclass(frozen=True)
class Comparison:
    """Two diagnoses of the same work; or one, and a step measured after the cure.

    Attributes:
        before, after: what is compared; ``after`` is None with a measured step alone.
        step_before_ms, step_after_ms: steps, without the profiler where ``measured``.
        measured: whether both steps were measured without the profiler.
        predicted_ms: what the step should become shorter by: the prediction's saving.
        cast_ms: GPU time of the cast that should be gone.
        families: GPU time by family.
        vanished, new: kernels that only one side has, the longest first.
        cautions: differences other than the cure that spoil the comparison.
        hypotheses: explanations of a shortfall; empty without one.
    """

    before: Diagnosis
    after: Diagnosis | None
    step_before_ms: float
    step_after_ms: float
    measured: bool
    predicted_ms: float
    cast_ms: float
    families: tuple[FamilyChange, ...]
    vanished: tuple[KernelUse, ...]
    new: tuple[KernelUse, ...]
    cautions: tuple[str, ...]
    hypotheses: tuple[Hypothesis, ...]

    @property
    def realised_ms(self) -> float:
        """What the step became shorter by."""
        return self.step_before_ms - self.step_after_ms

    @property
    def realised(self) -> float | None:
        """Realised over predicted; None where nothing was, or the host sets the pace anyway."""
        if self.predicted_ms < _NOTHING * self.step_before_ms:
            return None
        return self.realised_ms / self.predicted_ms

    @property
    def unexplained_ms(self) -> float:
        """Predicted and not realised."""
        return max(0.0, self.predicted_ms - self.realised_ms)

    @property
    def realised_gpu_ms(self) -> float | None:
        """What the GPU time of a step became shorter by."""
        return None if self.after is None else (self.before.gpu_us - self.after.gpu_us) / 1e3

    @property
    def realised_gpu(self) -> float | None:
        """GPU time that is gone over the cast's."""
        gone = self.realised_gpu_ms
        return gone / self.cast_ms if gone is not None and self.cast_ms else None


def compare(
    before: Diagnosis,
    after: Diagnosis | None,
    tpot_ms: tuple[float, float] | None = None,
) -> Comparison:
    """Compare two diagnoses, or one with a measured step.

    Args:
        before: with the fault.
        after: with the cure, or None: then ``tpot_ms`` must be given.
        tpot_ms: steps before and after, measured without the profiler, in milliseconds.
    """
    first, second = tpot_ms or (_step_ms(before), _step_ms(after or before))
    proved = before.verdict is Verdict.FULL_POOL and before.prediction is not None
    predicted = before.prediction.saved_ms if proved and before.prediction else 0.0
    old, new = before.kernels, after.kernels if after else ()
    missing = max(0.0, predicted - (first - second))
    short = predicted > _NOTHING * first and first - second < _ENOUGH * predicted
    return Comparison(
        before=before,
        after=after,
        step_before_ms=first,
        step_after_ms=second,
        measured=tpot_ms is not None,
        predicted_ms=predicted,
        cast_ms=before.cast_us / 1e3 if proved else 0.0,
        families=_families(before, after) if after else (),
        vanished=_only(old, new, before.gpu_us) if after else (),
        new=_only(new, old, after.gpu_us) if after else (),
        cautions=_cautions(before, after) if after else (),
        hypotheses=_hypotheses(before, after, second, missing) if short else (),
    )


def _step_ms(diagnosis: Diagnosis) -> float:
    if diagnosis.prediction is not None and diagnosis.prediction.measured:
        return diagnosis.prediction.step_ms
    return (diagnosis.period_us or diagnosis.gpu_us) / 1e3


def _families(before: Diagnosis, after: Diagnosis) -> tuple[FamilyChange, ...]:
    old = {use.family: use.us for use in before.families}
    new = {use.family: use.us for use in after.families}
    changes = [FamilyChange(f, old.get(f, 0.0), new.get(f, 0.0)) for f in {**old, **new}]
    return tuple(sorted(changes, key=lambda c: -max(c.before_us, c.after_us)))


def _only(
    those: Sequence[KernelUse], others: Sequence[KernelUse], gpu_us: float
) -> tuple[KernelUse, ...]:
    known = {(use.name, use.family) for use in others}
    return tuple(
        use
        for use in those
        if (use.name, use.family) not in known and use.us > _NOTEWORTHY * gpu_us
    )


def _cautions(before: Diagnosis, after: Diagnosis) -> tuple[str, ...]:
    """Name what else differs: a comparison of two machines says nothing about a cure."""
    found = []
    for what, old, new in (
        ("GPU", *(d.head.device.name if d.head.device else None for d in (before, after))),
        ("world size", before.head.world_size, after.head.world_size),
        ("steps", str(before.steps.label), str(after.steps.label)),
        ("pool", before.known.pool, after.known.pool),
        ("KV dtype", before.known.kv_dtype, after.known.kv_dtype),
        ("sglang", before.known.version, after.known.version),
        ("graphs", before.graph_share > 0.5, after.graph_share > 0.5),
        ("stacks", before.head.with_stack, after.head.with_stack),
    ):
        if old is not None and new is not None and old != new:
            found.append(f"{what} differ: {old} before, {new} after{_control(what, after)}")
    return tuple(found)


def _control(what: str | None, after: Diagnosis) -> str:
    """Say that a trace with a BF16 pool is the control experiment (F10)."""
    if what != "KV dtype" or "fp8" in str(after.known.kv_dtype):
        return ""
    cast = "a cast is there still" if after.cause else "no cast there, as F10 asks"
    return f" (the control: {cast})"


def _hypotheses(
    before: Diagnosis, after: Diagnosis | None, step_ms: float, missing_ms: float
) -> tuple[Hypothesis, ...]:
    found = [_host(before, after, step_ms), _index_buffer(before, after, step_ms)]
    if after is not None:
        found += [_remains(after), _new(before, after, missing_ms), _slower(before, after)]
    return tuple(found)


def _host(before: Diagnosis, after: Diagnosis | None, step_ms: float) -> Hypothesis:
    name = "the host sets the pace"
    if after is None:
        left = (before.gpu_us - before.cast_us) / 1e3
        idle = 1.0 - left / step_ms if step_ms else 0.0
        number = f"{left:.1f} ms of GPU time would leave {idle:.0%} of {step_ms:.1f} ms idle"
        return Hypothesis(name, None, f"{number}; a trace after the cure tells")
    idle = after.idle or 0.0
    number = f"GPU idle {idle:.0%} of the step, busy {after.gpu_us / 1e3:.2f} ms"
    return Hypothesis(name, idle > _IDLE, number)


def _index_buffer(before: Diagnosis, after: Diagnosis | None, step_ms: float) -> Hypothesis:
    """A CUDA graph's index buffer has room for one longest context; all of it may be gathered."""
    name = "a whole index buffer is still cast"
    model = before.known.model
    rows = (model.max_context if model else None) or LONGEST_CONTEXT
    if after is not None:
        cast = [j for j in after.judgements if j.rows and j.share > 0.01 and j.rows % rows == 0]
        number = f"{blocks_of(rows):,} blocks ({rows:,} rows) in no cast of the trace"
        if cast:
            number = f"{cast[0].rows:,} rows cast in {cast[0].group.calls_a_step:g} calls a step"
        return Hypothesis(name, bool(cast), number)
    peak = peak_bandwidth(before.head.device.name) if before.head.device else None
    if peak is None or before.cause is None or before.prediction is None:
        return Hypothesis(name, None, "the GPU's bandwidth is not known")
    layers = round(before.cause.group.calls_a_step)
    width = before.cause.group.elements.width if before.cause.group.elements else 576
    moved = layers * rows * width * 2 / 1e6  # FP8 read and written, in MB: over GB/s it is ms
    slow, fast = (moved / (part * peak) for part in _GATHER_PARTS)
    base = before.prediction.gpu_bound_ms + cast_ms(layers, rows, width, rate=0.345e12)
    low, high = base + fast, base + slow
    fits = low * (1 - _SLOPPY) <= step_ms <= high * (1 + _SLOPPY)
    return Hypothesis(name, fits, f"{rows:,} rows a layer: {low:.0f}-{high:.0f} ms predicted")


def _remains(after: Diagnosis) -> Hypothesis:
    name = "a part of the cast remains"
    if after.cause is None:
        return Hypothesis(name, False, "no cast of the pool's size in the trace")
    calls = after.cause.group.calls_a_step
    return Hypothesis(name, True, f"{calls:g} calls, {after.cast_us / 1e3:.2f} ms a step")


def _new(before: Diagnosis, after: Diagnosis, missing_ms: float) -> Hypothesis:
    known = {use.name for use in before.kernels}
    us = sum(use.us for use in after.kernels if use.name not in known)
    fits = us / 1e3 > 0.1 * missing_ms
    return Hypothesis("what replaced it is slow", fits, f"new kernels: {us / 1e3:.2f} ms a step")


def _slower(before: Diagnosis, after: Diagnosis) -> Hypothesis:
    grown = [c for c in _families(before, after) if c.before_us and c.after_us > c.before_us]
    us = sum(change.after_us - change.before_us for change in grown)
    worst = max(grown, key=lambda c: c.after_us - c.before_us, default=None)
    number = f"families that grew: {us / 1e3:.2f} ms a step"
    if worst is not None:
        number += f", most of it {worst.family}"
    return Hypothesis("other work became slower", us > 0.1 * before.cast_us, number)
