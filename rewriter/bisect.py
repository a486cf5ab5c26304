"""The commits that change whether a codemod applies, and what they changed at its sites.

No binary search: every commit that touches a file of the codemod is judged, at most once ever.
So a history that breaks, mends and breaks again is told as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rewriter.codemod import Codemod
from rewriter.errors import SourceError
from rewriter.model import State, Verdict
from rewriter.rows import Row
from rewriter.targets.history import History
from rewriter.targets.processes import Reader
from rewriter.walk import Point

APPLIES = frozenset({State.READY, State.APPLIED})
"""States in which applying succeeds, or has."""


class Turn(NamedTuple):
    """A commit at which a codemod ceases to apply, or begins to.

    Attributes:
        row: the codemod at that commit.
        breaks: whether it ceases to.
        before: the state in the parent that the commit is compared with.
    """

    row: Row
    breaks: bool
    before: State


class Finding(NamedTuple):
    """What a range did to a codemod.

    Attributes:
        turns: every change, ancestors first.
        start, end: the codemod at the range's base (None for a whole history) and at its tip.
    """

    turns: tuple[Turn, ...]
    start: Row | None
    end: Row

    @property
    def culprit(self) -> Turn | None:
        """The last commit that broke it; None where it applies at the end or never did."""
        if self.end.state in APPLIES:
            return None
        return next((turn for turn in reversed(self.turns) if turn.breaks), None)

    @property
    def monotonic(self) -> bool:
        """Whether it ceased to apply at most once, and never began to again after that."""
        broken = [turn.breaks for turn in self.turns]
        return True not in broken[:-1]


def bisect(rows: Sequence[Row]) -> Finding:
    """Find the turns in the rows of one codemod at the commits of a range."""
    turns: list[Turn] = []
    for row in rows:
        applied = [state in APPLIES for state in row.before]
        known = [state for state in row.before if state is not None]
        if not known or not row.asked:
            continue
        applies = row.state in APPLIES
        if applies and not any(applied):
            turns.append(Turn(row, False, known[0]))
        elif not applies and all(applied):
            turns.append(Turn(row, True, known[0]))
    start = rows[0] if rows[0].kind == "base" else None
    return Finding(tuple(turns), start, rows[-1])


def diff_at_sites(
    history: History, codemod: Codemod, turn: Turn, point: Point, reader: Reader
) -> bytes:
    """Return what a commit changed in the definitions that hold a codemod's sites.

    Where something is wrong with some sites, only their definitions; where the change is in none
    of them, all that the commit changed in the file. A file that is gone shows its head alone.
    """
    parent = point.commit.parents[0] if point.commit.parents else None
    if parent is None or point.before is None:
        return b""
    shown: list[bytes] = []
    for path in codemod.files():
        diff = history.diff(parent, point.commit.id, path)
        if path not in point.files:
            shown.append(diff[: _head(diff)])
            continue
        old, new = (_text(reader, files.get(path)) for files in (point.before[0], point.files))
        for names in (_wrong(turn.row.verdict), {site.within for site in codemod.sites}):
            picked = pick(diff, _spans(path, old, names), _spans(path, new, names))
            if picked:
                break
        shown.append(picked or diff)
    return b"".join(shown)


def _wrong(verdict: Verdict | None) -> set[str]:
    sites = verdict.sites if verdict else ()
    return {site.definition for site in sites if site.state not in APPLIES}


def _text(reader: Reader, oid: str | None) -> bytes | None:
    return None if oid is None else reader(oid)


def _spans(path: str, raw: bytes | None, names: Iterable[str]) -> list[tuple[int, int]]:
    """Return first and last line of definitions; none where the file is gone or does not parse."""
    from rewriter.source import Source

    if raw is None:
        return []
    try:
        source = Source(path, raw)
        found = [each for name in sorted(names) for each in source.definitions(name)]
    except SourceError:
        return []
    return [(each.first, each.last) for each in found]


_HUNK = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)


def pick(diff: bytes, old: Sequence[tuple[int, int]], new: Sequence[tuple[int, int]]) -> bytes:
    """Return the hunks of a one-file diff that change lines in given spans, or nothing.

    Args:
        diff: a unified diff.
        old: spans of lines, 1-based and inclusive, in the file before.
        new: the same in the file after.
    """
    starts = [match.start() for match in _HUNK.finditer(diff)]
    if not starts:
        return b""
    hunks = [diff[a:b] for a, b in zip(starts, [*starts[1:], len(diff)], strict=True)]
    kept = [hunk for hunk in hunks if _touches(hunk, old, new)]
    return diff[: starts[0]] + b"".join(kept) if kept else b""


def _head(diff: bytes) -> int:
    first = _HUNK.search(diff)
    return first.start() if first else len(diff)


def _touches(hunk: bytes, old: Sequence[tuple[int, int]], new: Sequence[tuple[int, int]]) -> bool:
    return any(
        first <= line <= last
        for removed, line in _changed(hunk)
        for first, last in (old if removed else new)
    )


def _changed(hunk: bytes) -> Iterator[tuple[bool, int]]:
    """Yield the lines that a hunk removes (True, number before) and adds (False, after)."""
    head, _, body = hunk.partition(b"\n")
    match = _HUNK.match(head)
    assert match is not None
    before, after = int(match[1]), int(match[3])
    for line in body.split(b"\n"):
        if line.startswith(b"-"):
            yield True, before
        elif line.startswith(b"+"):
            yield False, after
        before += line[:1] in (b"-", b" ")
        after += line[:1] in (b"+", b" ")
