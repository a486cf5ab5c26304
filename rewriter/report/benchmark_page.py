"""The HTML page of `rewriter bench`: its tables and plots."""

from __future__ import annotations

from collections.abc import Iterator

from rewriter import __version__
from rewriter.probes.load.compare import Comparison
from rewriter.probes.load.measure import METRICS, Point
from rewriter.probes.load.record import Record
from rewriter.report.benchmark import (
    SHORT,
    Outcome,
    cast_words,
    heading,
    missing_words,
    number,
    realised_words,
    tokens_words,
)
from rewriter.report.page import answer, items, page, table, text
from rewriter.report.svg import Limit, Mark, Series, plot


def document(outcome: Outcome) -> str:
    """Return the page."""
    return page("rewriter bench", _parts(outcome))


def _parts(outcome: Outcome) -> Iterator[str]:
    record = outcome.record
    yield "<h1>rewriter bench</h1>"
    yield from (f'<p class="soft">{text(words)}</p>' for words in heading(record))
    yield f'<p class="soft">{text(record.when)} · rewriter {__version__}</p>'
    yield answer(*_answer(outcome))
    yield items([*(f"Wrong: {fault}" for fault in outcome.wrong), *record.notes])
    if outcome.comparison is not None:
        yield from _comparison(outcome.comparison)
    if outcome.realised is not None:
        yield f"<p>{text(realised_words(outcome.realised))}</p>"
        yield items(outcome.realised.hypotheses())
    if words := cast_words(outcome):
        yield f"<h2>Context</h2><p>{text(words)}</p>"
    if outcome.sweep is not None:
        yield _sweep_plot(outcome)
    for point in record.points:
        yield from _point(point)


def _answer(outcome: Outcome) -> tuple[str, bool | None]:
    record, comparison = outcome.record, outcome.comparison
    if record.failure:
        return f"Broke off: {record.failure}. {missing_words(record).capitalize()}.", False
    if outcome.wrong:
        return f"The replies are wrong: {outcome.wrong[0]}", False
    gain = comparison.gain("tpot_ms") if comparison else None
    if comparison is None or gain is None:
        point = record.points[0]
        found = point.summary("tpot_ms")
        told = "" if found is None else f"{number(found.mean)} ms a token after the first"
        return f"{told} at a prompt of {point.context:,}", None
    told = (
        f"TPOT {number(gain.before.mean)} → {number(gain.after.mean)} ms: "
        f"×{gain.better.value:.3f}{'' if gain.real else ', no difference seen'}"
    )
    same = "the same tokens" if comparison.same_tokens else "other tokens"
    return f"{told}; {same}", gain.better.value > 1 and comparison.same_tokens


def _comparison(comparison: Comparison) -> Iterator[str]:
    yield f"<h2>Against the bench of {text(comparison.before.when)}</h2>"
    yield items(f"Changed: {difference}" for difference in comparison.changed)
    rows = []
    for gain in comparison.gains:
        better = gain.better
        ends = "–"
        if better.low is not None and better.high is not None:
            ends = f"{better.low:.3f} to {better.high:.3f}"
        seen = "" if gain.real else "no difference seen"
        rows.append(
            (
                f"{gain.context:,}", SHORT[gain.metric], number(gain.before.mean),
                number(gain.after.mean), f"{gain.change:+.1%}", f"×{better.value:.3f}", ends, seen,
            )
        )  # fmt: skip
    head = ("Prompt", "", "Before", "Now", "Change", "Times better", "95 %", "")
    yield table(head, rows, numeric=(0, 2, 3, 4, 5, 6))
    yield _token_plot("TPOT by trial, before and now", comparison.before, comparison.after)
    yield items(f"Tokens, {tokens_words(tokens)}" for tokens in comparison.tokens)


def _token_plot(title: str, before: Record, after: Record) -> str:
    """Plot each trial's TPOT, so that drift and outliers show."""
    series = []
    for name, record, hollow in (("before", before, True), ("now", after, False)):
        marks = [
            Mark(number, ms)
            for number, trial in enumerate(record.points[0].trials, 1)
            if (ms := trial.metric("tpot_ms")) is not None
        ]
        series.append(Series(name, marks, line=False, hollow=hollow))
    return plot(title, "trial", "ms a token", series)


def _sweep_plot(outcome: Outcome) -> str:
    series = []
    before = outcome.comparison.before if outcome.comparison else None
    for name, record in (("before", before), ("now", outcome.record)):
        if record is None:
            continue
        marks = [
            Mark(point.context, s.mean, number(s.mean), s.low, s.high)
            for point in sorted(record.points, key=lambda p: p.context)
            if (s := point.summary("tpot_ms")) is not None
        ]
        series.append(Series(name, marks, hollow=name == "before"))
    cast = outcome.sweep.cast_ms if outcome.sweep else None
    limits = [] if cast is None else [Limit("a cast of the whole pool alone", y=cast)]
    return plot(
        "TPOT by context, with 95 % intervals", "prompt, tokens", "ms a token", series, limits
    )


def _point(point: Point) -> Iterator[str]:
    yield f"<h2>Prompt of {point.context:,} tokens</h2>"
    rows = [
        (
            SHORT[name], number(s.mean), number(s.sd), "–" if s.cv is None else f"{s.cv:.2%}",
            f"±{number(s.half)}", number(s.median), number(s.detectable), meaning,
        )
        for name, meaning in METRICS.items()
        if (s := point.summary(name)) is not None
    ]  # fmt: skip
    head = ("", "Mean", "sd", "CV", "95 %", "Median", "Smallest difference seen", "What it is")
    yield table(head, rows, numeric=range(1, 7))
    yield _gap_plot(point)


def _gap_plot(point: Point) -> str:
    """Plot the gaps between chunks of each trial's first stream."""
    series = [
        Series(
            f"trial {number}",
            [Mark(at, gap) for at, gap in enumerate(trial.replies[0].itl_ms, 2)],
            dots=False,
        )
        for number, trial in enumerate(point.trials[:6], 1)
    ]
    return plot("Gaps between chunks", "chunk", "ms", series)
