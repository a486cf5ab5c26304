"""GPU time a step, by kernel and by family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rewriter.probes.trace.families import Family, family_of
from rewriter.probes.trace.placing import Step
from rewriter.probes.trace.timeline import Timeline


@dataclass(frozen=True)
class KernelUse:
    """What one kernel takes, over all its geometries.

    Attributes:
        name: whole, as in the trace.
        family: what it does.
        calls: launches a step.
        us: microseconds of GPU time a step.
    """

    name: str
    family: Family
    calls: float
    us: float

    @property
    def each_us(self) -> float:
        """Microseconds a call."""
        return self.us / self.calls if self.calls else 0.0


@dataclass(frozen=True)
class FamilyUse:
    """What a family takes: launches and microseconds of GPU time a step."""

    family: Family
    calls: float
    us: float


def kernels_of(timeline: Timeline, steps: Sequence[Step], cast: int | None) -> list[KernelUse]:
    """Return the kernels of these steps, the longest first.

    Args:
        timeline: the recording.
        steps: the steps taken.
        cast: the kind that the verdict names, if any; it gets a family and a row of its own.
    """
    recording = timeline.recording
    calls = [0] * len(recording.kinds)
    spent = [0.0] * len(recording.kinds)
    for step in steps:
        for at in step.kernels:
            index = recording.kind[at]
            calls[index] += 1
            spent[index] += max(recording.duration[at], 0.0)
    found: dict[tuple[str, Family], KernelUse] = {}
    for at, kind in enumerate(recording.kinds):
        if not calls[at]:
            continue
        family = Family.FULL_CAST if at == cast else family_of(kind.name)
        key = (kind.name, family)
        use = found.get(key, KernelUse(kind.name, family, 0.0, 0.0))
        found[key] = replace(
            use, calls=use.calls + calls[at] / len(steps), us=use.us + spent[at] / len(steps)
        )
    return sorted(found.values(), key=lambda use: -use.us)


def families_of(kernels: Sequence[KernelUse]) -> list[FamilyUse]:
    """Return the families of these kernels, the longest first."""
    found: dict[Family, FamilyUse] = {}
    for kernel in kernels:
        use = found.get(kernel.family, FamilyUse(kernel.family, 0.0, 0.0))
        found[kernel.family] = replace(use, calls=use.calls + kernel.calls, us=use.us + kernel.us)
    return sorted(found.values(), key=lambda use: -use.us)
