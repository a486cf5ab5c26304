"""Write a patched tree into a directory of its own: any target, nothing of it touched."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter import catalog, manifest
from rewriter.codemod import Codemod
from rewriter.errors import RefusedError
from rewriter.model import Change, Verdict
from rewriter.targets.disk import PACKAGE, absolute, entries, unreadable
from rewriter.targets.home import Home, beside
from rewriter.witness import take, unproven

if TYPE_CHECKING:
    from rewriter.targets import Target
    from rewriter.transaction import Write

MANIFEST = ".rewriter/manifest.json"


def write(
    directory: Path,
    target: Target,
    verdicts: Sequence[Verdict],
    changes: Sequence[Change],
    *,
    full: bool = False,
    patches: Sequence[manifest.Held] = (),
) -> list[str]:
    """Write the changed files, relative to the package's parent, and a manifest: all or nothing.

    Args:
        directory: made if need be. It must be empty, or hold an earlier output of ours.
        full: write every other file of the package too.
        patches: what the record shall keep of carried patches.

    Returns:
        The paths written, relative to ``directory``, the manifest left out.

    Raises:
        RefusedError: the directory holds something that is not ours, or cannot be written.
        Interrupted: it could not be done, nor be undone.
    """
    contents = {c.path: c.after for c in changes if c.after is not None}
    if full:
        gone = {c.path for c in changes if c.after is None}
        for path in target.files():
            if path not in gone:
                contents.setdefault(path, target.read(path) or b"")
    record = manifest.Manifest(
        manifest.TOOL,
        target.version,
        (*patches, *(_held(catalog.load(v.codemod), changes) for v in verdicts)),
        {change.path: _entry(target, change, verdicts) for change in changes},
    )
    home = beside(absolute(directory))
    if os.name != "posix":
        _write_plainly(home, contents, record.dump())
        return sorted(contents)
    from rewriter.transaction import Run, exclusive, recover

    with exclusive(home):
        recover(home)
        _check(home)
        try:
            run = frozenset(change.path for change in changes if change.executable)
            writes = _writes(home, contents, record.dump(), run)
        except OSError as error:
            raise RefusedError(
                f"{error.filename}: cannot be read: {error.strerror or error}; nothing was written"
            ) from error
        Run(home, "apply", writes, home.identity()).carry_out()
    return sorted(contents)


def _writes(
    home: Home, contents: Mapping[str, bytes], record: bytes, run: frozenset[str]
) -> tuple[Write, ...]:  # fmt: skip
    """Return what makes an earlier output this one: new modules first, the manifest last.

    Args:
        run: the files that are to be run.
    """
    from rewriter.transaction import Write
    from rewriter.transaction.folder import content_of

    before = {path: content_of(home.root / path) for path in {*_present(home), *contents}}
    paths = sorted(before, key=lambda path: (before[path] is not None, path))
    writes = [
        Write("root", path, before[path], contents.get(path), None, 0o755 if path in run else None)
        for path in paths
    ]
    old = content_of(home.manifest_path)
    writes.append(Write("home", home.manifest, old, record))
    return tuple(write for write in writes if write.before != write.after)


def _present(home: Home) -> Iterator[str]:
    """Yield the files of an earlier output."""
    for folder, folders, names in os.walk(home.root / PACKAGE, onerror=unreadable):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            yield (Path(folder) / name).relative_to(home.root).as_posix()


def _write_plainly(home: Home, contents: Mapping[str, bytes], record: bytes) -> None:
    """Write into an empty directory where the system has no locks and no directory handles."""
    if home.root.is_dir() and any(home.root.iterdir()):
        raise RefusedError(f"{home.root} is not empty; on this system give an empty directory")
    place = home.root
    try:
        for place, raw in (*((home.root / p, r) for p, r in contents.items()),
                           (home.manifest_path, record)):  # fmt: skip
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(raw)
    except OSError as error:
        raise RefusedError(
            f"{place} cannot be written: {error.strerror or error}; what is there is not whole, "
            f"remove {home.root}"
        ) from error


def _held(codemod: Codemod, changes: Sequence[Change]) -> manifest.Held:
    changed = {change.path: change.after for change in changes}
    versions: dict[str, str] = {}
    for companion in codemod.companions:
        known = catalog.companion_version(changed.get(companion.path) or b"")
        versions[companion.path] = f"{known[0]} {known[1]}" if known else companion.source
    files = tuple(path for path in codemod.files() if path in changed)
    return manifest.Held(codemod.name, files, versions, codemod.requires)


def _entry(target: Target, change: Change, verdicts: Sequence[Verdict]) -> manifest.FileRecord:
    """Return what the record says of a file, so that `status` and `revert` work on the output."""
    after = None if change.after is None else manifest.sha256(change.after)
    if change.before is None:
        return manifest.FileRecord(None, after, 0o755 if change.executable else 0o644)
    names = [verdict.codemod for verdict in verdicts]
    witness = take(target, change.path, change.before, names) or unproven(change.before)
    undo = manifest.pieces(change.before, change.after or b"")
    return manifest.FileRecord(
        manifest.sha256(change.before), after, 0o644, undo=undo, witness=witness
    )


def _check(home: Home) -> None:
    """Refuse a directory that holds anything but an earlier output.

    Raises:
        RefusedError: it does, or it is a file.
    """
    directory = home.root
    if directory.exists() and not directory.is_dir():
        raise RefusedError(f"{directory} is no directory")
    if entries(directory) and not home.manifest_path.is_file():
        raise RefusedError(
            f"{directory} is not empty and no output of rewriter; give an empty directory"
        )
