"""The changes of a patch, from its own release to the patched one, placed in another release."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from rewriter.carry import plain
from rewriter.carry.branches import Branches, branch
from rewriter.carry.gaps import Gaps, inner
from rewriter.carry.inside import Inside
from rewriter.carry.ledger import Added, Ledger
from rewriter.carry.matching import Mapping, pairs
from rewriter.carry.steps import Fate
from rewriter.carry.texts import comments, fitted
from rewriter.carry.units import Block, Unit, walk

Pair = tuple[Unit, Unit]

Elsewhere = Callable[[Unit], "Unit | None"]
"""Finds a definition that is not where it was; None where the evidence allows no answer."""


class Placing:
    """One file's changes on their way; the ledger has what came of them."""

    def __init__(self, elsewhere: Elsewhere = lambda unit: None) -> None:
        self.mapping = Mapping()
        self.ledger = Ledger(self.mapping)
        self._inside, self._gaps = Inside(self.ledger), Gaps(self.ledger)
        self._branches = Branches(self.ledger, self.blocks_of)
        self._elsewhere = elsewhere

    def blocks(self, base: Block, ours: Block, theirs: Block) -> None:
        """Place what differs between two blocks into a third."""
        if base.source.text == ours.source.text:
            return
        self.mapping.blocks(base, theirs)
        paired = pairs(base.units, ours.units)
        done_base = done_ours = 0
        waiting: Pair | None = None
        for left, right in [*paired, (None, None)]:
            to_base = left.index if left is not None else len(base.units)
            to_ours = right.index if right is not None else len(ours.units)
            gone, new = base.units[done_base:to_base], ours.units[done_ours:to_ours]
            before = (base.units[done_base - 1], ours.units[done_ours - 1]) if done_base else None
            # what goes to the end of a definition goes before what follows it: same offset
            parted = new and not gone and before and moves_body(*before, new)
            if parted and before:
                self._by_line(*before, new)
            elif waiting is not None:
                self._pair(*waiting)
            if not parted and (gone or new):
                self._gaps.gap(base, theirs, (done_base, to_base), gone, new)
            waiting = (left, right) if left is not None and right is not None else None
            done_base, done_ours = to_base + 1, to_ours + 1

    def _by_line(self, base: Unit, ours: Unit, new: list[Unit]) -> None:
        """Place a patch that parts a definition in two: upstream's lines go with either part."""
        theirs = self.find(base)
        old, lines = (base.first, base.last), (ours.first, new[-1].last)
        if theirs is None:
            reason = "upstream has no such definition any more"
            self.ledger.conflict(base, ours, None, reason)
            return
        text = ours.source.text[ours.start : new[-1].end]
        end = self._parted(theirs, new)
        there = theirs.source.text[theirs.start : end]
        made, steps = plain.merged(
            base.text, text, there,
            first=base.first, ours_first=ours.first, line=theirs.first,
        )  # fmt: skip
        if any(step.fate is Fate.CONFLICT for step in steps) or (
            base.block.indent != theirs.block.indent
        ):
            reason = "upstream changed the lines where the patch parts the definition"
            self.ledger.conflict(base, ours, theirs, reason, old=old, new=lines)
            return
        if made == there:
            self.ledger.say(Fate.UPSTREAM, base, ours, theirs, old=old, new=lines)
            return
        self.ledger.edit(theirs.source, theirs.start, end, made)
        same = base.text == theirs.text
        how = "" if same else "the definition parted at the same lines, with upstream's changes"
        fate = Fate.EXACTLY if same else Fate.STRUCTURE
        self.ledger.say(fate, base, ours, theirs, how, old=old, new=lines)

    @staticmethod
    def _parted(theirs: Unit, new: list[Unit]) -> int:
        """Return where a definition ends in the other release, which may have parted it too."""
        after = theirs.block.units[theirs.index + 1 :][: len(new)]
        same = [u.ident for u in after] == [u.ident for u in new]
        return after[-1].end if same and after else theirs.end

    def _pair(self, base: Unit, ours: Unit) -> None:
        if base.trivia != ours.trivia:
            self._trivia(base, ours)
        if base.text == ours.text:
            return
        theirs = self.find(base)
        if theirs is None:
            if base.key == ours.key:
                self.ledger.conflict(
                    base, ours, None, "the statement that holds the comment is gone"
                )
                return
            self.ledger.conflict(base, ours, None, "upstream has no such statement any more")
            return
        if theirs.text == ours.text:
            self.ledger.say(Fate.UPSTREAM, base, ours, theirs)
            return
        if base.key != ours.key:
            self.ledger.changed.append((base, (ours.first, ours.last)))
            if not base.segments and not ours.segments:
                self.ledger.added.append(Added(base.block, base.index, [base], [ours]))
        if base.segments and len(base.segments) == len(ours.segments) and theirs.segments:
            self._segments(base, ours, theirs)
            return
        if base.key != ours.key and theirs.key == ours.key:
            self.ledger.say(Fate.UPSTREAM, base, ours, theirs)
            return
        if base.key == theirs.key and self._same_layout(base, theirs):
            self._inside.replace(base, ours, theirs)
            return
        if base.segments or ours.segments or theirs.segments:
            if base.key == theirs.key:
                self._inside.replace(base, ours, theirs)
                return
            self._branches.place(base, ours, theirs)
            return
        self._inside.statement(base, ours, theirs)

    def find(self, base: Unit) -> Unit | None:
        """Return the statement of the other release that a statement became."""
        found = self.mapping.get(base)
        return found if found is not None else self._elsewhere(base)

    def _same_layout(self, base: Unit, theirs: Unit) -> bool:
        def lines(unit: Unit) -> list[str]:
            return [line.strip() for line in unit.text.splitlines()]

        return lines(base) == lines(theirs)

    def _segments(self, base: Unit, ours: Unit, theirs: Unit) -> None:
        for one, two in zip(base.segments, ours.segments, strict=True):
            changed = _text(one.block) != _text(two.block)
            if one.text == two.text and not changed:
                continue
            three = branch(base, one, theirs)
            if three is None:
                old, new = ((s.first, s.block.units[-1].last) for s in (one, two))
                reason = "upstream changed the branches of the statement that the patch changes"
                self.ledger.conflict(base, ours, theirs, reason, old=old, new=new)
                continue
            if one.text != two.text:
                self._inside.header(one, two, three, (base, ours, theirs))
            if changed:
                self.blocks(one.block, two.block, three.block)

    def blocks_of(self, base: Block, ours: Block, theirs: Block) -> None:
        """Place what differs between two blocks, unless nothing does."""
        if _text(base) != _text(ours):
            self.blocks(base, ours, theirs)

    def _trivia(self, base: Unit, ours: Unit) -> None:
        theirs = self.mapping.get(base)
        old, new = (base.above, base.first - 1), (ours.above, ours.first - 1)
        if comments(base.trivia) == comments(ours.trivia) and base in self.mapping.moved:
            return  # blank lines alone, and they would stand between others
        if theirs is not None and [*map(str.strip, theirs.trivia.splitlines())] == [
            *map(str.strip, base.trivia.splitlines())
        ]:
            text = fitted(ours.source, *new, ours.block.indent, theirs)
            self.ledger.edit(theirs.source, theirs.top, theirs.start, text)
            if comments(base.trivia) != comments(ours.trivia):
                self.ledger.say(Fate.EXACTLY, base, ours, theirs, old=old, new=new)
            return
        if comments(base.trivia) == comments(ours.trivia):
            return  # blank lines alone, and upstream has others there
        if theirs is not None and comments(theirs.trivia) == comments(ours.trivia):
            self.ledger.say(Fate.UPSTREAM, base, ours, theirs, old=old, new=new)
            return
        reason = "upstream changed the comments that the patch changes"
        self.ledger.conflict(base, ours, theirs, reason, old=old, new=new)


def moves_body(base: Unit, ours: Unit, new: Sequence[Unit]) -> bool:
    """Tell whether statements that leave a definition are in new ones right after it."""
    if base.text == ours.text or not (base.segments and ours.segments):
        return False
    if not isinstance(base.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    kept = {unit.key for unit in walk(ours.segments[0].block)}
    left = {u.key for u in base.segments[0].block.units if u.key not in kept}
    return bool(left & {each.key for unit in new for each in inner(unit)})


def _text(block: Block) -> str:
    source = block.source
    return source.text[block.units[0].top : block.units[-1].end]
