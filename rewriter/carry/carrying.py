"""Patches of one release carried to another: read, applied to their own, placed, checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rewriter.carry import checks, patched, paths, single
from rewriter.carry.applying import Applied, Placed
from rewriter.carry.package import Package
from rewriter.carry.steps import Fate, Step
from rewriter.edits import TextEdit, splice
from rewriter.errors import SourceError, ToolBug, UsageError
from rewriter.model import Change
from rewriter.source import Source

if TYPE_CHECKING:
    from rewriter.targets import Target

_WORST = (Fate.UPSTREAM, Fate.EXACTLY, Fate.STRUCTURE, Fate.REVIEW, Fate.CONFLICT)
_REFUSING = (Fate.REVIEW, Fate.CONFLICT)


@dataclass(frozen=True)
class HunkResult:
    """What became of one hunk.

    Attributes:
        path: in its own release; ``onto`` in the other one.
        said: what had to be repaired in the diff.
    """

    patch: str
    path: str
    onto: str
    number: int
    header: str
    fate: Fate
    steps: tuple[Step, ...]
    said: str = ""


@dataclass(frozen=True)
class Carried:
    """All hunks and the files that they change in the other release.

    Attributes:
        changes: empty where a hunk is a conflict, unless the rest was asked for.
        outside: files of the patches that are no part of the package: left out.
    """

    results: tuple[HunkResult, ...]
    changes: tuple[Change, ...]
    outside: tuple[str, ...]

    @property
    def conflicts(self) -> bool:
        """Tell whether a hunk has no one meaning in the other release, or is to be reviewed."""
        return any(result.fate in _REFUSING for result in self.results)


@dataclass
class _File:
    applied: Applied
    onto: str
    outcome: single.Outcome
    hunks: list[tuple[Placed, list[int]]]

    def copy(self) -> _File:
        """Return one whose steps and edits can grow."""
        own = self.outcome
        outcome = single.Outcome(list(own.steps), list(own.edits), list(own.whole))
        return _File(self.applied, self.onto, outcome, [(p, list(n)) for p, n in self.hunks])


def carry(
    patches: Iterable[tuple[str, bytes]], older: Target, newer: Target, *, partial: bool = False
) -> Carried:
    """Carry patches from the release that they are for to another one.

    Args:
        patches: name and bytes of each, applied in this order.
        partial: leave out the hunks that are conflicts instead of everything; what is to be
            reviewed is in.

    Raises:
        UsageError: a patch is no unified diff.
        RefusedError: a patch does not apply to its own release.
    """
    return Carrier(patches, older).onto(newer, partial=partial)


class Carrier:
    """Patches applied to the release that they are for, to be carried to others.

    Attributes:
        applied: the files as patched, by path.
        outside: files of the patches that are no part of the package.
    """

    def __init__(self, patches: Iterable[tuple[str, bytes]], older: Target) -> None:
        """Read patches and apply them to their own release.

        Raises:
            UsageError: a patch is no unified diff.
            RefusedError: a patch does not apply to its own release.
        """
        self._older = paths.Tree(older)
        self.applied, self._renamed, self.outside = patched.applied(patches, self._older)
        self._known: dict[tuple[str, bytes | None, bytes | None], _File] = {}

    def onto(self, newer: Target | paths.Tree, *, partial: bool = False) -> Carried:
        """Carry the patches to one release."""
        tree = newer if isinstance(newer, paths.Tree) else paths.Tree(newer)
        sources = single.Sources(self._older, tree)
        files = [self._file(path, sources) for path in self.applied]
        _check(files, sources)
        broken = any(s.fate in _REFUSING for file in files for s in file.outcome.steps)
        texts = {} if broken and not partial else _texts(files, sources, partial=True)
        changes = tuple(
            Change(path, tree.read(path), raw)
            for path, raw in sorted(texts.items())
            if raw != tree.read(path)
        )
        return Carried(tuple(_results(files)), changes, tuple(self.outside))

    def _file(self, path: str, sources: single.Sources) -> _File:
        """Place one file's changes; once only for the same file, unless others were looked at."""
        old, tree = self._renamed.get(path), sources.newer
        key = path, tree.read(path), tree.read(old) if old is not None else None
        if key not in self._known:
            tree.asked.clear()
            made = _carried(self.applied[path], old, sources)
            if not tree.asked <= {path, old}:
                return made
            self._known[key] = made
        return self._known[key].copy()


# --- the other release -----------------------------------------------------------------------


def _carried(applied: Applied, renamed: str | None, sources: single.Sources) -> _File:
    path, base, ours = applied.path, applied.before, applied.after
    theirs = sources.newer.read(path)
    onto = path
    if base is None:
        outcome = single.added(path, ours or b"", theirs)
    elif ours is None:
        outcome = single.deleted(path, base, theirs)
    else:
        onto, problem = _where(path, renamed, base, sources)
        if problem:
            lines = (1, len(applied.lines))
            outcome = single.Outcome([Step(Fate.CONFLICT, lines, lines, reason=problem)])
        else:
            outcome = _edited(path, base, ours, onto, sources)
            if renamed is not None and onto == renamed:
                _move(outcome, onto, path, sources)
                onto = path
    return _File(applied, onto, outcome, _assigned(applied, outcome))


def _where(path: str, renamed: str | None, base: bytes, sources: single.Sources) -> tuple[str, str]:
    """Return where a changed file is in the other release, or why it is nowhere."""
    if renamed is not None:
        old, new = sources.newer.read(renamed), sources.newer.read(path)
        if old is not None and new is not None:
            return path, "upstream has both the old and the new name of the renamed file"
        if old is not None:
            return renamed, ""
    if sources.newer.read(path) is not None:
        return path, ""
    found, problem = paths.moved(path, base, sources.older, sources.newer)
    return found or path, problem


def _edited(
    path: str, base: bytes, ours: bytes, onto: str, sources: single.Sources
) -> single.Outcome:
    if path.endswith(".py"):
        try:
            return single.python(path, base, ours, onto, sources)
        except SourceError:
            pass  # no Python that can be divided: by line, like any other text
    return single.by_line(base, ours, onto, sources.newer.read(onto) or b"")


def _move(outcome: single.Outcome, old: str, new: str, sources: single.Sources) -> None:
    """Make a renaming of what was carried to the old name."""
    edits = [edit for path, edit, _ in outcome.edits if path == old]
    source = Source(old, sources.newer.read(old) or b"")
    whole = next((raw for path, raw, _ in outcome.whole if path == old), None)
    made = whole if whole is not None else source.encode(splice(source.text, edits))
    outcome.steps.append(Step(Fate.EXACTLY, (1, 0), (1, 0), reason=f"renamed from {old}"))
    step = len(outcome.steps) - 1
    outcome.edits = [each for each in outcome.edits if each[0] != old]
    outcome.whole = [(old, None, step), (new, made or b"", step)]


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


def _results(files: Sequence[_File]) -> Iterable[HunkResult]:
    for file in files:
        loose = set(range(len(file.outcome.steps)))
        for placed, numbers in file.hunks:
            loose -= set(numbers)
            steps = tuple(file.outcome.steps[n] for n in numbers)
            yield HunkResult(
                placed.file.patch, file.applied.path, file.onto, placed.hunk.number,
                placed.hunk.header, _worst(steps), steps, placed.said,
            )  # fmt: skip
        for number in sorted(loose):
            step = file.outcome.steps[number]
            yield HunkResult("", file.applied.path, file.onto, 0, "", step.fate, (step,))


def _worst(steps: Sequence[Step]) -> Fate:
    return max((s.fate for s in steps), key=_WORST.index, default=Fate.EXACTLY)


# --- the result ------------------------------------------------------------------------------


def _texts(
    files: Sequence[_File], sources: single.Sources, *, partial: bool
) -> dict[str, bytes | None]:
    """Return the bytes of all changed files; with ``partial`` without hunks that conflict."""
    edits: dict[str, list[TextEdit]] = {}
    made: dict[str, bytes | None] = {}
    for file in files:
        dropped = _dropped(file) if partial else set()
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


def _ended(text: str, theirs: str, file: _File | None) -> str:
    """End a file with or without a newline: as the patch changes it, else as it was."""
    without = not theirs.endswith("\n")
    if file is not None and file.applied.before and file.applied.after:
        old, new = (not raw.endswith(b"\n") for raw in (file.applied.before, file.applied.after))
        without = new if old != new else without
    bare = text.removesuffix("\n").removesuffix("\r")
    if without:
        return bare
    return text if text.endswith("\n") else text + ("\r\n" if "\r\n" in text else "\n")


def _dropped(file: _File) -> set[int]:
    """Return the steps of all hunks that have a conflict; they go together."""
    steps = file.outcome.steps
    dropped = {n for n, step in enumerate(steps) if step.fate is Fate.CONFLICT}
    grown = True
    while grown:
        more = {n for _, own in file.hunks if dropped & set(own) for n in own}
        grown = not more <= dropped
        dropped |= more
    return dropped


def _check(files: Sequence[_File], sources: single.Sources) -> None:
    """Turn what would not be sound into conflicts."""
    made = [_made(file, sources) for file in files]
    patched = {file.applied.path: file.applied.after for file in files}
    results = {path: raw for each in made for path, raw in each.items()}
    sides = checks.Sides(Package(sources.older, patched), Package(sources.newer, results))
    for file, texts in zip(files, made, strict=True):
        for path, raw in sorted(texts.items()):
            if raw is not None and path.endswith(".py"):
                theirs = sources.newer.read(path)
                found = checks.problems(path, file.applied, theirs, raw, sides)
                file.outcome.steps.extend(found)
        file.hunks = _assigned(file.applied, file.outcome)


def _made(file: _File, sources: single.Sources) -> dict[str, bytes | None]:
    """Return what a file's changes come to, alone."""
    try:
        return _texts([file], sources, partial=True)
    except ToolBug:
        lines = (1, max(1, len(file.applied.lines)))
        reason = "two changes of the patch come to the same place"
        file.outcome.steps.append(Step(Fate.CONFLICT, lines, lines, reason=reason))
        file.outcome.edits = []
        return {}


__all__ = ["Carried", "HunkResult", "UsageError", "carry"]
