"""A diagnosis for people: 80 columns, readable without colour."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from rewriter.probes.trace.facts import Verdict
from rewriter.probes.trace.families import short_name
from rewriter.probes.trace.findings import Diagnosis
from rewriter.probes.trace.usage import KernelUse
from rewriter.report.diagnosis_sections import (
    WIDTH,
    aligned,
    fact_lines,
    family_lines,
    hanging,
    heading,
    milliseconds,
    pool_lines,
    prediction_lines,
    printable,
)
from rewriter.report.text import paint

_HOST_BOUND = 0.4
_MANY_EVENTS = 1_000_000

VERDICTS = {
    Verdict.FULL_POOL: ("full-pool KV cast", "31"),
    Verdict.UNDECIDED: ("undecided, perhaps a full-pool KV cast", "33"),
    Verdict.NONE: ("no full-pool KV cast", "32"),
}


# sglang#34943: a scheduler stood still for 25 s while it wrote such a trace.
_HINT = "5 steps of one rank (profile_by_stage, with_stack false) show the same"


def diagnosis_lines(found: Diagnosis, *, colour: bool, verbose: bool = False) -> Iterator[str]:
    """Yield the page of one rank's diagnosis."""
    yield from _verdict(found, colour)
    yield ""
    yield from _recorded(found)
    yield ""
    yield from family_lines(found.families, found.gpu_us, _spent(found))
    yield f"  {found.unattributed:.1%} of it in kernels that no family knows"
    if verbose:
        yield ""
        yield from _kernels(found.kernels, found.gpu_us)
    yield ""
    yield from _steps(found)
    shown = found.cause or next((j for j in found.judgements if j.share >= 0.02), None)
    if shown is not None:
        yield ""
        yield heading("Facts", "a verdict needs F1, F3 and one of F2, F4, F7")
        yield from fact_lines(shown.facts, colour=colour)
    yield ""
    yield heading("Not the cause" if found.cause else "Looked for")
    for other in found.rejected:
        yield from hanging(f"{other.hypothesis}: ", other.reason, indent=2)
    if found.prediction is not None:
        yield ""
        yield from prediction_lines(found.prediction)
    if found.pool is not None:
        yield ""
        yield heading("The pool", "GB = 10^9 bytes, GiB = 2^30")
        for line in pool_lines(found.pool):
            yield f"  {line}"
    if found.remedies:
        yield ""
        yield heading("What would end it")
        for remedy in found.remedies:
            yield f"  {remedy.action}"
            yield from hanging("", remedy.effect, indent=6, hang=0)


def _verdict(found: Diagnosis, colour: bool) -> Iterator[str]:
    text, code = VERDICTS[found.verdict]
    rank = f" [{found.rank}]" if found.rank else ""
    yield printable(found.path.name) + rank + ": " + paint(text, code, colour=colour)
    yield from textwrap.wrap(summary(found), WIDTH, initial_indent="  ", subsequent_indent="  ")


def summary(found: Diagnosis) -> str:
    """Return the diagnosis in two sentences."""
    if found.cause is None:
        largest = max(found.judgements, key=lambda j: j.share, default=None)
        if largest is None:
            return "No kernel of the trace casts on the GPU."
        said = f"The largest cast takes {largest.share:.1%} of the GPU time"
        return f"{said}. {_capital(largest.reason)}.{_idle(found)}"
    cast, whole = found.cast_us / 1e3, found.gpu_us / 1e3
    text = (
        f"The cast takes {found.cause.share:.1%} of the GPU time, {milliseconds(cast)} of "
        f"{milliseconds(whole)} ms a step. {found.cause.reason}."
    )
    prediction = found.prediction
    if prediction is None:
        return text
    return text + (
        f" Without it: {milliseconds(prediction.new_ms)} ms a step predicted instead of "
        f"{milliseconds(prediction.step_ms)}."
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _idle(found: Diagnosis) -> str:
    """Say that the host sets the pace where it does: no kernel is to blame then."""
    if found.idle is None or found.idle < _HOST_BOUND:
        return ""
    return f" The GPU is idle for {found.idle:.0%} of a step: the host sets the pace."


def _recorded(found: Diagnosis) -> Iterator[str]:
    yield heading("Recorded")
    device = found.head.device
    ranks = f", {found.head.world_size} ranks" if found.head.world_size else ""
    if device is not None:
        capability = ".".join(map(str, device.capability))
        yield from hanging("", f"{printable(device.name)}, sm {capability}{ranks}", indent=2)
    mode = f"CUDA graphs for {found.graph_share:.0%} of the GPU time"
    mode = mode if found.graph_share else "eager"
    extras = [
        name
        for name, on in (("stacks", found.head.with_stack), ("shapes", found.head.record_shapes))
        if on
    ]
    recorded = f"; recorded with {' and '.join(extras)}" if extras else ""
    yield from hanging("", f"{mode}{recorded}", indent=2)
    health = found.health
    counted = f"{health.events:,} events, {found.kernels_read:,} kernels; "
    yield from hanging(counted, _damage(found), indent=2)
    known = found.known
    model = f"{known.model.name}, {known.model.layers} layers" if known.model else ""
    pool = f"pool of {known.pool:,} tokens" if known.pool else ""
    told = [text for text in (model, pool, known.kv_dtype, known.backend, known.version) if text]
    if told:
        source = f" ({known.source})" if known.source else ""
        yield from hanging("server: ", ", ".join(told) + source, indent=2)
    if known.model is None and found.fitting_models:
        layers = f"{found.attention_calls:g} layers, {found.moe_calls:g} with experts"
        yield from hanging("", f"{layers}: --model {' or '.join(found.fitting_models)}?", indent=2)
    if found.graph_share:
        yield from hanging("", "no operator names for kernels of graphs", indent=2)
    if health.events > _MANY_EVENTS:
        yield from hanging("hint: ", _HINT, indent=2)


def _damage(found: Diagnosis) -> str:
    health = found.health
    said = [
        text
        for text, on in (
            (f"{health.repaired} repaired", health.repaired),
            (f"{health.unreadable} unreadable", health.unreadable),
            ("TRUNCATED", health.truncated),
            (health.cut or "", health.cut),
            (f"{found.negative} of negative duration, not summed", found.negative),
            (f"{found.zero} of no duration", found.zero),
            (f"{found.unplaced} without a time, not summed", found.unplaced),
            (
                f"{found.busy.overlap:.1%} of the time overlaps on a stream",
                found.busy.overlap > 0.01,
            ),
        )
        if on
    ]
    return ", ".join(said) if said else "nothing to repair"


def _spent(found: Diagnosis) -> str:
    unit = "a step" if found.steps.way else "in all"
    text = f"GPU {milliseconds(found.gpu_us / 1e3)} {unit}"
    if found.period_us:
        text += f", period {milliseconds(found.period_us / 1e3)}"
    if found.idle is not None:
        text += f", idle {found.idle:.0%}"
    return text


def _kernels(kernels: Sequence[KernelUse], gpu_us: float) -> Iterator[str]:
    yield heading("Kernels", "ms a step, calls, us a call")
    for use in kernels[:25]:
        name = printable(short_name(use.name, 42))
        yield f"  {name:<42} {use.us / 1e3:>9.3f} {use.calls:>8,.1f} {use.each_us:>10,.2f}"


def _steps(found: Diagnosis) -> Iterator[str]:
    steps = found.steps
    if steps.way is None:
        yield heading("Steps", "none found: all figures are of the whole trace")
    else:
        yield heading(f"Steps: {len(steps.whole)} whole, {steps.label}", f"by {steps.way}")
    for proof in steps.proofs:
        number = "-" if proof.steps is None else f"{proof.steps:,.4g}"
        agrees = {True: "agrees", False: "differs", None: ""}[proof.agrees]
        label = f"{proof.way:<17} {number:>6}  {agrees:<8}"
        yield from aligned(label, proof.note, width=len(label) + 1)
    for other, count in steps.others.items():
        yield f"  left out: {count} steps {other}"
    for dropped in steps.dropped:
        yield from hanging("left out: ", dropped, indent=2)
