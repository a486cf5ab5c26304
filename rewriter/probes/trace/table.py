"""The text of ``prof.key_averages().table()``: rows, cut by the line of dashes, and its traps.

Each operator is repeated as the kernel that it launches, so kernels alone are added up; a step's
annotation has a GPU row over 100 %; names are cut at 55 characters; the unit is chosen for each
cell; sort order and row limit hide rows, which only the total shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rewriter.probes.trace.recording import STEP

_DASHES = re.compile(r"-{3,}(?:\s+-{3,}){3,}\s*$")
_RUN = re.compile(r"-{3,}")
_TIME = re.compile(r"(-?[\d.]+)(us|ms|s)$")
_TOTAL = re.compile(r"Self (?!CPU)\w+ time total:\s*(\S+)")
_UNITS = {"us": 1.0, "ms": 1e3, "s": 1e6}
_STARTUP = ("Activity Buffer Request", "Lazy Function Loading", "Runtime Triggered Module Loading")


@dataclass(frozen=True)
class Row:
    """One row; times in microseconds.

    Attributes:
        name: as printed: cut at 55 characters.
        calls: number of calls.
        device_us: self time on the device.
        host_us: self time on the host; kernels and GPU annotations have none.
        average_us: device time of one call, which has more digits than the sum.
        shapes: as printed, with ``group_by_input_shape``.
    """

    name: str
    calls: int
    device_us: float
    host_us: float
    average_us: float
    shapes: str


@dataclass(frozen=True)
class Table:
    """One table.

    Attributes:
        rows: all rows, as printed.
        total_us: the footer's device time, the denominator; None if it was cut off.
        unreadable: lines that could not be cut into cells.
    """

    rows: tuple[Row, ...]
    total_us: float | None
    unreadable: int

    @property
    def kernels(self) -> tuple[Row, ...]:
        """Rows of kernels; of operators where this torch prints no kernels."""
        annotations = {row.name for row in self.rows if row.host_us > 0}
        found = tuple(
            row
            for row in self.rows
            if row.host_us == 0
            and row.device_us > 0
            and row.name not in annotations
            and not STEP.match(row.name)
        )
        return found or self.operators

    @property
    def operators(self) -> tuple[Row, ...]:
        """Rows of operators with device time of their own."""
        return tuple(
            row
            for row in self.rows
            if row.host_us > 0 and row.device_us > 0 and row.name not in _STARTUP
        )

    @property
    def summed_us(self) -> float:
        """Device time of the rows that are there."""
        return sum(row.device_us for row in self.kernels)

    @property
    def device_us(self) -> float:
        """Device time: the footer's, else the sum."""
        return self.summed_us if self.total_us is None else self.total_us

    @property
    def hidden_us(self) -> float:
        """Device time in rows that sort order or row limit left out."""
        return max(0.0, self.device_us - self.summed_us)

    @property
    def steps(self) -> int | None:
        """Calls of the step annotation, or None without one."""
        calls = [row.calls for row in self.rows if STEP.match(row.name)]
        return min(calls) if calls else None


def looks_like_table(text: str) -> bool:
    """Whether a text's beginning is that of such a table."""
    return any(_DASHES.match(line) for line in text.splitlines()[:400])


def read_tables(text: str) -> list[Table]:
    """Return the tables in a text, those without device time left out."""
    lines = text.split("\n")
    fences = [at for at, line in enumerate(lines) if _DASHES.match(line)]
    tables = []
    for above, below in pairwise(fences):
        # A table has three lines of dashes: around its header, and below its rows.
        if below == above + 2:
            tables.append(_table(lines, above, below, fences))
    return [table for table in tables if table.device_us > 0]


def _table(lines: Sequence[str], above: int, below: int, fences: Sequence[int]) -> Table:
    bounds = [(run.start(), run.end()) for run in _RUN.finditer(lines[above])]
    # A title can be longer than its column (`CUDA time avg`) and shifts those after it.
    header = re.split(r"\s{2,}", lines[below - 1].strip())
    header += [""] * (len(bounds) - len(header))
    end = next((at for at in fences if at > below), len(lines))
    rows = []
    unreadable = 0
    for line in _joined(lines[below + 1 : end], bounds[-1][1]):
        row = _row(header, [line[start:stop].strip() for start, stop in bounds])
        if row is not None:
            rows.append(row)
        else:
            unreadable += bool(line.strip())
    footer = _TOTAL.search("\n".join(lines[end : end + 4]))
    return Table(tuple(rows), _us(footer[1]) if footer else None, unreadable)


def _joined(lines: Sequence[str], width: int) -> Iterator[str]:
    """Join the lines of a row whose name holds a newline: it counted when the row was padded."""
    row = ""
    for line in lines:
        row = f"{row}\n{line}" if row else line
        if len(row.rstrip()) >= width:
            yield row
            row = ""
    if row:
        yield row


def _row(header: Sequence[str], cells: Sequence[str]) -> Row | None:
    cell = dict(zip(header, cells, strict=False))
    device = next((_device(title) for title in header if _device(title)), "CUDA")
    calls = cell.get("# of Calls", "")
    times = [_us(cell.get(title, "")) for title in ("Self CPU", f"Self {device}")]
    if not calls.isdigit() or None in times:
        return None
    host, spent = (time or 0.0 for time in times)
    count = int(calls)
    average = _us(cell.get(f"{device} time avg", ""))
    return Row(
        name=cell.get("Name", ""),
        calls=count,
        device_us=_finer(spent, average, count),
        host_us=host,
        average_us=spent / count if average is None and count else average or 0.0,
        shapes=cell.get("Input Shapes", ""),
    )


def _device(title: str) -> str | None:
    """Return the device's name in ``Self CUDA`` (also XPU, HIP), if it is that column's title."""
    found = re.fullmatch(r"Self (?!CPU)(\w+)", title)
    return found[1] if found else None


def _finer(spent: float, average: float | None, calls: int) -> float:
    """Return the sum by its average where that has more digits: a sum in seconds has three."""
    if average is None or spent < 1e6:
        return spent
    finer = average * calls
    return finer if abs(finer - spent) <= 0.5e3 + 0.001 * spent else spent


def _us(cell: str) -> float | None:
    found = _TIME.match(cell)
    return float(found[1]) * _UNITS[found[2]] if found else None
