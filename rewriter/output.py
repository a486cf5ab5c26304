"""Write a patched tree into a directory of its own: any target, nothing of it touched."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter import __version__
from rewriter.errors import RefusedError
from rewriter.model import Change, Verdict

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
    _claim(directory)
    contents = {c.path: c.after for c in changes if c.after is not None}
    if full:
        for path in target.files():
            contents.setdefault(path, target.read(path) or b"")
    for path, raw in contents.items():
        place = directory / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(raw)
    manifest = {
        "schema": 1,
        "tool": f"rewriter {__version__}",
        "target": {"kind": target.kind, "location": target.location, "version": target.version},
        "codemods": [v.codemod for v in verdicts],
        "files": {
            c.path: {"before": _sha256(c.before), "after": _sha256(c.after)} for c in changes
        },
        "full": full,
    }
    place = directory / MANIFEST
    place.parent.mkdir(exist_ok=True)
    place.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return sorted(contents)


def _sha256(raw: bytes | None) -> str | None:
    return None if raw is None else hashlib.sha256(raw).hexdigest()


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
