"""Byte code of a module whose source changed: dropped, or the old code may go on running.

Python compares a cached file with the source's time and size, which an edit can leave equal, and
does not compare at all for one compiled with an unchecked hash.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

_TAIL = re.compile(r"\..*\.pyc(\.\d+)?")
"""What follows the module's name. Digits at its end: an interpreter died writing it."""


def caches(source: Path) -> Iterator[Path]:
    """Yield the cached files of a source, of every interpreter and optimisation level.

    Args:
        source: absolute. Both the path as it is imported and where links lead may be given.

    Raises:
        OSError: a cache cannot be listed, so it cannot be known what runs.
    """
    stem = source.name.removesuffix(".py")
    for folder in folders(source):
        try:
            found = sorted(folder.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            continue
        for path in found:
            if path.name.startswith(stem) and _TAIL.fullmatch(path.name, len(stem)):
                yield path


def folders(source: Path) -> list[Path]:
    """Return the directories where byte code of a source may lie."""
    found = [source.parent / "__pycache__"]
    for prefix in {os.environ.get("PYTHONPYCACHEPREFIX"), sys.pycache_prefix} - {None, ""}:
        # importlib drops the root, and an anchor such as a drive, in front of the rest.
        assert prefix is not None
        found.append(Path(prefix) / source.parent.relative_to(source.parent.anchor))
    return found


def stuck(source: Path) -> Path | None:
    """Return a cached file that this user could not remove, if there is one."""
    for cached in caches(source):
        if not os.access(cached.parent, os.W_OK | os.X_OK):
            return cached
    return None


def drop(source: Path) -> None:
    """Remove all byte code of a source, for good. What is gone already is no error.

    Raises:
        OSError: some of it cannot be removed.
    """
    emptied: dict[Path, None] = {}
    for cached in caches(source):
        cached.unlink(missing_ok=True)
        emptied[cached.parent] = None
    for folder in emptied:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
