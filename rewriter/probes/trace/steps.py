"""Steps of a trace, proved in four ways that may agree or not.

(1) annotations, (2) replays of CUDA graphs, (3) the period of kernel names, (4) calls over layers.
The number of steps that a profiler was asked for is no proof: sglang up to 0.5.15 records one
less, and torch can lose the first kernels of a session (pytorch#192021).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from statistics import median

from rewriter.probes.trace.labels import Label
from rewriter.probes.trace.period import boundaries, find_period
from rewriter.probes.trace.placing import Marks, Step, by_launch, by_start
from rewriter.probes.trace.timeline import Timeline

_WHOLE = 0.97
"""A step at either end with fewer than this part of the median's kernels is partial."""
_OVERFULL = 1.5
"""A last step with more than this holds what came after it."""


class Way(str, Enum):
    """How steps are proved."""

    ANNOTATION = "annotations"
    GRAPH = "graph replays"
    PERIOD = "period of names"
    COUNT = "calls / layers"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Proof:
    """One way's answer.

    Attributes:
        way: which.
        steps: how many it finds; None where it cannot tell.
        agrees: whether that is the number found by the way that was used, give or take the
            partial steps at both ends; None where it cannot tell.
        note: what was counted, or why it cannot tell.
    """

    way: Way
    steps: float | None
    note: str
    agrees: bool | None = None


@dataclass(frozen=True)
class Steps:
    """The steps that a diagnosis is about.

    Attributes:
        way: how they were found; None where nothing marks them.
        label: stage and batch of the steps taken.
        whole: the steps taken.
        seen: steps of that label, the partial ones too.
        dropped: what was left out, and why.
        others: steps of other labels, by label.
        proofs: all four ways.
    """

    way: Way | None
    label: Label
    whole: tuple[Step, ...]
    seen: int
    dropped: tuple[str, ...]
    others: dict[Label, int]
    proofs: tuple[Proof, ...]


def find_steps(
    timeline: Timeline, *, truncated: bool, layers: int | None, layer_calls: Sequence[int]
) -> Steps:
    """Find the steps of a recording.

    Args:
        timeline: the recording.
        truncated: the file has no end, so that its last step is not whole.
        layers: attention layers, if known.
        layer_calls: the launches of a kernel that runs once a layer, in the order of time.
    """
    answers = [
        _annotations(timeline),
        _graphs(timeline),
        _period(timeline),
        _count(timeline, layer_calls, layers),
    ]
    way, steps = next(((proof.way, place()) for proof, place in answers if place), (None, []))
    label, taken, others = _chosen(steps)
    ragged = truncated or not timeline.recording.complete
    whole, dropped = _without_ends(taken, ragged=ragged)
    seen = len(taken)
    every = seen + sum(others.values())
    judged = tuple(_judged(proof, seen, every) for proof, _ in answers)
    return Steps(way, label, tuple(whole), seen, tuple(dropped), others, judged)


_Answer = tuple[Proof, Callable[[], list[Step]] | None]
"""What a way finds, and how the steps are made if it is the one to be used."""


def _annotations(timeline: Timeline) -> _Answer:
    spans, place = timeline.recording.steps, by_launch
    if not spans.start or all(map(math.isnan, timeline.launched)):
        spans, place = timeline.recording.device_steps, by_start
    if not spans.start:
        note = "none in the trace (sglang writes them from 0.5.11 on)"
        return Proof(Way.ANNOTATION, None, note), None
    marks = Marks.of(spans)
    counted = Counter(str(label) for label in marks.labels)
    note = ", ".join(f"{count} x {label}" for label, count in counted.most_common(3))
    if place is by_start:
        note += ", on the GPU only"
    return Proof(Way.ANNOTATION, len(marks.starts), note), lambda: place(timeline, marks)


def _graphs(timeline: Timeline) -> _Answer:
    """Count the replays that have kernels on the main stream."""
    recording = timeline.recording
    starts = {
        recording.correlation[at]: timeline.launched[at]
        for at in timeline.order
        if timeline.in_graph[at] and recording.stream[at] == timeline.main_stream
    }
    if not starts:
        return Proof(Way.GRAPH, None, "no kernel was launched by a graph: eager"), None
    proof = Proof(Way.GRAPH, len(starts), f"{len(starts)} replays with kernels on the main stream")
    marks = Marks.silent(sorted(starts.values()))
    return proof, (lambda: by_launch(timeline, marks)) if len(starts) > 1 else None


def _period(timeline: Timeline) -> _Answer:
    recording = timeline.recording
    main = [at for at in timeline.order if recording.stream[at] == timeline.main_stream]
    codes: dict[str, int] = {}
    names = [recording.kinds[recording.kind[at]].name for at in main]
    sequence = [codes.setdefault(name, len(codes)) for name in names]
    found = find_period(sequence)
    if found is None:
        return Proof(Way.PERIOD, None, "the kernels' names do not repeat"), None
    length, repeats = found
    note = f"every {length:,} of {len(main):,} kernels, {repeats:.1%} repeat"
    marks = Marks.silent([recording.start[main[at]] for at in boundaries(sequence, length)])
    return (
        Proof(Way.PERIOD, len(main) / length, note),
        lambda: _closed(by_start(timeline, marks), length),
    )


def _closed(steps: list[Step], length: int) -> list[Step]:
    """Leave out a last period that is not full: nothing else marks its end."""
    return steps[:-1] if steps and len(steps[-1].kernels) < _WHOLE * length else steps


def _count(timeline: Timeline, calls: Sequence[int], layers: int | None) -> _Answer:
    if not layers:
        return Proof(Way.COUNT, None, "the number of layers is not known (--model)"), None
    if not calls:
        return Proof(Way.COUNT, None, "no kernel that runs once a layer was recognised"), None
    starts = [timeline.recording.start[at] for at in calls[:: layers or 1]]
    full = len(calls) // layers
    return (
        Proof(Way.COUNT, len(calls) / layers, f"{len(calls):,} calls / {layers} layers"),
        lambda: by_start(timeline, Marks.silent(starts))[:full],
    )


def _judged(proof: Proof, seen: int, every: int) -> Proof:
    """Compare with the steps taken, or with those of all labels; a part of one at each end."""
    if proof.steps is None or not seen:
        return proof
    agrees = any(number - 1 < proof.steps < number + 2 for number in {seen, every})
    several = round(proof.steps / seen)
    if agrees or several < 2 or abs(proof.steps / several - seen) >= 1:
        return replace(proof, agrees=agrees)
    # A replay for a part of the model, or layers that look like each other.
    return replace(proof, agrees=False, note=f"{proof.note}; {several} a step")


def _chosen(steps: Sequence[Step]) -> tuple[Label, list[Step], dict[Label, int]]:
    """Take decoding before all else, then the label of which there are most."""
    labels = Counter(step.label for step in steps)
    if not labels:
        return Label("STEP"), [], {}
    label = max(labels, key=lambda one: (one.stage == "DECODE", labels[one], str(one)))
    others = {other: count for other, count in labels.items() if other != label}
    return label, [step for step in steps if step.label == label], others


def _without_ends(taken: Sequence[Step], *, ragged: bool) -> tuple[list[Step], list[str]]:
    """Cut partial steps at both ends; ``ragged`` if the last one's end was not recorded."""
    whole = [step for step in taken if step.kernels]
    dropped = []
    if len(whole) < len(taken):
        dropped.append(f"{len(taken) - len(whole)} steps without kernels in the trace")
    if ragged and len(whole) > 1:
        whole.pop()
        dropped.append("the last step: the trace ends in it")
    usual = median([len(step.kernels) for step in whole]) if whole else 0
    for which, at in (("first", 0), ("last", -1)):
        kernels = len(whole[at].kernels) if len(whole) > 1 else usual
        if kernels < _WHOLE * usual or (at == -1 and kernels > _OVERFULL * usual):
            whole.pop(at)
            dropped.append(f"the {which} step: {kernels:,} kernels, others have {usual:,.0f}")
    return whole, dropped
