"""Patches that a command line or the configuration wants in a target, carried to it when asked.

Nothing is carried for a patch that is on record and whole: a gate then only compares hashes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.carried import CarriedPatch, file_of, held, name_of
from rewriter.codemod import Codemod
from rewriter.errors import TargetError, UsageError
from rewriter.fresh import FreshPatch
from rewriter.manifest import Held
from rewriter.model import Change
from rewriter.patches import Beneath, is_left, is_there, named, recorded

if TYPE_CHECKING:
    from rewriter.judge import Reader
    from rewriter.manifest import Manifest
    from rewriter.targets import Target
    from rewriter.targets.pip import Progress


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
    run = {path for patch in patches for path in patch.executable}
    found = [Change(path, read(path), raw, path in run) for path, raw in after.items()]
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


def opened(path: Path) -> tuple[str, bytes]:
    """Return the name and the bytes of a patch.

    Raises:
        UsageError: it cannot be read.
    """
    return ("stdin" if path == Path("-") else path.name), read(path)


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
    files = [opened(Path(name)) for name in found.patches]
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
