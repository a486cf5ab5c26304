"""Write a patched tree into a directory of its own: any target, nothing of it touched."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter import catalog, manifest
from rewriter.codemod import Codemod
from rewriter.errors import RefusedError
from rewriter.model import Change, Verdict
from rewriter.witness import take, unproven

if TYPE_CHECKING:
    from rewriter.targets import Target

MANIFEST = ".rewriter/manifest.json"


def write(
    directory: Path,
    target: Target,
    verdicts: Sequence[Verdict],
    changes: Sequence[Change],
    *,
    full: bool = False,
) -> list[str]:
    """Write the changed files, relative to the package's parent, and a manifest last.

    Args:
        directory: made if need be. It must be empty, or hold an earlier output of ours.
        full: write every other file of the package too.

    Returns:
        The paths written, relative to ``directory``, the manifest left out.

    Raises:
        RefusedError: the directory holds something that is not ours.
    """
    contents = {c.path: c.after for c in changes if c.after is not None}
    if full:
        for path in target.files():
            contents.setdefault(path, target.read(path) or b"")
    record = manifest.Manifest(
        manifest.TOOL,
        target.version,
        tuple(_held(catalog.load(v.codemod), changes) for v in verdicts),
        {change.path: _entry(target, change, verdicts) for change in changes},
    )
    _claim(directory)
    try:
        for path, raw in (*contents.items(), (MANIFEST, record.dump())):
            place = directory / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(raw)
    except OSError as error:
        raise RefusedError(
            f"{directory}: {place.name} cannot be written: {error.strerror or error}; what is "
            "there is not whole, remove it"
        ) from error
    return sorted(contents)


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
    assert change.after is not None
    after = manifest.sha256(change.after)
    if change.before is None:
        return manifest.FileRecord(None, after, 0o644)
    names = [verdict.codemod for verdict in verdicts]
    witness = take(target, change.path, change.before, names) or unproven(change.before)
    undo = manifest.pieces(change.before, change.after)
    return manifest.FileRecord(
        manifest.sha256(change.before), after, 0o644, undo=undo, witness=witness
    )


def _claim(directory: Path) -> None:
    """Make the directory, or empty it of an earlier output; refuse anything else."""
    if directory.exists() and not directory.is_dir():
        raise RefusedError(f"{directory} is no directory")
    if directory.is_dir() and any(directory.iterdir()):
        if not (directory / MANIFEST).is_file():
            raise RefusedError(
                f"{directory} is not empty and no output of rewriter; give an empty directory"
            )
        import shutil

        shutil.rmtree(directory / "sglang", ignore_errors=True)
        (directory / MANIFEST).unlink()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RefusedError(f"{directory}: cannot be made: {error.strerror}") from error
