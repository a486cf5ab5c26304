"""One commit of sglang's repository, read from the object database; nothing is checked out."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from functools import cached_property

from rewriter.errors import TargetError, UsageError
from rewriter.targets.disk import PACKAGE, absolute, inside
from rewriter.targets.objects import Entry, Objects
from rewriter.targets.version import source_version

_LINK = "120000"
_SUBMODULE = "160000"
_PREFIXES = ("python/", "")
"""Where the package's parent may be in the tree; the first that holds the package counts."""


class Revision:
    """A commit of a repository: bare, shallow, partial or with a working tree.

    Attributes:
        repository: the directory of the repository.
        rev: the revision as it was asked for.
        commit: the full id of the commit that it names.
        diff_prefix: where the package's parent is in the tree, ``python/`` or empty.
    """

    kind = "revision"
    writable = False

    def __init__(self, repository: str | os.PathLike[str], rev: str) -> None:
        """Resolve the revision and find the package in its tree.

        Raises:
            UsageError: the revision is empty or looks like an option.
            TargetError: no repository, no such revision, or no sglang in its tree.
        """
        if not rev or rev.startswith("-"):
            raise UsageError(f"--rev {rev!r}: expected a commit, a tag or a branch")
        self.repository = absolute(repository)
        self.rev = rev
        self._objects = Objects(self.repository)
        self.commit = self._objects.commit(rev)
        wanted = tuple(f"{p}{name}" for p in _PREFIXES for name in (PACKAGE, "pyproject.toml"))
        self._tree = self._objects.tree(self.commit, wanted)
        prefix = next((p for p in _PREFIXES if f"{p}{PACKAGE}/__init__.py" in self._tree), None)
        if prefix is None:
            raise TargetError(
                f"{self.location}: expected python/{PACKAGE}/__init__.py or "
                f"{PACKAGE}/__init__.py in its tree, found neither; is it a repository of "
                f"{PACKAGE}?"
            )
        self.diff_prefix = prefix

    @cached_property
    def location(self) -> str:
        """E.g. ``v0.5.9 (abc1234) of /src/sglang``."""
        return f"{self.rev} ({self._objects.short(self.commit)}) of {self.repository}"

    @cached_property
    def version(self) -> str | None:
        """The version that the tree states; None where a build would generate it."""
        return source_version(self._read)

    def read(self, path: str) -> bytes | None:
        """Read a file of the package, e.g. ``sglang/srt/x.py``; None when there is none.

        Raises:
            TargetError: its blob is missing, or it is a link that leaves the package.
        """
        return self._read(inside(path))

    def blob_id(self, path: str) -> str | None:
        """Return the id of the blob at ``path`` in the commit; None when there is none."""
        entry = self._tree.get(self.diff_prefix + inside(path))
        return entry.oid if entry is not None else None

    def files(self, under: str = PACKAGE) -> Iterator[str]:
        """Yield the paths of the files at or below ``under`` in sorted order."""
        start = self.diff_prefix + inside(under)
        for name in sorted(self._tree):
            if (name == start or name.startswith(f"{start}/")) and self._is_file(name):
                yield name[len(self.diff_prefix) :]

    def close(self) -> None:
        """End the git process that reads blobs; a later read starts another."""
        self._objects.close()

    def _read(self, path: str) -> bytes | None:
        name = self.diff_prefix + path
        entry = self._tree.get(name)
        if entry is not None and entry.mode == _LINK:
            entry = self._behind_link(name)
        if entry is None or entry.mode == _SUBMODULE:
            return None
        return self._objects.blob(entry.oid)

    def _behind_link(self, name: str) -> Entry | None:
        """Return what a link leads to; None for a folder, as opening it in a checkout would."""
        end = self._follow(name)
        entry = self._tree.get(end)
        if entry is not None and entry.mode == _LINK:
            problem = "a link that leads round in a circle"
        elif not self._in_package(end):
            problem = f"a link that leaves the package for {end}"
        elif entry is None and not any(each.startswith(f"{end}/") for each in self._tree):
            problem = f"a link to {end}, which does not exist"
        else:
            return entry
        raise TargetError(f"{self.location}: {name}: {problem}")

    def _follow(self, name: str) -> str:
        """Follow links inside the package and return where they end, or where it gave up."""
        for _ in range(40):  # Linux gives up after as many.
            entry = self._tree.get(name)
            if entry is None or entry.mode != _LINK or not self._in_package(name):
                break
            target = self._objects.blob(entry.oid).decode("utf-8", "surrogateescape")
            name = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
        return name

    def _in_package(self, name: str) -> bool:
        return name.startswith(f"{self.diff_prefix}{PACKAGE}/")

    def _is_file(self, name: str) -> bool:
        """Tell whether an entry is a file, or a link to one (outside: reading it will tell)."""
        end = self._follow(name)
        entry = self._tree.get(end)
        if entry is None:
            return not self._in_package(end)
        return entry.mode not in (_LINK, _SUBMODULE)
