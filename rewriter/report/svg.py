"""Plots as inline SVG: lines, points with intervals, limits. Colours are the page's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 860, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 24, 34, 48
_CHARACTER = 6.6
"""Width of a character of 12 px, about: for placing labels."""


@dataclass(frozen=True)
class Mark:
    """A point: where, its label (may be empty), and the ends of its interval, if any."""

    x: float
    y: float
    label: str = ""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """Points of one kind.

    Attributes:
        name: for the legend.
        marks: in the order of a line.
        line: whether they are joined.
        dots: whether each is drawn.
        hollow: whether a dot is a ring: something else than colour tells two kinds apart.
        colour: which of the page's six, by default the series' place.
    """

    name: str
    marks: Sequence[Mark]
    line: bool = True
    dots: bool = True
    hollow: bool = False
    colour: int | None = None

    def shade(self, place: int) -> int:
        """Return the number of its colour."""
        return (place if self.colour is None else self.colour) % 6


@dataclass(frozen=True)
class Limit:
    """A straight dotted line over the whole plot, at an x or a y."""

    label: str
    x: float | None = None
    y: float | None = None


@dataclass(frozen=True)
class _Scale:
    """Data to pixels along one axis."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        part = (value - self.low) / (self.high - self.low)
        return round(self.start + part * (self.end - self.start), 1)


def plot(title: str, x: str, y: str, series: Sequence[Series], limits: Sequence[Limit] = ()) -> str:
    """Return a figure. Both axes start at zero, so that lengths can be compared.

    Args:
        title: stands above it.
        x, y: what the axes show, with the unit.
        series: at most six; each gets a colour of the page.
        limits: dotted lines.
    """
    marks = [mark for each in series for mark in each.marks]
    across = _Scale(0, _top([m.x for m in marks] + [t.x for t in limits]), _LEFT, _WIDTH - _RIGHT)
    tops = [m.high if m.high is not None else m.y for m in marks]
    up = _Scale(0, _top(tops + [t.y for t in limits]), _HEIGHT - _BOTTOM, _TOP)
    parts = [
        *_axes(across, up, x, y),
        *(part for limit in limits for part in _limit(limit, across, up)),
        *(p for n, each in enumerate(series) for p in _series(each, n, across, up)),
        *_labels(series, across, up),
        *_legend(series),
    ]
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"{''.join(parts)}</svg></figure>"
    )


def ticks(high: float, about: int = 6) -> list[float]:
    """Return round values from 0 to at least ``high``."""
    raw = high / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    return [step * n for n in range(math.ceil(high / step * 0.999) + 1)]


def _top(values: Sequence[float | None]) -> float:
    most = max((v for v in values if v is not None), default=0.0)
    return ticks(1.02 * most if most > 0 else 1.0)[-1]


def _number(value: float) -> str:
    return f"{value:,.6g}" if value < 1e6 else f"{value:,.0f}"


def _line(kind: str, start: tuple[float, float], end: tuple[float, float]) -> str:
    (x1, y1), (x2, y2) = start, end
    return f'<line class="{kind}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'


def _words(x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> str:
    look = f' class="{kind}"' if kind else ""
    return f'<text{look} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _axes(across: _Scale, up: _Scale, x: str, y: str) -> Iterator[str]:
    for value in ticks(up.high):
        at = up(value)
        yield _line("grid", (across.start, at), (across.end, at))
        yield _words(_LEFT - 8, at + 4, _number(value), "end", "quiet")
    for value in ticks(across.high):
        yield _words(across(value), up.start + 18, _number(value), "middle", "quiet")
    yield _line("axis", (across.start, up.start), (across.end, up.start))
    yield _words((across.start + across.end) / 2, _HEIGHT - 8, x, "middle")
    yield (
        f'<text transform="translate(14 {(up.start + up.end) / 2}) rotate(-90)" '
        f'text-anchor="middle">{escape(y)}</text>'
    )


def _limit(limit: Limit, across: _Scale, up: _Scale) -> Iterator[str]:
    if limit.x is not None:
        at = across(limit.x)
        yield _line("limit", (at, up.start), (at, up.end))
        right = at > (across.start + across.end) / 2
        yield _words(
            at + (-6 if right else 6), up.end + 12, limit.label, "end" if right else "start"
        )
    elif limit.y is not None:
        at = up(limit.y)
        yield _line("limit", (across.start, at), (across.end, at))
        yield _words(across.start + 8, at - 5, limit.label)


def _series(series: Series, number: int, across: _Scale, up: _Scale) -> Iterator[str]:
    colour = series.shade(number)
    places = [(across(m.x), up(m.y)) for m in series.marks]
    if series.line and len(places) > 1:
        path = " ".join(f"{x},{y}" for x, y in places)
        dash = ' stroke-dasharray="6 4"' if series.hollow else ""
        yield f'<polyline class="s{colour}" points="{path}" fill="none" stroke-width="1.6"{dash}/>'
    for mark, (x, y) in zip(series.marks, places, strict=True):
        if mark.low is not None and mark.high is not None:
            top, bottom = up(mark.high), up(max(mark.low, 0.0))
            yield (
                f'<path class="s{colour}" stroke-width="1.4" fill="none" d="M{x} {top}V{bottom}'
                f'M{x - 4} {top}h8M{x - 4} {bottom}h8"/>'
            )
        if series.dots:
            yield _dot(x, y, colour, series.hollow, mark.label)


def _dot(x: float, y: float, colour: int, hollow: bool, label: str) -> str:
    fill = 'fill="var(--paper)"' if hollow else ""
    shape = f"s{colour}" if hollow else f"s{colour} f{colour}"
    return (
        f'<circle class="{shape}" {fill} cx="{x}" cy="{y}" r="4.5" stroke-width="1.8">'
        f"<title>{escape(label)}</title></circle>"
    )


def _labels(series: Sequence[Series], across: _Scale, up: _Scale) -> Iterator[str]:
    """Write each mark's label: above it on a line, else beside it, clear of dots and labels."""
    taken = [(x - 7, x + 7, y + 4) for x, y, _ in _marks(series, across, up)]
    lines = [each for each in series if each.line]
    for x, y, label in _marks(lines, across, up):
        if label:
            half = _CHARACTER * len(label) / 2
            middle = min(max(x, across.start + half), across.end + _RIGHT - half)
            taken.append((middle - half, middle + half, y - 9))
            yield _words(middle, y - 9, label, "middle")
    rest = [each for each in series if not each.line]
    for x, y, labels in _places(_marks(rest, across, up)):
        right = x + 9 + _CHARACTER * max(map(len, labels)) < across.end + _RIGHT
        row = y + 4
        for label in labels:
            left = x + 9 if right else x - 9 - _CHARACTER * len(label)
            end = left + _CHARACTER * len(label)
            while any(abs(row - r) < 13 and left < e and b < end for b, e, r in taken):
                row += 3
            taken.append((left, end, row))
            yield _words(x + 9 if right else x - 9, row, label, "start" if right else "end")


def _marks(series: Sequence[Series], across: _Scale, up: _Scale) -> list[tuple[float, float, str]]:
    return [(across(m.x), up(m.y), m.label) for each in series for m in each.marks]


def _places(marks: Sequence[tuple[float, float, str]]) -> Iterator[tuple[float, float, list[str]]]:
    """Yield the labels that stand at one place, places from above."""
    found: dict[tuple[int, int], tuple[float, float, list[str]]] = {}
    for x, y, label in sorted((m for m in marks if m[2]), key=lambda m: (m[1], m[0])):
        place = (round(x / 14), round(y / 14))
        found.setdefault(place, (x, y, []))[2].append(label)
    yield from found.values()


def _legend(series: Sequence[Series]) -> Iterator[str]:
    at = float(_LEFT)
    for number, each in enumerate(series):
        colour = each.shade(number)
        yield _dot(at + 5, 12, colour, each.hollow, each.name)
        yield _words(at + 15, 16, each.name)
        at += 30 + _CHARACTER * len(each.name)
