"""Text for people: 80 columns, readable without colour."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rewriter.model import Nearest, SiteResult, State, Verdict

WIDTH = 80
"""Columns of what is printed; a path or a name is never cut for it."""

_verbose = False

_COLOURS = {
    State.READY: "32",
    State.APPLIED: "32",
    State.UPSTREAM: "36",
    State.ABSENT: "36",
    State.DRIFTED: "31",
    State.PARTIAL: "31",
    State.TAMPERED: "31",
    State.INTERRUPTED: "31",
    State.ORPHANED: "33",
    State.UNSUPPORTED: "33",
}


def colourful(stream: TextIO | None = None) -> bool:
    """Return whether a stream wants colour: a terminal, and NO_COLOR not set."""
    stream = stream or sys.stdout
    return not os.environ.get("NO_COLOR") and stream.isatty()


@contextmanager
def more() -> Iterator[None]:
    """Tell verdicts in full within a block: the command line asks for it."""
    global _verbose
    _verbose = True
    try:
        yield
    finally:
        _verbose = False


def paint(text: str, code: str, *, colour: bool) -> str:
    """Return text in an ANSI colour, or as it is."""
    return f"\033[{code}m{text}\033[0m" if colour else text


def verdict_lines(verdict: Verdict, *, colour: bool, verbose: bool = False) -> Iterable[str]:
    """Yield a verdict: its state, then site by site, then why and what came nearest.

    Args:
        verdict: what is told.
        colour: whether states are painted.
        verbose: tell every site's reason and nearest candidate, not the first one's alone.
    """
    verbose = verbose or _verbose
    state = paint(verdict.state.value, _COLOURS[verdict.state], colour=colour)
    yield f"{verdict.codemod}: {state}"
    file = None
    for site in verdict.sites:
        if site.kind != "companion" and site.file != file:
            file = site.file
            yield f"  {file}"
        yield from _site_lines(site, verdict, colour=colour)
        if verbose:
            yield from _why(site.reason, site.nearest, " " * 9)
    if not verbose or not any(site.reason for site in verdict.sites):
        yield from _why(verdict.reason, verdict.nearest, "  ")


def _site_lines(site: SiteResult, verdict: Verdict, *, colour: bool) -> Iterable[str]:
    """Yield a site's line; its own state is told only where it is not the verdict's."""
    where = f"{site.line:>5}" if site.line else "    -"
    name = site.definition.rsplit("/", 1)[-1] if site.kind == "companion" else site.definition
    line = f"  {where}  {site.kind:<11} {name}".rstrip()
    state = "" if site.state is verdict.state else site.state.value
    painted = paint(state, _COLOURS[site.state], colour=colour)
    if len(line) + 2 + len(state) <= WIDTH:
        yield f"{line}  {painted}" if state else line
    else:
        yield line
        yield f"{'':<21}{painted}"


def _why(reason: str, nearest: Nearest | None, indent: str) -> Iterable[str]:
    if reason:
        yield from wrapped(reason, f"{indent}why: ")
    if nearest is not None:
        head = f"{indent}nearest: line {nearest.line}: "
        yield head + cut(nearest.text, WIDTH - len(head))
        if nearest.differs:
            yield from wrapped(nearest.differs, f"{indent}         ")


def wrapped(text: str, head: str) -> list[str]:
    """Return text behind a head, in lines of 80 columns where its words allow that."""
    if len(head) + len(text) <= WIDTH:
        return [head + text]
    import textwrap

    return textwrap.wrap(
        text, WIDTH, initial_indent=head, subsequent_indent=" " * len(head),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def cut(text: str, width: int) -> str:
    """Return text in at most ``width`` columns."""
    return text if len(text) <= width else text[: width - 1] + "…"


def diff_lines(diff: str, *, colour: bool) -> str:
    """Return a unified diff, coloured for a terminal."""
    if not colour:
        return diff
    return "\n".join(_diff_line(line) for line in diff.split("\n"))


def _diff_line(line: str) -> str:
    for head, code in (
        ("+++", "1"),
        ("---", "1"),
        ("diff ", "1"),
        ("@@", "36"),
        ("+", "32"),
        ("-", "31"),
    ):
        if line.startswith(head):
            return paint(line, code, colour=True)
    return line
