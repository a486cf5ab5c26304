"""A package that lies unpacked on disk: paths inside it, its bytes, its files. Only reads."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from rewriter.errors import TargetError, ToolBug

PACKAGE = "sglang"
"""Import name and distribution name of the package that is patched."""


def inside(path: str) -> str:
    """Return ``path`` unchanged after checking that it stays inside the package.

    Args:
        path: relative to the package's parent, with forward slashes, e.g. ``sglang/srt/x.py``.

    Raises:
        ToolBug: it is absolute, climbs with ``..``, or names something beside the package. Such
            a path never comes from a user, so it is a mistake in a codemod or in the tool.
    """
    parts = path.split("/")
    stays = parts[0] == PACKAGE and not any(part in ("", ".", "..") for part in parts)
    if not stays or "\\" in path or "\0" in path:
        raise ToolBug(
            f"{path!r} does not name a file of the package: "
            f"expected {PACKAGE}/…, relative, with forward slashes and no '..'"
        )
    return path


def absolute(path: str | os.PathLike[str]) -> Path:
    """Return what a user gave as an absolute path with ``~`` expanded and ``..`` folded.

    Links are kept: a path in a message should be the one that the user knows.
    """
    return Path(os.path.abspath(Path(path).expanduser()))  # noqa: PTH100


def is_package(directory: Path) -> bool:
    """Tell whether ``directory`` is a regular package (a folder without ``__init__.py`` is not).

    A clone of the repository is itself called ``sglang``, which Python takes for a namespace
    package when run from beside it; only ``__init__.py`` sets the two apart.
    """
    return (directory / "__init__.py").is_file()


def holds_package(root: Path) -> bool:
    """Tell whether ``root`` is the parent of the package."""
    return is_package(root / PACKAGE)


def read_bytes(root: Path, path: str) -> bytes | None:
    """Read one file below ``root``, following links; None when there is no such file.

    Raises:
        TargetError: something is there and cannot be read: no permission, a dangling or circular
            link, a device.
    """
    file = root / path
    raw = read_file(file)
    if raw is None and file.is_symlink():
        raise TargetError(
            f"{file}: a link whose target {os.fspath(file.readlink())!r} does not exist; "
            "reinstall the package or mend the link"
        )
    return raw


LARGEST = 64 * 2**20
"""Bytes of a file that is read whole; nothing of sglang, nor of ours, comes near."""


def read_file(file: Path) -> bytes | None:
    """Read one regular file whole, following links; None where there is none, or a directory.

    Never waits, as opening a pipe does, and never reads what has no end.

    Raises:
        TargetError: it is there and cannot be read, is no regular file, or is too large.
    """
    try:
        _check_kind(file, file.stat())  # some devices act when they are opened
        descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb") as opened:
            _check_kind(file, os.fstat(descriptor))  # it may be another by now
            return opened.read(LARGEST)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        raise TargetError(f"{file}: cannot be read: {error.strerror or error}") from error


def _check_kind(file: Path, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError
    if not stat.S_ISREG(status.st_mode):
        raise TargetError(f"{file}: expected a regular file, found a device, socket or pipe")
    if status.st_size > LARGEST:
        raise TargetError(
            f"{file}: {status.st_size} bytes; more than {LARGEST} are not read: is it the "
            "right file?"
        )


def entries(directory: Path) -> list[Path]:
    """Return what lies in a directory, sorted; nothing where there is no such directory.

    What cannot be listed is never taken for empty.

    Raises:
        TargetError: it cannot be listed.
    """
    try:
        return sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise TargetError(f"{directory}: cannot be listed: {error.strerror or error}") from error


def walk(root: Path, under: str) -> Iterator[str]:
    """Yield the files at or below ``under`` in sorted order, relative to ``root``.

    Byte-code caches are left out: they belong to the interpreter that wrote them. Linked
    directories are not entered, so that a circular link cannot trap the walk.

    Raises:
        TargetError: a directory cannot be listed.
    """
    start = root / inside(under)
    if start.is_file():
        yield under
        return
    found: list[str] = []
    for folder, folders, names in os.walk(start, onerror=unreadable):
        folders[:] = [name for name in folders if name != "__pycache__"]
        place = Path(folder)
        relative = place.relative_to(root).as_posix()
        found += [f"{relative}/{name}" for name in names if (place / name).is_file()]
    yield from sorted(found)


def unreadable(error: OSError) -> None:
    """Turn a failure that ``os.walk`` would swallow into an error."""
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return
    raise TargetError(f"{error.filename}: cannot be listed: {error.strerror or error}") from error
