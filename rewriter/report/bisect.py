"""What ``bisect`` found, as text and as values for JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rewriter.bisect import APPLIES, Finding, Turn
from rewriter.model import State
from rewriter.report.matrix import commit_json, count, plain
from rewriter.report.text import cut, paint
from rewriter.rows import Row


def lines(finding: Finding, drop_when: str, *, colour: bool) -> Iterator[str]:
    """Yield the answer, the commit, and every change where there is more than one."""
    yield answer(finding)
    culprit = finding.culprit
    if culprit is not None:
        yield from _culprit(culprit, colour=colour)
        if culprit.row.state is State.UPSTREAM and drop_when:
            yield f"  drop when: {drop_when}"
    turns = [turn for turn in finding.turns if turn is not culprit]
    if turns:
        how = "each change" if finding.monotonic else "not monotonic; each change"
        yield f"{how}:"
        for turn in finding.turns:
            yield cut(f"  {_change(turn)}  {_commit(turn.row)}", 80)


def answer(finding: Finding) -> str:
    """Return the answer in one line."""
    end, culprit = finding.end, finding.culprit
    name = end.codemod
    if culprit is not None:
        return f"{name} no longer applies after {_short(culprit.row)}: {_change(culprit)}"
    if end.state in APPLIES:
        broken = sum(turn.breaks for turn in finding.turns)
        again = f"; it was broken {count(broken, 'time')} and mended" if broken else ""
        return f"{name} applies at {end.label}: {end.word}{again}"
    why = f" ({end.reason})" if end.reason else ""
    return f"{name} never applied up to {end.label}: {end.word}{why}"


def _culprit(turn: Turn, *, colour: bool) -> Iterator[str]:
    row = turn.row
    if row.commit is not None:
        yield paint(f"commit {row.commit.id}", "33", colour=colour)
        yield f"date   {row.commit.date}"
        yield f"title  {plain(row.commit.subject)}"
    if row.reason:
        yield f"  why: {row.reason}"
    nearest = row.verdict.nearest if row.verdict else None
    if nearest is not None:
        yield cut(f"  nearest: line {nearest.line}: {plain(nearest.text)}", 80)
        if nearest.differs:
            yield f"           {nearest.differs}"


def _change(turn: Turn) -> str:
    return f"{turn.before} → {'moved' if turn.row.moved else turn.row.word}"


def _short(row: Row) -> str:
    return row.commit.short if row.commit else row.label


def _commit(row: Row) -> str:
    if row.commit is None:
        return row.label
    return f"{row.commit.short} {row.commit.date[:10]} {plain(row.commit.subject)}"


def as_json(finding: Finding, diff: str) -> dict[str, Any]:
    """Return what was found as JSON shows it."""
    culprit = finding.culprit
    return {
        "start": None if finding.start is None else finding.start.word,
        "end": finding.end.word,
        "monotonic": finding.monotonic,
        "commit": None if culprit is None else commit_json(culprit.row.commit),
        "reason": "" if culprit is None else culprit.row.reason,
        "diff": diff,
        "changes": [
            {
                "before": turn.before.value,
                "after": turn.row.word,
                "breaks": turn.breaks,
                "reason": turn.row.reason,
                "commit": commit_json(turn.row.commit),
            }
            for turn in finding.turns
        ],
    }
