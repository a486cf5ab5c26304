"""Plots as SVG text, for a page that needs no network and no script."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from rewriter.probes.trace.families import Family

WIDTH = 900
_LABEL = 132
_VALUE = 96
_BAR = 34
_GAP = 16

_COLOURS: dict[Family, str] = {
    Family.FULL_CAST: "#d5483f",
    Family.ATTENTION: "#3b6fb6",
    Family.GEMM: "#5d97d6",
    Family.MOE: "#7a5fb0",
    Family.QUANTISE: "#a78bcc",
    Family.COMMUNICATION: "#2f8f83",
    Family.NORM: "#63b7a6",
    Family.ROPE: "#9fcfa4",
    Family.KV_WRITE: "#c9a227",
    Family.GATHER: "#dfc15e",
    Family.CAST: "#e08e79",
    Family.COPY: "#b7875a",
    Family.ELEMENTWISE: "#8d99a6",
    Family.SAMPLING: "#b3bcc6",
    Family.MEMORY: "#6c7680",
    Family.OTHER: "#4a4f55",
}
_IDLE_COLOUR = "var(--idle)"
_REST_COLOUR = "#8fa3b5"


@dataclass(frozen=True)
class Bar:
    """One bar: a label, its parts in milliseconds, and what stands behind it."""

    label: str
    parts: Mapping[Family, float]
    note: str = ""
    idle_ms: float = 0.0

    @property
    def length(self) -> float:
        return sum(self.parts.values()) + self.idle_ms


def colour_of(family: Family) -> str:
    """Return a family's colour, the same in every plot."""
    return _COLOURS[family]


def stacked(bars: Sequence[Bar], title: str) -> str:
    """Return horizontal bars over one axis of milliseconds, with a legend."""
    longest = max((bar.length for bar in bars), default=0.0) or 1.0
    room = WIDTH - _LABEL - _VALUE
    height = len(bars) * (_BAR + _GAP) + 30
    axis = len(bars) * (_BAR + _GAP) + 2
    body = [_axis(longest, room, axis)]
    for number, bar in enumerate(bars):
        body.append(_bar(bar, number * (_BAR + _GAP), room / longest))
    return _svg(height, title, body) + _legend(bars)


def _bar(bar: Bar, top: float, scale: float) -> str:
    middle = top + _BAR / 2 + 5
    found = [f'<text x="{_LABEL - 12}" y="{middle:.1f}" class="label">{escape(bar.label)}</text>']
    left = float(_LABEL)
    for family in _ordered(bar.parts):
        width = bar.parts[family] * scale
        tip = f"{family}: {bar.parts[family]:.3f} ms"
        found.append(_rectangle(left, top, width, _BAR, colour_of(family), tip))
        if width > 74 and family is Family.FULL_CAST:
            text = f"{bar.parts[family]:.1f} ms"
            found.append(
                f'<text x="{left + width / 2:.1f}" y="{middle:.1f}" class="inside">{text}</text>'
            )
        left += width
    if bar.idle_ms > 0:
        width = bar.idle_ms * scale
        found.append(
            _rectangle(left, top, width, _BAR, _IDLE_COLOUR, f"GPU idle: {bar.idle_ms:.3f} ms")
        )
        left += width
    found.append(
        f'<text x="{left + 10:.1f}" y="{middle:.1f}" class="value">{escape(bar.note)}</text>'
    )
    return "".join(found)


def _ordered(parts: Mapping[Family, float]) -> list[Family]:
    """The cast first, so that it ends where the rest begins in every bar."""
    rest = sorted((f for f in parts if f is not Family.FULL_CAST), key=lambda f: -parts[f])
    return ([Family.FULL_CAST] if parts.get(Family.FULL_CAST) else []) + rest


def columns(steps: Sequence[tuple[float, float]], title: str) -> str:
    """Return one column a step: the cast below, the rest above; milliseconds."""
    base, room = 150.0, WIDTH - _LABEL - 20
    highest = max((whole for whole, _ in steps), default=0.0) or 1.0
    scale = 136 / highest
    body = []
    for tick in _ticks(highest, most=4):
        y = base - tick * scale
        body.append(
            f'<line x1="{_LABEL}" x2="{WIDTH - 20}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
            f'<text x="{_LABEL - 12}" y="{y + 4:.1f}" class="label">{tick:g} ms</text>'
        )
    pitch = room / max(len(steps), 1)
    width = max(min(pitch * 0.72, 56.0), 1.0)
    for number, (whole, cast) in enumerate(steps):
        left = _LABEL + (number + 0.5) * pitch - width / 2
        tip = f"step {number + 1}: {whole:.2f} ms, cast {cast:.2f} ms"
        foot, head = cast * scale, (whole - cast) * scale
        fill = colour_of(Family.FULL_CAST)
        body.append(_rectangle(left, base - foot, width, foot, fill, tip))
        body.append(_rectangle(left, base - foot - head, width, head, _REST_COLOUR, tip))
        if pitch >= 22 or number % 5 == 4 or number == 0:
            x = left + width / 2
            body.append(f'<text x="{x:.1f}" y="{base + 18}" class="tick">{number + 1}</text>')
    entries = [("all kernels", _REST_COLOUR)]
    if any(cast for _, cast in steps):
        red = (str(Family.FULL_CAST), colour_of(Family.FULL_CAST))
        entries = [red, ("other kernels", _REST_COLOUR)]
    return _svg(base + 26, title, body) + _entries(entries)


def _axis(longest: float, room: float, y: float) -> str:
    found = []
    for tick in _ticks(longest, most=8):
        x = _LABEL + tick * room / longest
        found.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{y:.1f}" class="grid"/>')
        found.append(f'<text x="{x:.1f}" y="{y + 16:.1f}" class="tick">{tick:g}</text>')
    found.append(f'<text x="{_LABEL - 12}" y="{y + 16:.1f}" class="label">ms a step</text>')
    return "".join(found)


def _ticks(longest: float, most: int) -> list[float]:
    """Return round numbers from 0 on, at most so many and one."""
    unit = 10.0 ** math.floor(math.log10(longest))
    step = next(
        unit * part for part in (0.1, 0.2, 0.5, 1, 2, 5, 10) if longest / (unit * part) <= most
    )
    return [round(step * number, 10) for number in range(int(longest / step + 1e-6) + 1)]


def _rectangle(x: float, y: float, width: float, height: float, colour: str, tip: str) -> str:
    if width <= 0 or height <= 0:
        return ""
    return (
        f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" '
        f'style="fill:{colour}"><title>{escape(tip)}</title></rect>'
    )


def _svg(height: float, title: str, body: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">'
        + "".join(body)
        + "</svg>"
    )


def _legend(bars: Sequence[Bar]) -> str:
    total: dict[Family, float] = {}
    for bar in bars:
        for family, value in bar.parts.items():
            total[family] = max(total.get(family, 0.0), value)
    entries = [(str(family), colour_of(family)) for family in _ordered(total)]
    if any(bar.idle_ms > 0 for bar in bars):
        entries.append(("GPU idle", _IDLE_COLOUR))
    return _entries(entries)


def _entries(entries: Sequence[tuple[str, str]]) -> str:
    found = [
        f'<span><i style="background:{colour}"></i>{escape(name)}</span>'
        for name, colour in entries
    ]
    return '<p class="legend">' + "".join(found) + "</p>"
