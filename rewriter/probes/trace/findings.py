"""What a diagnosis is asked with, and what it finds."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rewriter.probes.models import MODELS
from rewriter.probes.trace.facts import Judgement, Verdict
from rewriter.probes.trace.families import Family
from rewriter.probes.trace.heads import Head
from rewriter.probes.trace.known import Known
from rewriter.probes.trace.pool import Pool
from rewriter.probes.trace.prediction import Prediction
from rewriter.probes.trace.reading import Health
from rewriter.probes.trace.rejected import Rejected
from rewriter.probes.trace.remedies import Remedy, pool_of
from rewriter.probes.trace.steps import Steps
from rewriter.probes.trace.timeline import Busy
from rewriter.probes.trace.usage import FamilyUse, KernelUse


@dataclass(frozen=True)
class Asked:
    """What a diagnosis is asked with.

    Attributes:
        known: figures from the command line; they count before those beside the trace.
        tpot_ms: a step measured without the profiler, or None.
        context: tokens that the batch's requests have in the pool, or None.
        codemods: names of the codemods that this tool has.
    """

    known: Known = field(default_factory=Known)
    tpot_ms: float | None = None
    context: int | None = None
    codemods: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Diagnosis:
    """What one rank's trace shows. Times are microseconds a step, unless a name says otherwise.

    Attributes:
        path: the file.
        rank: as the file or its name says; empty where neither does.
        head: what the trace says about itself.
        health: what was wrong with the file.
        kernels_read, negative, zero, unplaced: kernels in the file, and those with a negative
            duration, none, and no time.
        known: figures of model and server.
        steps: the steps taken, and their proofs. Without any, the whole trace counts as one.
        busy: GPU time of the steps taken, all together, against the clock.
        gpu_us: GPU time: kernels, copies and fills added up.
        period_us: from one step's first kernel to the next one's, the median; None for one step.
        kernels, families: where the GPU time goes, the longest first.
        judgements: groups of casts with their facts, the longest first.
        cause: the group that the verdict names, or that is undecided.
        rejected: explanations that the trace rules out.
        prediction: the step without the cast; only with a cause.
        remedies: what would help; only with a verdict.
        graph_share: part of the GPU time that CUDA graphs launched, which has no operators.
        attention_calls, moe_calls: kernels a step that run once an attention layer, and once a
            layer with experts, or None.
        by_step: GPU time of each step taken, and the part of it in the cast.
    """

    path: Path
    rank: str
    head: Head
    health: Health
    kernels_read: int
    negative: int
    zero: int
    unplaced: int
    known: Known
    steps: Steps
    busy: Busy
    gpu_us: float
    period_us: float | None
    kernels: tuple[KernelUse, ...]
    families: tuple[FamilyUse, ...]
    judgements: tuple[Judgement, ...]
    cause: Judgement | None
    rejected: tuple[Rejected, ...]
    prediction: Prediction | None
    remedies: tuple[Remedy, ...]
    graph_share: float
    attention_calls: float | None
    moe_calls: float | None
    by_step: tuple[tuple[float, float], ...]

    @property
    def verdict(self) -> Verdict:
        return self.cause.verdict if self.cause else Verdict.NONE

    @property
    def whole(self) -> bool:
        """Whether the file was proper and complete, with a time for every kernel."""
        return self.health.whole and not (self.negative or self.unplaced)

    @property
    def cast_us(self) -> float:
        """GPU time of the cast that the verdict names."""
        return self.cause.group.step_us if self.cause else 0.0

    @property
    def pool(self) -> Pool | None:
        """The pool that is cast, where a verdict says so."""
        if self.cause is None or self.verdict is not Verdict.FULL_POOL:
            return None
        return pool_of(self.cause, self.known)

    @property
    def fitting_models(self) -> tuple[str, ...]:
        """Known models with as many layers, and layers with experts, as the steps show."""
        seen = (self.attention_calls, self.moe_calls)
        return tuple(n for n, one in MODELS.items() if (one.layers, one.moe_layers) == seen)

    @property
    def unattributed(self) -> float:
        """Part of the GPU time in kernels that no family knows."""
        other = sum(use.us for use in self.families if use.family is Family.OTHER)
        return other / self.gpu_us if self.gpu_us else 0.0

    @property
    def idle(self) -> float | None:
        """Part of the steps' period in which the GPU does nothing."""
        if not self.period_us or not self.steps.whole:
            return None
        return max(0.0, 1.0 - self.busy.union / len(self.steps.whole) / self.period_us)
