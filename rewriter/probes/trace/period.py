"""The period of a sequence of kernel names: steps without any marker."""

from __future__ import annotations

import operator
from collections.abc import Sequence

_GRAMS = (8, 64, 512, 2048)
_ANCHORS = (0.0, 0.1, 0.25, 0.5)
_REPEATS = 0.9
_BETTER = 0.002
_FIRST_CODE = 0x100
_MOST = 200_000


def find_period(sequence: Sequence[int]) -> tuple[int, float] | None:
    """Return the period of a sequence and the part of it that repeats, or None.

    Layers repeat within a step, so that a short period fits almost everywhere; the step's own fits
    better, because what stands before and after the layers repeats with it. The best is taken, of
    equals the shortest.
    """
    text = _as_text(sequence[:_MOST])
    periods = {
        distance
        for size in _GRAMS
        for anchor in _ANCHORS
        if (distance := _distance(text, int(anchor * len(text)), size))
    }
    scored = [
        (max(_repeats(text, period), _follows(text, period)), period) for period in sorted(periods)
    ]
    fitting = [(score, period) for score, period in scored if score >= _REPEATS]
    if not fitting:
        return None
    best = max(score for score, _ in fitting)
    return next((period, score) for score, period in fitting if score >= best - _BETTER)


def boundaries(sequence: Sequence[int], period: int) -> list[int]:
    """Return where periods begin: the first one's opening, found again near each expected place.

    A kernel more or less in one step then does not shift the steps after it.
    """
    return _boundaries(_as_text(sequence), period)


def _boundaries(text: str, period: int) -> list[int]:
    gram = text[: min(64, period)]
    found = [0]
    while True:
        expected = found[-1] + period
        slack = max(period // 50, 2)
        first = max(expected - slack, found[-1] + 1)
        at = text.find(gram, first, expected + slack + len(gram))
        if at < 0:
            break
        nearer = text.find(gram, expected, expected + len(gram))
        found.append(nearer if nearer >= 0 else at)
    return found


def _as_text(sequence: Sequence[int]) -> str:
    """One character a kernel: strings are searched at C's speed. Surrogates are left out."""
    return "".join(chr(code + _FIRST_CODE if code < 0xD000 else code + 0x2000) for code in sequence)


def _distance(text: str, start: int, size: int) -> int:
    """Return how far on the text at a place recurs, or 0."""
    if start + 2 * size > len(text):
        return 0
    again = text.find(text[start : start + size], start + 1)
    return again - start if again > 0 else 0


def _repeats(text: str, period: int) -> float:
    """Return the part of the sequence that equals what stands one period later."""
    pairs = len(text) - period
    return sum(map(operator.eq, text[:pairs], text[period:])) / pairs if pairs > 0 else 0.0


def _follows(text: str, period: int) -> float:
    """Return the part of the sequence in which each period equals the next, found anew.

    A kernel more in a step leaves what stands before and behind it equal.
    """
    starts = [*_boundaries(text, period), len(text)]
    equal = 0.0
    for first, second, third in zip(starts, starts[1:], starts[2:], strict=False):
        one, two = text[first:second], text[second:third]
        head = _common(one, two)
        rest = _common(one[head:][::-1], two[head:][::-1])
        equal += min(head + rest, len(two))
    compared = len(text) - starts[1]
    return equal / compared if len(starts) > 2 and compared > 0 else 0.0


def _common(one: str, two: str) -> int:
    """Return the length of the common beginning."""
    pairs = enumerate(zip(one, two, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(two)))
