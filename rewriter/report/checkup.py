"""The page of ``rewriter doctor``: 80 columns, readable without colour."""

from __future__ import annotations

from collections.abc import Iterator

from rewriter.checkup import Checkup
from rewriter.report.text import colourful, paint, verdict_lines, wrapped
from rewriter.visible import visible

_LABEL = 13


def checkup_lines(found: Checkup) -> Iterator[str]:
    """Yield the page: facts, codemods, what needs attention, what to do."""
    colour = colourful()
    for label, text in found.facts.items():
        yield from wrapped(visible(text, keep=""), f"{label + ':':<{_LABEL}}")
    for standing in found.standings:
        verdict = standing.verdict
        line, *_ = verdict_lines(verdict, colour=colour)
        yield line
        if verdict.reason:
            yield from wrapped(visible(verdict.reason), "  why: ")
        if standing.proof:
            yield from wrapped(visible(standing.proof), "  proof: ")
    if found.healthy:
        yield paint("healthy: nothing needs attention", "32", colour=colour)
    for number, finding in enumerate(found.findings, 1):
        head = f"{number}. "
        yield from wrapped(visible(finding.what), paint(head, "31", colour=colour))
        if finding.do:
            yield f"   do: {visible(finding.do)}"  # a command is never broken into lines
    for line in found.advice:
        yield f"next: {visible(line)}"
