"""Patches that a command line or the configuration wants in a target, carried to it when asked.

Nothing is carried for a patch that is on record and whole: a gate then only compares hashes.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.carried import CarriedPatch, Delta, file_of, first_changed, held, name_of
from rewriter.carry.steps import Fate, Step
from rewriter.codemod import Codemod, Site
from rewriter.errors import TargetError, UsageError
from rewriter.manifest import Held, Hunk
from rewriter.model import Change, Nearest, SiteResult, State, Verdict
from rewriter.patches import Beneath, is_left, is_there, named, recorded

if TYPE_CHECKING:
    from rewriter.carry.carrying import Carried, HunkResult
    from rewriter.judge import Reader
    from rewriter.manifest import Manifest
    from rewriter.targets import Target
    from rewriter.targets.pip import Progress

_STATES = {
    Fate.CONFLICT: State.DRIFTED, Fate.REVIEW: State.DRIFTED, Fate.UPSTREAM: State.UPSTREAM,
    Fate.EXACTLY: State.READY, Fate.STRUCTURE: State.READY,
}  # fmt: skip
_HOW = {Fate.STRUCTURE: "by structure", Fate.REVIEW: "to be reviewed", Fate.CONFLICT: ""}


class FreshPatch(CarriedPatch):
    """A patch out of its file, and what carrying it to a target gives."""

    def __init__(
        self, file: tuple[str, bytes], origin: str, ends: tuple[Target, Target], rival: str = ""
    ) -> None:
        """Note what is to be carried; that is done when somebody asks for it.

        Args:
            file: the name and the bytes of the patch.
            origin: what it is for, in the user's word.
            ends: the target that it is for, and the one that it is wanted in.
            rival: another version of the patch that is in there.
        """
        self.file = file
        self.name = name_of(*file)
        self.sha256 = hashlib.sha256(file[1]).hexdigest()
        self.origin = origin
        self._ends, self.rival = ends, rival

    @cached_property
    def carried(self) -> Carried:
        """What became of it hunk by hunk, and the files.

        Raises:
            UsageError, RefusedError: the patch is none, or none of what it is for.
        """
        from rewriter.carry.carrying import carry

        return carry([self.file], *self._ends)

    @cached_property
    def deltas(self) -> Mapping[str, Delta]:
        """Its files without and with it; none while a hunk is a conflict."""
        return {c.path: Delta(c.before, c.after) for c in self.carried.changes}

    @property
    def target(self) -> str:  # type: ignore[override]
        """The first of its files."""
        return next(iter(self.files()), "")

    @property
    def new(self) -> tuple[str, ...]:
        """The files that it brings."""
        return tuple(path for path, delta in self.deltas.items() if delta.before is None)

    def files(self) -> dict[str, list[Site]]:
        """Return the files that it changes, or would."""
        paths = [*self.deltas, *(result.onto for result in self.carried.results)]
        return {path: [] for path in dict.fromkeys(paths)}

    @cached_property
    def hunks(self) -> Sequence[Hunk]:  # type: ignore[override]
        """Where it is written, file by file."""
        return [hunk for path in self.deltas for hunk in self._hunks(path)]

    def _hunks(self, path: str) -> Iterator[Hunk]:
        delta = self.deltas[path]
        if delta.before is None or delta.after is None:
            new = delta.before is None
            yield Hunk(path, "new file" if new else "deleted", "", 1 if new else None)
            return
        told = False
        for result in self.carried.results:
            if result.onto == path and result.fate in (Fate.EXACTLY, Fate.STRUCTURE):
                step = placed(result)
                at = step.line if step is not None else None
                line = None if at is None else first_changed(delta, at)
                name = step.definition if step is not None else ""
                yield Hunk(path, kind_of(result), name, line, None, how(result))
                told = True
        if not told:  # what the patch changes was moved here
            yield Hunk(path, "moved here", "", None)

    def afresh(self) -> Verdict:
        """Return what it would be where nothing of it is."""
        if self.rival:
            reason = (
                f"another version of it, {self.rival}, is applied here; `rewriter sync` replaces "
                f"it, or: rewriter revert {self.rival}"
            )
            return Verdict(self.name, "", State.DRIFTED, reason=reason)
        return verdict_of(self.name, self.carried)


def verdict_of(name: str, carried: Carried) -> Verdict:
    """Return what carrying a patch came to, as a verdict: its sites are the hunks."""
    sites: list[SiteResult] = []
    first: tuple[str, Nearest | None] = "", None
    for result in carried.results:
        state, step = _STATES[result.fate], placed(result)
        reason, nearest = how(result), None
        if state is State.DRIFTED and step is not None:
            text = (step.theirs.splitlines() or [""])[0]
            nearest = Nearest(step.line, text, "") if step.line and text else None
            first = first if first[0] else (f"{result.onto}, {kind_of(result)}: {reason}", nearest)
        line, definition = (step.line, step.definition) if step is not None else (None, "")
        sites.append(
            SiteResult(definition, kind_of(result), line, state, reason, nearest, result.onto)
        )
    states = {site.state for site in sites}
    state = State.READY if State.READY in states else State.UPSTREAM
    state = State.DRIFTED if State.DRIFTED in states else state
    reason = first[0]
    if state is State.UPSTREAM:
        reason = "all of the patch is there already"
    about = next((site for site in sites if site.state is State.DRIFTED), None) or sites[0]
    return Verdict(name, about.file, state, tuple(sites), reason, first[1])


def kind_of(result: HunkResult) -> str:
    """Return what a hunk is called in a report."""
    return f"hunk {result.number}" if result.number else "file"


def placed(result: HunkResult) -> Step | None:
    """Return the step that stands for a hunk: the worst, which its fate tells."""
    return next((step for step in result.steps if step.fate is result.fate), None)


def how(result: HunkResult) -> str:
    """Return how a hunk was placed, or why it is a conflict; empty where exactly."""
    whys = dict.fromkeys(s.reason for s in result.steps if s.fate is result.fate and s.reason)
    told = "; ".join(whys)
    if result.fate not in _HOW:
        return ""
    return ": ".join(part for part in (_HOW[result.fate], told) if part)


def changes(codemods: Sequence[Codemod], read: Reader) -> list[Change]:
    """Return what patches, and codemods over them, would change. All must be ready or applied.

    Raises:
        RefusedError: two of them want the same place.
    """
    from rewriter import judge

    patches = [c for c in codemods if isinstance(c, CarriedPatch)]
    beneath = {path: d.after for patch in patches for path, d in patch.deltas.items()}
    others = [c for c in codemods if not c.is_patch]
    made = judge.changes(others, lambda path: beneath[path] if path in beneath else read(path))
    after = beneath | {change.path: change.after for change in made}
    found = [Change(path, read(path), raw) for path, raw in after.items()]
    return [change for change in found if change.before != change.after]


def records(codemods: Sequence[Codemod], made: Sequence[Change]) -> list[Held]:
    """Return what a record keeps of the patches among codemods that make some changes."""
    contents = {c.path: c.after for c in made if c.after is not None}
    patches = [c for c in codemods if isinstance(c, CarriedPatch)]
    return [held(patch, patch.deltas, contents) for patch in patches]


# --- which are wanted ----------------------------------------------------------------------


def wanted(
    files: Sequence[tuple[str, bytes]], origin: str, older: Target, target: Target,
    *, exactly: bool = False,
) -> list[CarriedPatch]:  # fmt: skip
    """Return patches for a target: those on record as they are, the others to be carried.

    Args:
        files: name and bytes of each, in the order in which they are applied.
        origin: what they are for, in the user's word.
        older: that target.
        target: where they are wanted.
        exactly: whether no other patches shall be in; then one is carried anew, unless it and
            those before it are on record in this order.

    Raises:
        UsageError: two have the same name and digest, or the same name and others' content.
    """
    manifest = _manifest(target)
    known = recorded(manifest)
    names = [name_of(*file) for file in files]
    _check_names(names)
    kept = known
    if exactly:
        same = [a.name == b for a, b in zip(known, names, strict=False)]
        kept = known[: same.index(False) if False in same else len(same)]
    kept = [patch for patch in kept if not exactly or is_there(patch, target, manifest)]
    newer: Target = Beneath(target, manifest, kept)
    found: list[CarriedPatch] = []
    for number, (file, name) in enumerate(zip(files, names, strict=True)):
        own = next((p for p in kept if p.name == name), None)
        if own is not None and is_there(own, target, manifest):
            found.append(own)
            continue
        others = [p for p in kept if file_of(p.name) == file[0] and p.name not in names]
        rival = next((p.name for p in others if not is_left(p, target, manifest)), "")
        fresh = FreshPatch(file, origin, (Series(older, files[:number]), newer), rival)
        found.append(fresh)
        newer = Layered(newer, fresh)
    return found


def _check_names(names: Sequence[str]) -> None:
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise UsageError(f"{min(twice)}: the same patch is named twice; name it once")


class Layered:
    """A target with one more patch in it."""

    writable = False

    def __init__(self, target: Target, patch: FreshPatch) -> None:
        self._target, self._patch = target, patch
        self.kind, self.location = target.kind, target.location
        self.version, self.diff_prefix = target.version, target.diff_prefix

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes; None when there is none."""
        delta = self._patch.deltas.get(path)
        return self._target.read(path) if delta is None else delta.after

    def files(self, under: str = "sglang") -> Iterator[str]:
        """Yield the paths of all files."""
        own = [path for path in self._patch.deltas if path.startswith(under)]
        paths = sorted({*self._target.files(under), *own})
        return (path for path in paths if path not in own or self.read(path) is not None)


class Series:
    """What patches are for, with those before them applied as their author did."""

    writable = False

    def __init__(self, target: Target, files: Sequence[tuple[str, bytes]]) -> None:
        self._target, self._patches = target, files
        self.kind, self.location = target.kind, target.location
        self.version, self.diff_prefix = target.version, target.diff_prefix

    @cached_property
    def _made(self) -> Mapping[str, bytes | None]:
        from rewriter.carry import patched, paths

        if not self._patches:
            return {}
        states, renamed, _ = patched.applied(self._patches, paths.Tree(self._target))
        made: dict[str, bytes | None] = dict.fromkeys(renamed.values())
        return made | {path: state.after for path, state in states.items()}

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes; None when there is none."""
        return self._made[path] if path in self._made else self._target.read(path)

    def files(self, under: str = "sglang") -> Iterator[str]:
        """Yield the paths of all files."""
        own = [path for path in self._made if path.startswith(under)]
        paths = sorted({*self._target.files(under), *own})
        return (path for path in paths if path not in own or self._made[path] is not None)


def _manifest(target: Target) -> Manifest | None:
    from rewriter.manifest import load
    from rewriter.targets.home import home_of

    home = home_of(target)
    return None if home is None else load(home.manifest_path)


# --- what a user names ---------------------------------------------------------------------


def read(path: Path) -> bytes:
    """Return a patch's bytes; ``-`` is standard input.

    Raises:
        UsageError: it cannot be read.
    """
    if path != Path("-") and path.is_dir():
        raise UsageError(f"{path}: expected a patch, found a directory; name its files in order")
    try:
        return sys.stdin.buffer.read() if path == Path("-") else path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error


def release_named(
    name: str, repo: Path | None = None, progress: Progress | None = None
) -> Target:  # fmt: skip
    """Return what a user names in one word: a commit of ``repo``, a directory, wheel, or release.

    Raises:
        TargetError: it cannot be read.
    """
    from rewriter.targets import resolve

    if repo is not None:
        return resolve(repo=repo, rev=name)
    place = Path(name)
    if place.is_dir():
        try:
            return resolve(checkout=place)
        except TargetError:
            return resolve(site_packages=place)
    if place.suffix == ".whl":
        return resolve(wheel=place)
    return resolve(release=name, progress=progress)


def configured(target: Target, *, exactly: bool = False) -> list[CarriedPatch]:
    """Return the patches that the configuration wants in a target.

    Raises:
        UsageError: a file cannot be read.
    """
    from rewriter import config

    found = config.load()
    if not found.patches:
        return []
    files = [(Path(name).name, read(Path(name))) for name in found.patches]
    return wanted(files, found.origin, Lazy(found.origin), target, exactly=exactly)


class Lazy:
    """What patches are for, opened when something of it is asked for."""

    writable = False
    kind = "release"

    def __init__(self, name: str) -> None:
        self.location, self._name = name, name

    @cached_property
    def _target(self) -> Target:
        return release_named(self._name)

    @property
    def version(self) -> str | None:
        """Its version."""
        return self._target.version

    @property
    def diff_prefix(self) -> str:
        """What stands before ``sglang/`` in its diffs."""
        return self._target.diff_prefix

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes; None when there is none."""
        return self._target.read(path)

    def files(self, under: str = "sglang") -> Iterator[str]:
        """Yield the paths of all files."""
        return self._target.files(under)


def wanted_or_there(target: Target) -> list[CarriedPatch]:
    """Return the patches on record in a target, and those that the configuration wants there."""
    there = {patch.name: patch for patch in recorded(_manifest(target))}
    return list((there | {patch.name: patch for patch in configured(target)}).values())


def picked(names: Sequence[str], target: Target) -> tuple[list[CarriedPatch], list[str]]:
    """Return the patches among some names, wanted or on record, and the other names."""
    there = {patch.name: patch for patch in wanted_or_there(target)}
    meant = {name: named(name, list(there)) for name in names}
    patches = [there[own] for own in meant.values() if own is not None]
    return patches, [name for name, own in meant.items() if own is None]
