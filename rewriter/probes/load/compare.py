"""Two benches: whether they may be compared, and what the second gained."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rewriter.probes.load.identity import Difference, differences
from rewriter.probes.load.measure import METRICS, Point
from rewriter.probes.load.record import Record
from rewriter.probes.load.reply import Reply
from rewriter.probes.load.statistics import Interval, Summary, ratio


@dataclass(frozen=True)
class Gain:
    """One metric before and after, at one context.

    Attributes:
        better: how many times better the second is, with its 95 % interval: before over after
            for a time, after over before for a rate.
        change: after over before, less one; what people call "-23 %".
    """

    context: int
    metric: str
    before: Summary
    after: Summary

    @property
    def better(self) -> Interval:
        if self.metric == "tokens_per_s":
            return ratio(self.after, self.before)
        return ratio(self.before, self.after)

    @property
    def change(self) -> float:
        return self.after.mean / self.before.mean - 1

    @property
    def real(self) -> bool:
        """Whether the interval excludes that nothing changed."""
        return self.better.excludes(1.0)


@dataclass(frozen=True)
class Tokens:
    """The greedy tokens of one prompt, before and now.

    Attributes:
        what: which prompt.
        compared: tokens (or characters, where there are no token ids).
        unit: ``token`` or ``character``.
        first: the first differing position, counted from 0; None if there is none.
        before, after: the tokens there, None past an end.
        logprobs: their log-probabilities, where asked for.
        drift: the largest difference of a log-probability over the equal tokens before it.
    """

    what: str
    compared: int
    unit: str
    first: int | None
    before: str | None = None
    after: str | None = None
    logprobs: tuple[float, float] | None = None
    drift: float | None = None


@dataclass(frozen=True)
class Comparison:
    """What ``--against`` tells."""

    before: Record
    after: Record
    changed: tuple[Difference, ...]
    gains: tuple[Gain, ...]
    tokens: tuple[Tokens, ...]

    def gain(self, metric: str) -> Gain | None:
        """Return the gain in a metric at the shortest context."""
        return next((gain for gain in self.gains if gain.metric == metric), None)

    @property
    def same_tokens(self) -> bool:
        """Whether every prompt gave the same tokens."""
        return all(each.first is None for each in self.tokens)


def unlike(before: Record, after: Record, changed: Collection[str] = ()) -> list[Difference]:
    """Return what forbids a comparison: server arguments, model, GPU, pool, context, batch.

    Args:
        changed: names of differences that are what is being compared.
    """
    plans = [
        Difference(name, _told(getattr(before.plan, field)), _told(getattr(after.plan, field)))
        for name, field in (
            ("context", "contexts"),
            ("tokens a reply", "tokens"),
            ("concurrency", "concurrency"),
            ("endpoint", "endpoint"),
        )
        if getattr(before.plan, field) != getattr(after.plan, field)
    ]
    found = [*plans, *differences(before.server, after.server)]
    return [each for each in found if each.name not in changed]


def _told(value: object) -> str:
    return ", ".join(f"{v:,}" for v in value) if isinstance(value, tuple) else str(value)


def compare(before: Record, after: Record, changed: Collection[str] = ()) -> Comparison:
    """Return what changed between two complete benches that are alike."""
    gains = tuple(
        Gain(point.context, metric, was, now)
        for point in after.points
        if (earlier := before.point(point.context)) is not None
        for metric in METRICS
        if (was := earlier.summary(metric)) and (now := point.summary(metric))
    )
    deliberate = [d for d in differences(before.server, after.server) if d.name in changed]
    if before.server.version != after.server.version:
        deliberate.insert(0, Difference("sglang", before.server.version, after.server.version))
    return Comparison(before, after, tuple(deliberate), gains, tuple(_tokens(before, after)))


def _tokens(before: Record, after: Record) -> list[Tokens]:
    pairs = [
        (f"prompt of {point.context:,}, trial 1", *_first_replies(earlier, point))
        for point in after.points
        if (earlier := before.point(point.context)) is not None
    ]
    known = {check.context: check.reply for check in before.checks}
    pairs += [
        (f"check after a prompt of {check.context:,}", known[check.context], check.reply)
        for check in after.checks
        if check.context in known
    ]
    return [same_tokens(what, was, now) for what, was, now in pairs]


def _first_replies(before: Point, after: Point) -> tuple[Reply, Reply]:
    return before.trials[0].replies[0], after.trials[0].replies[0]


def same_tokens(what: str, before: Reply, after: Reply) -> Tokens:
    """Compare two greedy replies token by token, or by text where ids are not given."""
    one: Sequence[object]
    other: Sequence[object]
    if before.output_ids is not None and after.output_ids is not None:
        one, other, unit = before.output_ids, after.output_ids, "token"
    else:
        one, other, unit = before.text, after.text, "character"
    first = next((at for at, (a, b) in enumerate(zip(one, other)) if a != b), None)  # noqa: B905
    if first is None and len(one) != len(other):
        first = min(len(one), len(other))
    drift, there = None, None
    if unit == "token" and before.logprobs and after.logprobs:
        drift, there = _logprobs(before.logprobs, after.logprobs, first)
    return Tokens(
        what,
        min(len(one), len(other)),
        unit,
        first,
        _at(one, first),
        _at(other, first),
        there,
        drift,
    )


def _at(values: Sequence[object], position: int | None) -> str | None:
    if position is None or position >= len(values):
        return None
    return str(values[position])


def _logprobs(
    before: Sequence[float | None], after: Sequence[float | None], first: int | None
) -> tuple[float | None, tuple[float, float] | None]:
    """Return the largest difference before a position, and the two values at it."""
    equal = list(zip(before, after))[:first]  # noqa: B905
    drift = max((abs(a - b) for a, b in equal if a is not None and b is not None), default=None)
    if first is None or first >= min(len(before), len(after)):
        return drift, None
    a, b = before[first], after[first]
    return drift, None if a is None or b is None else (a, b)
