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
        self._wanted = wanted
        self._progress = progress
        self._wheel = self._open(wanted)

    @property
    def version(self) -> str | None:
        """The version that was asked for, and that the wheel states."""
        return self._wanted

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
        except TargetError as damage:
            return self._again(damage)

    def _mended(self, act: Callable[[WheelFile], _T]) -> _T:
        """Act on the wheel; if it is damaged, on a fresh one."""
        try:
            return act(self._wheel)
        except DamagedWheel as damage:
            self._wheel.close()
            self._wheel = self._again(damage)
            return act(self._wheel)

    def _again(self, damage: TargetError) -> WheelFile:
        """Fetch in place of a damaged wheel."""
        try:
            return _checked(fetch(self._wanted, self._progress, again=True), self._wanted)
        except TargetError as error:
            raise TargetError(f"{damage}; fetching it again: {error}") from error


def fetch(version: str, progress: Progress | None = None, again: bool = False) -> Path:
    """Return the cached wheel of a version, fetching it first if need be.

    The wheel appears in the cache by one rename, under a lock: of two processes one fetches and
    the other waits, and one that is killed leaves nothing that looks like a wheel.

    Args:
        version: normalised.
        progress: told the bytes that have arrived.
        again: fetch even if the cache has it, because that one is damaged.

    Raises:
        TargetError: it cannot be fetched, or the cache cannot be written.
    """
    directory = wheel_cache()
    cached = _cached(directory, version)
    if cached is not None and not again:
        return cached
    try:
        return _fetch(directory, version, progress, again)
    except OSError as error:
        raise TargetError(
            f"{directory}: the wheel cannot be kept there: {error.strerror or error}"
        ) from error


def _fetch(directory: Path, version: str, progress: Progress | None, again: bool) -> Path:
    """Fetch under the lock, unless another process has just done it."""
    import shutil
    import tempfile

    from filelock import FileLock

    with FileLock(directory / f"{PACKAGE}-{version}.lock"):
        cached = _cached(directory, version)
        if cached is not None and not again:
            return cached
        prefix = f".fetching-{version}-"
        for abandoned in directory.glob(f"{prefix}*"):  # By a process that was killed.
            shutil.rmtree(abandoned, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=directory, prefix=prefix) as scratch:
            fetched = download(version, Path(scratch), progress)
            if cached is not None:
                cached.unlink()
            return fetched.replace(directory / fetched.name)


def _cached(directory: Path, version: str) -> Path | None:
    """Return the wheel of exactly this version in the cache, if it is there."""
    return next(iter(sorted(directory.glob(f"{PACKAGE}-{version}-*.whl"))), None)


def _checked(path: Path, version: str) -> WheelFile:
    """Open a cached wheel and check that it is the version that was asked for."""
    wheel = WheelFile(path)
    if wheel.version != version:
        wheel.close()
        raise DamagedWheel(f"{path}: expected {PACKAGE} {version} in it, found {wheel.version}")
    return wheel
