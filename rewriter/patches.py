"""Carried patches in a target: which are on record, what each is there, and what lies beneath.

A patch is whole where every file has the hash that was written. Else its lines are looked for in
the files without the codemods that lie over it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rewriter import catalog
from rewriter.carried import CarriedPatch, file_of, places
from rewriter.codemod import Codemod
from rewriter.errors import CatalogError, RefusedError, SourceError
from rewriter.forgotten import Forgotten
from rewriter.model import SiteResult, State, Verdict
from rewriter.originals import without
from rewriter.pieces import restored

if TYPE_CHECKING:
    from rewriter.manifest import Held, Manifest
    from rewriter.targets import Target


def of_record(held: Held) -> Codemod:
    """Return what a record names: a patch, a codemod of the catalogue, or one that is gone."""
    if held.carried is not None:
        return CarriedPatch(held)
    return catalog.load(held.name) if catalog.knows(held.name) else Forgotten(held)


def recorded(manifest: Manifest | None) -> list[CarriedPatch]:
    """Return the patches of a record, in the order of their application."""
    held = manifest.codemods if manifest is not None else ()
    return [CarriedPatch(one) for one in held if one.carried is not None]


def named(name: str, known: Sequence[str]) -> str | None:
    """Return which of some patches a user means: by its whole name, or by its file alone.

    Raises:
        CatalogError: several patches have that file's name.
    """
    if name in known:
        return name
    found = [each for each in known if file_of(each) == name]
    if len(found) > 1:
        raise CatalogError(f"{name}: several patches are called so: {', '.join(found)}")
    return found[0] if found else None


# --- what one is in a target ---------------------------------------------------------------


def of_patch(
    patch: Codemod, target: Target, manifest: Manifest | None
) -> tuple[Verdict, Verdict, bool]:
    """Return the verdict on a patch as told, the same by its lines alone, and if it is whole."""
    assert isinstance(patch, CarriedPatch)
    held = manifest.held(patch.name) if manifest is not None else None
    if manifest is None or held is None:
        told = patch.afresh() or _by_lines(patch, target, manifest)
        return told, told, False
    on_record = CarriedPatch(held)
    if _is_intact(held, target, manifest):
        sites = tuple(
            SiteResult(h.definition, h.kind, h.at, State.APPLIED, h.how, file=h.file)
            for h in on_record.hunks
        )
        told = Verdict(patch.name, on_record.target, State.APPLIED, sites)
        return told, told, True
    found = _by_lines(on_record, target, manifest)
    return _told(found, target, manifest), found, False


def is_there(patch: CarriedPatch, target: Target, manifest: Manifest | None) -> bool:
    """Tell whether a patch on record is in the target's files, whole."""
    return of_patch(patch, target, manifest)[0].state is State.APPLIED


def is_left(patch: CarriedPatch, target: Target, manifest: Manifest | None) -> bool:
    """Tell whether a patch on record is only left over: nothing of it is in the files."""
    return of_patch(patch, target, manifest)[0].state is State.ORPHANED


def _is_intact(held: Held, target: Target, manifest: Manifest) -> bool:
    from rewriter.manifest import sha256

    for path in held.files:
        entry, raw = manifest.files.get(path), target.read(path)
        if entry is None or (None if raw is None else sha256(raw)) != entry.after:
            return False
    return True


def _by_lines(patch: CarriedPatch, target: Target, manifest: Manifest | None) -> Verdict:
    """Judge a patch by the lines of the files: ready where nothing of it is in them."""
    sites = [
        site
        for path, delta in patch.deltas.items()
        for site in places(path, delta, _under_codemods(path, target, manifest))
    ]
    states = {site.state for site in sites}
    state = State.PARTIAL if states > {State.APPLIED} else State.READY
    if states == {State.APPLIED}:
        state = State.APPLIED
    elif State.TAMPERED in states:
        state = State.TAMPERED
    first = next((site for site in sites if site.state is not State.APPLIED), None)
    reason = f"{first.file}: {first.reason}" if first is not None and state != "ready" else ""
    return Verdict(patch.name, patch.target, state, tuple(sites), reason)


def _told(found: Verdict, target: Target, manifest: Manifest) -> Verdict:
    """Say what a patch is whose files are not as the record says."""
    states = {site.state for site in found.sites}
    if found.state is State.APPLIED:
        reason = "the files were edited elsewhere since; its lines are whole"
        return _with(found, State.APPLIED, reason)
    stale = getattr(target, "stale", "")  # of an overlay
    moved = target.version != manifest.version or _is_shipped(found, target)
    if State.APPLIED not in states and (stale or moved or found.state is State.READY):
        reason = stale or (
            "the package was changed since; the record of what was applied is left over"
        )
        return _with(found, State.ORPHANED, reason)
    return found


def _with(found: Verdict, state: State, reason: str) -> Verdict:
    return Verdict(found.codemod, found.file, state, found.sites, reason)


def _is_shipped(found: Verdict, target: Target) -> bool:
    """Tell whether the files that do not hold the patch are as some release has them."""
    from rewriter.witness import take

    for path in {site.file for site in found.sites if site.state is State.TAMPERED}:
        raw = target.read(path)
        if raw is None or take(target, path, raw, ()) is None:
            return False
    return True


# --- what lies beneath ---------------------------------------------------------------------


class Beneath:
    """A target without its codemods, and with some of its patches, to carry others onto.

    Attributes:
        kept: the patches that stay in, in order.
    """

    writable = False

    def __init__(
        self, target: Target, manifest: Manifest | None, kept: Sequence[CarriedPatch] | None = None
    ) -> None:
        self.target, self._manifest = target, manifest
        self.kind, self.location = target.kind, target.location
        self.version, self.diff_prefix = target.version, target.diff_prefix
        self._recorded = recorded(manifest)
        self.kept = list(self._recorded if kept is None else kept)

    def read(self, path: str) -> bytes | None:
        """Return a file as it is beneath the codemods; None when there is none.

        Raises:
            RefusedError: what lies over it cannot be taken out.
        """
        raw = self.target.read(path)
        from rewriter.manifest import sha256

        entry = self._manifest.files.get(path) if self._manifest is not None else None
        there = [patch for patch in self._recorded if path in patch.files()]
        if entry is None or (None if raw is None else sha256(raw)) != entry.after:
            return self._by_structure(path, raw)
        staying = [patch for patch in self.kept if path in patch.files()]
        if staying and [p.name for p in staying] == [p.name for p in there[: len(staying)]]:
            return staying[-1].deltas[path].after
        return None if entry.before is None else restored(raw or b"", entry.undo)

    def _by_structure(self, path: str, raw: bytes | None) -> bytes | None:
        """Return a file that is not as the record says without what shall not be in it."""
        found = _under_codemods(path, self.target, self._manifest)
        stay = {patch.name for patch in self.kept}
        out = [p for p in self._recorded if path in p.files() and p.name not in stay]
        if raw is None or found is None or not out or self._manifest is None:
            return found
        from rewriter.witness import take

        moved = self.version != self._manifest.version or bool(take(self.target, path, raw, ()))
        return without(path, found, out, moved=moved).raw

    def files(self, under: str = "sglang") -> Iterator[str]:
        """Yield the paths of all files that are there."""
        gone = {path for patch in self._recorded for path in patch.files()}
        paths = {*self.target.files(under), *(p for p in gone if p.startswith(under))}
        return (path for path in sorted(paths) if path not in gone or self.read(path) is not None)


def _under_codemods(path: str, target: Target, manifest: Manifest | None) -> bytes | None:
    """Return a file without the codemods that are in it, found by structure."""
    raw = target.read(path)
    if raw is None:
        return None
    held = [one.name for one in manifest.codemods] if manifest is not None else []
    names = [*dict.fromkeys([*held, *catalog.names()])]
    known = [catalog.load(name) for name in names if catalog.knows(name)]
    over = [codemod for codemod in known if path in codemod.files()]
    if not over:
        return raw
    try:
        return without(path, raw, over).raw
    except (RefusedError, SourceError):
        return raw  # its own verdict says so
