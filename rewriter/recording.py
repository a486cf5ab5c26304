"""How a planned transition is written down: the new manifest, RECORD, and the order of writes."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rewriter import catalog, manifest
from rewriter.codemod import Codemod
from rewriter.errors import RefusedError
from rewriter.manifest import FileRecord, Held, Manifest
from rewriter.originals import Original
from rewriter.targets.home import Home
from rewriter.targets.overlay import (
    START,
    Overlay,
    Served,
    is_start_file,
    looks_beside_itself,
    start_file,
)
from rewriter.targets.record import rewritten, taken_back
from rewriter.transaction import Content, Link, Write
from rewriter.witness import Witness, unproven

if TYPE_CHECKING:
    from rewriter.leftovers import Leftover
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
        contents: every module and companion as it shall be.
        gone: companions to remove.
    """

    target: Target
    home: Home
    known: Manifest | None
    originals: Mapping[str, Original]
    proofs: Mapping[str, Proof]
    contents: Mapping[str, bytes]
    gone: tuple[str, ...]

    def entry(self, path: str) -> FileRecord | None:
        """Return what the manifest says of a file."""
        return self.known.files.get(path) if self.known is not None else None


def manifest_of(planned: Planned, wanted: Sequence[Codemod]) -> Manifest | None:
    """Return the record of the new list; None where nothing is applied any more."""
    files: dict[str, FileRecord] = {}
    held: list[Held] = []
    record = _first_record(planned)
    for codemod in wanted:
        patched = [path for path in codemod.files() if path in planned.originals]
        if all(planned.contents[p] == planned.originals[p].raw for p in patched):
            continue  # upstream has it
        versions: dict[str, str] = {}
        for companion in codemod.companions:
            raw = planned.contents[companion.path]
            known = catalog.companion_version(raw)
            versions[companion.path] = f"{known[0]} {known[1]}" if known else companion.source
            mode = _mode(planned, patched[0]) & 0o666
            files[companion.path] = FileRecord(None, manifest.sha256(raw), mode)
        held.append(Held(codemod.name, tuple(patched), versions, codemod.requires))
        for path in patched:
            files[path] = _entry(planned, path, record)
    if not held:
        return None
    return Manifest(manifest.TOOL, planned.target.version, tuple(held), files, record)


def _entry(planned: Planned, path: str, record: bytes | None) -> FileRecord:
    found, raw = planned.originals[path], planned.contents[path]
    there, known = _on_disk(planned.home, path), planned.entry(path)
    link = there.text if isinstance(there, Link) else None
    if known is not None and found.ours and link is None:
        link = known.link
    witness = planned.proofs[path].witness or unproven(found.raw)
    if witness.kind == "RECORD" and record is not None:
        # That of the first RECORD, not of one with rows of other codemods of ours in it.
        witness = witness._replace(also=manifest.sha256(record))
    return FileRecord(
        manifest.sha256(found.raw),
        manifest.sha256(raw),
        _mode(planned, path),
        link,
        manifest.pieces(found.raw, raw),
        witness,
    )


def _mode(planned: Planned, path: str) -> int:
    if isinstance(planned.target, Overlay):
        return 0o644
    return stat.S_IMODE((planned.home.root / path).stat().st_mode)


def _on_disk(home: Home, path: str) -> Content:
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
    companions = {*planned.gone, *(planned.contents.keys() - planned.originals.keys())}
    own = f"{planned.home.folder.name}/{planned.home.manifest}"
    if planned.known is not None and planned.known.record is not None:
        paths = {*planned.known.files, *companions, own}
        return taken_back(now, planned.known.record, paths)
    before: dict[str, bytes | None] = {
        path: found.raw for path, found in planned.originals.items() if found.ours
    }
    return rewritten(now, before | dict.fromkeys([*companions, own]), ())


def _new_record(planned: Planned, made: Manifest | None) -> bytes | None:
    """Return RECORD with true rows for all that is applied."""
    first = _first_record(planned)
    if first is None or made is None:
        return first
    own = f"{planned.home.folder.name}/{planned.home.manifest}"
    contents: dict[str, bytes | None] = {path: planned.contents[path] for path in made.files}
    contents[own] = made.dump()
    new = [path for path, entry in made.files.items() if entry.before is None]
    return rewritten(first, contents, {*new, own})


# --- the order of writes -------------------------------------------------------------------


def writes_of(
    planned: Planned,
    wanted: Sequence[Codemod],
    made: Manifest | None,
    left: Sequence[Leftover],
) -> tuple[Write, ...]:
    """Return what to write, in order: no reader may see a patched module without its companion.

    Companions, modules, companions that go, RECORD, the manifest last; where nothing stays
    applied the other way round.
    """
    models = {c.path: _model(codemod, planned) for codemod in wanted for c in codemod.companions}
    companions = [
        _write(planned, path, planned.contents[path], model)
        for path, model in models.items()
        if path in planned.contents
    ]
    modules = [
        _write(planned, path, _module_content(planned, path, made)) for path in planned.originals
    ]
    leaving = [_write(planned, path, None) for path in planned.gone]
    others = [one for one in left if one.at == "root" and one.path not in planned.gone]
    leaving += [_write(planned, one.path, None) for one in others]
    leaving += [_home_write(planned, one.path, None) for one in left if one.at == "home"]
    about: list[Write] = []
    if isinstance(planned.target, Overlay):
        about.append(_start_write(planned, planned.target, made))
    if planned.home.record is not None:
        about.append(_home_write(planned, planned.home.record, _new_record(planned, made)))
    raw = made.dump() if made is not None else None
    about.append(_home_write(planned, planned.home.manifest, raw))
    ordered: Iterable[Write] = (*companions, *modules, *leaving, *about)
    if made is None:
        ordered = (*reversed(about), *modules, *leaving)
    return tuple(write for write in ordered if write.before != write.after)


def _model(codemod: Codemod, planned: Planned) -> str:
    """Return the module whose mode and owner a companion gets."""
    return next(path for path in codemod.files() if path in planned.originals)


def _start_write(planned: Planned, overlay: Overlay, made: Manifest | None) -> Write:
    """Return the write of the start-up file that makes Python look into an overlay."""
    there = _on_disk(planned.home, START)
    if there is not None and not (isinstance(there, bytes) and is_start_file(there)):
        raise RefusedError(
            f"{overlay.root / START} is not ours; nothing was written. Give --overlay a directory "
            "of its own: the start-up file there runs others further down PYTHONPATH"
        )
    if made is None:
        return Write("root", START, there, None, None)
    served = {
        path: Served(entry.after, entry.before or "", looks_beside_itself(planned.contents[path]))
        for path, entry in made.files.items()
    }
    return Write("root", START, there, start_file(overlay.version, served), None)


def _write(planned: Planned, path: str, after: Content, like: str | None = None) -> Write:
    if isinstance(planned.target, Overlay):
        like = None  # the module that it would be like lies in the package
    return Write("root", path, _on_disk(planned.home, path), after, like)


def _home_write(planned: Planned, name: str, after: bytes | None) -> Write:
    place = planned.home.folder / name
    before = place.read_bytes() if place.is_file() else None
    like = None
    if planned.home.record is not None:
        like = f"{planned.home.folder.name}/{planned.home.record}"
    return Write("home", name, before, after, like)


def _module_content(planned: Planned, path: str, made: Manifest | None) -> Content:
    """Return what shall stand at a module's path: a link again, if one stood there at first."""
    raw = planned.contents.get(path, planned.originals[path].raw)
    if made is not None and path in made.files:
        return raw
    if isinstance(planned.target, Overlay):
        return None
    there = _on_disk(planned.home, path)
    if isinstance(there, Link) and planned.originals[path].disk == raw:
        return there
    entry = planned.entry(path)
    if entry is not None and entry.link is not None:
        place = (planned.home.root / path).parent / entry.link
        if place.is_file() and place.read_bytes() == raw:
            return Link(entry.link)
    return raw
