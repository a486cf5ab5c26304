"""A matrix as text for people, and as values for JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rewriter.model import State
from rewriter.report.text import cut, paint
from rewriter.rows import Episode, Matrix, Origin, Row
from rewriter.targets.commits import Commit
from rewriter.verdicts import as_json

_WIDTH = 80
_BODY = 7
"""Column at which what belongs to a run of revisions starts."""


def lines(matrix: Matrix, *, colour: bool, verbose: bool = False) -> Iterator[str]:
    """Yield the matrix: runs of revisions that share a state, why, and what the answer is.

    Args:
        matrix: the matrix.
        colour: whether to colour the states.
        verbose: name every revision, not only the ends of runs.
    """
    yield f"{matrix.location}: {count(matrix.sources, 'distinct source')}, {matrix.judged} judged"
    heading = None
    for episode in matrix.episodes():
        row = episode.first
        if heading != (row.codemod, row.series):
            heading = row.codemod, row.series
            yield ""
            yield f"{row.codemod}, {row.series}"
        yield from _episode(episode, colour=colour, verbose=verbose)
    yield ""
    for row, drop_when in matrix.retired():
        yield f"{row.codemod} has nothing to do at {row.label}: {row.reason}"
        if drop_when:
            yield f"  drop when: {drop_when}"
    yield verdict_line(matrix)


def verdict_line(matrix: Matrix) -> str:
    """Return the answer in one line."""
    asked = [row for row in matrix.rows if row.asked]
    bad = [row for row in asked if not row.fine]
    if not bad:
        return f"fine at {count(len(asked), 'revision')}"
    words = ", ".join(dict.fromkeys(row.word for row in bad))
    now = [row for row in matrix.newest() if not row.fine]
    where = f"now: {now[-1].label}" if now else f"not now; last: {bad[-1].label}"
    return f"not fine at {len(bad)} of {count(len(asked), 'revision')}: {words} ({where})"


def _episode(episode: Episode, *, colour: bool, verbose: bool) -> Iterator[str]:
    row = episode.last
    state = paint(f"{row.word:<12}", _code(row), colour=colour)
    ends = [episode.first] if len(episode.rows) == 1 else [episode.first, row]
    many = f"{len(episode.rows):>3}  "
    yield f"  {state}{many}{' … '.join(_name(each) for each in ends)}"
    indent = " " * _BODY
    if verbose:
        for each in episode.rows:
            subject = f"  {plain(each.commit.subject)}" if each.commit else ""
            yield cut(f"{indent}{_name(each)}{subject}", _WIDTH)
    since = episode.first.since
    if since is not None and since[1] is not None:
        yield cut(f"{indent}since {origin(since)} {plain(since[1].subject)}", _WIDTH)
    if row.reason and (not row.fine or row.how or row.state is State.UPSTREAM):
        yield f"{indent}why: {row.reason}"
    nearest = row.verdict.nearest if row.verdict else None
    if nearest is not None:
        yield cut(f"{indent}nearest: line {nearest.line}: {plain(nearest.text)}", _WIDTH)
        if nearest.differs:
            yield f"{indent}         {nearest.differs}"


def _code(row: Row) -> str:
    if not row.fine:
        return "31"
    return "32" if row.state in (State.READY, State.APPLIED) else "36"


def _name(row: Row) -> str:
    if row.commit is not None:
        return f"{row.label} {row.commit.date[:10]}"
    return row.label


def origin(since: Origin) -> str:
    """Return the revision that brought a state, in a few words."""
    label, commit = since
    if commit is None:
        return label
    return f"{commit.short} {commit.date[:10]}"


def plain(text: str) -> str:
    """Return text without what a terminal would obey; anybody can write a commit's subject."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def sentence(row: Row) -> str:
    """Return what a codemod is at a revision, without the reason."""
    if row.verdict is None:
        return f"{row.codemod} could not be judged at {row.label}"
    if row.how:
        return f"{row.codemod}: {row.word} at {row.label}"
    return f"{row.codemod} is {row.word} at {row.label}"


def count(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def rows_json(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return rows as JSON shows them: a verdict each, and the revision that it is about."""
    return [_row_json(row) for row in rows]


def _row_json(row: Row) -> dict[str, Any]:
    verdict: dict[str, Any] = {"codemod": row.codemod, "state": None, "sites": []}
    if row.verdict is not None:
        verdict = as_json(row.verdict)
    return verdict | {
        "reason": row.reason,
        "how": row.how or None,
        "revision": {
            "kind": row.kind,
            "label": row.label,
            "version": row.version,
            "commit": commit_json(row.commit),
        },
        "path": row.file or None,
        "before": [state.value if state else None for state in row.before],
        "changed": row.changed,
        "since": _since_json(row.since),
        "moved": row.moved[0] if row.moved else None,
        "error": row.error or None,
        "fine": row.fine,
    }


def commit_json(commit: Commit | None) -> dict[str, str] | None:
    """Return a commit as JSON shows it."""
    if commit is None:
        return None
    return {"id": commit.id, "date": commit.date, "subject": commit.subject}


def _since_json(since: Origin | None) -> dict[str, Any] | None:
    if since is None:
        return None
    return {"label": since[0], "commit": commit_json(since[1])}
