"""The host's time a step: a floor under any step that a faster GPU could have."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from statistics import median

from rewriter.probes.trace.placing import Step
from rewriter.probes.trace.timeline import Timeline

_BLOCKED = 10.0
"""A launch that takes so many times the usual one waits for room in the GPU's queue."""


def host_step_us(timeline: Timeline, steps: Sequence[Step]) -> float | None:
    """Return how long the host is busy launching one step, in microseconds, or None.

    From the first launch of a step's kernels to the end of the last one, without the calls in
    which the host waits for the GPU. Work before the first and after the last launch is not seen:
    the host needs at least this.
    """
    recording = timeline.recording
    calls = sorted(
        (at, lasted)
        for at, lasted, thread in zip(
            recording.launch_at, recording.launch_for, recording.launch_thread, strict=True
        )
        if thread == timeline.main_thread
    )
    if not calls:
        return None
    moments = [at for at, _ in calls]
    usual = median(lasted for _, lasted in calls)
    found = []
    for step in steps:
        launches = [
            t for t in map(timeline.launched.__getitem__, step.kernels) if not math.isnan(t)
        ]
        if not launches:
            continue
        first, last = min(launches), max(launches)
        inside = calls[bisect_left(moments, first) : bisect_left(moments, last + 0.001)]
        if not inside:
            continue
        end = max(at + lasted for at, lasted in inside)
        queued = sum(lasted - usual for _, lasted in inside if lasted > _BLOCKED * usual)
        found.append(max(0.0, end - first - queued - _waits(timeline, first, end)))
    return median(found) if found else None


def _waits(timeline: Timeline, first: float, end: float) -> float:
    """Return the time in which the host waits between two moments."""
    waits = timeline.recording.waits
    return sum(
        max(0.0, min(stop, end) - max(start, first))
        for start, stop in zip(waits.start, waits.end, strict=True)
    )
