"""How the time a token depends on the context: a check for a full-pool cast without a trace.

A cast of the whole pool takes the same time whatever the context, so nearly all of the step does
not depend on it; and no step can be shorter than the cast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from rewriter.probes.load.measure import Point
from rewriter.probes.load.statistics import Interval, Summary, ratio

NO_CAST = 0.8
"""A step below this part of the cast's time holds no cast; the rate is known to some 2 %."""


@dataclass(frozen=True)
class Sweep:
    """TPOT over contexts.

    Attributes:
        points: (prompt length, TPOT in ms), the shortest first.
        at_zero_ms: the straight line's value at no context.
        us_per_1k: its slope: microseconds a token for 1,000 tokens of context.
        cast_ms: what a cast of the whole pool alone would take, where that is known.
    """

    points: tuple[tuple[int, Summary], ...]
    at_zero_ms: float
    us_per_1k: float
    cast_ms: float | None

    @property
    def growth(self) -> Interval:
        """The longest context's TPOT over the shortest's."""
        return ratio(self.points[-1][1], self.points[0][1])

    @property
    def refuted(self) -> bool:
        """Whether the steps are too short to hold a cast of the whole pool."""
        return self.cast_ms is not None and self.at_zero_ms < NO_CAST * self.cast_ms

    @property
    def cast_share(self) -> float | None:
        """The cast's part of the step without context, if there is a cast."""
        return None if self.cast_ms is None else self.cast_ms / self.at_zero_ms


def sweep(points: Sequence[Point], cast_ms: float | None = None) -> Sweep | None:
    """Fit a line through the mean TPOT of at least two contexts; None for fewer.

    Args:
        points: of one bench.
        cast_ms: ms that a cast of the whole pool takes, if known.
    """
    found = sorted(
        (point.context, summary)
        for point in points
        if (summary := point.summary("tpot_ms")) is not None
    )
    if len(found) < 2:
        return None
    x = [float(context) for context, _ in found]
    y = [summary.mean for _, summary in found]
    across, up = fmean(x), fmean(y)
    slope = sum((a - across) * (b - up) for a, b in zip(x, y, strict=True)) / sum(
        (a - across) ** 2 for a in x
    )
    return Sweep(tuple(found), up - slope * across, 1e6 * slope, cast_ms)
