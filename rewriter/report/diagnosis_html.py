"""A diagnosis as one HTML file: no network, no script, light and dark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from rewriter import __version__
from rewriter.probes.trace.comparison import Comparison
from rewriter.probes.trace.facts import Fact, Verdict
from rewriter.probes.trace.families import Family, short_name
from rewriter.probes.trace.findings import Diagnosis
from rewriter.probes.trace.prediction import Prediction
from rewriter.probes.trace.tabled import TableDiagnosis
from rewriter.probes.trace.usage import FamilyUse
from rewriter.report.diagnosis import VERDICTS, summary
from rewriter.report.diagnosis_plots import Bar, columns, stacked
from rewriter.report.diagnosis_sections import milliseconds, pool_lines, printable
from rewriter.report.diagnosis_style import STYLE

_CLASS = {Verdict.FULL_POOL: "bad", Verdict.UNDECIDED: "open", Verdict.NONE: "good"}


def html_page(
    ranks: Sequence[Diagnosis],
    tables: Sequence[TableDiagnosis],
    comparison: Comparison | None,
) -> str:
    """Return a whole page, in the order of the terminal's."""
    body = []
    if comparison is not None:
        body.append(_comparison(comparison))
    if len(ranks) > 1 and comparison is None:
        body.append(_ranks(ranks))
    body += [_rank(one) for one in ranks]
    body += [_table_page(one) for one in tables]
    title = "rewriter diagnose"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{STYLE}</style></head><body><main>{''.join(body)}"
        f"<footer>rewriter {__version__}. Times are of GPU kernels by torch's profiler; "
        "GB is 10<sup>9</sup> bytes, GiB 2<sup>30</sup>.</footer></main></body></html>\n"
    )


def _rank(found: Diagnosis) -> str:
    verdict, _ = VERDICTS[found.verdict]
    rank = f" · {found.rank}" if found.rank else ""
    shown = found.cause or next((j for j in found.judgements if j.share >= 0.02), None)
    parts = [
        f'<p class="file">{_text(found.path.name)}{_text(rank)}</p>',
        f'<h1 class="{_CLASS[found.verdict]}">{verdict[:1].upper() + verdict[1:]}</h1>',
        f'<p class="lead">{_text(summary(found))}</p>',
        _cards(found),
        _now(found),
    ]
    if len(found.by_step) > 1:
        steps = [(whole / 1e3, cast / 1e3) for whole, cast in found.by_step]
        title = "GPU time of each step"
        parts.append(f'<h2>{title}</h2><div class="plot">{columns(steps, title)}</div>')
    if shown is not None:
        parts.append(_facts(shown.facts))
    parts.append(_two("Not the cause" if found.cause else "Looked for",
                      [(r.hypothesis, r.reason) for r in found.rejected]))  # fmt: skip
    if found.prediction is not None:
        parts.append(_prediction(found.prediction))
    if found.pool is not None:
        sizes = "<br>".join(_text(line) for line in pool_lines(found.pool))
        parts.append(f"<h2>The pool</h2><p>{sizes}</p>")
    if found.remedies:
        rows = [(f"<code>{_text(r.action)}</code>", _text(r.effect)) for r in found.remedies]
        parts.append("<h2>What would end it</h2>" + _rows(rows))
    parts += [_steps(found), _kernels(found)]
    return f"<section>{''.join(parts)}</section>"


def _cards(found: Diagnosis) -> str:
    unit = "a step" if found.steps.way else "in all"
    cards = [(f"{milliseconds(found.gpu_us / 1e3)} ms", f"GPU time {unit}")]
    if found.cause is not None:
        cards.append((f"{found.cause.share:.1%}", "of it in the cast"))
    prediction = found.prediction
    if prediction is not None:
        now, then = milliseconds(prediction.step_ms), milliseconds(prediction.new_ms)
        cards.append((f"{now} → {then}", "ms a step, as it is and predicted"))
        cards.append((f"{prediction.speedup:.2f} ×", "as fast, predicted"))
    else:
        if found.period_us:
            cards.append((f"{milliseconds(found.period_us / 1e3)} ms", "from step to step"))
        if found.idle is not None:
            cards.append((f"{found.idle:.0%}", "of a step the GPU is idle"))
        cards.append((f"{len(found.steps.whole)}", f"whole steps, {found.steps.label}"))
    boxes = [f'<div class="card"><b>{_text(big)}</b><span>{_text(small)}</span></div>'
             for big, small in cards]  # fmt: skip
    return f'<div class="cards">{"".join(boxes)}</div>'


def _parts(families: Iterable[FamilyUse]) -> dict[Family, float]:
    return {use.family: use.us / 1e3 for use in families}


def _now(found: Diagnosis) -> str:
    """Plot the step as it is, and as it is predicted."""
    parts = _parts(found.families)
    idle = max(0.0, (found.period_us or 0.0) - found.gpu_us) / 1e3
    length = sum(parts.values()) + idle
    bars = [Bar("as recorded", parts, f"{milliseconds(length)} ms", idle)]
    prediction = found.prediction
    if prediction is not None and found.verdict is Verdict.FULL_POOL:
        rest = dict(parts)
        rest.pop(Family.FULL_CAST, None)
        left = max(0.0, prediction.new_ms - sum(rest.values()))
        bars.append(Bar("predicted", rest, f"{milliseconds(prediction.new_ms)} ms", left))
    title = "Time of a step by kernel family"
    return f'<h2>{title}</h2><div class="plot">{stacked(bars, title)}</div>'


def _facts(facts: Iterable[Fact]) -> str:
    rows = []
    for fact in facts:
        answer, css = {True: ("yes", "good"), False: ("no", "bad"), None: ("–", "note")}[fact.holds]
        rows.append(
            f'<tr><td class="k">{fact.key}</td><td class="{css}">{answer}</td>'
            f'<td class="k">{_text(fact.title)}</td><td>{_text(fact.number)}</td></tr>'
        )
    note = '<p class="note">A verdict needs F1, F3 and one of F2, F4 and F7.</p>'
    return f"<h2>Facts</h2>{note}<table>{''.join(rows)}</table>"


def _prediction(prediction: Prediction) -> str:
    source = "measured without the profiler" if prediction.measured else "in the trace"
    rows = [
        ("step", prediction.step_ms, f"{source}; {prediction.tokens_before:,.1f} tokens/s"),
        ("− cast", prediction.cast_ms, ""),
        ("+ what stays", prediction.stays_ms, "gather and cast of the batch's rows"),
        ("= if the GPU limits", prediction.gpu_bound_ms, ""),
    ]
    gpu = f"of {milliseconds(prediction.gpu_ms)}, {prediction.amdahl:.2f} times less"
    rows.append(("GPU time left", prediction.gpu_left_ms, gpu))
    if prediction.host_ms is not None:
        counts = "" if prediction.host_counts else "; not counted: stacks slow the host"
        rows.append(("host, at least", prediction.host_ms, f"as profiled{counts}"))
    after = f"{prediction.tokens_after:,.1f} tokens/s"
    rows.append(("predicted", prediction.new_ms, after))
    body = "".join(
        f'<tr><td>{label}</td><td class="n">{milliseconds(value)} ms</td>'
        f"<td>{_text(note)}</td></tr>"
        for label, value, note in rows
    )
    return f"<h2>Prediction: max(host, step − cast + what stays)</h2><table>{body}</table>"


def _steps(found: Diagnosis) -> str:
    body = []
    for proof in found.steps.proofs:
        number = "–" if proof.steps is None else f"{proof.steps:,.4g}"
        agrees = {True: "agrees", False: "differs", None: ""}[proof.agrees]
        body.append(
            f'<tr><td class="k">{proof.way}</td><td class="n">{number}</td><td>{agrees}</td>'
            f"<td>{_text(proof.note)}</td></tr>"
        )
    left = [f"{count} steps {label}" for label, count in found.steps.others.items()]
    left += found.steps.dropped
    note = f'<p class="note">Left out: {_text("; ".join(left))}.</p>' if left else ""
    title = f"Steps: {len(found.steps.whole)} whole, {found.steps.label}"
    return f"<h2>{_text(title)}</h2><table>{''.join(body)}</table>{note}"


def _kernels(found: Diagnosis) -> str:
    body = "".join(
        f'<tr><td><code title="{_text(use.name)}">{_text(short_name(use.name))}</code></td>'
        f'<td>{_text(str(use.family))}</td><td class="n">{use.us / 1e3:,.3f}</td>'
        f'<td class="n">{use.calls:,.1f}</td><td class="n">{use.each_us:,.2f}</td></tr>'
        for use in found.kernels[:20]
    )
    head = (
        '<tr><th>kernel</th><th>family</th><th class="n">ms a step</th>'
        '<th class="n">calls</th><th class="n">µs a call</th></tr>'
    )
    return f"<h2>Kernels</h2><table>{head}{body}</table>"


def _ranks(found: Sequence[Diagnosis]) -> str:
    bars = [
        Bar(one.rank or one.path.name[:16], _parts(one.families), f"{one.gpu_us / 1e3:.1f} ms")
        for one in found
    ]
    title = "GPU time of a step by rank"
    return f'<section><h1>{title}</h1><div class="plot">{stacked(bars, title)}</div></section>'


def _comparison(found: Comparison) -> str:
    headline, css = "No prediction to measure by", "open"
    if found.realised is not None:
        headline = f"{found.realised:.1%} of the predicted saving realised"
        css = "good" if found.realised >= 0.9 else "bad"
    elif found.realised_gpu is not None:
        headline = f"{found.realised_gpu:.1%} of the cast's GPU time gone; the host sets the pace"
    before, after = milliseconds(found.step_before_ms), milliseconds(found.step_after_ms)
    source = "measured" if found.measured else "in the traces"
    parts = [
        f'<p class="file">Before and after</p><h1 class="{css}">{headline}</h1>',
        f'<p class="lead">The step went from {before} to {after} ms ({source}): '
        f"{milliseconds(found.realised_ms)} ms less, {milliseconds(found.predicted_ms)} "
        "ms predicted.</p>",
    ]
    parts += [f'<p class="open">Caution: {_text(caution)}.</p>' for caution in found.cautions]
    if found.after is not None:
        sides = (("before", found.before), ("after", found.after))
        bars = [
            Bar(
                label,
                _parts(one.families),
                f"{milliseconds((one.period_us or one.gpu_us) / 1e3)} ms",
                max(0.0, (one.period_us or 0.0) - one.gpu_us) / 1e3,
            )
            for label, one in sides
        ]
        title = "Time of a step by kernel family, before and after"
        parts.append(f'<h2>{title}</h2><div class="plot">{stacked(bars, title)}</div>')
        parts.append(_changes(found))
    if found.hypotheses:
        fits = {True: "fits", False: "no", None: "open"}
        rows = [
            (f"{_text(h.name)} <b>({fits[h.fits]})</b>", _text(h.number)) for h in found.hypotheses
        ]
        title = f"What could explain the other {milliseconds(found.unexplained_ms)} ms"
        parts.append(f"<h2>{title}</h2>{_rows(rows)}")
    return f"<section>{''.join(parts)}</section>"


def _changes(found: Comparison) -> str:
    body = "".join(
        f'<tr><td>{_text(str(c.family))}</td><td class="n">{c.before_us / 1e3:,.3f}</td>'
        f'<td class="n">{c.after_us / 1e3:,.3f}</td>'
        f'<td class="n">{(c.after_us - c.before_us) / 1e3:+,.3f}</td></tr>'
        for c in found.families
    )
    head = (
        '<tr><th>family</th><th class="n">before, ms</th><th class="n">after</th>'
        '<th class="n">change</th></tr>'
    )
    lists = []
    for title, uses in (("Vanished", found.vanished), ("New", found.new)):
        names = [f"<code>{_text(short_name(u.name))}</code> {u.us / 1e3:.3f} ms" for u in uses[:8]]
        lists.append(f"<h2>{title} kernels</h2><p>{'<br>'.join(names) or 'none'}</p>")
    return f"<h2>By family</h2><table>{head}{body}</table>{''.join(lists)}"


def _table_page(found: TableDiagnosis) -> str:
    verdict, _ = VERDICTS[found.verdict]
    name = f"{found.path.name}, table {found.number}"
    unit = "a step" if found.steps else "in all"
    bar = Bar(unit, _parts(found.families), "")
    title = f"GPU time {unit} by family"
    parts = [
        f'<p class="file">{_text(name)}</p><h1 class="{_CLASS[found.verdict]}">',
        f'{verdict[:1].upper() + verdict[1:]}</h1><p class="lead">{_text(found.reason)}.</p>',
        f'<h2>{title}</h2><div class="plot">{stacked([bar], title)}</div>',
    ]
    if found.facts:
        parts.append(_facts(found.facts))
    if found.prediction is not None:
        parts.append(_prediction(found.prediction))
    return f"<section>{''.join(parts)}</section>"


def _two(title: str, rows: Iterable[tuple[str, str]]) -> str:
    return f"<h2>{title}</h2>" + _rows([(_text(one), _text(other)) for one, other in rows])


def _rows(rows: Iterable[tuple[str, str]]) -> str:
    return "<table>" + "".join(f"<tr><td>{a}</td><td>{b}</td></tr>" for a, b in rows) + "</table>"


def _text(text: str) -> str:
    return escape(printable(text))
