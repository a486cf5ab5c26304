"""What can be patched or read: installs, checkouts, commits, releases and wheels.

The only room that knows git, pip, wheels or dist-info. Reading never writes to a target.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from rewriter.errors import UsageError

if TYPE_CHECKING:
    from rewriter.targets.pip import Progress

    StrPath = str | os.PathLike[str]

__all__ = ["Target", "available_releases", "resolve"]


class Target(Protocol):
    """One sglang to read, and perhaps to write."""

    @property
    def kind(self) -> str:
        """``installed``, ``checkout``, ``revision``, ``release``, ``wheel`` or ``overlay``."""

    @property
    def location(self) -> str:
        """What a user recognises it by: a path, ``REV (abc1234) of PATH``, a release."""

    @property
    def version(self) -> str | None:
        """Its version by PEP 440; None when it is not known."""

    @property
    def diff_prefix(self) -> str:
        """What stands before ``sglang/`` in the paths of a diff: empty, or ``python/``."""

    @property
    def writable(self) -> bool:
        """Whether this kind of target may be written at all."""

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes; None when there is no such file.

        Args:
            path: relative to the package's parent, with forward slashes: ``sglang/srt/x.py``.

        Raises:
            TargetError: it is there and cannot be read.
            ToolBug: the path leaves the package.
        """

    def files(self, under: str = "sglang") -> Iterator[str]:
        """Yield the paths of all files at or below ``under``, sorted, without byte code."""


def resolve(
    *,
    python: StrPath | None = None,
    site_packages: StrPath | None = None,
    checkout: StrPath | None = None,
    repo: StrPath | None = None,
    rev: str | None = None,
    release: str | None = None,
    wheel: StrPath | None = None,
    overlay: StrPath | None = None,
    progress: Progress | None = None,
) -> Target:
    """Return the target that a command line names; with nothing named, this interpreter's sglang.

    Args:
        python: an interpreter, or the directory of a virtual environment.
        site_packages: a directory that holds the package, or the package itself.
        checkout: a working tree of the repository.
        repo: a repository; goes with ``rev``.
        rev: a commit, a tag or a branch of ``repo``.
        release: a version to fetch from the package index.
        wheel: a wheel file.
        overlay: a directory; what the others name is then only read, and this is written.
        progress: told the bytes that have arrived while a release is fetched.

    Raises:
        UsageError: the options do not name one target.
        TargetError: that target is not there or cannot be read.
    """
    named = {
        "--python": python,
        "--site-packages": site_packages,
        "--checkout": checkout,
        "--repo": repo,
        "--release": release,
        "--wheel": wheel,
    }
    if overlay is not None:
        from rewriter.targets.overlay import Overlay

        base = resolve(
            python=python, site_packages=site_packages, checkout=checkout, repo=repo, rev=rev,
            release=release, wheel=wheel, progress=progress,
        )  # fmt: skip
        return Overlay(overlay, base)
    given = [option for option, value in named.items() if value is not None]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} each name a target; give one of them")
    if (repo is None) != (rev is None):
        alone, other = ("--repo", "--rev") if rev is None else ("--rev", "--repo")
        raise UsageError(f"{alone} needs {other}: which commit of which repository?")
    if checkout is not None:
        from rewriter.targets.checkout import Checkout

        return Checkout(checkout)
    if repo is not None and rev is not None:
        from rewriter.targets.revision import Revision

        return Revision(repo, rev)
    if release is not None:
        from rewriter.targets.release import Release

        return Release(release, progress)
    if wheel is not None:
        from rewriter.targets.wheel import WheelFile

        return WheelFile(wheel)
    from rewriter.targets.installed import InstalledPackage

    if site_packages is not None:
        return InstalledPackage.of_directory(site_packages)
    return InstalledPackage.of_interpreter(python)


def available_releases() -> list[str]:
    """Return the versions that the package index has a readable wheel of, oldest first.

    Raises:
        TargetError: no pip, or no network.
    """
    from rewriter.targets import pip

    return list(pip.available_releases())
