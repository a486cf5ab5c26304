"""The casts of a trace, grouped by launch geometry, with what was measured of each group."""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, prod
from statistics import fmean, pstdev

from rewriter.probes.trace.families import CAST_COPY, FA3, MLA, Family, family_of
from rewriter.probes.trace.geometry import Elements, elements_of
from rewriter.probes.trace.placing import Step
from rewriter.probes.trace.recording import Kind
from rewriter.probes.trace.timeline import Timeline

_TARGET = re.compile(r"lambda\((?:c10::)?(\w+)\)#\d+\}")
_BETWEEN_US = 20.0
"""A short kernel may stand between the cast and the attention (a scheduler's, in fa3)."""


@dataclass(frozen=True)
class Shapes:
    """What the launching operator says: ``aten::copy_`` with its two first inputs."""

    source: str
    target: str
    rows: int
    width: int


@dataclass(frozen=True)
class CastGroup:
    """All casts of one geometry in the steps taken.

    Attributes:
        kind: the kernel.
        elements: of one call, or None without a geometry.
        calls: by step.
        mean_us: of one call.
        cv: standard deviation of a call over its mean.
        by_step: GPU time of each step, in microseconds.
        follower: the kernel that follows on the stream most often, and its family.
        before_attention: the part of the calls that an MLA attention kernel follows.
        shapes: of the operator that launched it, where recorded.
        frames: calls of the first step that stand in an attention backend's Python frame, by
            frame; empty without stacks.
        in_graph: whether CUDA graphs launch it.
    """

    kind: Kind
    elements: Elements | None
    calls: tuple[int, ...]
    mean_us: float
    cv: float
    by_step: tuple[float, ...]
    follower: str
    follower_family: Family | None
    before_attention: float
    shapes: Shapes | None
    frames: dict[str, int]
    in_graph: bool

    @property
    def calls_a_step(self) -> float:
        """Launches a step, the mean."""
        return fmean(self.calls)

    @property
    def step_us(self) -> float:
        """GPU time a step, the mean."""
        return fmean(self.by_step)

    @property
    def constant(self) -> bool:
        """Whether every step has the same number of launches."""
        return len(set(self.calls)) == 1

    @property
    def target(self) -> str | None:
        """The type that the functor converts to (``BFloat16``), if the name tells."""
        found = _TARGET.search(self.kind.name)
        return found[1] if found else None

    @property
    def rate(self) -> float | None:
        """Elements a second."""
        if self.elements is None or not self.mean_us:
            return None
        return self.elements.count / self.mean_us * 1e6


def cast_groups(timeline: Timeline, steps: Sequence[Step], width: int) -> list[CastGroup]:
    """Return the groups of casts in these steps, the longest first."""
    recording = timeline.recording
    wanted = {at for at, kind in enumerate(recording.kinds) if CAST_COPY.search(kind.name)}
    calls: dict[int, list[list[int]]] = {at: [[] for _ in steps] for at in wanted}
    for number, step in enumerate(steps):
        for at in step.kernels:
            kind = recording.kind[at]
            if kind in wanted:
                calls[kind][number].append(at)
    groups = [
        _group(timeline, recording.kinds[kind], by_step, width)
        for kind, by_step in calls.items()
        if any(by_step)
    ]
    return sorted(groups, key=lambda group: -group.step_us)


def _group(
    timeline: Timeline, kind: Kind, by_step: Sequence[Sequence[int]], width: int
) -> CastGroup:
    recording = timeline.recording
    every = [at for step in by_step for at in step]
    durations = [recording.duration[at] for at in every if recording.duration[at] > 0]
    mean = fmean(durations) if durations else 0.0
    follower, before = _followers(timeline, every)
    return CastGroup(
        kind=kind,
        elements=elements_of(kind.name, kind.grid, kind.block, width),
        calls=tuple(map(len, by_step)),
        mean_us=mean,
        cv=pstdev(durations) / mean if mean else 0.0,
        by_step=tuple(sum(max(recording.duration[at], 0.0) for at in step) for step in by_step),
        follower=follower,
        follower_family=family_of(follower) if follower else None,
        before_attention=before,
        shapes=_shapes(timeline, every),
        frames=_frames(timeline, next(step for step in by_step if step)),
        in_graph=any(timeline.in_graph[at] for at in every),
    )


def _followers(timeline: Timeline, casts: Sequence[int]) -> tuple[str, float]:
    """Return the most frequent next kernel, and the part that is MLA attention.

    The last kernel of a stream has no next one and does not count.
    """
    recording = timeline.recording
    names: Counter[str] = Counter()
    attention = counted = 0
    for at in casts:
        after = timeline.following[at]
        if after < 0:
            continue
        counted += 1
        names[recording.kinds[recording.kind[after]].name] += 1
        if 0 <= recording.duration[after] < _BETWEEN_US and not _is_attention(timeline, after):
            after = max(timeline.following[after], after)
        attention += _is_attention(timeline, after)
    name = names.most_common(1)[0][0] if names else ""
    return name, attention / counted if counted else 0.0


def _is_attention(timeline: Timeline, at: int) -> bool:
    name = timeline.recording.kinds[timeline.recording.kind[at]].name
    return family_of(name) is Family.ATTENTION and bool(MLA.search(name) or FA3.search(name))


def _shapes(timeline: Timeline, casts: Sequence[int]) -> Shapes | None:
    """Return what the operators of eager casts say, if all say the same.

    A graph's kernels are left out: until 2024-10 kineto gave them an ``External id`` that is a
    correlation and can hit a foreign operator.
    """
    recording = timeline.recording
    said = {
        recording.operators[recording.casts[at]]
        for at in casts
        if not timeline.in_graph[at] and recording.casts.get(at) in recording.operators
    }
    if len(said) != 1:
        return None
    types, dims = said.pop()
    try:
        target, source = json.loads(types)[:2]
        shape = json.loads(dims)[1]
        return Shapes(source, target, prod(shape[:-1]), shape[-1])
    except (ValueError, TypeError, IndexError):
        return None


def _frames(timeline: Timeline, casts: Sequence[int]) -> dict[str, int]:
    """Count the casts of one step by the innermost backend's frame around their launch."""
    spans = timeline.recording.frames
    names = list(spans.names)
    moments = sorted(at for at in map(timeline.launched.__getitem__, casts) if not isnan(at))
    if not names or not moments:
        return {}
    innermost: dict[int, int] = {}
    for at in range(len(spans.start)):
        start = spans.start[at]
        first = bisect_left(moments, start)
        for moment in range(first, bisect_right(moments, spans.end[at], first)):
            known = innermost.get(moment)
            if known is None or spans.start[known] <= start:
                innermost[moment] = at
    return dict(Counter(names[spans.label[at]] for at in innermost.values()))
