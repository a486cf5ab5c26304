"""What was placed, judged as a whole: what is not sound, or needs what is not, has no place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rewriter.carry import checks, linked, single
from rewriter.carry.carried import CarriedFile, texts
from rewriter.carry.checks import Sides
from rewriter.carry.package import Package
from rewriter.carry.steps import Fate, Step
from rewriter.errors import ToolBug

_ROUNDS = 5
"""What is left out can leave something else in want; each round leaves out more."""


def settle(files: Sequence[CarriedFile], sources: single.Sources) -> None:
    """Turn what would not be sound into conflicts, and hold back what needs a conflict."""
    patched = {file.applied.path: file.applied.after for file in files}
    ours = Package(sources.older, patched)
    sides = Sides(ours, Package(sources.newer, {}))
    known: dict[int, dict[str, bytes | None]] = {}
    for _ in range(_ROUNDS):
        grown = False
        for file, steps in list(_held(files, sides)):
            grown |= file.add(steps)
        made = {id(file): _made(file, sources) for file in files}
        results = {path: raw for each in made.values() for path, raw in each.items()}
        sides = replace(sides, made=Package(sources.newer, results))
        for file in files:
            if known.get(id(file)) != made[id(file)]:
                grown |= file.add(list(_problems(file, made[id(file)], sides)))
        known = made
        if not grown:
            return


def _made(file: CarriedFile, sources: single.Sources) -> dict[str, bytes | None]:
    """Return what a file's changes come to, alone."""
    try:
        return texts([file], sources)
    except ToolBug:
        lines = (1, max(1, len(file.applied.lines)))
        reason = "two changes of the patch come to the same place"
        file.add([Step(Fate.CONFLICT, lines, lines, reason=reason)])
        file.outcome.edits = []
        return {}


def _problems(
    file: CarriedFile, made: dict[str, bytes | None], sides: Sides
) -> Iterator[Step]:  # fmt: skip
    for path, raw in sorted(made.items()):
        if raw is not None and path.endswith(".py"):
            theirs = sides.made.tree.read(path)
            yield from checks.problems(path, file.applied, theirs, raw, sides)


def _held(
    files: Sequence[CarriedFile], sides: Sides
) -> Iterator[tuple[CarriedFile, list[Step]]]:  # fmt: skip
    """Yield the steps of hunks that need what a hunk without a place brings."""
    out = [file.dropped() for file in files]
    if not any(out):
        return
    parts: list[linked.Part] = []
    dropped: set[int] = set()
    owners: list[CarriedFile] = []
    for file, gone in zip(files, out, strict=True):
        for placed, numbers in file.hunks:
            if gone & set(numbers):
                dropped.add(len(parts))
            lines = sides.fresh(file.applied.path) & {*range(placed.first, placed.last + 1)}
            name = f"hunk {placed.hunk.number} of {file.applied.path.rsplit('/', 1)[-1]}"
            parts.append(linked.part(name, sides.ours.at(file.applied.path), lines))
            owners.append(file)
    trees = sides.ours.tree, sides.made.tree
    for number, (line, reason) in linked.held(parts, dropped, trees).items():
        step = Step(Fate.HELD, (1, 0), (line, line), reason=reason)
        yield owners[number], [step]
