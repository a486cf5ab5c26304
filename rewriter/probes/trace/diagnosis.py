"""From a trace file to what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median

from rewriter.probes.trace.bandwidth import peak_bandwidth
from rewriter.probes.trace.cast import CastGroup, cast_groups
from rewriter.probes.trace.facts import Context, Judgement, Verdict, judge
from rewriter.probes.trace.families import CAST_COPY, FA3, MLA, Family
from rewriter.probes.trace.files import Progress
from rewriter.probes.trace.findings import Asked, Diagnosis
from rewriter.probes.trace.geometry import ROW
from rewriter.probes.trace.heads import Head
from rewriter.probes.trace.host import host_step_us
from rewriter.probes.trace.known import Known, server_beside
from rewriter.probes.trace.labels import Label, context_tokens, read_label
from rewriter.probes.trace.placing import Step
from rewriter.probes.trace.prediction import Prediction, gather_ms
from rewriter.probes.trace.problems import TraceError
from rewriter.probes.trace.reading import Reading
from rewriter.probes.trace.recording import Recording, Recordings
from rewriter.probes.trace.rejected import rejected
from rewriter.probes.trace.remedies import Remedy, remedies
from rewriter.probes.trace.steps import find_steps
from rewriter.probes.trace.timeline import Timeline
from rewriter.probes.trace.usage import KernelUse, Tally, families_of

_ROUTING = re.compile(r"topk_softmax|topk_sigmoid|moe_fused_gate|moe_align_block_size|_router_")
_RANK = re.compile(r"-(TP-\d+(?:-DP-\d+)?(?:-PP-\d+)?(?:-EP-\d+)?)")


def diagnose(path: Path, asked: Asked, progress: Progress | None = None) -> list[Diagnosis]:
    """Read a trace and diagnose each rank in it.

    Raises:
        TraceError: it is no trace, or has no GPU kernels; the message says why.
    """
    reading = Reading(path, progress)
    recordings = Recordings()
    for events in reading.batches():
        recordings.take(events)
        del events
    known = asked.known.over(server_beside(path))
    asked = replace(asked, known=known)
    busy = {rank: one for rank, one in recordings.by_rank.items() if len(one.start)}
    if not busy:
        raise TraceError(f"{path}: {_why_empty(reading, recordings)}")
    return [_diagnosed(reading, rank, busy.pop(rank), asked) for rank in sorted(busy)]


def _why_empty(reading: Reading, recordings: Recordings) -> str:
    """Say why a trace has no GPU kernels (TraceLens#733, kineto#1060)."""
    launches = sum(len(one.launch_at) for one in recordings.by_rank.values())
    found = f"no GPU kernels in {reading.health.events:,} events: "
    if not reading.health.events:
        return found + "the array of events is empty"
    if any(one.unplaced for one in recordings.by_rank.values()):
        return found + "all of them have no time stamp"
    if reading.health.truncated:
        return found + "the file ends before them; its writer was killed, or still writes"
    if launches:
        return found + (
            f"the host launched {launches:,} and none was recorded. CUPTI was not available: "
            "another profiler was attached, or the driver restricts counters to administrators"
        )
    return found + (
        'only the host was recorded. Ask /start_profile for "activities": ["CPU", "GPU"], while '
        "requests are being decoded"
    )


def _diagnosed(reading: Reading, rank: str, recording: Recording, asked: Asked) -> Diagnosis:
    known = asked.known
    timeline = Timeline(recording)
    truncated = reading.health.truncated or reading.health.cut is not None
    layer_calls = _layer_calls(timeline)
    steps = find_steps(
        timeline, truncated=truncated, layers=known.attention_layers, layer_calls=layer_calls
    )
    taken = steps.whole or (Step(steps.label, timeline.order),)
    width = known.model.row if known.model else ROW
    groups = cast_groups(timeline, taken, width)
    busy = timeline.busy([at for step in taken for at in step.kernels])
    gpu_us = busy.summed / len(taken)
    tally = Tally.of(timeline, taken)
    calls = tally.kernels(None)
    judgements = tuple(judge(group, _context(group, calls, gpu_us, known)) for group in groups)
    cause = _cause(judgements)
    named = cause.group.kind if cause and cause.verdict is Verdict.FULL_POOL else None
    kernels = tally.kernels(named)
    period = _period_us(timeline, taken)
    peak = peak_bandwidth(reading.head.device.name) if reading.head.device else None
    prediction = None
    if asked.context is None:
        asked = replace(asked, context=_annotated_context(recording, steps.label))
    if cause is not None:
        host = host_step_us(timeline, taken)
        prediction = _predicted(cause, asked, reading.head, (period, gpu_us, host), steps.label)
    ways: list[Remedy] = []
    if cause is not None and prediction is not None and named is not None:
        capability = reading.head.device.capability if reading.head.device else (0, 0)
        ways = remedies(cause, known, prediction, capability, asked.codemods)
    cast = cause.group.by_step if cause and named else (0.0,) * len(taken)
    context = _context(groups[0] if groups else None, calls, gpu_us, known)
    return Diagnosis(
        path=reading.path,
        rank=rank or _rank_of(reading),
        head=reading.head,
        health=reading.health,
        kernels_read=recording.kernels,
        negative=recording.negative,
        zero=recording.zero,
        unplaced=recording.unplaced,
        known=known,
        steps=steps,
        busy=busy,
        gpu_us=gpu_us,
        period_us=period,
        kernels=tuple(kernels),
        families=tuple(families_of(kernels)),
        judgements=judgements,
        cause=cause,
        rejected=tuple(rejected(kernels, gpu_us, cause, context, peak)),
        prediction=prediction,
        remedies=tuple(ways),
        graph_share=tally.graph_share,
        attention_calls=context.attention_calls,
        moe_calls=context.moe_calls,
        by_step=tuple(zip(tally.steps, cast, strict=True)),
    )


def _cause(judgements: Sequence[Judgement]) -> Judgement | None:
    """Return the group that a verdict names; without one, the longest that is undecided."""
    for verdict in (Verdict.FULL_POOL, Verdict.UNDECIDED):
        for judgement in judgements:
            if judgement.verdict is verdict:
                return judgement
    return None


def _layer_calls(timeline: Timeline) -> list[int]:
    """Return the launches of what runs once a layer: the longest cast, else MLA attention."""
    recording = timeline.recording
    kinds = [
        at
        for at, kind in enumerate(recording.kinds)
        if CAST_COPY.search(kind.name) and kind.total > 0.02 * recording.gpu_us
    ]
    if not kinds:
        kinds = [at for at, kind in enumerate(recording.kinds) if _is_mla(kind.name, kind.family)]
    if not kinds:
        return []
    wanted = max(kinds, key=lambda at: recording.kinds[at].total)
    return [at for at in timeline.order if recording.kind[at] == wanted]


def _is_mla(name: str, family: Family) -> bool:
    return family is Family.ATTENTION and bool(MLA.search(name) or FA3.search(name))


def _context(
    group: CastGroup | None, kernels: Sequence[KernelUse], gpu_us: float, known: Known
) -> Context:
    attention = [use for use in kernels if _is_mla(use.name, use.family)]
    routing = [use.calls for use in kernels if _ROUTING.search(use.name)]
    return Context(
        known=known,
        share=group.step_us / gpu_us if group and gpu_us else 0.0,
        attention_calls=max(attention, key=lambda use: use.us).calls if attention else None,
        moe_calls=min(routing) if routing else None,
    )


def _period_us(timeline: Timeline, taken: Sequence[Step]) -> float | None:
    """Return the time from one step to the next on the GPU: the median of its first kernels'."""
    starts = [timeline.recording.start[step.kernels[0]] for step in taken if step.kernels]
    gaps = [after - before for before, after in pairwise(starts)]
    return median(gaps) if gaps else None


def _predicted(
    cause: Judgement,
    asked: Asked,
    head: Head,
    times_us: tuple[float | None, float, float | None],
    label: Label,
) -> Prediction:
    """Predict the step from its period, its GPU time and its host time, in microseconds."""
    period, gpu_us, host_us = times_us
    stays = 0.0
    peak = peak_bandwidth(head.device.name) if head.device else None
    if asked.context and peak and cause.group.elements is not None:
        layers = round(cause.group.calls_a_step)
        stays = gather_ms(layers, asked.context, cause.group.elements.width, peak)
    return Prediction(
        step_ms=asked.tpot_ms or (period or gpu_us) / 1e3,
        measured=asked.tpot_ms is not None,
        gpu_ms=gpu_us / 1e3,
        cast_ms=cause.group.step_us / 1e3,
        stays_ms=stays,
        host_ms=None if host_us is None else host_us / 1e3,
        host_counts=not head.with_stack,
        batch=label.batch or 1,
    )


def _annotated_context(recording: Recording, label: Label) -> int | None:
    """Return the tokens in the batch's contexts, where the annotations of the steps tell."""
    names = [name for name in recording.steps.names if read_label(name) == label]
    told = [tokens for name in names if (tokens := context_tokens(name)) is not None]
    return round(median(told)) if told else None


def _rank_of(reading: Reading) -> str:
    found = _RANK.search(reading.path.name) or _RANK.search(reading.head.trace_name)
    if found:
        return found[1].replace("-", "").replace("DP", " DP").replace("PP", " PP")
    return "" if reading.head.rank is None else f"rank {reading.head.rank}"
