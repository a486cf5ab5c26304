"""What a carried file comes to: edits of the other release's text, and what became of what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rewriter.carry.matching import Mapping
from rewriter.carry.spots import Nowhere
from rewriter.carry.steps import Fate, Lines, Step
from rewriter.carry.texts import shown
from rewriter.carry.units import Block, Unit
from rewriter.edits import TextEdit
from rewriter.source import Source


class Added(NamedTuple):
    """Statements that a patch puts before one of its own release, or in place of some.

    Attributes:
        block, at: where, in the patch's release.
    """

    block: Block
    at: int
    gone: Sequence[Unit]
    new: Sequence[Unit]


class Ledger:
    """Edits and steps, in the order of the patch.

    Attributes:
        mapping: where the statements of the patch's release are in the other one.
        edits: what is to change in the other release's files, and for which step; an edit of
            layout alone belongs to none.
        steps: what became of each change.
        changed: the statements that the patch changes or removes, and the patched lines.
        added: the statements of the patched release that the patch adds or changes, with what
            they replace.
    """

    def __init__(self, mapping: Mapping) -> None:
        self.mapping = mapping
        self.edits: list[tuple[Source, TextEdit, int | None]] = []
        self.steps: list[Step] = []
        self.changed: list[tuple[Unit, Lines]] = []
        self.added: list[Added] = []

    def layout_only(self) -> None:
        """Say that the last edit is of layout alone: it stays when steps are left out."""
        self.edits[-1] = (*self.edits[-1][:2], None)

    def edit(self, source: Source, start: int, end: int, text: str) -> None:
        """Note an edit for the step that is told next."""
        self.edits.append((source, TextEdit(start, end, text), len(self.steps)))

    def around(self, block: Block) -> str:
        """Return what to say where upstream moved a statement or definition around a block."""
        owner = block.owner
        while owner is not None:
            if owner in self.mapping.moved:
                return f"upstream moved `{owner.text.split(chr(10))[0].strip()}`"
            owner = owner.block.owner
        return ""

    def say(
        self, fate: Fate, base: Unit, ours: Unit, theirs: Unit, reason: str = "",
        *, old: Lines | None = None, new: Lines | None = None,
    ) -> None:  # fmt: skip
        """Note what became of a change of one statement."""
        old, new = old or (base.first, base.last), new or (ours.first, ours.last)
        if fate is Fate.EXACTLY and base in self.mapping.moved:
            fate, reason = Fate.STRUCTURE, "upstream moved the statement"
        elif fate is Fate.EXACTLY and (around := self.around(base.block)):
            fate, reason = Fate.STRUCTURE, around
        self.told(fate, (old, new), theirs, reason)

    def told(self, fate: Fate, lines: tuple[Lines, Lines], near: Unit | None, why: str) -> None:
        """Note what became of some lines, near a statement of the other release."""
        name = near.block.name if near is not None else ""
        line = near.first if near is not None else None
        self.steps.append(Step(fate, *lines, name, line, why))

    def conflict(
        self, base: Unit, ours: Unit, theirs: Unit | None, reason: str,
        *, old: Lines | None = None, new: Lines | None = None,
    ) -> None:  # fmt: skip
        """Note a statement that both sides changed, with both sides."""
        old, new = old or (base.first, base.last), new or (ours.first, ours.last)
        line = theirs.first if theirs is not None else None
        text = shown(theirs.text) if theirs is not None else ""
        side = "".join(ours.source.text[ours.source.line_start(new[0]) :
                                        ours.source.line_start(new[1] + 1)])  # fmt: skip
        name = base.block.name
        self.steps.append(Step(Fate.CONFLICT, old, new, name, line, reason, shown(side), text))

    def refused(self, lines: tuple[Lines, Lines], why: Nowhere, new: Sequence[Unit]) -> None:
        """Note statements that have no one place, with what is there instead."""
        near = why.near
        theirs = shown("".join(u.text for u in why.between)) if why.between else ""
        ours = shown("".join(u.trivia + u.text for u in new))
        self.steps.append(
            Step(
                Fate.CONFLICT, *lines, near.block.name if near else "",
                near.first if near else None, why.reason, ours, theirs,
            )
        )  # fmt: skip
