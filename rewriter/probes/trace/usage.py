"""GPU time a step, by kernel and by family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rewriter.probes.trace.families import Family, family_of
from rewriter.probes.trace.placing import Step
from rewriter.probes.trace.recording import Kind
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


@dataclass(frozen=True)
class Tally:
    """Launches and microseconds of the steps taken, by index of kind, and by step.

    Attributes:
        kinds: of the recording.
        calls, spent: by kind, over all steps.
        steps: microseconds of each step.
        in_graph: microseconds that graphs launched, over all steps.
    """

    kinds: Sequence[Kind]
    calls: Sequence[int]
    spent: Sequence[float]
    steps: Sequence[float]
    in_graph: float

    @classmethod
    def of(cls, timeline: Timeline, steps: Sequence[Step]) -> Tally:
        """Count the kernels of these steps."""
        recording = timeline.recording
        kind, duration, graphs = recording.kind, recording.duration, timeline.in_graph
        calls = [0] * len(recording.kinds)
        spent = [0.0] * len(recording.kinds)
        by_step = []
        in_graph = 0.0
        for step in steps:
            whole = 0.0
            for at in step.kernels:
                index, lasted = kind[at], duration[at]
                calls[index] += 1
                if lasted > 0:
                    spent[index] += lasted
                    whole += lasted
                    if graphs[at]:
                        in_graph += lasted
            by_step.append(whole)
        return cls(recording.kinds, calls, spent, by_step, in_graph)

    @property
    def graph_share(self) -> float:
        """Part of the GPU time that CUDA graphs launched."""
        total = sum(self.steps)
        return self.in_graph / total if total else 0.0

    def kernels(self, cast: Kind | None) -> list[KernelUse]:
        """Return the kernels, the longest first.

        Args:
            cast: the kind that the verdict names, if any; it gets a family and a row of its own.
        """
        found: dict[tuple[str, Family], KernelUse] = {}
        count = len(self.steps)
        for kind, calls, spent in zip(self.kinds, self.calls, self.spent, strict=True):
            if not calls:
                continue
            family = Family.FULL_CAST if kind is cast else family_of(kind.name)
            key = (kind.name, family)
            use = found.get(key, KernelUse(kind.name, family, 0.0, 0.0))
            found[key] = replace(use, calls=use.calls + calls / count, us=use.us + spent / count)
        return sorted(found.values(), key=lambda use: -use.us)


def families_of(kernels: Sequence[KernelUse]) -> list[FamilyUse]:
    """Return the families of these kernels, the longest first."""
    found: dict[Family, FamilyUse] = {}
    for kernel in kernels:
        use = found.get(kernel.family, FamilyUse(kernel.family, 0.0, 0.0))
        found[kernel.family] = replace(use, calls=use.calls + kernel.calls, us=use.us + kernel.us)
    return sorted(found.values(), key=lambda use: -use.us)
