"""How a planned transition is written down: the new manifest, and RECORD."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from rewriter import catalog, manifest
from rewriter.carried import CarriedPatch, Delta
from rewriter.carried import held as held_of
from rewriter.codemod import Codemod
from rewriter.manifest import FileRecord, Held, Manifest
from rewriter.originals import Original
from rewriter.targets.home import Home
from rewriter.targets.overlay import (
    Overlay,
)
from rewriter.targets.record import Row, parse_record, rewritten, taken_back
from rewriter.transaction import Content, Link
from rewriter.witness import Witness, unproven

if TYPE_CHECKING:
    from rewriter.targets import Target


class Proof(NamedTuple):
    """What is known of the pristine bytes of one file.

    Attributes:
        witness: what proved them when the first codemod was applied, or proves them now.
        holds: whether these bytes are those that it stands for; if not, the user's own edits
            are in them.
        frozen: whether it was taken before the first write.
    """

    witness: Witness | None
    holds: bool
    frozen: bool = False


class Planned(NamedTuple):
    """What is known of a transition before it is written down.

    Attributes:
        target, home: where.
        known: the manifest as it is.
        originals: every module without our edits.
        proofs: of those.
        contents: every module and companion as it shall be; without what patches delete.
        gone: files to remove: companions, those that patches brought, those that they delete.
        layers: what each carried patch makes of the files beneath the codemods.
    """

    target: Target
    home: Home
    known: Manifest | None
    originals: Mapping[str, Original]
    proofs: Mapping[str, Proof]
    contents: Mapping[str, bytes]
    gone: tuple[str, ...]
    layers: Mapping[str, Mapping[str, Delta]] = MappingProxyType({})

    def entry(self, path: str) -> FileRecord | None:
        """Return what the manifest says of a file."""
        return self.known.files.get(path) if self.known is not None else None


def manifest_of(planned: Planned, wanted: Sequence[Codemod]) -> Manifest | None:
    """Return the record of the new list; None where nothing is applied any more."""
    files: dict[str, FileRecord] = {}
    held: list[Held] = []
    record = _first_record(planned)
    for codemod in wanted:
        if isinstance(codemod, CarriedPatch):
            one = _held_patch(planned, codemod)
        else:
            one = _held_codemod(planned, codemod, files)
        if one is None:
            continue  # upstream has it
        held.append(one)
        for path in one.files:
            files[path] = _entry(planned, path, record)
            if isinstance(codemod, CarriedPatch) and (mode := mode_of(planned, codemod, path)):
                files[path] = files[path]._replace(mode=mode)
    if not held:
        return None
    return Manifest(manifest.TOOL, planned.target.version, tuple(held), files, record)


def _held_codemod(planned: Planned, codemod: Codemod, files: dict[str, FileRecord]) -> Held | None:
    """Return a codemod's entry, and note its companions; None where it changes nothing."""
    patched = [path for path in codemod.files() if path in planned.contents]
    if all(planned.contents[p] == _beneath(planned, p) for p in patched):
        return None
    versions: dict[str, str] = {}
    for companion in codemod.companions:
        raw = planned.contents[companion.path]
        known = catalog.companion_version(raw)
        versions[companion.path] = f"{known[0]} {known[1]}" if known else companion.source
        mode = _mode(planned, patched[0]) & 0o666
        files[companion.path] = FileRecord(None, manifest.sha256(raw), mode)
    return Held(codemod.name, tuple(patched), versions, codemod.requires)


def _beneath(planned: Planned, path: str) -> bytes | None:
    """Return a file with the carried patches alone."""
    for layer in reversed(list(planned.layers.values())):
        if path in layer:
            return layer[path].after
    return planned.originals[path].raw


def _held_patch(planned: Planned, patch: CarriedPatch) -> Held | None:
    """Return a patch's entry; None where nothing of it is needed."""
    layer = planned.layers[patch.name]
    return held_of(patch, layer, planned.contents) if layer else None


def _entry(planned: Planned, path: str, record: bytes | None) -> FileRecord:
    raw = planned.contents.get(path)
    after = None if raw is None else manifest.sha256(raw)
    if path not in planned.originals:
        return FileRecord(None, after, _mode(planned, path))
    found = planned.originals[path]
    there, known = on_disk(planned.home, path), planned.entry(path)
    link = there.text if isinstance(there, Link) else None
    if known is not None and found.ours and link is None:
        link = known.link
    witness = planned.proofs[path].witness or unproven(found.raw)
    if witness.kind == "RECORD" and record is not None:
        # That of the first RECORD, not of one with rows of other codemods of ours in it.
        witness = witness._replace(also=manifest.sha256(record))
    return FileRecord(
        manifest.sha256(found.raw),
        after,
        _mode(planned, path),
        link,
        manifest.pieces(found.raw, raw or b""),
        witness,
    )


def _mode(planned: Planned, path: str) -> int:
    if isinstance(planned.target, Overlay):
        return 0o644
    if not (planned.home.root / path).exists():
        entry = planned.entry(path)
        return 0o644 if entry is None else entry.mode
    return stat.S_IMODE((planned.home.root / path).stat().st_mode)


PROBE = "sglang/__init__.py"
"""The file whose owner and mode new files get, where there is none that they belong to."""


def mode_of(planned: Planned, patch: CarriedPatch, path: str) -> int | None:
    """Return the mode of a file that a patch brings, where it is not that of any new file."""
    if isinstance(planned.target, Overlay) or path in planned.originals:
        return None  # an overlay's are imported and never run
    if path not in patch.executable:
        entry = planned.entry(path)
        return entry.mode if entry is not None and entry.mode & 0o111 else None
    place = planned.home.root / PROBE
    plain = stat.S_IMODE(place.stat().st_mode) & 0o666 if place.exists() else 0o644
    return plain | (plain & 0o444) >> 2


def on_disk(home: Home, path: str) -> Content:
    """Return what stands at a path of the package, a link for itself."""
    place = home.root / path
    if place.is_symlink():
        return Link(os.fspath(place.readlink()))
    try:
        return place.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


# --- RECORD --------------------------------------------------------------------------------


def _first_record(planned: Planned) -> bytes | None:
    """Return RECORD as it was before our first write.

    Where somebody else has changed it since, their rows stay and ours go.
    """
    now = planned.home.record_bytes()
    if now is None:
        return None
    companions = {*planned.gone, *planned.contents} - planned.originals.keys()
    own = _rows_of_manifests(planned.home, now)
    if planned.known is not None and planned.known.record is not None:
        paths = {*planned.known.files, *companions, *own} - _told_rightly(planned, now)
        return taken_back(now, planned.known.record, paths)
    before: dict[str, bytes | None] = {
        path: found.raw for path, found in planned.originals.items() if found.ours
    }
    return rewritten(now, before | dict.fromkeys([*companions, *own]), ())


def _rows_of_manifests(home: Home, record: bytes) -> list[str]:
    """Return the paths under which RECORD may list our manifest.

    A dist-info is renamed where an environment is rebuilt under a local version; the row stays.
    """
    listed = [path for path in _rows(record) if path.endswith(f".dist-info/{home.manifest}")]
    return [*listed, f"{home.folder.name}/{home.manifest}"]


def _rows(record: bytes) -> dict[str, Row]:
    """Return RECORD, path → row; empty where it cannot be parsed."""
    try:
        return parse_record(record)
    except ValueError:
        return {}


def _told_rightly(planned: Planned, record: bytes) -> set[str]:
    """Return the files that hold nothing of ours and that RECORD describes: an installer's work."""
    rows = _rows(record)
    return {
        path
        for path, found in planned.originals.items()
        if not found.ours and found.disk is not None
        and path in rows and rows[path].matches(found.disk)
    }  # fmt: skip


def new_record(planned: Planned, made: Manifest | None) -> bytes | None:
    """Return RECORD with true rows for all that is applied."""
    first = _first_record(planned)
    if first is None or made is None:
        return first
    own = f"{planned.home.folder.name}/{planned.home.manifest}"
    contents: dict[str, bytes | None] = {p: planned.contents.get(p) for p in made.files}
    contents[own] = made.dump()
    new = [path for path, entry in made.files.items() if entry.before is None]
    return rewritten(first, contents, {*new, own})
