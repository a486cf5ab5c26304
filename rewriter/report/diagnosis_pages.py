"""Pages for people beside a single rank's: several ranks, before and after, tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rewriter.probes.trace.comparison import Comparison, FamilyChange
from rewriter.probes.trace.families import short_name
from rewriter.probes.trace.findings import Diagnosis
from rewriter.probes.trace.tabled import TableDiagnosis
from rewriter.probes.trace.usage import KernelUse
from rewriter.report.diagnosis import VERDICTS
from rewriter.report.diagnosis_sections import (
    aligned,
    fact_lines,
    family_lines,
    hanging,
    heading,
    milliseconds,
    prediction_lines,
    printable,
)
from rewriter.report.text import paint

_MOST = 6
_SMALL = 0.005


def rank_lines(found: Sequence[Diagnosis]) -> Iterator[str]:
    """Yield one line a rank; times are milliseconds of a step."""
    yield heading("Ranks", "ms a step")
    yield f"  {'rank':<14} {'steps':>5} {'period':>9} {'GPU':>9} {'cast':>9} {'share':>7}  verdict"
    for one in found:
        share = one.cause.share if one.cause else 0.0
        period = f"{one.period_us / 1e3:.3f}" if one.period_us else "-"
        yield (
            f"  {printable(one.rank or one.path.name)[:14]:<14} {len(one.steps.whole):>5} "
            f"{period:>9} {one.gpu_us / 1e3:>9.3f} {one.cast_us / 1e3:>9.3f} {share:>7.1%}  "
            f"{one.verdict}"
        )


def comparison_lines(found: Comparison, *, colour: bool) -> Iterator[str]:
    """Yield the page of a comparison."""
    yield "Before and after"
    yield from _sums(found, colour)
    for caution in found.cautions:
        yield from hanging("caution: ", caution, indent=2)
    if found.after is not None:
        yield ""
        yield from _families(found)
        yield from _kernels("Vanished", found.vanished)
        yield from _kernels("New", found.new)
    if found.hypotheses:
        yield ""
        yield heading("What could explain the rest", f"{found.unexplained_ms:.2f} ms a step")
        for hypothesis in found.hypotheses:
            fits = {True: "fits", False: "no", None: "open"}[hypothesis.fits]
            yield from aligned(f"{fits:<5} ", f"{hypothesis.name}: {hypothesis.number}", width=6)


def _sums(found: Comparison, colour: bool) -> Iterator[str]:
    source = "measured" if found.measured else "in the traces"
    before, after = milliseconds(found.step_before_ms), milliseconds(found.step_after_ms)
    ratio = found.step_before_ms / found.step_after_ms if found.step_after_ms else 0.0
    yield f"  step       {before:>8} -> {after} ms ({source}), {ratio:.2f} times as fast"
    if found.after is not None:
        old, new = (milliseconds(d.gpu_us / 1e3) for d in (found.before, found.after))
        yield f"  GPU time   {old:>8} -> {new} ms"
    if not found.cast_ms:
        yield "  predicted         - no cast of the pool's size before: nothing to realise"
        return
    if found.realised is None:
        yield "  predicted         - the host sets the pace of the step, with the cast or without"
    else:
        yield f"  predicted  {milliseconds(found.predicted_ms):>8} ms less"
        text = f"{found.realised:.1%} of the prediction"
        told = paint(text, "32" if found.realised >= 0.9 else "31", colour=colour)
        yield f"  realised   {milliseconds(found.realised_ms):>8} ms less, {told}"
    if found.realised_gpu_ms is not None and found.realised_gpu is not None:
        cast = milliseconds(found.cast_ms)
        yield (
            f"  on the GPU {milliseconds(found.realised_gpu_ms):>8} ms less, "
            f"{found.realised_gpu:.1%} of the cast's {cast}"
        )


def _families(found: Comparison) -> Iterator[str]:
    yield heading("GPU time by family, ms a step")
    yield f"  {'':<20} {'before':>9} {'after':>9} {'change':>9}"
    whole = max(found.before.gpu_us, 1.0)
    rest = [c for c in found.families if max(c.before_us, c.after_us) < _SMALL * whole]
    for change in found.families:
        if change not in rest:
            yield _change(str(change.family), change.before_us, change.after_us)
    if rest:
        yield _change(f"{len(rest)} more families", *_added(rest))


def _added(changes: Sequence[FamilyChange]) -> tuple[float, float]:
    return sum(c.before_us for c in changes), sum(c.after_us for c in changes)


def _change(name: str, before: float, after: float) -> str:
    change = (after - before) / 1e3
    return f"  {name:<20} {before / 1e3:>9.3f} {after / 1e3:>9.3f} {change:>+9.3f}"


def _kernels(title: str, uses: Sequence[KernelUse]) -> Iterator[str]:
    yield ""
    yield heading(f"{title} kernels" if uses else f"{title} kernels: none")
    for use in uses[:_MOST]:
        name = printable(short_name(use.name, 40))
        yield f"  {name:<40} {use.us / 1e3:>9.3f} ms {use.calls:>7,.1f} calls a step"
    if len(uses) > _MOST:
        yield f"  and {len(uses) - _MOST} more"


def table_lines(found: TableDiagnosis, *, colour: bool) -> Iterator[str]:
    """Yield the page of a key_averages table."""
    text, code = VERDICTS[found.verdict]
    name = printable(found.path.name)
    yield f"{name}, table {found.number}: " + paint(text, code, colour=colour)
    yield from hanging("", found.reason[:1].upper() + found.reason[1:] + ".", indent=2, hang=0)
    yield ""
    yield heading("Recorded")
    yield f"  {len(found.table.rows)} rows, {len(found.table.kernels)} of them kernels"
    device = found.table.device_us / 1e3
    hidden = found.table.hidden_us / found.table.device_us
    yield f"  device time {device:,.3f} ms in all, {hidden:.1%} of it in rows that are not printed"
    mode = "eager: an operator's row repeats the kernel's" if found.eager else "no operator's row"
    yield f"  {mode}"
    if found.table.unreadable:
        yield f"  {found.table.unreadable} lines could not be read"
    steps = "not known" if found.steps is None else f"{found.steps}"
    yield from hanging("steps: ", f"{steps} ({found.steps_by})", indent=2)
    yield ""
    unit = "a step" if found.steps else "in all"
    whole = found.table.device_us / (found.steps or 1)
    yield from family_lines(found.families, whole, f"GPU {milliseconds(whole / 1e3)} {unit}")
    if found.facts:
        yield ""
        yield heading("Facts", "a verdict needs F1, F3 and one of F2, F4, F7")
        yield from fact_lines(found.facts, colour=colour)
    if found.prediction is not None:
        yield ""
        yield from prediction_lines(found.prediction)
