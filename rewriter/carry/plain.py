"""Files that are no Python that can be divided: merged by line, with no guess."""

from __future__ import annotations

from rewriter.carry.sequences import Change, Piece, changes, holds, merge
from rewriter.carry.steps import Fate, Step
from rewriter.carry.texts import shown


def merged(
    base: str, ours: str, theirs: str, *, first: int = 1, ours_first: int = 1, line: int = 1
) -> tuple[str, list[Step]]:
    """Return their text with our changes, change by change, and what became of each.

    Args:
        first, ours_first, line: the line numbers of the three texts in their files.
    """
    sides = [text.splitlines(keepends=True) for text in (base, ours, theirs)]
    bare = [[x.rstrip("\r\n") for x in side] for side in sides]
    ending = "\r\n" if "\r\n" in theirs else "\n"
    steps: list[Step] = []
    found: list[tuple[Piece, list[str]]] = []
    for change in changes(bare[0], bare[1]):
        piece = _placed(bare[0], bare[1], bare[2], change)
        step, text = _told(change, piece, bare, (first, ours_first, line))
        steps.append(step)
        if piece is not None and step.fate is Fate.EXACTLY:
            found.append((piece, [x + ending for x in text]))
    result = list(sides[2])
    for piece, text in sorted(found, key=lambda f: f[0].start, reverse=True):
        if piece.start == len(result) and result and not result[-1].endswith(("\n", "\r")):
            result[-1] += ending
        result[piece.start : piece.end] = text
    return "".join(result), steps


def _placed(base: list[str], ours: list[str], theirs: list[str], change: Change) -> Piece | None:
    """Place one change alone: the others are as if they were not there."""
    alone = base[: change.start] + ours[change.left : change.right] + base[change.end :]
    if holds(base, alone, theirs):
        return Piece(0, 0, 0, 0)
    found = merge(base, alone, theirs)
    if found is None:
        return None
    if not found:
        return Piece(0, 0, 0, 0)
    piece = found[0]
    shift = change.left - change.start
    return Piece(piece.start, piece.end, piece.left + shift, piece.right + shift)


def _told(
    change: Change, piece: Piece | None, bare: list[list[str]], firsts: tuple[int, int, int]
) -> tuple[Step, list[str]]:
    first, ours_first, line = firsts
    old = (change.start + first, change.end + first - 1)
    new = (change.left + ours_first, change.right + ours_first - 1)
    text = bare[1][change.left : change.right]
    if piece is None:
        reason = "upstream changed the same lines, or lines that touch them"
        near = min(change.start, max(0, len(bare[2]) - 1))
        theirs = "\n".join(bare[0][change.start : change.end])
        return Step(
            Fate.CONFLICT, old, new, "", near + line, reason, shown("\n".join(text)), theirs
        ), text
    if piece == Piece(0, 0, 0, 0):
        return Step(Fate.UPSTREAM, old, new, "", None), text
    return Step(Fate.EXACTLY, old, new, "", piece.start + line), text
