"""The changes of a patch, from its own release to the patched one, placed in another release."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence

from rewriter.carry import inline, plain, spots
from rewriter.carry.matching import Mapping, pairs
from rewriter.carry.steps import Fate, Lines, Step
from rewriter.carry.texts import comments, fitted, newline, shown
from rewriter.carry.units import Block, Segment, Unit, walk
from rewriter.edits import TextEdit
from rewriter.source import Source

Pair = tuple[Unit, Unit]

Elsewhere = Callable[[Unit], "Unit | None"]
"""Finds a definition that is not where it was; None where the evidence allows no answer."""


class Placing:
    """One file's changes on their way.

    Attributes:
        edits: what is to change in the other release's files, and for which step; an edit of
            layout alone belongs to none.
        steps: what became of each change.
        touched: the statements of the other release that are edited or removed.
    """

    def __init__(self, elsewhere: Elsewhere = lambda unit: None) -> None:
        self.mapping = Mapping()
        self.edits: list[tuple[Source, TextEdit, int | None]] = []
        self.steps: list[Step] = []
        self.touched: list[Unit] = []
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
                self._gap(base, theirs, (done_base, to_base), gone, new)
            waiting = (left, right) if left is not None and right is not None else None
            done_base, done_ours = to_base + 1, to_ours + 1

    def _by_line(self, base: Unit, ours: Unit, new: list[Unit]) -> None:
        """Place a patch that parts a definition in two: upstream's lines go with either part."""
        theirs = self.find(base)
        old, lines = (base.first, base.last), (ours.first, new[-1].last)
        if theirs is None:
            self._conflict(base, ours, None, "upstream has no such definition any more")
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
            self._conflict(base, ours, theirs, reason, old=old, new=lines)
            return
        if made == there:
            self._say(Fate.UPSTREAM, base, ours, theirs, old=old, new=lines)
            return
        self._edit(theirs.source, theirs.start, end, made)
        same = base.text == theirs.text
        how = "" if same else "the definition parted at the same lines, with upstream's changes"
        fate = Fate.EXACTLY if same else Fate.STRUCTURE
        self._say(fate, base, ours, theirs, how, old=old, new=lines)

    @staticmethod
    def _parted(theirs: Unit, new: list[Unit]) -> int:
        """Return where a definition ends in the other release, which may have parted it too."""
        after = theirs.block.units[theirs.index + 1 :][: len(new)]
        same = [u.ident for u in after] == [u.ident for u in new]
        return after[-1].end if same and after else theirs.end

    # --- a statement that stays -------------------------------------------------------------

    def _pair(self, base: Unit, ours: Unit) -> None:
        if base.trivia != ours.trivia:
            self._trivia(base, ours)
        if base.text == ours.text:
            return
        theirs = self.find(base)
        if theirs is None:
            if base.key == ours.key:
                self._quiet(base, ours, "the statement that holds the comment is gone")
                return
            self._conflict(base, ours, None, "upstream has no such statement any more")
            return
        if theirs.text == ours.text:
            self._say(Fate.UPSTREAM, base, ours, theirs)
            return
        if base.segments and len(base.segments) == len(ours.segments) == len(theirs.segments):
            self._segments(base, ours, theirs)
            return
        if base.key != ours.key and theirs.key == ours.key:
            self._say(Fate.UPSTREAM, base, ours, theirs)
            return
        if base.key == theirs.key and self._same_layout(base, theirs):
            self._replace(base, ours, theirs)
            return
        if base.segments or ours.segments or theirs.segments:
            if base.key == theirs.key:
                self._replace(base, ours, theirs)
                return
            self._compound(base, ours, theirs)
            return
        self._inline(base, ours, theirs)

    def find(self, base: Unit) -> Unit | None:
        """Return the statement of the other release that a statement became."""
        found = self.mapping.get(base)
        return found if found is not None else self._elsewhere(base)

    def _same_layout(self, base: Unit, theirs: Unit) -> bool:
        def lines(unit: Unit) -> list[str]:
            return [line.strip() for line in unit.text.splitlines()]

        return lines(base) == lines(theirs)

    def _replace(self, base: Unit, ours: Unit, theirs: Unit) -> None:
        text = fitted(ours.source, ours.first, ours.last, ours.block.indent, theirs)
        self._edit(theirs.source, theirs.start, theirs.end, text)
        self.touched.append(theirs)
        self._say(Fate.EXACTLY, base, ours, theirs)

    def _segments(self, base: Unit, ours: Unit, theirs: Unit) -> None:
        for one, two, three in zip(base.segments, ours.segments, theirs.segments, strict=True):
            if one.text != two.text:
                self._header(one, two, three, (base, ours, theirs))
            self.blocks_of(one.block, two.block, three.block)

    def blocks_of(self, base: Block, ours: Block, theirs: Block) -> None:
        """Place what differs between two blocks, unless nothing does."""
        if _text(base) != _text(ours):
            self.blocks(base, ours, theirs)

    def _header(
        self, base: Segment, ours: Segment, theirs: Segment, units: tuple[Unit, Unit, Unit]
    ) -> None:
        old, new = (base.first, base.last), (ours.first, ours.last)
        words = [[t.text for t in s.tokens] for s in (base, ours, theirs)]
        if words[1] == words[2] and words[0] != words[1]:
            self._say(Fate.UPSTREAM, *units, old=old, new=new)
            return
        if [x.strip() for x in base.text.splitlines()] == [
            x.strip() for x in theirs.text.splitlines()
        ]:
            indent = units[1].block.indent
            text = fitted(ours.source, ours.first, ours.last, indent, units[2])
            self._edit(theirs.source, theirs.start, theirs.end, text)
            self.touched.append(units[2])
            self._say(Fate.EXACTLY, *units, old=old, new=new)
            return
        self._tokens(base, ours, theirs, units, old, new)

    def _inline(self, base: Unit, ours: Unit, theirs: Unit) -> None:
        old, new = (base.first, base.last), (ours.first, ours.last)
        names = inline.imported(base.node, ours.node, theirs.node)
        if names is not None:
            self._import(base, ours, theirs, names)
            return
        self._tokens(base, ours, theirs, (base, ours, theirs), old, new)

    def _tokens(
        self, base: Unit | Segment, ours: Unit | Segment, theirs: Unit | Segment,
        units: tuple[Unit, Unit, Unit], old: Lines, new: Lines,
    ) -> None:  # fmt: skip
        ending = newline(units[2].source)
        text = inline.merged(base.tokens, ours.tokens, theirs.tokens, ending)
        if text is None:
            reason = "upstream changed the same part of the statement"
            self._conflict(*units, reason, old=old, new=new)
            return
        if inline.lost_comments(base.tokens, ours.tokens, theirs.tokens):
            reason = "upstream changed the comments that the patch changes"
            self._conflict(*units, reason, old=old, new=new)
            return
        end = theirs.tokens[-1].end
        if text == theirs.source.text[theirs.start : end]:
            fate = Fate.UPSTREAM if ours.text != base.text else Fate.EXACTLY
            self._say(fate, *units, old=old, new=new)
            return
        self._edit(theirs.source, theirs.start, end, text)
        self.touched.append(units[2])
        how = "inside of a statement that upstream changed elsewhere"
        self._say(Fate.STRUCTURE, *units, how, old=old, new=new)

    def _import(self, base: Unit, ours: Unit, theirs: Unit, names: list[str]) -> None:
        if not names:
            self._say(Fate.UPSTREAM, base, ours, theirs)
            return
        source, node = theirs.source, theirs.node
        assert node is not None
        aliases: list[ast.alias] = node.names  # type: ignore[attr-defined]
        last = aliases[-1]
        separate = ", "
        if last.lineno != node.lineno:
            separate = "," + newline(source) + source.indent(source.offset(last.lineno, 0))
        for name in sorted(names):
            place = inline.import_place([ast.unparse(a) for a in aliases], name)
            if place < len(aliases):
                at = source.offset(aliases[place].lineno, aliases[place].col_offset)
                self._edit(source, at, at, name + separate)
            else:
                at = source.offset(last.end_lineno or 0, last.end_col_offset or 0)
                self._edit(source, at, at, separate + name)
        self.touched.append(theirs)
        self._say(Fate.STRUCTURE, base, ours, theirs, "into an import that upstream changed")

    def _compound(self, base: Unit, ours: Unit, theirs: Unit) -> None:
        """Place a patch that adds branches at the end, or leave it: the blocks do not pair."""
        count = len(base.segments)
        heads = [[[t.text for t in s.tokens] for s in u.segments] for u in (base, ours, theirs)]
        grown = len(ours.segments) > count == len(theirs.segments) and count > 0
        if self._branches_there(ours, theirs, count) and heads[0] == heads[1][:count]:
            for one, two, three in zip(base.segments, ours.segments, theirs.segments, strict=False):
                self.blocks_of(one.block, two.block, three.block)
            added = (ours.segments[count].first, ours.last)
            self._say(Fate.UPSTREAM, base, ours, theirs, old=(base.last + 1, base.last), new=added)
            return
        if not grown or not heads[0] == heads[1][:count] == heads[2]:
            reason = "upstream changed the branches of the statement that the patch changes"
            self._conflict(base, ours, theirs, reason)
            return
        triples = zip(base.segments, ours.segments, theirs.segments, strict=False)
        for one, two, three in triples:
            self.blocks_of(one.block, two.block, three.block)
        extra = (ours.segments[count].first, ours.last)
        text = fitted(ours.source, *extra, ours.block.indent, theirs)
        self._edit(theirs.source, theirs.end, theirs.end, text)
        self.touched.append(theirs)
        old = (base.last + 1, base.last)
        how = "a branch added to a statement that upstream changed"
        self._say(Fate.STRUCTURE, base, ours, theirs, how, old=old, new=extra)

    @staticmethod
    def _branches_there(ours: Unit, theirs: Unit, count: int) -> bool:
        """Tell whether upstream has the branches that the patch adds after the first ones."""
        if not count < len(ours.segments) == len(theirs.segments):
            return False
        pairs_ = zip(ours.segments[count:], theirs.segments[count:], strict=True)
        return all(
            [t.text for t in one.tokens] == [t.text for t in two.tokens]
            and [u.key for u in one.block.units] == [u.key for u in two.block.units]
            for one, two in pairs_
        )

    def _trivia(self, base: Unit, ours: Unit) -> None:
        theirs = self.mapping.get(base)
        old, new = (base.above, base.first - 1), (ours.above, ours.first - 1)
        if theirs is not None and [*map(str.strip, theirs.trivia.splitlines())] == [
            *map(str.strip, base.trivia.splitlines())
        ]:
            text = fitted(ours.source, *new, ours.block.indent, theirs)
            self._edit(theirs.source, theirs.top, theirs.start, text)
            if comments(base.trivia) != comments(ours.trivia):
                self._say(Fate.EXACTLY, base, ours, theirs, old=old, new=new)
            return
        if comments(base.trivia) == comments(ours.trivia):
            return  # blank lines alone, and upstream has others there
        if theirs is not None and comments(theirs.trivia) == comments(ours.trivia):
            self._say(Fate.UPSTREAM, base, ours, theirs, old=old, new=new)
            return
        reason = "upstream changed the comments that the patch changes"
        self._conflict(base, ours, theirs, reason, old=old, new=new)

    # --- statements that come and go ----------------------------------------------------------

    def _gap(
        self, base: Block, theirs: Block, span: tuple[int, int], gone: list[Unit], new: list[Unit]
    ) -> None:
        lines = _lines(base, span, gone), _span(new)
        before = base.units[span[0] - 1] if span[0] else None
        after = base.units[span[1]] if span[1] < len(base.units) else None
        nearer = base.units[: span[0]][::-1], base.units[span[1] :]
        gap = spots.Gap(before, after, theirs, nearer)
        if gone:
            self._removal(gap, gone, new, lines)
            return
        if (there := self._present(gap, new)) is not None:
            self._told(Fate.UPSTREAM, lines, there, "")
            return
        spot = spots.find(gap, new, self.mapping)
        if isinstance(spot, spots.Nowhere):
            self._refused(lines, spot, new)
            return
        if clash := self._clash(spot.block, new):
            self._refused(lines, spots.Nowhere(*clash), new)
            return
        self._insert(spot, new)
        how = spot.how or self._around(base)
        fate = Fate.STRUCTURE if how else Fate.EXACTLY
        near = spot.block.units[min(spot.index, len(spot.block.units) - 1)]
        self._told(fate, lines, near, how)

    def _removal(
        self, gap: spots.Gap, gone: list[Unit], new: list[Unit], lines: tuple[Lines, Lines]
    ) -> None:
        found = [self.mapping.get(unit) for unit in gone]
        there = [unit for unit in found if unit is not None]
        if not there:
            if not new:
                self._told(Fate.UPSTREAM, lines, None, "upstream removed it too")
                return
            if (present := self._present(gap, new)) is not None:
                self._told(Fate.UPSTREAM, lines, present, "")
                return
            reason = "upstream has no more what the patch replaces"
            self._refused(lines, spots.Nowhere(reason), new)
            return
        same = len(there) == len(gone) and all(
            a.key == b.key for a, b in zip(gone, there, strict=True)
        )
        if not same:
            reason = "upstream changed what the patch replaces or removes"
            self._refused(lines, spots.Nowhere(reason, there[0], tuple(there)), new)
            return
        first = there[0]
        if first.block is not gap.block and not spots.only_wrapped(first.block, gap.block):
            reason = "upstream moved what the patch replaces under a condition, or away"
            self._refused(lines, spots.Nowhere(reason, first, tuple(there)), new)
            return
        if first.block is not gap.block and {u.key for u in gone} & {
            inner.key for unit in new for inner in walk_of(unit)
        }:
            reason = "upstream put into another block what the patch puts into one"
            self._refused(lines, spots.Nowhere(reason, first, tuple(there)), new)
            return
        if any(u.block is not first.block or u.index != first.index + n
               for n, u in enumerate(there)):  # fmt: skip
            reason = "upstream put something between the statements that the patch replaces"
            self._refused(lines, spots.Nowhere(reason, first, tuple(there)), new)
            return
        moved = any(unit in self.mapping.moved for unit in gone)
        self._exchange(gone, there, new)
        how = "upstream moved what it replaces" if moved else ""
        self._told(Fate.STRUCTURE if moved else Fate.EXACTLY, lines, first, how)

    def _exchange(self, gone: list[Unit], there: list[Unit], new: list[Unit]) -> None:
        first, last = there[0], there[-1]
        keep = comments(first.trivia) != comments(gone[0].trivia)
        text = self._fitted(new, first.block) if new else ""
        if keep and new:
            text = fitted(
                new[0].source, new[0].first, new[-1].last, new[0].block.indent, first.block
            )
        self._edit(first.source, first.start if keep else first.top, last.end, text)
        self.touched += there

    def _insert(self, spot: spots.Spot, new: list[Unit]) -> None:
        units, index = spot.block.units, spot.index
        at = units[index - 1].end if index else units[0].top
        text = self._fitted(new, spot.block)
        if index and at and spot.block.source.text[at - 1] not in "\r\n":
            text = newline(spot.block.source) + text
        self._edit(spot.block.source, at, at, text)

    def _fitted(self, new: list[Unit], onto: Block) -> str:
        return fitted(new[0].source, new[0].above, new[-1].last, new[0].block.indent, onto)

    def _present(self, gap: spots.Gap, new: list[Unit]) -> Unit | None:
        """Return where the other release has the same statements already, as nothing of old."""
        keys = [unit.key for unit in new]
        sides = [self.mapping.get(u) for u in (gap.before, gap.after) if u is not None]
        blocks = {id(b): b for b in [gap.block, *(s.block for s in sides if s is not None)]}
        for block in blocks.values():
            fresh = [u for u in block.units if u.nodes and self.mapping.fresh(u)]
            for start in range(len(fresh) - len(keys) + 1):
                if [u.key for u in fresh[start : start + len(keys)]] == keys:
                    return fresh[start]
        return None

    def _clash(self, block: Block, new: Sequence[Unit]) -> tuple[str, Unit] | None:
        """Refuse to define a second time what upstream defines by now in another way."""
        if block.kind == "code":
            return None
        names = {u.ident: u for u in block.units if u.ident and not self.mapping.holds(u)}
        for unit in new:
            if unit.ident and unit.ident[0] in ("def", "class", "=") and unit.ident in names:
                return f"upstream has its own `{unit.ident[1]}` by now", names[unit.ident]
        return None

    # --- results --------------------------------------------------------------------------------

    def _edit(self, source: Source, start: int, end: int, text: str) -> None:
        """Note an edit for the step that is told next."""
        self.edits.append((source, TextEdit(start, end, text), len(self.steps)))

    def _around(self, block: Block) -> str:
        """Return what to say where upstream moved a statement or definition around a block."""
        owner = block.owner
        while owner is not None:
            if owner in self.mapping.moved:
                return f"upstream moved `{owner.text.split(chr(10))[0].strip()}`"
            owner = owner.block.owner
        return ""

    def _say(
        self, fate: Fate, base: Unit, ours: Unit, theirs: Unit, reason: str = "",
        *, old: Lines | None = None, new: Lines | None = None,
    ) -> None:  # fmt: skip
        old, new = old or (base.first, base.last), new or (ours.first, ours.last)
        if fate is Fate.EXACTLY and base in self.mapping.moved:
            fate, reason = Fate.STRUCTURE, "upstream moved the statement"
        elif fate is Fate.EXACTLY and (around := self._around(base.block)):
            fate, reason = Fate.STRUCTURE, around
        self._told(fate, (old, new), theirs, reason)

    def _told(self, fate: Fate, lines: tuple[Lines, Lines], near: Unit | None, why: str) -> None:
        name = near.block.name if near is not None else ""
        line = near.first if near is not None else None
        self.steps.append(Step(fate, *lines, name, line, why))

    def _quiet(self, base: Unit, ours: Unit, reason: str) -> None:
        self._conflict(base, ours, None, reason)

    def _conflict(
        self, base: Unit, ours: Unit, theirs: Unit | None, reason: str,
        *, old: Lines | None = None, new: Lines | None = None,
    ) -> None:  # fmt: skip
        old, new = old or (base.first, base.last), new or (ours.first, ours.last)
        line = theirs.first if theirs is not None else None
        text = shown(theirs.text) if theirs is not None else ""
        side = "".join(ours.source.text[ours.source.line_start(new[0]) :
                                        ours.source.line_start(new[1] + 1)])  # fmt: skip
        name = base.block.name
        self.steps.append(Step(Fate.CONFLICT, old, new, name, line, reason, shown(side), text))

    def _refused(self, lines: tuple[Lines, Lines], why: spots.Nowhere, new: Sequence[Unit]) -> None:
        near = why.near
        theirs = shown("".join(u.text for u in why.between)) if why.between else ""
        ours = shown("".join(u.trivia + u.text for u in new))
        self.steps.append(
            Step(
                Fate.CONFLICT, *lines, near.block.name if near else "",
                near.first if near else None, why.reason, ours, theirs,
            )
        )  # fmt: skip


def moves_body(base: Unit, ours: Unit, new: Sequence[Unit]) -> bool:
    """Tell whether statements that leave a definition are in new ones right after it."""
    if base.text == ours.text or not (base.segments and ours.segments):
        return False
    if not isinstance(base.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    kept = {unit.key for unit in walk(ours.segments[0].block)}
    left = {u.key for u in base.segments[0].block.units if u.key not in kept}
    return bool(left & {inner.key for unit in new for inner in walk_of(unit)})


def walk_of(unit: Unit) -> Iterator[Unit]:
    """Yield all statements inside of one."""
    for segment in unit.segments:
        yield from walk(segment.block)


def _text(block: Block) -> str:
    source = block.source
    return source.text[block.units[0].top : block.units[-1].end]


def _span(units: Sequence[Unit]) -> Lines:
    return (units[0].above, units[-1].last) if units else (1, 0)


def _lines(base: Block, span: tuple[int, int], gone: Sequence[Unit]) -> Lines:
    if gone:
        return _span(gone)
    if span[0] < len(base.units):
        return base.units[span[0]].above, base.units[span[0]].above - 1
    return base.units[-1].last + 1, base.units[-1].last
