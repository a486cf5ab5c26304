"""A recording in the order of time: what launched a kernel, what follows it, when the GPU is busy.

All times are microseconds of the trace's clock; only differences are formed.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from rewriter.probes.trace.recording import Recording


@dataclass(frozen=True)
class Busy:
    """GPU time against the clock.

    Attributes:
        summed: durations added up.
        per_stream: the union of intervals on each stream, added up; less than ``summed`` where a
            duration runs over the next kernel of its stream (TraceLens#669).
        union: the union of intervals over all streams: the time in which the GPU did anything.
    """

    summed: float
    per_stream: float
    union: float

    @property
    def overlap(self) -> float:
        """Part of the summed time that lies under another kernel of the same stream."""
        return 1.0 - self.per_stream / self.summed if self.summed else 0.0


class Timeline:
    """The placed kernels of a recording.

    Attributes:
        recording: what it is made of.
        order: kernels by their start.
        launched: by kernel, when the host launched it; NaN where no launch was recorded.
        in_graph: by kernel, 1 where a graph launched it.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        starts = recording.start
        self.order = array("i", sorted(range(len(starts)), key=starts.__getitem__))
        self.launched, self.in_graph = _linked(recording)

    @cached_property
    def main_stream(self) -> int:
        """The stream with the most GPU time."""
        time: Counter[int] = Counter()
        for stream, duration in zip(self.recording.stream, self.recording.duration, strict=True):
            time[stream] += duration if duration > 0 else 0  # type: ignore[assignment]
        return max(time, key=lambda stream: (time[stream], -stream))

    @cached_property
    def main_thread(self) -> int:
        """The host thread with the most launches, of graphs before single kernels."""
        recording = self.recording
        graphs = Counter(
            thread
            for thread, graph in zip(recording.launch_thread, recording.launch_graph, strict=True)
            if graph
        )
        calls = graphs or Counter(recording.launch_thread)
        return calls.most_common(1)[0][0] if calls else 0

    @cached_property
    def following(self) -> array[int]:
        """By kernel, the next one on its stream, or -1."""
        after = array("i", [-1]) * len(self.order)
        last: dict[int, int] = {}
        for at in self.order:
            stream = self.recording.stream[at]
            if stream in last:
                after[last[stream]] = at
            last[stream] = at
        return after

    def busy(self, kernels: Sequence[int] | None = None) -> Busy:
        """Return the GPU time of these kernels (in the order of time), or of all."""
        start, duration, stream = (
            self.recording.start,
            self.recording.duration,
            self.recording.stream,
        )
        summed = union = per_stream = 0.0
        reached = float("-inf")
        by_stream: dict[int, float] = {}
        for at in self.order if kernels is None else kernels:
            lasted = duration[at]
            if lasted <= 0:
                continue
            begin = start[at]
            end = begin + lasted
            summed += lasted
            if end > reached:
                union += end - begin if begin >= reached else end - reached
                reached = end
            own = by_stream.get(stream[at], begin)
            if end > own:
                per_stream += end - begin if begin >= own else end - own
                by_stream[stream[at]] = end
        return Busy(summed, per_stream, union)


def _linked(recording: Recording) -> tuple[array[float], array[int]]:
    """Return each kernel's launch time and whether a graph launched it.

    Correlations grow with the time of the call, so that a sorted column serves as the index.
    """
    ids, times, graphs = _sorted_launches(recording)
    nan = float("nan")
    launched = array("d")
    in_graph = array("b")
    at, end = -1, len(ids)
    for correlation in recording.correlation:
        at += 1
        if at >= end or ids[at] != correlation:  # mostly the next one: kernels follow launches
            at = bisect_left(ids, correlation) if correlation >= 0 else end
        if at < end and ids[at] == correlation:
            launched.append(times[at])
            in_graph.append(graphs[at])
        else:
            launched.append(nan)
            in_graph.append(0)
    return launched, in_graph


def _sorted_launches(recording: Recording) -> tuple[array[int], array[float], array[int]]:
    ids, times, graphs = recording.launch_id, recording.launch_at, recording.launch_graph
    if _is_sorted(ids):
        return ids, times, graphs
    order = sorted(range(len(ids)), key=ids.__getitem__)
    return (
        array("q", (ids[at] for at in order)),
        array("d", (times[at] for at in order)),
        array("b", (graphs[at] for at in order)),
    )


def _is_sorted(values: Iterable[int]) -> bool:
    last = -1
    for value in values:
        if value < last:
            return False
        last = value
    return True
