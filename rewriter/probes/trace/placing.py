"""Which step a kernel belongs to."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rewriter.probes.trace.labels import Label, read_label
from rewriter.probes.trace.recording import Spans
from rewriter.probes.trace.timeline import Timeline

_NOWHERE = -1
_HOMELESS = -2


@dataclass(frozen=True)
class Step:
    """One step's GPU work: indices of kernels in the order of time."""

    label: Label
    kernels: array[int] = field(default_factory=lambda: array("i"))


@dataclass(frozen=True)
class Marks:
    """Where steps begin, in microseconds and in order, and what each is."""

    starts: Sequence[float]
    labels: Sequence[Label]

    @classmethod
    def of(cls, spans: Spans) -> Marks:
        """Return the marks of annotations.

        On the GPU each stream has its own span of one step: of spans that start well within
        another of the same name, the first counts. Neighbours may overlap by a rounding error.
        """
        names = list(spans.names)
        starts: list[float] = []
        labels: list[Label] = []
        reached, last = float("-inf"), _NOWHERE
        for at in sorted(range(len(spans.start)), key=spans.start.__getitem__):
            rounding = 0.01 * (spans.end[at] - spans.start[at])
            if spans.start[at] < reached - rounding and spans.label[at] == last:
                continue
            starts.append(spans.start[at])
            labels.append(read_label(names[spans.label[at]]))
            reached, last = spans.end[at], spans.label[at]
        return cls(starts, labels)

    @classmethod
    def silent(cls, starts: Sequence[float]) -> Marks:
        """Return marks that say nothing about their steps."""
        return cls(starts, [Label("STEP")] * len(starts))


def by_launch(timeline: Timeline, marks: Marks) -> list[Step]:
    """Give each kernel to the step in which the host launched it: the GPU runs behind.

    A kernel without a launch (TraceLens#827) goes with its nearer neighbour on the stream.
    """
    placed = [_NOWHERE] * len(timeline.order)
    homeless = []
    for at in timeline.order:
        launched = timeline.launched[at]
        if math.isnan(launched):
            placed[at] = _HOMELESS
            homeless.append(at)
        else:
            placed[at] = bisect_right(marks.starts, launched) - 1
    if homeless:
        before = _neighbours(timeline, timeline.order, placed)
        after = _neighbours(timeline, reversed(timeline.order), placed)
        for at in homeless:
            nearer = _nearer(timeline, at, before[at], after[at])
            placed[at] = placed[nearer] if nearer >= 0 else _NOWHERE
    return _gathered(timeline, placed, marks)


def by_start(timeline: Timeline, marks: Marks) -> list[Step]:
    """Give each kernel to the step in which it ran."""
    start = timeline.recording.start
    placed = [bisect_right(marks.starts, start[at]) - 1 for at in range(len(start))]
    return _gathered(timeline, placed, marks)


def _gathered(timeline: Timeline, placed: Sequence[int], marks: Marks) -> list[Step]:
    steps = [Step(label) for label in marks.labels]
    for at in timeline.order:
        if placed[at] >= 0:
            steps[placed[at]].kernels.append(at)
    return steps


def _neighbours(timeline: Timeline, order: Iterable[int], placed: Sequence[int]) -> dict[int, int]:
    """Return, for each kernel without a launch, the last one before it that has one."""
    found: dict[int, int] = {}
    last: dict[int, int] = {}
    for at in order:
        stream = timeline.recording.stream[at]
        if placed[at] == _HOMELESS:
            found[at] = last.get(stream, _NOWHERE)
        else:
            last[stream] = at
    return found


def _nearer(timeline: Timeline, at: int, before: int, after: int) -> int:
    if before < 0 or after < 0:
        return max(before, after)
    start, duration = timeline.recording.start, timeline.recording.duration
    gap_before = start[at] - start[before] - duration[before]
    gap_after = start[after] - start[at] - duration[at]
    return before if gap_before <= gap_after else after
