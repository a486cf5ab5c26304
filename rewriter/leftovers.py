"""Files of ours that nothing uses any more: after an upgrade, a stash, a run that died."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from rewriter import catalog
from rewriter.targets.disk import PACKAGE, entries, read_bytes, unreadable
from rewriter.targets.distinfo import is_dist_info
from rewriter.targets.home import Home
from rewriter.transaction.journal import LEFT_NAME


class Leftover(NamedTuple):
    """One file of ours that is in the way of a clean package.

    Attributes:
        at, path: as in a ``Write``.
        what: a few words.
        ours: whether it is as we wrote it; one that somebody edited is never removed.
    """

    at: str
    path: str
    what: str
    ours: bool = True


def leftovers(home: Home, in_use: Collection[str]) -> list[Leftover]:
    """Return the files of ours in a target that no applied codemod uses, sorted.

    Args:
        home: the target's.
        in_use: paths of companions that applied codemods import.
    """
    found = [*_in_package(home.root, in_use), *_in_dist_infos(home), *_at_home(home)]
    return sorted(found, key=lambda left: left.path)


def _in_package(root: Path, in_use: Collection[str]) -> Iterator[Leftover]:
    for folder, folders, names in os.walk(root / PACKAGE, onerror=unreadable):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            companion = name.startswith("_rewriter_") and name.endswith(".py")
            if not companion and ".rewriter-" not in name:
                continue
            path = (Path(folder) / name).relative_to(root).as_posix()
            if LEFT_NAME.fullmatch(name):
                yield Leftover("root", path, "temporary file of a run that died")
            elif companion and path not in in_use:
                known = catalog.companion_version(read_bytes(root, path) or b"")
                if known is not None:
                    what = f"companion {known[0]} {known[1]}"
                    what += "" if known[2] else ", edited by somebody"
                    yield Leftover("root", path, what, known[2])


def _in_dist_infos(home: Home) -> Iterator[Leftover]:
    """Yield records in other dist-infos: ``pip install --target --upgrade`` leaves the old one."""
    former = {
        "REWRITER.json": "manifest of a former install",
        "REWRITER.journal": "journal of a former install",
    }
    for folder in entries(home.root):
        if folder == home.folder or not is_dist_info(folder):
            continue
        for path in entries(folder):
            temporary = LEFT_NAME.fullmatch(path.name) and "temporary file of a run that died"
            if what := former.get(path.name) or temporary:
                yield Leftover("root", f"{folder.name}/{path.name}", what)


def _at_home(home: Home) -> Iterator[Leftover]:
    for path in entries(home.folder):
        left = LEFT_NAME.fullmatch(path.name)
        if left is not None and left["name"] != home.journal:
            yield Leftover("home", path.name, "temporary file of a run that died")
