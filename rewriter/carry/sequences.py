"""Longest common subsequences, and three versions of a sequence merged without a guess."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

_LARGE = 4_000_000
"""Cells of a table beyond which the alignment is approximate."""

T = TypeVar("T")


def common(one: Sequence[Hashable], two: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return the pairs of positions of a longest common subsequence, in order."""
    head = 0
    while head < min(len(one), len(two)) and one[head] == two[head]:
        head += 1
    tail = 0
    while tail < min(len(one), len(two)) - head and one[-1 - tail] == two[-1 - tail]:
        tail += 1
    middle = _middle(one[head : len(one) - tail], two[head : len(two) - tail])
    pairs = [(i, i) for i in range(head)]
    pairs += [(i + head, j + head) for i, j in middle]
    return pairs + [(len(one) - k, len(two) - k) for k in range(tail, 0, -1)]


def _middle(one: Sequence[Hashable], two: Sequence[Hashable]) -> list[tuple[int, int]]:
    if not one or not two:
        return []
    if len(one) * len(two) > _LARGE:
        matcher = difflib.SequenceMatcher(None, one, two, autojunk=False)
        return [(m.a + k, m.b + k) for m in matcher.get_matching_blocks() for k in range(m.size)]
    width = len(two) + 1
    table = [[0] * width for _ in range(len(one) + 1)]
    for i in range(len(one) - 1, -1, -1):
        below, row, item = table[i + 1], table[i], one[i]
        for j in range(len(two) - 1, -1, -1):
            if item == two[j]:
                row[j] = below[j + 1] + 1
            else:
                row[j] = below[j] if below[j] >= row[j + 1] else row[j + 1]
    return _read(table, one, two)


def _read(
    table: list[list[int]], one: Sequence[Hashable], two: Sequence[Hashable]
) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    i = j = 0
    while i < len(one) and j < len(two):
        if one[i] == two[j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif table[i + 1][j] >= table[i][j + 1]:
            i += 1
        else:
            j += 1
    return pairs


@dataclass(frozen=True)
class Change:
    """``base[start:end]`` becomes ``other[left:right]``."""

    start: int
    end: int
    left: int
    right: int


def changes(base: Sequence[Hashable], other: Sequence[Hashable]) -> list[Change]:
    """Return what turns one sequence into the other."""
    found: list[Change] = []
    i = j = 0
    for a, b in [*common(base, other), (len(base), len(other))]:
        if a > i or b > j:
            found.append(Change(i, a, j, b))
        i, j = a + 1, b + 1
    return found


@dataclass(frozen=True)
class Piece:
    """A stretch of the theirs-side sequence that is replaced by one of ours."""

    start: int
    end: int
    left: int
    right: int


def merge(
    base: Sequence[Hashable],
    ours: Sequence[Hashable],
    theirs: Sequence[Hashable],
    beside: Callable[[Change, Change], bool] = lambda mine, other: False,
) -> list[Piece] | None:
    """Return what is to change in ``theirs`` to hold our changes too; None on conflict.

    Changes that touch conflict unless they are the same. What they already hold is left out.

    Args:
        beside: whether one of our insertions may stand where they took something away.
    """
    mine, other = changes(base, ours), changes(base, theirs)
    pieces: list[Piece] = []
    shift = at = 0
    for change in mine:
        while at < len(other) and other[at].end < change.start:
            shift = other[at].right - other[at].end
            at += 1
        near = [o for o in other[at:] if o.start <= change.end]
        if not near:
            pieces.append(
                Piece(change.start + shift, change.end + shift, change.left, change.right)
            )
        elif len(near) == 1 and (put := _beside(change, near[0], ours, beside)) is not None:
            at_theirs = near[0].left
            pieces.append(Piece(at_theirs, at_theirs, put.left, put.right))
        elif not _same(change, near, ours, theirs):
            return None
    return pieces


def _beside(
    change: Change, other: Change, ours: Sequence[Hashable],
    beside: Callable[[Change, Change], bool],
) -> Change | None:  # fmt: skip
    """Return one of our insertions as it may stand beside a change of theirs; None if it may not.

    What is inserted with the separator behind it is the same as with the one before it.
    """
    if beside(change, other):
        return change
    if change.start <= other.start or change.left == change.right or change.left == 0:
        return None
    if ours[change.left - 1] != ours[change.right - 1]:
        return None
    before = Change(change.start - 1, change.end - 1, change.left - 1, change.right - 1)
    return before if beside(before, other) else None


def _same(
    change: Change, near: list[Change], ours: Sequence[Hashable], theirs: Sequence[Hashable]
) -> bool:
    if len(near) != 1:
        return False
    other = near[0]
    return (change.start, change.end) == (other.start, other.end) and list(
        ours[change.left : change.right]
    ) == list(theirs[other.left : other.right])


def holds(base: Sequence[Hashable], ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> bool:
    """Tell whether ``theirs`` has all our changes: each could be taken out of it again."""
    back = merge(ours, base, theirs)
    wanted = changes(ours, base)
    return bool(wanted) and back is not None and len(back) == len(wanted)
