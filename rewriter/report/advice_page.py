"""The HTML page of `rewriter advise`: tokens against milliseconds, every way with its source."""

from __future__ import annotations

from collections.abc import Iterator

from rewriter import __version__
from rewriter.probes.memory.advice import Advice, Fate, Option, as_it_is
from rewriter.probes.memory.deployment import Deployment
from rewriter.probes.memory.ways import Kind
from rewriter.report.advice import answer, details, ms_words, situation_words, title
from rewriter.report.page import answer as box
from rewriter.report.page import page, table, text
from rewriter.report.svg import Limit, Mark, Series, plot


def document(advice: Advice) -> str:
    """Return the page."""
    return page("rewriter advise", _parts(advice))


def _parts(advice: Advice) -> Iterator[str]:
    yield f'<h1>rewriter advise</h1><p class="soft">rewriter {__version__}</p>'
    yield from (f"<p>{text(words)}</p>" for words in situation_words(advice.at))
    yield box(answer(advice), advice.answered)
    yield _plot(advice)
    if any(not option.way.certain for option in advice.options):
        yield (
            '<p class="soft">Rings and "≥": another kernel reads the pool; its own time is not '
            "known here. Measure it with <code>rewriter bench</code>.</p>"
        )
    for fate in Fate:
        options = [option for option in advice.options if option.fate is fate]
        if options:
            yield f"<h2>{text(title(fate).capitalize())}</h2>{_table(advice, options)}"


def _table(advice: Advice, options: list[Option]) -> str:
    unit = "ms a token" if advice.at.step_ms is not None else "ms added"
    rows = [
        (
            option.way.action,
            f"{option.way.tokens:,}",
            ms_words(option).replace(">=", "≥"),
            details(option),
        )
        for option in options
    ]
    return table(("What to do", "Tokens", unit, "Why"), rows, numeric=(1, 2))


def _plot(advice: Advice) -> str:
    """Plot the ways that are possible, the line of smaller pools, and the needs."""
    at = advice.at
    known = at.step_ms is not None
    series = [_pool_line(at)] if at.casts else []
    wanted = (
        ("advised", Fate.ADVISED, True, 2),
        ("advised, time at least", Fate.ADVISED, False, 2),
        ("not advised", None, True, 5),
    )
    for name, fate, certain, colour in wanted:
        marks = [
            _mark(option)
            for option in advice.options
            if option.way.kind is not Kind.POOL or option.fate is Fate.ADVISED
            if option.way.tokens > 0 and option.fate is not Fate.IMPOSSIBLE
            if (option.fate is fate and option.way.certain == certain)
            or (fate is None and option.fate is not Fate.ADVISED)
        ]
        if marks:
            series.append(Series(name, marks, line=False, hollow=not certain, colour=colour))
    limits = []
    if advice.needs.tokens is not None:
        limits.append(Limit(f"{advice.needs.tokens:,} tokens needed", x=advice.needs.tokens))
    if advice.needs.ms is not None:
        limits.append(Limit(f"{advice.needs.ms:g} ms needed", y=advice.needs.ms))
    unit = "ms a token" if known else "ms a step on top of one without a cast"
    return plot("Tokens of the pool against time", "tokens on each GPU", unit, series, limits)


def _mark(option: Option) -> Mark:
    way = option.way
    time = way.added_ms if option.ms is None else option.ms
    return Mark(way.tokens, time, way.short)


def _pool_line(at: Deployment) -> Series:
    """Return the line from no pool to the pool as it is: the cast is linear in it."""
    now = as_it_is(at)
    start = at.rest_ms or 0.0
    end = start + now.added_ms
    marks = [Mark(0, start), Mark(now.tokens, end, "as it is")]
    return Series("FP8 pools with the cast", marks, hollow=True, colour=1)
