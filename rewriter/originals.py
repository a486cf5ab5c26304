"""The pristine bytes of one file: by the record where its hash holds, else by structure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rewriter import manifest
from rewriter.carried import CarriedPatch, places, taken_out
from rewriter.codemod import Codemod
from rewriter.errors import RefusedError, TargetError
from rewriter.manifest import FileRecord
from rewriter.model import State


class Original(NamedTuple):
    """One file without our edits.

    Attributes:
        raw: its bytes.
        disk: what stands on disk; None where a patch deleted it.
        ours: whether the file held edits of ours, so that the record speaks of these bytes.
        exact: whether the bytes are exactly those that the edits were made to; else somebody
            has changed the layout of our lines, and theirs is kept where ours was.
        partial: why only some of our edits were in it; empty where all or none were.
    """

    raw: bytes
    disk: bytes | None
    ours: bool
    exact: bool = True
    partial: str = ""


def original(
    path: str,
    disk: bytes | None,
    entry: FileRecord | None,
    present: Sequence[Codemod],
    *,
    moved: bool = False,
) -> Original:
    """Return a file without our edits.

    Args:
        path: relative to the package's parent.
        disk: its bytes now; None only where a patch deleted it.
        entry: what the manifest says of it.
        present: codemods and patches whose edits it may hold, in the order of their application.
        moved: whether the package is another one by now, so that files may hold nothing of them.

    Raises:
        RefusedError: our lines in it were edited; the message shows the first one.
        TargetError: the manifest does not give the bytes that it promises.
        SourceError: it does not parse.
    """
    if entry is not None and entry.before is not None:
        digest = None if disk is None else manifest.sha256(disk)
        if digest == entry.after:
            raw = manifest.restored(disk or b"", entry.undo)
            if manifest.sha256(raw) != entry.before:
                raise TargetError(
                    f"the manifest does not give back the original {path}: it was damaged or "
                    "edited. Remove it, and `rewriter revert` goes by the structure of the files"
                )
            return Original(raw, disk, True)
        if disk is not None and digest == entry.before:
            return Original(disk, disk, False)
    assert disk is not None, "a file that no patch deleted and that is gone has no original"
    return without(path, disk, present, moved=moved)


def without(path: str, disk: bytes, present: Sequence[Codemod], *, moved: bool = False) -> Original:
    """Return a file without what it holds, by structure; of patches by lines.

    Raises:
        RefusedError: our lines in it were edited; the message shows the first one.
        SourceError: it does not parse.
    """
    from rewriter import engine

    found = Original(disk, disk, False)
    for codemod in reversed(present):
        if isinstance(codemod, CarriedPatch):
            if path in codemod.deltas:
                found = _without_patch(path, found, codemod, moved)
            continue
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


def _without_patch(path: str, found: Original, patch: CarriedPatch, moved: bool) -> Original:
    """Take a patch's lines out where all around them is as it was left."""
    delta = patch.deltas[path]
    there = places(path, delta, found.raw)
    states = {site.state for site in there}
    if State.APPLIED not in states and (moved or State.TAMPERED not in states):
        return found  # nothing of the patch is in it
    if delta.after is None:
        raise RefusedError(
            f"{path}: {patch.name} deleted it, and it is there again, otherwise than it was; "
            "nothing was written. Move it away, and `rewriter revert` gives it back as it was"
        )
    bad = next((site for site in there if site.state is State.TAMPERED), None)
    if bad is not None:
        shown = found.raw.split(b"\n")[(bad.line or 1) - 1].decode("utf-8", "replace").strip()
        raise RefusedError(
            f"{path}: {patch.name}: its lines were edited, or lines that touch them; nothing was "
            f"written. Put them back as they were, or take them out by hand\n"
            f"  line {bad.line}: {shown}"
        )
    missing = next((site for site in there if site.state is State.READY), None)
    told = f"{patch.name}: line {missing.line}: {missing.reason}" if missing else ""
    return found._replace(raw=taken_out(delta, found.raw), ours=True, partial=told)
