"""A change inside of one statement or header, put into the same one of the other release."""

from __future__ import annotations

import ast

from rewriter.carry import inline, items
from rewriter.carry.ledger import Ledger
from rewriter.carry.steps import Fate, Lines
from rewriter.carry.texts import fitted, newline
from rewriter.carry.units import Segment, Unit


class Inside:
    """Changes of statements that stay."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def replace(self, base: Unit, ours: Unit, theirs: Unit) -> None:
        """Replace a statement that upstream left as it was."""
        text = fitted(ours.source, ours.first, ours.last, ours.block.indent, theirs)
        self.ledger.edit(theirs.source, theirs.start, theirs.end, text)
        self.ledger.say(Fate.EXACTLY, base, ours, theirs)

    def header(
        self, base: Segment, ours: Segment, theirs: Segment, units: tuple[Unit, Unit, Unit]
    ) -> None:
        """Place what differs between two headers."""
        old, new = (base.first, base.last), (ours.first, ours.last)
        words = [[t.text for t in s.tokens] for s in (base, ours, theirs)]
        if words[1] == words[2] and words[0] != words[1]:
            self.ledger.say(Fate.UPSTREAM, *units, old=old, new=new)
            return
        if [x.strip() for x in base.text.splitlines()] == [
            x.strip() for x in theirs.text.splitlines()
        ]:
            indent = units[1].block.indent
            text = fitted(ours.source, ours.first, ours.last, indent, units[2])
            self.ledger.edit(theirs.source, theirs.start, theirs.end, text)
            self.ledger.say(Fate.EXACTLY, *units, old=old, new=new)
            return
        self._tokens(base, ours, theirs, units, old, new)

    def statement(self, base: Unit, ours: Unit, theirs: Unit) -> None:
        """Place what differs inside of one simple statement."""
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
        if self._items_there(base, units):
            self.ledger.say(Fate.UPSTREAM, *units, old=old, new=new)
            return
        ending = newline(units[2].source)
        text = inline.merged(base.tokens, ours.tokens, theirs.tokens, ending)
        if text is None:
            reason = "upstream changed the same part of the statement"
            self.ledger.conflict(*units, reason, old=old, new=new)
            return
        if inline.lost_comments(base.tokens, ours.tokens, theirs.tokens):
            reason = "upstream changed the comments that the patch changes"
            self.ledger.conflict(*units, reason, old=old, new=new)
            return
        end = theirs.tokens[-1].end
        if text == theirs.source.text[theirs.start : end]:
            fate = Fate.UPSTREAM if ours.text != base.text else Fate.EXACTLY
            self.ledger.say(fate, *units, old=old, new=new)
            return
        if name := self._added_twice(base, units):
            reason = f"upstream added `{name}` to the statement too, at another position"
            self.ledger.conflict(*units, reason, old=old, new=new)
            return
        self.ledger.edit(theirs.source, theirs.start, end, text)
        how = "inside of a statement that upstream changed elsewhere"
        self.ledger.say(Fate.STRUCTURE, *units, how, old=old, new=new)

    @staticmethod
    def _items_there(base: Unit | Segment, units: tuple[Unit, Unit, Unit]) -> bool:
        """Tell whether upstream has the arguments or elements that the patch adds."""
        if isinstance(base, Segment) and base is not units[0].segments[0]:
            return False
        return items.there(*(unit.node for unit in units))

    @staticmethod
    def _added_twice(base: Unit | Segment, units: tuple[Unit, Unit, Unit]) -> str:
        """Return an argument or element that both sides add to the statement."""
        if isinstance(base, Segment) and base is not units[0].segments[0]:
            return ""
        return items.twice(*(unit.node for unit in units))

    def _import(self, base: Unit, ours: Unit, theirs: Unit, names: list[str]) -> None:
        if not names:
            self.ledger.say(Fate.UPSTREAM, base, ours, theirs)
            return
        source, node = theirs.source, theirs.node
        assert node is not None
        aliases: list[ast.alias] = node.names  # type: ignore[attr-defined]
        last = aliases[-1]
        separate = ", "
        if last.lineno != node.lineno:
            separate = "," + newline(source) + source.indent(source.offset(last.lineno, 0))
        there = [ast.unparse(a) for a in aliases]
        order = [ast.unparse(a) for a in getattr(ours.node, "names", [])]
        for place, name in inline.import_places(there, order, names):
            if place < len(aliases):
                at = source.offset(aliases[place].lineno, aliases[place].col_offset)
                self.ledger.edit(source, at, at, name + separate)
            else:
                at = source.offset(last.end_lineno or 0, last.end_col_offset or 0)
                self.ledger.edit(source, at, at, separate + name)
        self.ledger.say(Fate.STRUCTURE, base, ours, theirs, "into an import that upstream changed")
