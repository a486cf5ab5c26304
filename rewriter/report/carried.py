"""What became of a patch, hunk by hunk: text and JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from rewriter.carry.carrying import Carried, HunkResult
from rewriter.carry.steps import Fate, Step

_COLOURS = {
    Fate.CONFLICT: "31",
    Fate.HELD: "35",
    Fate.REVIEW: "33",
    Fate.STRUCTURE: "36",
    Fate.EXACTLY: "32",
    Fate.UPSTREAM: "34",
}


def lines(carried: Carried, *, colour: bool = False) -> Iterator[str]:
    """Yield the report: each file, each hunk, and for a conflict both sides."""
    path = None
    for result in carried.results:
        if result.path != path:
            path = result.path
            moved = f" → {result.onto}" if result.onto != path else ""
            yield f"{path}{moved}"
        yield from _hunk(result, colour)
    for outside in carried.outside:
        yield f"{outside}: outside of the package, left out"
    yield summary(carried)


def summary(carried: Carried) -> str:
    """Return one line with how many hunks went which way."""
    counts = Counter(result.fate for result in carried.results)
    told = [f"{counts[fate]} {fate}" for fate in _COLOURS if counts[fate]]
    total = len(carried.results)
    return f"{total} hunk{'s' if total != 1 else ''}: {', '.join(told) or 'nothing to do'}"


def _hunk(result: HunkResult, colour: bool) -> Iterator[str]:
    fate = f"\x1b[{_COLOURS[result.fate]}m{result.fate}\x1b[0m" if colour else str(result.fate)
    name = f"hunk {result.number}" if result.number else "the file"
    whys = dict.fromkeys(_why(step) for step in result.steps if step.fate is not Fate.CONFLICT)
    why = "; ".join(text for text in whys if text)
    where = _where(result)
    yield f"  {name}: {fate}{where}{f' ({why})' if why else ''}"
    if result.said:
        yield f"    repaired: {result.said}"
    for step in result.steps:
        if step.fate is Fate.CONFLICT:
            yield from _conflict(step)


def _where(result: HunkResult) -> str:
    steps = [s for s in result.steps if s.fate in (Fate.EXACTLY, Fate.STRUCTURE)]
    names = [name for name in dict.fromkeys(s.definition for s in steps) if name]
    line = next((s.line for s in steps if s.line is not None), None)
    place = f", line {line}" if line is not None else ""
    return place + (f", in {', '.join(names)}" if names else "")


def _why(step: Step) -> str:
    return step.reason


def _conflict(step: Step) -> Iterator[str]:
    near = f"; nearest is line {step.line}" if step.line is not None else ""
    inside = f" in {step.definition}" if step.definition else ""
    yield f"    {step.reason}{inside}{near}"
    for title, text in (("the patch", step.ours), ("upstream", step.theirs)):
        if text:
            yield f"    {title}:"
            yield from (f"      {line}".rstrip() for line in text.splitlines())


def as_json(carried: Carried) -> dict[str, Any]:
    """Return the report's values."""
    return {
        "hunks": [
            {
                "patch": result.patch,
                "file": result.path,
                "onto": result.onto,
                "hunk": result.number,
                "header": result.header,
                "fate": str(result.fate),
                "repaired": result.said,
                "changes": [_step(step) for step in result.steps],
            }
            for result in carried.results
        ],
        "outside": list(carried.outside),
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "fate": str(step.fate),
        "definition": step.definition,
        "line": step.line,
        "reason": step.reason,
        "ours": step.ours,
        "theirs": step.theirs,
    }
