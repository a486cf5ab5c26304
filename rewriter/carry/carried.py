"""One patched file on its way to another release: its steps, whose hunks they are, its text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rewriter.carry import single
from rewriter.carry.applying import Applied, Placed
from rewriter.carry.steps import Fate, Step
from rewriter.edits import TextEdit, splice

_LEFT_OUT = (Fate.HELD, Fate.CONFLICT)


@dataclass
class CarriedFile:
    """What became of one file.

    Attributes:
        onto: its path in the other release.
        hunks: each with the numbers of its steps.
    """

    applied: Applied
    onto: str
    outcome: single.Outcome
    hunks: list[tuple[Placed, list[int]]]

    @classmethod
    def of(cls, applied: Applied, onto: str, outcome: single.Outcome) -> CarriedFile:
        """Give each step to its hunks."""
        return cls(applied, onto, outcome, _assigned(applied, outcome))

    def copy(self) -> CarriedFile:
        """Return one whose steps and edits can grow."""
        own = self.outcome
        outcome = single.Outcome(list(own.steps), list(own.edits), list(own.whole))
        hunks = [(placed, list(numbers)) for placed, numbers in self.hunks]
        return CarriedFile(self.applied, self.onto, outcome, hunks)

    def add(self, steps: Sequence[Step]) -> bool:
        """Note further steps; tell whether there were any that are not known."""
        fresh = [step for step in dict.fromkeys(steps) if step not in self.outcome.steps]
        self.outcome.steps.extend(fresh)
        self.hunks = _assigned(self.applied, self.outcome)
        return bool(fresh)

    def dropped(self) -> set[int]:
        """Return the steps of all hunks that have no place; they go together."""
        dropped = {n for n, step in enumerate(self.outcome.steps) if step.fate in _LEFT_OUT}
        grown = True
        while grown:
            more = {n for _, own in self.hunks if dropped & set(own) for n in own}
            grown = not more <= dropped
            dropped |= more
        return dropped


def _assigned(applied: Applied, outcome: single.Outcome) -> list[tuple[Placed, list[int]]]:
    """Give each step to the hunks whose lines it has; to the nearest where it has none."""
    found: list[tuple[Placed, list[int]]] = [(placed, []) for placed in applied.placed]
    for number, step in enumerate(outcome.steps):
        first, last = step.new if step.new[1] >= step.new[0] else (step.new[0], step.new[0])
        if step.new == (1, 0):
            first = last = step.old[0]
        own = [entry for entry in found if entry[0].first <= last and entry[0].last >= first]
        if not own and found:
            own = [min(found, key=lambda e: abs(e[0].first - first))]
        for _, steps in own:
            steps.append(number)
    return found


def texts(files: Sequence[CarriedFile], sources: single.Sources) -> dict[str, bytes | None]:
    """Return the bytes of all changed files, without the hunks that have no place.

    Raises:
        ToolBug: two changes come to the same place.
    """
    edits: dict[str, list[TextEdit]] = {}
    made: dict[str, bytes | None] = {}
    for file in files:
        dropped = file.dropped()
        for path, edit, step in file.outcome.edits:
            if step not in dropped:
                edits.setdefault(path, []).append(edit)
        for path, raw, step in file.outcome.whole:
            if step not in dropped:
                made[path] = raw
    for path, found in edits.items():
        source = sources.module(path).source
        text = splice(source.text, found)
        owner = next((f for f in files if f.onto == path), None)
        made[path] = source.encode(_ended(text, source.text, owner))
    return made


def _ended(text: str, theirs: str, file: CarriedFile | None) -> str:
    """End a file with or without a newline: as the patch changes it, else as it was."""
    without = not theirs.endswith("\n")
    if file is not None and file.applied.before and file.applied.after:
        old, new = (not raw.endswith(b"\n") for raw in (file.applied.before, file.applied.after))
        without = new if old != new else without
    bare = text.removesuffix("\n").removesuffix("\r")
    if without:
        return bare
    return text if text.endswith("\n") else text + ("\r\n" if "\r\n" in text else "\n")
