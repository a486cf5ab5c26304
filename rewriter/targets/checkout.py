"""A working tree of sglang's repository, read from its files; git is not needed for that."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from rewriter.errors import TargetError
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
from rewriter.targets.gitdir import git_dir, top_of
from rewriter.targets.home import Home, in_tree
from rewriter.targets.version import source_version


class Checkout:
    """A checked-out sglang: its files as they stand, committed or not.

    Attributes:
        root: the package's parent directory, normally ``DIR/python``.
        top: the top of the working tree.
    """

    kind = "checkout"
    writable = True

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        """Find the package given the tree's top, its ``python`` directory, or the package.

        Raises:
            TargetError: there is no sglang there, or it is a site-packages directory.
        """
        self.root = _root(absolute(directory))
        self.top = top_of(self.root)

    @property
    def location(self) -> str:
        """The top of the working tree."""
        return str(self.top)

    @property
    def diff_prefix(self) -> str:
        """Path from the top of the tree to the package's parent, with a slash, or empty."""
        return "" if self.root == self.top else f"{self.root.name}/"

    @cached_property
    def version(self) -> str | None:
        """The version that the tree states; None where a build would generate it."""
        return source_version(lambda path: read_bytes(self.root, path))

    @property
    def git_dir(self) -> Path | None:
        """The tree's git directory (a linked worktree has its own); None when stripped."""
        return git_dir(self.top)

    @property
    def home(self) -> Home:
        """Where manifest and journal lie: in the git data, or beside the package."""
        return in_tree(self.root, self.top, self.git_dir)

    @cached_property
    def head(self) -> str | None:
        """The full id of the commit that is checked out.

        None without git data, before the first commit, and when git will not say: it is not
        installed, or the tree belongs to another user.
        """
        from rewriter.targets.objects import head_commit

        return head_commit(self.top) if self.git_dir is not None else None

    def read(self, path: str) -> bytes | None:
        """Read a file of the package, e.g. ``sglang/srt/x.py``; None when there is none.

        Raises:
            TargetError: it is there and cannot be read.
        """
        return read_bytes(self.root, inside(path))

    def files(self, under: str = PACKAGE) -> Iterator[str]:
        """Yield the paths of the files at or below ``under``, without byte-code caches."""
        return walk(self.root, under)


def _root(given: Path) -> Path:
    """Return the package's parent for what a user may give."""
    roots = [given / "python", given]
    if given.name == PACKAGE and is_package(given):
        roots.append(given.parent)
    for root in roots:
        if holds_package(root):
            if distinfo.beside(root) is not None:
                raise TargetError(
                    f"{root}: expected a checkout, found an installed package with its "
                    ".dist-info: `rewriter check --site-packages DIR`"
                )
            return root
    if not given.is_dir():
        raise TargetError(f"{given}: no such directory")
    raise TargetError(
        f"{given}: expected python/{PACKAGE}/__init__.py or {PACKAGE}/__init__.py, found neither; "
        "give the top of a checkout of sglang"
    )
