"""Which file of the package a path of a diff means, and where that file is in another release."""

from __future__ import annotations

import re
from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING

from rewriter.errors import RefusedError

if TYPE_CHECKING:
    from rewriter.targets import Target

PACKAGE = "sglang"

_ALIKE = 0.5
"""Share of common lines from which a file of another name is the same file, moved."""


class Tree:
    """One release, its files read once each.

    Attributes:
        asked: the paths that were asked for; the package's own for a list of all.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.asked: set[str] = set()
        self._read: dict[str, bytes | None] = {}
        self._names: dict[str, bool] = {}

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes, or None."""
        self.asked.add(path)
        if path not in self._read:
            self._read[path] = self.target.read(path)
        return self._read[path]

    @property
    def files(self) -> list[str]:
        """The paths of all Python files."""
        self.asked.add(PACKAGE)
        return self._files

    @cached_property
    def _files(self) -> list[str]:
        return [path for path in self.target.files() if path.endswith(".py")]

    @property
    def looked_at(self) -> list[str]:
        """All paths that were read, sorted; the package's own first where all were listed."""
        return [PACKAGE] * ("_files" in self.__dict__) + sorted(self._read)

    def holding(self, word: bytes) -> list[str]:
        """Return the Python files whose bytes hold a word."""
        return [path for path in self.files if word in (self.read(path) or b"")]

    def names(self, path: str, name: str) -> bool:
        """Tell whether a file has a name, as a whole word."""
        raw, word = self.read(path) or b"", name.encode()
        return word in raw and re.search(rb"\b%s\b" % re.escape(word), raw) is not None

    def name_anywhere(self, name: str) -> bool:
        """Tell whether any Python file has a name, as a whole word."""
        if name not in self._names:
            self._names[name] = any(self.names(path, name) for path in self.files)
        return self._names[name]


def in_package(path: str, tree: Tree) -> str | None:
    """Return the path relative to the package's parent; None for one outside of the package.

    What stands before ``sglang/`` does not count: ``a/``, ``python/``, an absolute folder.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise RefusedError(
            f"{path}: expected a path inside the package, found one with `..`; nothing of such a "
            "patch is read or written"
        )
    tails = ["/".join(parts[n:]) for n, part in enumerate(parts) if part == PACKAGE]
    for tail in tails:
        if tree.read(tail) is not None:
            return tail
    if tails:
        return tails[-1]
    for n in range(min(len(parts), 3)):
        bare = "/".join([PACKAGE, *parts[n:]])
        if tree.read(bare) is not None:
            return bare
    return None


def moved(path: str, base: bytes, older: Tree, newer: Tree) -> tuple[str | None, str]:
    """Return where a file went that is not at its path any more, or None and why not."""
    name = path.rsplit("/", 1)[-1]
    same = [p for p in newer.files if p.rsplit("/", 1)[-1] == name and older.read(p) is None]
    lines = Counter(_lines(base))
    scored = sorted(((_share(lines, newer.read(p) or b""), p) for p in same), reverse=True)
    good = [p for score, p in scored if score >= _ALIKE]
    if len(good) == 1:
        return good[0], ""
    if good:
        return None, f"upstream has no such file any more; it could be {' or '.join(good[:3])}"
    fresh = [p for p in newer.files if older.read(p) is None]
    scored = sorted(((_share(lines, newer.read(p) or b""), p) for p in fresh), reverse=True)
    good = [p for score, p in scored if score >= _ALIKE]
    if len(good) == 1:
        return good[0], ""
    near = f"; most like it is {scored[0][1]}" if scored and scored[0][0] > 0.1 else ""
    return None, f"upstream has no such file any more{near}"


def _lines(raw: bytes) -> list[bytes]:
    return [line.strip() for line in raw.split(b"\n") if len(line.strip()) > 3]


def _share(lines: Counter[bytes], raw: bytes) -> float:
    other = Counter(_lines(raw))
    total = sum(lines.values()) + sum(other.values())
    return 2 * sum((lines & other).values()) / total if total else 0.0
