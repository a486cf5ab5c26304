"""The writes of a planned transition, in their order: no reader may see a half of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rewriter.carried import CarriedPatch
from rewriter.codemod import Codemod
from rewriter.errors import RefusedError
from rewriter.manifest import Manifest
from rewriter.recording import PROBE, Planned, mode_of, new_record, on_disk
from rewriter.targets.overlay import (
    START,
    Overlay,
    Served,
    is_start_file,
    looks_beside_itself,
    start_file,
)
from rewriter.transaction import Content, Link, Write

if TYPE_CHECKING:
    from rewriter.leftovers import Leftover


def writes_of(
    planned: Planned,
    wanted: Sequence[Codemod],
    made: Manifest | None,
    left: Sequence[Leftover],
) -> tuple[Write, ...]:
    """Return what to write, in order: no reader may see a patched module without its companion.

    New files, changed ones, those that go, RECORD, the manifest last; where nothing stays applied
    RECORD and the manifest come first.
    """
    modules = [
        _write(planned, path, _module_content(planned, path, made)) for path in planned.originals
    ]
    arriving = [
        *_new(planned, wanted),
        *(write for write in modules if write.before is None),
    ]
    leaving = [write for write in modules if write.after is None and write.before is not None]
    modules = [write for write in modules if write not in arriving and write not in leaving]
    brought = [path for path in planned.gone if path not in planned.originals]
    leaving += [_write(planned, path, None) for path in brought]
    others = [one for one in left if one.at == "root" and one.path not in planned.gone]
    leaving += [_write(planned, one.path, None) for one in others]
    leaving += [_home_write(planned, one.path, None) for one in left if one.at == "home"]
    about: list[Write] = []
    if isinstance(planned.target, Overlay):
        about.append(_start_write(planned, planned.target, made))
    if planned.home.record is not None:
        about.append(_home_write(planned, planned.home.record, new_record(planned, made)))
    raw = made.dump() if made is not None else None
    about.append(_home_write(planned, planned.home.manifest, raw))
    ordered: Iterable[Write] = (*arriving, *modules, *leaving, *about)
    if made is None:
        ordered = (*reversed(about), *arriving, *modules, *leaving)
    return tuple(write for write in ordered if write.before != write.after)


def _new(planned: Planned, wanted: Sequence[Codemod]) -> list[Write]:
    """Return the writes of companions and of files that patches bring."""
    models: dict[str, tuple[str, int | None]] = {}
    for codemod in wanted:
        if isinstance(codemod, CarriedPatch):
            models |= {path: (PROBE, mode_of(planned, codemod, path)) for path in codemod.new}
        else:
            models |= {c.path: (_model(codemod, planned), None) for c in codemod.companions}
    return [
        _write(planned, path, planned.contents[path], *model)
        for path, model in models.items()
        if path in planned.contents and path not in planned.originals
    ]


def _model(codemod: Codemod, planned: Planned) -> str:
    """Return the module whose mode and owner a companion gets."""
    return next(path for path in codemod.files() if path in planned.contents)


def _start_write(planned: Planned, overlay: Overlay, made: Manifest | None) -> Write:
    """Return the write of the start-up file that makes Python look into an overlay."""
    there = on_disk(planned.home, START)
    if there is not None and not (isinstance(there, bytes) and is_start_file(there)):
        raise RefusedError(
            f"{overlay.root / START} is not ours; nothing was written. Give --overlay a directory "
            "of its own: the start-up file there runs others further down PYTHONPATH"
        )
    if made is None:
        return Write("root", START, there, None, None)
    served = {
        path: Served(
            entry.after or "", entry.before or "",
            looks_beside_itself(planned.contents.get(path, b"")),
        )
        for path, entry in made.files.items()
    }  # fmt: skip
    return Write("root", START, there, start_file(overlay.version, served), None)


def _write(
    planned: Planned, path: str, after: Content, like: str | None = None, mode: int | None = None
) -> Write:  # fmt: skip
    before, entry = on_disk(planned.home, path), planned.entry(path)
    if before is None and like is None and entry is not None:
        like, mode = PROBE, entry.mode  # a file that a patch had deleted
    if isinstance(planned.target, Overlay):
        like = mode = None  # the module that it would be like lies in the package
    return Write("root", path, before, after, like, mode)


def _home_write(planned: Planned, name: str, after: bytes | None) -> Write:
    place = planned.home.folder / name
    before = place.read_bytes() if place.is_file() else None
    like = None
    if planned.home.record is not None:
        like = f"{planned.home.folder.name}/{planned.home.record}"
    return Write("home", name, before, after, like)


def _module_content(planned: Planned, path: str, made: Manifest | None) -> Content:
    """Return what shall stand at a module's path: a link again, if one stood there at first."""
    raw = planned.contents.get(path)
    if made is not None and path in made.files:
        return raw
    if isinstance(planned.target, Overlay):
        return None
    there = on_disk(planned.home, path)
    if isinstance(there, Link) and planned.originals[path].disk == raw:
        return there
    entry = planned.entry(path)
    if entry is not None and entry.link is not None:
        place = (planned.home.root / path).parent / entry.link
        if place.is_file() and place.read_bytes() == raw:
            return Link(entry.link)
    return raw
