"""What sites looked for and found, side by side in the width of the terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator
from itertools import zip_longest

from rewriter.explaining import Explained
from rewriter.report.text import WIDTH, paint

_BETWEEN = " │ "


def width() -> int:
    """Return the columns there are: a terminal's, but never fewer than 80."""
    if not sys.stdout.isatty():
        return WIDTH
    return max(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)


def explanation_lines(told: Iterable[Explained], *, columns: int, colour: bool) -> Iterator[str]:
    """Yield every site: its place, then what was looked for beside what was found."""
    left = (columns - len(_BETWEEN)) // 2
    right = columns - len(_BETWEEN) - left
    file = None
    for one in told:
        if one.file != file:
            file = one.file
            yield file
        yield f"  {one.site.kind} in {one.site.within}"
        pairs = zip_longest(
            _within("looked for", [*one.looked, *one.becomes], left),
            _within("found", _found(one), right),
            fillvalue="",
        )
        for number, (mine, theirs) in enumerate(pairs):
            line = f"{mine:<{left}}{_BETWEEN}{theirs}".rstrip()
            yield paint(line, "2", colour=colour) if number == 0 else line


def _found(one: Explained) -> list[str]:
    lines: list[str] = []
    for result, text in zip(one.found, one.texts, strict=True):
        where = f"line {result.line}: " if result.line is not None else ""
        lines.append(f"{where}{result.state}")
        lines += [text] if text else []
        lines += [result.reason] if result.reason else []
    if not one.found:
        lines.append("nothing, and that is no fault")
    for near in one.candidates:
        lines += [f"near, line {near.line}:", near.text]
        lines += [near.differs] if near.differs else []
    return lines


def _within(head: str, lines: list[str], columns: int) -> list[str]:
    told = [f"    {head}"]
    for line in lines:
        indent = " " * (6 + len(line) - len(line.lstrip()))
        told += textwrap.wrap(
            line.strip(), columns, initial_indent=indent, subsequent_indent=indent + "  ",
            break_on_hyphens=False,
        )  # fmt: skip
    return told
