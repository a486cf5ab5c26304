"""Statements that a patch inserts or removes between others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rewriter.carry import reviews, spots
from rewriter.carry.ledger import Added, Ledger
from rewriter.carry.steps import Fate, Lines
from rewriter.carry.texts import comments, fitted, newline
from rewriter.carry.units import Block, Unit, walk


class Gaps:
    """Places between statements that stay."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.mapping = ledger.mapping

    def gap(
        self, base: Block, theirs: Block, span: tuple[int, int], gone: list[Unit], new: list[Unit]
    ) -> None:
        """Place statements that come or go between two that stay."""
        lines = _lines(base, span, gone), _span(new)
        self.ledger.added.append(Added(base, span[0], gone, new))
        before = base.units[span[0] - 1] if span[0] else None
        after = base.units[span[1]] if span[1] < len(base.units) else None
        nearer = base.units[: span[0]][::-1], base.units[span[1] :]
        gap = spots.Gap(before, after, theirs, nearer)
        if gone:
            self._removal(gap, gone, new, lines)
            return
        if (there := self._present(gap, new)) is not None:
            self.ledger.told(Fate.UPSTREAM, lines, there, "")
            return
        spot = spots.find(gap, new, self.mapping)
        if isinstance(spot, spots.Nowhere):
            self.ledger.refused(lines, spot, new)
            return
        if clash := self._clash(spot.block, new):
            self.ledger.refused(lines, spots.Nowhere(*clash), new)
            return
        self._insert(spot, new)
        how = spot.how or self.ledger.around(base)
        fate = Fate.STRUCTURE if how else Fate.EXACTLY
        near = spot.block.units[min(spot.index, len(spot.block.units) - 1)]
        self.ledger.told(fate, lines, near, how)
        if word := reviews.peers(before, after, new, self.mapping):
            reason = f"upstream gave the statements on both sides of it `{word}`"
            self.ledger.told(Fate.REVIEW, lines, near, reason)

    def _removal(
        self, gap: spots.Gap, gone: list[Unit], new: list[Unit], lines: tuple[Lines, Lines]
    ) -> None:
        found = [self.mapping.get(unit) for unit in gone]
        there = [unit for unit in found if unit is not None]
        if not there:
            self._removed_already(gap, new, lines)
        elif why := _held_back(gap, gone, there, new):
            self.ledger.refused(lines, spots.Nowhere(why, there[0], tuple(there)), new)
        else:
            moved = any(unit in self.mapping.moved for unit in gone)
            self._exchange(gone, there, new)
            self.ledger.changed += [(unit, lines[1]) for unit in gone]
            how = "upstream moved what it replaces" if moved else ""
            self.ledger.told(Fate.STRUCTURE if moved else Fate.EXACTLY, lines, there[0], how)

    def _removed_already(self, gap: spots.Gap, new: list[Unit], lines: tuple[Lines, Lines]) -> None:
        if not new:
            self.ledger.told(Fate.UPSTREAM, lines, None, "upstream removed it too")
        elif (present := self._present(gap, new)) is not None:
            self.ledger.told(Fate.UPSTREAM, lines, present, "")
        else:
            reason = "upstream has no more what the patch replaces"
            self.ledger.refused(lines, spots.Nowhere(reason), new)

    def _exchange(self, gone: list[Unit], there: list[Unit], new: list[Unit]) -> None:
        first, last = there[0], there[-1]
        keep = comments(first.trivia) != comments(gone[0].trivia)
        text = self._fitted(new, first.block) if new else ""
        if keep and new:
            text = fitted(
                new[0].source, new[0].first, new[-1].last, new[0].block.indent, first.block
            )
        self.ledger.edit(first.source, first.start if keep else first.top, last.end, text)

    def _insert(self, spot: spots.Spot, new: list[Unit]) -> None:
        units, index = spot.block.units, spot.index
        at = units[index - 1].end if index else units[0].top
        text = self._fitted(new, spot.block)
        if index and at and spot.block.source.text[at - 1] not in "\r\n":
            text = newline(spot.block.source) + text
        self.ledger.edit(spot.block.source, at, at, text)

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
                there = [u.key for u in fresh[start : start + len(keys)]]
                # the order of definitions and fields that are all new changes no line of them
                if there == keys or (block.kind != "code" and sorted(there) == sorted(keys)):
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


def inner(unit: Unit) -> Iterator[Unit]:
    """Yield all statements inside of one."""
    for segment in unit.segments:
        yield from walk(segment.block)


def _span(units: Sequence[Unit]) -> Lines:
    return (units[0].above, units[-1].last) if units else (1, 0)


def _lines(base: Block, span: tuple[int, int], gone: Sequence[Unit]) -> Lines:
    if gone:
        return _span(gone)
    if span[0] < len(base.units):
        return base.units[span[0]].above, base.units[span[0]].above - 1
    return base.units[-1].last + 1, base.units[-1].last


def _held_back(
    gap: spots.Gap, gone: Sequence[Unit], there: Sequence[Unit], new: Sequence[Unit]
) -> str:
    """Return why statements cannot be removed or replaced; empty where they can."""
    same = len(there) == len(gone) and all(a.key == b.key for a, b in zip(gone, there, strict=True))
    if not same:
        return "upstream changed what the patch replaces or removes"
    first = there[0]
    if first.block is not gap.block:
        if not spots.only_wrapped(first.block, gap.block):
            return "upstream moved what the patch replaces under a condition, or away"
        if {u.key for u in gone} & {each.key for unit in new for each in inner(unit)}:
            return "upstream put into another block what the patch puts into one"
    if any(u.block is not first.block or u.index != first.index + n for n, u in enumerate(there)):
        return "upstream put something between the statements that the patch replaces"
    return ""
