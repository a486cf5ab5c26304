"""Text for people: 80 columns, readable without colour."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TextIO

from rewriter.model import Nearest, SiteResult, State, Verdict

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


def paint(text: str, code: str, *, colour: bool) -> str:
    """Return text in an ANSI colour, or as it is."""
    return f"\033[{code}m{text}\033[0m" if colour else text


def verdict_lines(verdict: Verdict, *, colour: bool, verbose: bool = False) -> Iterable[str]:
    """Yield a verdict: its state, then site by site, then why and what came nearest."""
    state = paint(verdict.state.value, _COLOURS[verdict.state], colour=colour)
    yield f"{verdict.codemod}: {state}"
    if verdict.sites:
        yield from _site_lines(verdict, colour=colour)
    if verdict.reason:
        yield f"  why: {verdict.reason}"
    if verdict.nearest is not None:
        yield from _nearest_lines(verdict.nearest)


def _site_lines(verdict: Verdict, *, colour: bool) -> Iterable[str]:
    file = None
    for site in verdict.sites:
        if site.kind != "companion" and site.file != file:
            file = site.file
            yield f"  {file}"
        where = f"{site.line:>5}" if site.line else "    -"
        yield f"  {where}  {site.kind:<11} {_site_name(site)}{_site_state(site, verdict, colour)}"


def _site_name(site: SiteResult) -> str:
    return site.definition.rsplit("/", 1)[-1] if site.kind == "companion" else site.definition


def _site_state(site: SiteResult, verdict: Verdict, colour: bool) -> str:
    """A site's own state is told only where it is not the verdict's."""
    if site.state is verdict.state:
        return ""
    return "  " + paint(site.state.value, _COLOURS[site.state], colour=colour)


def _nearest_lines(nearest: Nearest) -> Iterable[str]:
    yield f"  nearest: line {nearest.line}: {cut(nearest.text, 60)}"
    if nearest.differs:
        yield f"           {nearest.differs}"


def cut(text: str, width: int) -> str:
    """Return text in at most ``width`` columns."""
    return text if len(text) <= width else text[: width - 1] + "…"


def diff_lines(diff: str, *, colour: bool) -> str:
    """Return a unified diff, coloured for a terminal."""
    if not colour:
        return diff
    return "".join(_diff_line(line) for line in diff.splitlines(keepends=True))


def _diff_line(line: str) -> str:
    body = line.rstrip("\n")
    for head, code in (
        ("+++", "1"),
        ("---", "1"),
        ("diff ", "1"),
        ("@@", "36"),
        ("+", "32"),
        ("-", "31"),
    ):
        if line.startswith(head):
            return f"\033[{code}m{body}\033[0m{line[len(body) :]}"
    return line
