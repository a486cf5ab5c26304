"""What `rewriter bench` prints for people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import wrap

from rewriter.probes.load.compare import Comparison, Gain, Tokens
from rewriter.probes.load.measure import Point
from rewriter.probes.load.realised import Realised
from rewriter.probes.load.record import Record
from rewriter.probes.load.statistics import Interval, Summary
from rewriter.probes.load.sweep import NO_CAST, Sweep

SHORT = {
    "e2e_ms_per_token": "ms/token, end to end",
    "tpot_ms": "ms/token, TPOT",
    "itl_p50_ms": "gap p50, ms",
    "itl_p90_ms": "gap p90, ms",
    "itl_p99_ms": "gap p99, ms",
    "ttft_ms": "first token, ms",
    "tokens_per_s": "tokens/s",
}
"""The metrics' names in a table."""


@dataclass(frozen=True)
class Outcome:
    """All that a bench has to say.

    Attributes:
        record: what was measured.
        wrong: what is wrong with the replies.
        sweep: TPOT over contexts, where several were measured.
        cast_ms: what converting the whole pool would take, where that is known.
        comparison, realised: against an earlier bench.
    """

    record: Record
    wrong: tuple[str, ...] = ()
    sweep: Sweep | None = None
    cast_ms: float | None = None
    comparison: Comparison | None = None
    realised: Realised | None = None


def lines(outcome: Outcome) -> Iterator[str]:
    """Yield the report in 80 columns."""
    record = outcome.record
    for words in heading(record):
        yield from paragraph(words)
    for point in record.points:
        yield ""
        yield from _point_lines(point)
    if words := cast_words(outcome):
        yield ""
        yield from paragraph(words)
    if outcome.comparison is not None:
        yield ""
        yield from _comparison_lines(outcome.comparison)
    if outcome.realised is not None:
        yield from _realised_lines(outcome.realised)
    if outcome.wrong or record.notes or record.failure:
        yield ""
    for fault in outcome.wrong:
        yield from paragraph(f"WRONG: {fault}")
    for note in record.notes:
        yield from paragraph(f"note: {note}")
    if record.failure:
        yield from paragraph(f"BROKE OFF: {record.failure}")
        yield from paragraph(missing_words(record))


def paragraph(words: str, indent: str = "") -> list[str]:
    """Return words in lines of at most 80 columns."""
    return wrap(
        words,
        80,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def heading(record: Record) -> list[str]:
    """Say what was measured, and how."""
    server, plan = record.server, record.plan
    parts = [
        f"sglang {server.version or '(release unknown)'}",
        server.model or "model unknown",
        server.gpu or "GPU unknown",
        server.backend and f"{server.backend} backend",
        server.kv_dtype and f"{server.kv_dtype} KV",
        server.pool and f"pool {server.pool:,}",
    ]
    streams = "1 stream" if plan.concurrency == 1 else f"{plan.concurrency} streams"
    return [
        ", ".join(str(part) for part in parts if part),
        f"{plan.trials} trials of {plan.tokens} tokens after {plan.warmups} warm-ups of "
        f"{plan.warmup_tokens}; {streams}, {plan.endpoint} endpoint, temperature 0",
    ]


def _point_lines(point: Point) -> Iterator[str]:
    title = f"prompt of {point.context:,}"
    yield f"{title:<22}{'mean':>10}{'sd':>9}{'CV':>7}{'95 % +-':>10}{'median':>10}{'sees':>9}"
    for metric, name in SHORT.items():
        summary = point.summary(metric)
        if summary is not None:
            yield f"  {name:<20}{_row(summary)}"


def _row(s: Summary) -> str:
    cv = "-" if s.cv is None else f"{s.cv:.1%}"
    cells = (number(s.mean), number(s.sd), cv, number(s.half), number(s.median))
    widths = (10, 9, 7, 10, 10)
    told = "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
    return f"{told}{number(s.detectable):>9}"


def number(value: float | None) -> str:
    """Return a number with about four digits that mean something, or a dash."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:,.{_decimals(value)}f}"


def _decimals(value: float) -> int:
    return 1 if abs(value) >= 1000 else 2 if abs(value) >= 10 else 3


def missing_words(record: Record) -> str:
    """Say what a broken bench kept."""
    done = sum(len(point.trials) for point in record.points)
    part = sum(reply.completion_tokens for reply in record.partial)
    more = f", and {part} tokens of a reply that broke off" if part else ""
    return f"incomplete: {done} trials measured, {record.trials_missing} missing{more}"


def cast_words(outcome: Outcome) -> str:
    """Say whether the whole pool can have been converted in every step."""
    if outcome.sweep is not None:
        return sweep_words(outcome.sweep)
    found = outcome.record.points[0].summary("tpot_ms") if outcome.record.points else None
    if found is None or outcome.cast_ms is None:
        return ""
    cast = f"converting the whole pool in every step would take {number(outcome.cast_ms)} ms"
    if found.mean < NO_CAST * outcome.cast_ms:
        return f"No full-pool cast: {cast} alone."
    return f"Room for a full-pool cast: {cast}. `--context-sweep 15,4K,32K` or a trace can tell."


def sweep_words(sweep: Sweep) -> str:
    """Say what the context sweep shows."""
    (short, _), (long, _) = sweep.points[0], sweep.points[-1]
    growth = sweep.growth
    told = (
        f"context sweep: from {short:,} to {long:,} tokens TPOT is x{growth.value:.3f}"
        f"{_ends(growth)}; {number(sweep.at_zero_ms)} ms do not depend on the context, "
        f"{sweep.us_per_1k:+.1f} us for every 1,000 tokens of it."
    )
    if sweep.cast_ms is None:
        return (
            f"{told} A full-pool cast would be flat; whether this one is cannot be said without "
            "the model's figures (--model, --config)."
        )
    cast = f"converting the whole pool would take {number(sweep.cast_ms)} ms a token"
    if sweep.refuted:
        return f"{told} No full-pool cast: {cast} alone."
    return (
        f"{told} As with a full-pool cast: {cast}, {sweep.cast_share:.0%} of the part that does "
        "not depend on the context."
    )


def _ends(interval: Interval) -> str:
    if interval.low is None or interval.high is None:
        return ""
    return f" (95 %: {interval.low:.3f} to {interval.high:.3f})"


def _comparison_lines(comparison: Comparison) -> Iterator[str]:
    before = comparison.before
    yield f"against the bench of {before.when}, sglang {before.server.version or 'unknown'}"
    for difference in comparison.changed:
        yield from paragraph(f"changed: {difference}", "  ")
    for context in dict.fromkeys(gain.context for gain in comparison.gains):
        title = f"prompt of {context:,}"
        yield f"{title:<22}{'before':>10}{'now':>10}{'change':>9}{'better':>9}  95 %"
        for gain in comparison.gains:
            if gain.context == context:
                yield _gain_line(gain)
    if not all(gain.real for gain in comparison.gains):
        yield "  ~: no difference seen"
    for tokens in comparison.tokens:
        yield from paragraph(f"tokens, {tokens_words(tokens)}")


def _gain_line(gain: Gain) -> str:
    better = gain.better
    ends = "-"
    if better.low is not None and better.high is not None:
        ends = f"{better.low:.3f} to {better.high:.3f}"
    factor = f"{'x' if gain.real else '~'}{better.value:.3f}"
    return (
        f"  {SHORT[gain.metric]:<20}{number(gain.before.mean):>10}{number(gain.after.mean):>10}"
        f"{gain.change:>+9.1%}{factor:>9}  {ends}"
    )


def tokens_words(tokens: Tokens) -> str:
    """Say whether a prompt's tokens are the same."""
    drift = "" if tokens.drift is None else f"; log-probabilities within {tokens.drift:.2g}"
    if tokens.first is None:
        return f"{tokens.what}: all {tokens.compared} {tokens.unit}s equal{drift}"
    told = (
        f"{tokens.what}: equal up to {tokens.unit} {tokens.first} of {tokens.compared}, "
        f"there {tokens.before or 'the end'} before and {tokens.after or 'the end'} now"
    )
    if tokens.logprobs is not None:
        was, now = tokens.logprobs
        told += f"; log-probabilities {was:.4f} and {now:.4f}, {now - was:+.4f}"
    return told + (f"; within {tokens.drift:.2g} before it" if tokens.drift is not None else "")


def realised_words(realised: Realised) -> str:
    """Say how much of a prediction came."""
    share, saved = realised.share, realised.saved
    ends = ""
    if share.low is not None and share.high is not None:
        ends = f" (95 %: {share.low:.0%} to {share.high:.0%})"
    return (
        f"{number(saved.value)} ms a token saved of {number(realised.prediction.saved_ms)} "
        f"predicted: {share.value:.0%} realised{ends}. Prediction: {realised.prediction.source}"
    )


def _realised_lines(realised: Realised) -> Iterator[str]:
    yield from paragraph(realised_words(realised))
    if realised.short:
        yield from paragraph(f"what would explain the missing {number(realised.missing_ms)} ms:")
        for hypothesis in realised.hypotheses():
            yield from paragraph(f"- {hypothesis}", "  ")
