"""Exact t quantiles, intervals that hold what they promise, percentiles, ratios."""

from __future__ import annotations

import math
import random
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewriter.probes.load.statistics import (
    Interval,
    difference,
    incomplete_beta,
    percentile,
    ratio,
    summarise,
    t_quantile,
)


@pytest.mark.parametrize(
    ("p", "df", "expected"),
    [
        # A printed table of Student's distribution.
        (0.975, 1, 12.7062), (0.975, 2, 4.3027), (0.975, 3, 3.1824), (0.975, 4, 2.7764),
        (0.975, 10, 2.2281), (0.975, 30, 2.0423), (0.975, 120, 1.9799), (0.95, 2, 2.9200),
        (0.995, 5, 4.0321), (0.80, 4, 0.9410),
    ],
)  # fmt: skip
def test_t_quantiles(p: float, df: float, expected: float) -> None:
    assert t_quantile(p, df) == pytest.approx(expected, abs=5e-5)


@given(p=st.floats(0.51, 0.9999))
def test_t_of_one_and_two_degrees_in_closed_form(p: float) -> None:
    assert t_quantile(p, 1) == pytest.approx(math.tan(math.pi * (p - 0.5)), rel=1e-9)
    two = (2 * p - 1) * math.sqrt(2 / (4 * p * (1 - p)))
    assert t_quantile(p, 2) == pytest.approx(two, rel=1e-9)


def test_t_goes_to_the_normal() -> None:
    assert t_quantile(0.975, math.inf) == NormalDist().inv_cdf(0.975)
    assert t_quantile(0.975, 1e7) == pytest.approx(NormalDist().inv_cdf(0.975), abs=1e-6)


@given(a=st.floats(0.5, 50), b=st.floats(0.5, 50), x=st.floats(0, 1))
def test_the_incomplete_beta_is_symmetric(a: float, b: float, x: float) -> None:
    one, other = incomplete_beta(a, b, x, 1 - x), incomplete_beta(b, a, 1 - x, x)
    assert one + other == pytest.approx(1, abs=1e-9)
    assert -1e-12 <= one <= 1 + 1e-12


def test_the_reports_trials() -> None:
    found = summarise([13.569, 13.468, 13.495])
    assert found.mean == pytest.approx(13.511, abs=5e-4)
    assert found.sd == pytest.approx(0.052, abs=5e-4)
    assert found.cv == pytest.approx(0.0038, abs=1e-4)  # 0.38 %
    assert found.half == pytest.approx(0.129, abs=1e-3)
    assert found.half / found.mean == pytest.approx(0.0096, abs=1e-4)
    assert found.detectable == pytest.approx(
        (2.7764 + 0.9410) * found.sd * math.sqrt(2 / 3), rel=1e-3
    )


def test_one_trial_has_no_spread() -> None:
    found = summarise([5.0])
    assert (found.sd, found.half, found.detectable, found.cv, found.low, found.high) == (None,) * 6
    assert difference(found, found) == Interval(0.0, None, None)
    assert not ratio(found, found).excludes(2.0)


def test_equal_trials_have_a_point_for_an_interval() -> None:
    before, after = summarise([4.0, 4.0]), summarise([2.0, 2.0])
    assert ratio(before, after) == Interval(2.0, 2.0, 2.0)
    assert ratio(before, after).excludes(1.0)


def test_percentiles_lie_between_neighbours() -> None:
    assert percentile([4, 1, 3, 2], 0.5) == 2.5
    assert percentile([1, 2], 0.9) == pytest.approx(1.9)
    assert percentile([7], 0.99) == 7
    assert percentile(range(101), 0.9) == 90


@given(
    before=st.lists(st.floats(1, 100), min_size=2, max_size=6),
    after=st.lists(st.floats(1, 100), min_size=2, max_size=6),
)
def test_a_ratio_and_its_inverse_agree(before: list[float], after: list[float]) -> None:
    one, other = (
        ratio(summarise(before), summarise(after)),
        ratio(summarise(after), summarise(before)),
    )
    assert one.value == pytest.approx(1 / other.value)
    assert one.low is not None
    assert other.high is not None
    # Nearly without bounds where the values are all over the place.
    assert math.isclose(math.log(one.low), -math.log(other.high), rel_tol=1e-6, abs_tol=1e-9)


def test_scaling_by_a_negative_number_turns_the_ends() -> None:
    assert Interval(2.0, 1.0, 3.0).scaled(-1) == Interval(-2.0, -3.0, -1.0)


@pytest.mark.parametrize("n", [3, 5])
def test_intervals_hold_the_truth_in_95_of_100(n: int) -> None:
    dice = random.Random(n)
    runs = 2000
    means = sum(_holds_mean(dice, n) for _ in range(runs))
    ratios = sum(_holds_ratio(dice, n) for _ in range(runs))
    # Five standard errors of a share of 95 % in 2,000.
    assert means / runs == pytest.approx(0.95, abs=0.025)
    assert ratios / runs >= 0.925  # Welch is a little wide for so few trials


def _holds_mean(dice: random.Random, n: int) -> bool:
    found = summarise([dice.gauss(10, 0.1) for _ in range(n)])
    assert found.low is not None
    assert found.high is not None
    return found.low <= 10 <= found.high


def _holds_ratio(dice: random.Random, n: int) -> bool:
    before = summarise([dice.gauss(95.6, 0.4) for _ in range(n)])
    after = summarise([dice.gauss(74.0, 0.2) for _ in range(n)])
    return not ratio(before, after).excludes(95.6 / 74.0)


def test_the_detectable_difference_is_seen_four_times_in_five() -> None:
    dice = random.Random(8)
    true_sd, n = 0.5, 8
    step = (t_quantile(0.975, 2 * n - 2) + t_quantile(0.8, 2 * n - 2)) * true_sd * math.sqrt(2 / n)
    seen = 0
    for _ in range(1000):
        one = summarise([dice.gauss(10, true_sd) for _ in range(n)])
        other = summarise([dice.gauss(10 + step, true_sd) for _ in range(n)])
        seen += difference(one, other).excludes(0.0)
    assert seen / 1000 == pytest.approx(0.8, abs=0.05)
