"""What a few repeated numbers can tell: means, exact t intervals, what would have been seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, median, stdev

CONFIDENCE = 0.95
POWER = 0.80


@dataclass(frozen=True)
class Summary:
    """Statistics of one quantity over trials, in the quantity's own unit.

    Attributes:
        n: trials.
        mean, median: of them.
        sd: sample standard deviation (n - 1); None for one trial.
        half: half width of the 95 % interval of the mean, ``t(0.975, n - 1) sd / sqrt(n)``.
        detectable: the smallest difference of two such means that a two-sided test at 5 % sees
            with a probability of 80 %: ``(t(0.975, 2n - 2) + t(0.8, 2n - 2)) sd sqrt(2 / n)``.
    """

    n: int
    mean: float
    median: float
    sd: float | None
    half: float | None
    detectable: float | None

    @property
    def cv(self) -> float | None:
        """Coefficient of variation: sd over mean."""
        return None if self.sd is None or not self.mean else self.sd / abs(self.mean)

    @property
    def low(self) -> float | None:
        """Lower end of the 95 % interval."""
        return None if self.half is None else self.mean - self.half

    @property
    def high(self) -> float | None:
        """Upper end of the 95 % interval."""
        return None if self.half is None else self.mean + self.half


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % interval; the ends are None where nothing was repeated."""

    value: float
    low: float | None
    high: float | None

    def scaled(self, by: float) -> Interval:
        """Return the estimate in another unit."""
        ends = [None if end is None else end * by for end in (self.low, self.high)]
        low, high = ends if by >= 0 else reversed(ends)
        return Interval(self.value * by, low, high)

    def excludes(self, value: float) -> bool:
        """Whether the interval is known and lies to one side of a value."""
        return self.low is not None and self.high is not None and not self.low <= value <= self.high


def summarise(values: Sequence[float]) -> Summary:
    """Return the statistics of at least one value."""
    n = len(values)
    mean, middle = fmean(values), median(values)
    if n < 2:
        return Summary(n, mean, middle, None, None, None)
    sd = stdev(values)
    half = t_quantile(0.5 + CONFIDENCE / 2, n - 1) * sd / math.sqrt(n)
    df = 2 * n - 2
    both = t_quantile(0.5 + CONFIDENCE / 2, df) + t_quantile(POWER, df)
    return Summary(n, mean, middle, sd, half, both * sd * math.sqrt(2 / n))


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which ``share`` (0 to 1) lies, between neighbours linearly."""
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    below = math.floor(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])


def difference(before: Summary, after: Summary) -> Interval:
    """Return ``before - after`` with Welch's interval (unequal variances)."""
    value = before.mean - after.mean
    spread = _welch(before, after, lambda s: s.sd)
    if spread is None:
        return Interval(value, None, None)
    return Interval(value, value - spread, value + spread)


def ratio(before: Summary, after: Summary) -> Interval:
    """Return ``before / after`` of two positive means.

    The interval is Welch's on the logarithm (delta method: the sd of ln x is the coefficient of
    variation), so that a ratio and its inverse have inverse intervals.
    """
    value = before.mean / after.mean
    spread = _welch(before, after, lambda s: s.cv)
    if spread is None:
        return Interval(value, None, None)
    return Interval(value, value * math.exp(-spread), value * math.exp(spread))


def _welch(
    before: Summary, after: Summary, deviation: Callable[[Summary], float | None]
) -> float | None:
    """Return the half width of a difference; degrees of freedom as Satterthwaite's."""
    parts = []
    for one in (before, after):
        sd = deviation(one)
        if sd is None:
            return None
        parts.append((sd * sd / one.n, one.n - 1))
    total = sum(part for part, _ in parts)
    if total == 0:
        return 0.0
    df = total**2 / sum(part**2 / free for part, free in parts)
    return t_quantile(0.5 + CONFIDENCE / 2, df) * math.sqrt(total)


def t_quantile(p: float, df: float) -> float:
    """Return Student's t quantile for ``p`` above one half and any degrees of freedom.

    Newton's method on the exact distribution, ``P(T > t) = I(df / (df + t^2); df/2, 1/2) / 2``
    (Abramowitz and Stegun 26.7.1 with 26.5.2). The distribution is concave above 0 and its tails
    are heavier than the normal's, so from the normal's quantile it climbs and never passes.
    """
    t = NormalDist().inv_cdf(p)
    if math.isinf(df):
        return t
    scale = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)
    for _ in range(200):
        density = scale * (1 + t * t / df) ** (-(df + 1) / 2)
        step = (_upper_tail(t, df) - (1 - p)) / density
        t += step
        if abs(step) <= 1e-13 * t:
            break
    return t


def _upper_tail(t: float, df: float) -> float:
    # Near t = 0 the beta's argument is near 1, where 1 - x keeps the digits.
    return incomplete_beta(df / 2, 0.5, df / (df + t * t), t * t / (df + t * t)) / 2


def incomplete_beta(a: float, b: float, x: float, rest: float) -> float:
    """Return the regularised incomplete beta function ``I(x; a, b)``; ``rest`` is ``1 - x``."""
    if x <= 0 or rest <= 0:
        return float(rest <= 0)
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, rest, x)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(rest)
    )
    return front / a * _continued_fraction(a, b, x)


def _continued_fraction(a: float, b: float, x: float) -> float:
    """Evaluate the beta function's continued fraction (26.5.8), forwards, by Lentz's method."""
    value, c = 1.0, 1.0
    d = 1 / (1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 500):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for step in (even, odd):
            d = 1 / (1 + step * d)
            c = 1 + step / c
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value
