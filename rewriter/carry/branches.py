"""Branches that a patch adds to a statement: between the same two that they stand between."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rewriter.carry.ledger import Ledger
from rewriter.carry.sequences import common
from rewriter.carry.steps import Fate
from rewriter.carry.texts import fitted
from rewriter.carry.units import Block, Segment, Unit

_REASON = "upstream changed the branches of the statement that the patch changes"


class Branches:
    """Places new branches; what differs inside of the others is placed by ``blocks``."""

    def __init__(self, ledger: Ledger, blocks: Callable[[Block, Block, Block], None]) -> None:
        self.ledger, self._blocks = ledger, blocks

    def place(self, base: Unit, ours: Unit, theirs: Unit) -> None:
        """Place a patch that adds branches to a statement and keeps those that it had."""
        kept = common(*([condition(s) for s in u.segments] for u in (base, ours)))
        there = [branch(base, segment, theirs) for segment in base.segments]
        positions = [theirs.segments.index(s) for s in there if s is not None]
        whole = len(kept) == len(base.segments) == len(positions) and len(kept) > 0
        if not whole or kept[0][1] or sorted(positions) != positions or not theirs.segments:
            self.ledger.conflict(base, ours, theirs, _REASON)
            return
        ends = [*(j for _, j in kept[1:]), len(ours.segments)]
        places = [*positions[1:], len(theirs.segments)]
        for (i, j), end, at, place in zip(kept, ends, positions, places, strict=True):
            self._blocks(base.segments[i].block, ours.segments[j].block, theirs.segments[at].block)
            if end > j + 1:
                old = base.segments[i].block.units[-1].last
                self._add((base, ours, theirs), old, range(j + 1, end), range(at + 1, place))

    def _add(
        self, units: tuple[Unit, Unit, Unit], old: int, new: range, there: range
    ) -> None:  # fmt: skip
        """Add branches where none is, or find them there."""
        base, ours, theirs = units
        added = [ours.segments[n] for n in new]
        lines = added[0].first, added[-1].block.units[-1].last
        found = [theirs.segments[n] for n in there]
        if found and _equal(added, found):
            self.ledger.say(Fate.UPSTREAM, base, ours, theirs, old=(old + 1, old), new=lines)
            return
        if found:
            self.ledger.conflict(base, ours, theirs, _REASON, old=(old + 1, old), new=lines)
            return
        text = fitted(ours.source, *lines, ours.block.indent, theirs)
        last = there.stop == len(theirs.segments)
        at = theirs.end if last else theirs.segments[there.stop].start
        self.ledger.edit(theirs.source, at, at, text)
        how = "a branch added to a statement that upstream changed"
        self.ledger.say(Fate.STRUCTURE, base, ours, theirs, how, old=(old + 1, old), new=lines)


def _equal(one: Sequence[Segment], two: Sequence[Segment]) -> bool:
    return [_code(segment) for segment in one] == [_code(segment) for segment in two]


def _code(segment: Segment) -> tuple[list[str], list[str]]:
    return [t.text for t in segment.tokens], [u.key for u in segment.block.units]


def branch(base: Unit, segment: Segment, theirs: Unit) -> Segment | None:
    """Return the branch of another version that is the same one: known by its condition.

    A branch whose condition changed is known as the first, or as the only ``else`` and the like.
    """
    wanted = condition(segment)
    same = [s for s in theirs.segments if condition(s) == wanted]
    if len(same) == 1:
        return same[0]
    if segment is base.segments[0]:
        return theirs.segments[0] if theirs.segments else None
    word = segment.tokens[0].text
    sides = [[s for s in unit.segments[1:] if s.tokens[0].text == word] for unit in (base, theirs)]
    return sides[1][0] if len(sides[0]) == len(sides[1]) == 1 else None


def condition(segment: Segment) -> tuple[str, ...]:
    """Return what a branch asks; the first of a chain asks as the others do."""
    words = tuple(token.text for token in segment.tokens)
    return words[1:] if words[0] in ("if", "elif") else words
