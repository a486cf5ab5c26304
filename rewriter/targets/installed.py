"""The sglang that an interpreter, or a site-packages directory, has installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Literal

from rewriter.errors import NotInstalledError, TargetError
from rewriter.targets import distinfo
from rewriter.targets.disk import (
    PACKAGE,
    absolute,
    holds_package,
    inside,
    is_package,
    read_bytes,
    walk,
)
from rewriter.targets.editable import editable_roots
from rewriter.targets.gitdir import git_dir, top_of
from rewriter.targets.home import Home, beside, in_dist_info, in_tree
from rewriter.targets.interpreter import Found, ask
from rewriter.targets.record import Row
from rewriter.targets.version import is_project, source_version, stated

Layout = Literal["wheel", "editable", "bare"]


class InstalledPackage:
    """An installed sglang, found by what it is; never imported, never by an enclosing repository.

    Attributes:
        root: the package's parent directory; for an editable install, where the sources are.
        dist_info: its ``.dist-info``, or None. For an editable install it lies elsewhere.
        layout: ``wheel`` (files copied beside their dist-info), ``editable`` (the files are a
            source tree, installed or reached through PYTHONPATH), ``bare`` (neither: copied).
    """

    kind = "installed"
    diff_prefix = ""
    writable = True

    def __init__(self, root: Path, dist_info: Path | None, layout: Layout) -> None:
        self.root = root
        self.dist_info = dist_info
        self.layout: Layout = layout

    @classmethod
    def of_interpreter(cls, python: str | os.PathLike[str] | None = None) -> InstalledPackage:
        """Find the package of this interpreter, or of another one by path.

        Raises:
            NotInstalledError: it has no sglang.
            TargetError: it cannot be asked.
        """
        found = ask(python)
        if found.package is None:
            raise NotInstalledError(_missing(found))
        if not found.package.is_dir():
            raise TargetError(
                f"{found.package}: expected a directory, found a package inside an archive; "
                f"install {PACKAGE} unpacked"
            )
        return cls._at(found.package.parent, found.path)

    @classmethod
    def of_directory(cls, directory: str | os.PathLike[str]) -> InstalledPackage:
        """Find the package in a site-packages directory, or given the package itself.

        Raises:
            TargetError: there is no sglang there.
        """
        given = absolute(directory)
        if holds_package(given):
            return cls._at(given, (given,))
        if given.name == PACKAGE and is_package(given):
            return cls._at(given.parent, (given.parent,))
        for root in editable_roots(given):
            if holds_package(root):
                return cls._at(root, (given,))
        raise TargetError(_not_there(given))

    @classmethod
    def _at(cls, root: Path, places: tuple[Path, ...]) -> InstalledPackage:
        """Build the target for a root, with the places where its dist-info may be."""
        dist_info = distinfo.beside(root)
        if dist_info is not None:
            return cls(root, dist_info, "wheel")
        dist_info = distinfo.editable(places, root)
        if dist_info is not None or is_project(lambda path: read_bytes(root, path)):
            return cls(root, dist_info, "editable")
        return cls(root, None, "bare")

    @property
    def location(self) -> str:
        """The package's directory."""
        return str(self.root / PACKAGE)

    @cached_property
    def version(self) -> str | None:
        """What METADATA says; for an editable install the sources are asked first.

        A source tree moves on by ``git pull`` while its dist-info stays as it was.
        """
        if self.layout == "wheel":
            return self._metadata_version() or source_version(self._source)
        return source_version(self._source) or self._metadata_version()

    @property
    def top(self) -> Path | None:
        """The top of an editable install's source tree; None for all others."""
        return top_of(self.root) if self.layout == "editable" else None

    @property
    def git_dir(self) -> Path | None:
        """The git directory of an editable install's source tree; None for all others."""
        return git_dir(self.top) if self.top is not None else None

    @property
    def home(self) -> Home:
        """Where manifest and journal lie: the dist-info, the git data, or beside the package."""
        if self.layout == "wheel" and self.dist_info is not None:
            return in_dist_info(self.root, self.dist_info)
        top = self.top
        return beside(self.root) if top is None else in_tree(self.root, top, self.git_dir)

    def record(self) -> dict[str, Row] | None:
        """Return RECORD as it is now, path → row; None when there is none that describes files.

        An editable install's RECORD lists its ``.pth`` file, not the package.
        """
        if self.dist_info is None or self.layout != "wheel":
            return None
        return distinfo.record_of(self.dist_info)

    def read(self, path: str) -> bytes | None:
        """Read a file of the package, e.g. ``sglang/srt/x.py``; None when there is none.

        Raises:
            TargetError: it is there and cannot be read.
        """
        return read_bytes(self.root, inside(path))

    def files(self, under: str = PACKAGE) -> Iterator[str]:
        """Yield the paths of the files at or below ``under``, without byte-code caches."""
        return walk(self.root, under)

    def _source(self, path: str) -> bytes | None:
        """Read for a version; beside the package only where that is its own project."""
        if path == "pyproject.toml" and self.layout != "editable":
            return None
        return read_bytes(self.root, path)

    def _metadata_version(self) -> str | None:
        """Return METADATA's version, unless it is a fork's, which counts its own releases."""
        if self.dist_info is None:
            return None
        metadata = read_bytes(self.dist_info, "METADATA") or b""
        if distinfo.metadata_field(metadata, "Name") != PACKAGE:
            return None
        return stated(distinfo.metadata_field(metadata, "Version") or "")


def _missing(found: Found) -> str:
    """Say that an interpreter has no sglang, and what was there instead."""
    message = f"{found.interpreter} (Python {found.python}): {PACKAGE} is not installed there"
    if found.namespace:
        message += f"; {found.namespace[0]} is a directory without __init__.py, not the package"
    return message


def _not_there(directory: Path) -> str:
    """Say that a directory holds no sglang, with the nearest one seen."""
    if not directory.is_dir():
        return f"{directory}: no such directory"
    message = f"{directory}: expected {PACKAGE}/__init__.py, found none"
    for pattern in ("lib/python3*/site-packages", "python3*/site-packages", "site-packages"):
        for place in sorted(directory.glob(pattern)):
            if holds_package(place):
                return f"{message}; there is one in {place}"
    if holds_package(directory / "python"):
        return f"{message}; it is a checkout: use --checkout"
    if (directory / ".rewriter").is_dir():
        return (
            f"{message}; it was written by rewriter: an overlay is named with --overlay, beside "
            "its package; an output without `--full` holds changed files alone, so it is no target"
        )
    return message
