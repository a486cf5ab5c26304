"""The pristine bytes of one file: by the record where its hash holds, else by structure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rewriter import manifest
from rewriter.codemod import Codemod
from rewriter.errors import RefusedError, TargetError
from rewriter.manifest import FileRecord
from rewriter.model import State


class Original(NamedTuple):
    """One file without our edits.

    Attributes:
        raw: its bytes.
        disk: what stands on disk.
        ours: whether the file held edits of ours, so that the record speaks of these bytes.
        exact: whether the bytes are exactly those that the edits were made to; else somebody
            has changed the layout of our lines, and theirs is kept where ours was.
        partial: why only some of our edits were in it; empty where all or none were.
    """

    raw: bytes
    disk: bytes
    ours: bool
    exact: bool = True
    partial: str = ""


def original(
    path: str, disk: bytes, entry: FileRecord | None, present: Sequence[Codemod]
) -> Original:
    """Return a file without our edits.

    Args:
        path: relative to the package's parent.
        disk: its bytes now.
        entry: what the manifest says of it.
        present: codemods whose edits it may hold, in the order of their application.

    Raises:
        RefusedError: our lines in it were edited; the message shows the first one.
        TargetError: the manifest does not give the bytes that it promises.
        SourceError: it does not parse.
    """
    if entry is not None and entry.before is not None:
        digest = manifest.sha256(disk)
        if digest == entry.after:
            raw = manifest.restored(disk, entry.undo)
            if manifest.sha256(raw) != entry.before:
                raise TargetError(
                    f"the manifest does not give back the original {path}: it was damaged or "
                    "edited. Remove it, and `rewriter revert` goes by the structure of the files"
                )
            return Original(raw, disk, True)
        if digest == entry.before:
            return Original(disk, disk, False)
    return _by_structure(path, disk, present)


def _by_structure(path: str, disk: bytes, present: Sequence[Codemod]) -> Original:
    from rewriter import engine

    found = Original(disk, disk, False)
    for codemod in reversed(present):
        if path not in codemod.files() or not engine.may_hold(codemod, path, found.raw):
            continue
        seen = engine.examine(codemod, path, found.raw)
        if seen.state is State.TAMPERED:
            shown = ""
            if seen.nearest is not None:
                shown = f"\n  line {seen.nearest.line}: {seen.nearest.text}"
            raise RefusedError(
                f"{path}: {codemod.name}: {seen.reason}; nothing was written. Put that line back "
                f"as it was, or take our lines out by hand{shown}"
            )
        if seen.state is State.PARTIAL:
            found = found._replace(raw=seen.pristine, ours=True, partial=seen.reason)
        elif seen.state is State.APPLIED:
            exact = found.exact and seen.exact and engine.only_inserts(codemod)
            found = found._replace(raw=seen.pristine, ours=True, exact=exact)
    return found
