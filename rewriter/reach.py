"""How far an ordinary patch carries: at each commit, tag and release, by the carrying itself.

A verdict holds for what was read to make it. So it is kept with the paths that were read, and found
again wherever these are the same blobs; a file that many revisions share is placed once.
"""

from __future__ import annotations

import gc
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from rewriter import __version__, verdicts
from rewriter.blobs import Judge, Read, blob_id
from rewriter.cache import cache_directory
from rewriter.carried import name_of
from rewriter.carry.carrying import Carrier
from rewriter.carry.paths import PACKAGE, Tree
from rewriter.carry.steps import Fate
from rewriter.codemod import Codemod, Site
from rewriter.errors import SourceError, TargetError
from rewriter.fresh import verdict_of
from rewriter.model import State, Verdict
from rewriter.patching import wanted
from rewriter.walk import Files

if TYPE_CHECKING:
    from rewriter.targets import Target
    from rewriter.targets.revision import Revision as RevisionTarget

Opened = Callable[[], "Target"]

_FEW = 16
"""Revisions between two collections: some 5 MB of syntax trees each."""


class Patch(Codemod):
    """An ordinary patch, carried by structure from the release that it was made for."""

    drop_when = "all of it is upstream"

    def __init__(self, name: str, origin: str, paths: Sequence[str]) -> None:
        self.name, self.supports = name, f"(made for {origin})"
        self.target, self._paths = paths[0], paths

    def files(self) -> dict[str, list[Site]]:
        """Return the files that it is about."""
        return {path: [] for path in self._paths}


class Revision(NamedTuple):
    """One revision.

    Attributes:
        name: what tells it from all others, for a verdict that rests on all of its files.
        opened: opens it.
    """

    name: str
    opened: Opened


class Placed(Files):
    """Blob ids of the patch's files, and the revision that they are of."""

    revision: Revision


class Reach(Judge):
    """How far patches carry, as a judge of revisions."""

    follows_moves = True

    def __init__(self, files: Sequence[tuple[str, bytes]], origin: str, older: Target) -> None:
        """Apply the patches to their own release.

        Raises:
            UsageError: a patch is no unified diff.
            RefusedError: a patch does not apply to its own release.
        """
        super().__init__((), force_version=True)
        self._files, self._origin, self._older = tuple(files), origin, older
        self._carrier = Carrier(files, older)
        raw = b"".join(raw for _, raw in files)
        self._name = name_of("+".join(name for name, _ in files), raw)
        self.codemods = (Patch(self._name, origin, list(self._carrier.applied)),)
        sides = [side for a in self._carrier.applied.values() for side in (a.before, a.after)]
        self._open: tuple[str, Target] | None = None
        self._own = verdicts.key("reach 1", __version__, _own_code(), raw, *sides)

    def placed(self, files: Files, name: str, opened: Opened) -> Files:
        """Return a revision's files so that all of it can be read."""
        made = Placed(files)
        made.revision = Revision(name, opened)
        return made

    def known(self, codemod: Codemod, files: Files) -> bool:
        """Return whether a verdict is at hand, without carrying."""
        try:
            return self._find(files) is not None
        except TargetError:
            return False  # told when it is judged

    def structure(self, codemod: Codemod, files: Files, read: Read) -> Verdict:
        """Carry the patches to a revision, or find what that came to.

        Raises:
            SourceError: the revision cannot be read, or has no package.
        """
        try:
            found = self._find(files)
            return found if found is not None else self._carried(files)
        except TargetError as error:
            raise SourceError(str(error)) from error

    def verdict(self, codemod: Codemod, files: Files, read: Read, version: str | None) -> Verdict:
        """Carry the patches to a revision; its version does not count."""
        return self.structure(codemod, files, read)

    def word(self, verdict: Verdict) -> str:
        """Return how a patch carries, in a word."""
        if verdict.state is State.UPSTREAM:
            return "upstream"
        bad = [site.reason for site in verdict.sites if site.state is State.DRIFTED]
        if bad:
            softer = tuple(str(fate) for fate in Fate if fate is not Fate.CONFLICT)
            return "to review" if all(why.startswith(softer) for why in bad) else "conflict"
        by_structure = any(site.reason for site in verdict.sites if site.state is State.READY)
        return "by structure" if by_structure else "exactly"

    def in_tree(self, codemod: Codemod, target: Target) -> Verdict:
        """Carry the patches to a working tree, or say that they are applied there."""
        from rewriter.session import Session

        session = Session(target, wanted(self._files, self._origin, self._older, target))
        found = session.verdicts()
        worst = max(found, key=lambda v: _WORST.index(v.state) if v.state in _WORST else 99)
        sites = tuple(site for verdict in found for site in verdict.sites)
        made = Verdict(self._name, worst.file, worst.state, sites, worst.reason, worst.nearest)
        return _summed(made)

    # --- found again, or made --------------------------------------------------------------

    def _find(self, files: Files) -> Verdict | None:
        revision = _revision(files)
        for paths in self._looked_at(files):
            name = self._cell(revision, paths)
            found = self.seen.get(name) or verdicts.load(name)
            if isinstance(found, Verdict):
                self._note(name, found)
                return found
        return None

    def _carried(self, files: Files) -> Verdict:
        revision = _revision(files)
        tree = Tree(self._target(revision))
        made = _summed(verdict_of(self._name, self._carrier.onto(tree)))
        self.judged += 1
        if self.judged % _FEW == 0:
            gc.collect()  # the command line turns the collector off; trees hold their owners
        paths = tree.looked_at
        name = self._cell(revision, paths)
        verdicts.save(name, made)
        self._note(name, made)
        self._remember(files, paths)
        return made

    def _note(self, name: str, verdict: Verdict) -> None:
        if name not in self.seen:
            self.sources += 1
        self.seen[name] = verdict

    def _cell(self, revision: Revision, paths: Iterable[str]) -> str:
        marks = [part for path in paths for part in (path, self._mark(revision, path))]
        return verdicts.key(self._own, *marks)

    def _mark(self, revision: Revision, path: str) -> str:
        """Return what changes when a file does: its blob's id; of the package, the name."""
        if path == PACKAGE:
            return revision.name
        target = self._target(revision)
        known = getattr(target, "blob_id", None)
        if known is not None:
            return str(known(path))
        raw = target.read(path)
        return "None" if raw is None else blob_id(raw)

    def _target(self, revision: Revision) -> Target:
        """Open a revision, and close the one before: each has a git process and a list of files."""
        if self._open is None or self._open[0] != revision.name:
            before = self._open[1] if self._open is not None else None
            if before is not None and before.kind == "revision":
                cast("RevisionTarget", before).close()
            self._open = revision.name, revision.opened()
        return self._open[1]

    def _place(self, files: Files) -> Path:
        """Return where it is kept what was read where the patch's own files were these."""
        own = [part for path, oid in sorted(files.items()) for part in (path, oid)]
        name = verdicts.key(self._own, *own)
        return cache_directory() / "reach" / name[:2] / f"{name}.json"

    def _looked_at(self, files: Files) -> list[list[str]]:
        try:
            value = json.loads(self._place(files).read_bytes())
            return [[str(path) for path in paths] for paths in value]
        except (OSError, ValueError, TypeError):
            return []

    def _remember(self, files: Files, paths: list[str]) -> None:
        """Keep which files were read; a cache that cannot be written is no error."""
        import os

        known = self._looked_at(files)
        if paths in known:
            return
        place = self._place(files)
        scratch = place.with_name(f"{place.name}.{os.getpid()}")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            scratch.write_text(json.dumps([*known, paths]), encoding="utf-8")
            scratch.replace(place)
        except OSError:
            return


_WORST = (State.UPSTREAM, State.APPLIED, State.READY, State.DRIFTED)


def _revision(files: Files) -> Revision:
    found = getattr(files, "revision", None)
    if not isinstance(found, Revision):
        raise TargetError("nothing is before the first commit")
    return found


def _summed(verdict: Verdict) -> Verdict:
    """Say how many hunks are what, where no conflict is told."""
    if verdict.state is not State.READY:
        more = sum(site.state is State.DRIFTED for site in verdict.sites) - 1
        if verdict.state is not State.DRIFTED or more < 1:
            return verdict
        return replace(verdict, reason=f"{verdict.reason}; and {more} more")
    ready = [site for site in verdict.sites if site.state is State.READY]
    moved = sum(bool(site.reason) for site in ready)
    there = len(verdict.sites) - len(ready)
    counts = ((len(ready) - moved, "exactly"), (moved, "by structure"), (there, "upstream"))
    told = ", ".join(f"{number} {what}" for number, what in counts if number)
    hunks = "hunk" if len(verdict.sites) == 1 else "hunks"
    reason = f"{len(verdict.sites)} {hunks}: {told}"
    return replace(verdict, reason=reason)


@cache
def _own_code() -> str:
    """Return a hash of the code that carries: another version of it may place otherwise."""
    here = Path(__file__).parent
    total = hashlib.sha256()
    for path in [*sorted((here / "carry").glob("*.py")), here / "fresh.py", Path(__file__),
                 here / "edits.py", here / "source.py", here / "names.py"]:  # fmt: skip
        raw = path.read_bytes()
        total.update(f"{path.name} {len(raw)}\n".encode() + raw)
    return total.hexdigest()
