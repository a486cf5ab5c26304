"""Patches of one release carried to another: read, applied to their own, placed, checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rewriter.carry import patched, paths, single
from rewriter.carry.applying import Applied
from rewriter.carry.carried import CarriedFile, texts
from rewriter.carry.settling import settle
from rewriter.carry.steps import Fate, Step
from rewriter.edits import splice
from rewriter.errors import SourceError, UsageError
from rewriter.model import Change
from rewriter.source import Source

if TYPE_CHECKING:
    from rewriter.targets import Target

_WORST = (Fate.UPSTREAM, Fate.EXACTLY, Fate.STRUCTURE, Fate.REVIEW, Fate.HELD, Fate.CONFLICT)
_REFUSING = (Fate.REVIEW, Fate.HELD, Fate.CONFLICT)


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
        self._known: dict[tuple[str, bytes | None, bytes | None], CarriedFile] = {}

    def onto(self, newer: Target | paths.Tree, *, partial: bool = False) -> Carried:
        """Carry the patches to one release."""
        tree = newer if isinstance(newer, paths.Tree) else paths.Tree(newer)
        sources = single.Sources(self._older, tree)
        files = [self._file(path, sources) for path in self.applied]
        settle(files, sources)
        broken = any(s.fate in _REFUSING for file in files for s in file.outcome.steps)
        made = {} if broken and not partial else texts(files, sources)
        run = {file.onto for file in files if file.applied.executable}
        changes = tuple(
            Change(path, tree.read(path), raw, path in run and tree.read(path) is None)
            for path, raw in sorted(made.items())
            if raw != tree.read(path)
        )
        return Carried(tuple(_results(files)), changes, tuple(self.outside))

    def _file(self, path: str, sources: single.Sources) -> CarriedFile:
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


def _carried(applied: Applied, renamed: str | None, sources: single.Sources) -> CarriedFile:
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
    return CarriedFile.of(applied, onto, outcome)


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


def _results(files: Sequence[CarriedFile]) -> Iterable[HunkResult]:
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


__all__ = ["Carried", "HunkResult", "UsageError", "carry"]
