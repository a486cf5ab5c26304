"""A released sglang: its wheel, fetched once from the package index and kept in a cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from rewriter.errors import TargetError, UsageError
from rewriter.targets.cache import wheel_cache
from rewriter.targets.disk import PACKAGE
from rewriter.targets.pip import Progress, download
from rewriter.targets.version import normalised
from rewriter.targets.wheel import DamagedWheel, WheelFile

_T = TypeVar("_T")


class Release:
    """One version from the index, as the wheel for Linux on x86_64.

    The wheel is fetched when the release is made, unless the cache has it. A cached wheel that
    turns out to be damaged, then or at a later read, is fetched again, once.
    """

    kind = "release"
    diff_prefix = ""
    writable = False

    def __init__(self, version: str, progress: Progress | None = None) -> None:
        """Open the release.

        Args:
            version: e.g. ``0.5.23``.
            progress: told the bytes that have arrived, and the total where it is known.

        Raises:
            UsageError: that is no version.
            TargetError: it cannot be fetched, or is not what it should be.
        """
        wanted = normalised(version)
        if wanted is None:
            raise UsageError(f"--release {version!r}: expected a version such as 0.5.9")
        self.version: str | None = wanted
        self._progress = progress
        self._wheel = self._open(wanted)

    @property
    def location(self) -> str:
        """E.g. ``sglang 0.5.23 (index)``."""
        return f"{PACKAGE} {self.version} (index)"

    @property
    def path(self) -> Path:
        """The wheel in the cache."""
        return self._wheel.path

    def read(self, path: str) -> bytes | None:
        """Read a file of the package, e.g. ``sglang/srt/x.py``; None when there is none.

        Raises:
            TargetError: it cannot be read, even after fetching the wheel again.
        """
        return self._mended(lambda wheel: wheel.read(path))

    def files(self, under: str = PACKAGE) -> Iterator[str]:
        """Yield the paths of the files at or below ``under`` in sorted order."""
        return self._wheel.files(under)

    def close(self) -> None:
        """Close the cached file."""
        self._wheel.close()

    def _open(self, version: str) -> WheelFile:
        cached = fetch(version, self._progress)
        try:
            return _checked(cached, version)
        except DamagedWheel:
            return _checked(fetch(version, self._progress, instead_of=cached), version)

    def _mended(self, act: Callable[[WheelFile], _T]) -> _T:
        """Act on the wheel; if it is damaged, on a fresh one."""
        try:
            return act(self._wheel)
        except DamagedWheel:
            damaged = self._wheel
            damaged.close()
            assert self.version is not None
            again = fetch(self.version, self._progress, instead_of=damaged.path)
            self._wheel = _checked(again, self.version)
            return act(self._wheel)


def fetch(version: str, progress: Progress | None = None, instead_of: Path | None = None) -> Path:
    """Return the cached wheel of a version, fetching it first if need be.

    The wheel appears in the cache by one rename, under a lock: of two processes one fetches and
    the other waits, and one that is killed leaves nothing that looks like a wheel.

    Args:
        version: normalised.
        progress: told the bytes that have arrived.
        instead_of: a damaged wheel that must not be returned; it is replaced.

    Raises:
        TargetError: it cannot be fetched, or the cache cannot be written.
    """
    directory = wheel_cache()
    if instead_of is None:
        cached = _cached(directory, version)
        if cached is not None:
            return cached
    stamp = _stamp(instead_of)
    try:
        return _fetch(directory, version, progress, instead_of, stamp)
    except OSError as error:
        raise TargetError(
            f"{directory}: the wheel cannot be kept there: {error.strerror or error}"
        ) from error


def _fetch(
    directory: Path,
    version: str,
    progress: Progress | None,
    instead_of: Path | None,
    stamp: tuple[int, int] | None,
) -> Path:
    """Fetch under the lock, unless another process has just done it."""
    import tempfile

    from filelock import FileLock

    with FileLock(directory / f"{PACKAGE}-{version}.lock"):
        cached = _cached(directory, version)
        if cached is not None and (cached != instead_of or _stamp(cached) != stamp):
            return cached
        with tempfile.TemporaryDirectory(dir=directory, prefix=".fetching-") as scratch:
            fetched = download(version, Path(scratch), progress)
            kept = directory / fetched.name
            fetched.replace(kept)
    return kept


def _cached(directory: Path, version: str) -> Path | None:
    """Return the wheel of exactly this version in the cache, if it is there."""
    return next(iter(sorted(directory.glob(f"{PACKAGE}-{version}-*.whl"))), None)


def _stamp(path: Path | None) -> tuple[int, int] | None:
    """Return what tells a replaced file from the one that was seen: inode and mtime in ns."""
    try:
        status = path.stat() if path is not None else None
    except FileNotFoundError:
        return None
    return (status.st_ino, status.st_mtime_ns) if status is not None else None


def _checked(path: Path, version: str) -> WheelFile:
    """Open a cached wheel and check that it is the version that was asked for."""
    wheel = WheelFile(path)
    if wheel.version != version:
        wheel.close()
        raise DamagedWheel(f"{path}: expected {PACKAGE} {version} in it, found {wheel.version}")
    return wheel
