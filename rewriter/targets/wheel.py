"""A wheel of sglang, read as the zip file it is; never installed, never unpacked."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from rewriter.errors import TargetError
from rewriter.targets.disk import PACKAGE, absolute, inside
from rewriter.targets.distinfo import metadata_field
from rewriter.targets.record import Row, parse_record
from rewriter.targets.version import stated

if TYPE_CHECKING:
    from pathlib import Path
    from zipfile import ZipFile, ZipInfo

LIMIT = 64 * 1024 * 1024
"""Largest entry that is read, in bytes: more than any file of sglang, less than a zip bomb."""


MOST = 100_000
"""Entries of a wheel; sglang's have some 3,000."""


class DamagedWheel(TargetError):
    """A wheel's bytes are not what its maker wrote; fetching it again may help."""


class WheelFile:
    """A wheel by path. Every file that is read is checked against the wheel's own RECORD.

    Attributes:
        path: the wheel.
    """

    kind = "wheel"
    diff_prefix = ""
    writable = False

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open the wheel and check that it is one of sglang.

        Raises:
            TargetError: no such file, not a wheel, of another project, or with unsafe entries.
        """
        self.path = absolute(path)
        self._zip = _open(self.path)
        self._entries = {info.filename: info for info in _safe(self.path, self._zip)}
        self._dist_info = self._own_dist_info()
        if f"{PACKAGE}/__init__.py" not in self._entries:
            raise TargetError(f"{self.path}: expected {PACKAGE}/__init__.py in it, found none")

    @property
    def location(self) -> str:
        """The wheel's path."""
        return str(self.path)

    @cached_property
    def version(self) -> str | None:
        """What METADATA says."""
        metadata = self._bytes(f"{self._dist_info}/METADATA")
        return stated(metadata_field(metadata, "Version") or "")

    def read(self, path: str) -> bytes | None:
        """Read a file of the package, e.g. ``sglang/srt/x.py``; None when there is none.

        Raises:
            DamagedWheel: its bytes are not those that RECORD describes.
            TargetError: it is too large, encrypted, or packed in a way that Python cannot read.
        """
        if inside(path) not in self._entries:
            return None
        data = self._bytes(path)
        row = self._record.get(path)
        if row is None or not row.matches(data):
            found = "it does not list the file" if row is None else "its hash differs"
            raise DamagedWheel(
                f"{self.path}: {path} is not what RECORD describes: {found}; "
                "the wheel is damaged or was changed: fetch it again"
            )
        return data

    def files(self, under: str = PACKAGE) -> Iterator[str]:
        """Yield the paths of the files at or below ``under`` in sorted order."""
        start = inside(under)
        for name in sorted(self._entries):
            if (name == start or name.startswith(f"{start}/")) and not name.endswith("/"):
                yield name

    def close(self) -> None:
        """Close the file."""
        self._zip.close()

    @cached_property
    def _record(self) -> dict[str, Row]:
        try:
            return parse_record(self._bytes(f"{self._dist_info}/RECORD"))
        except ValueError as error:
            raise DamagedWheel(f"{self.path}: RECORD cannot be parsed: {error}") from error

    def _own_dist_info(self) -> str:
        """Return the name of the ``.dist-info`` folder after checking whose it is."""
        folders = [n.split("/")[0] for n in self._entries if n.endswith(".dist-info/METADATA")]
        if len(folders) != 1 or f"{folders[0]}/RECORD" not in self._entries:
            raise TargetError(
                f"{self.path}: expected a wheel with one .dist-info (METADATA and RECORD), "
                f"found {len(folders)}"
            )
        from packaging.utils import canonicalize_name

        metadata = self._bytes(f"{folders[0]}/METADATA")
        name = metadata_field(metadata, "Name") or "no name"
        if canonicalize_name(name) != PACKAGE:
            raise TargetError(f"{self.path}: expected a wheel of {PACKAGE}, found one of {name}")
        return folders[0]

    def _bytes(self, name: str) -> bytes:
        """Read one entry."""
        from zipfile import BadZipFile
        from zlib import error as zlib_error

        info = self._entries[name]
        if info.file_size > LIMIT:
            raise TargetError(
                f"{self.path}: {name} claims {info.file_size} bytes; more than {LIMIT} are not read"
            )
        try:
            return self._zip.read(info)
        except (BadZipFile, zlib_error, EOFError, OSError) as error:
            raise DamagedWheel(f"{self.path}: {name} is damaged: {error}") from error
        except (RuntimeError, NotImplementedError) as error:
            raise TargetError(f"{self.path}: {name} cannot be unpacked: {error}") from error


def _open(path: Path) -> ZipFile:
    """Open a zip file, or say what is there instead."""
    from zipfile import BadZipFile, ZipFile

    try:
        if path.exists() and not (path.is_file() or path.is_dir()):  # opening a pipe waits
            raise TargetError(f"{path}: expected a wheel (a zip file), found something else")
    except OSError as error:
        raise TargetError(f"{path}: cannot be read: {error.strerror or error}") from error
    if path.name.endswith((".tar.gz", ".tar.bz2")):
        raise TargetError(f"{path}: expected a wheel, found a source distribution")
    try:
        return ZipFile(path)
    except BadZipFile as error:
        raise DamagedWheel(f"{path}: expected a wheel (a zip file): {error}") from error
    except OSError as error:
        raise TargetError(f"{path}: cannot be read: {error.strerror or error}") from error


def _safe(path: Path, archive: ZipFile) -> list[ZipInfo]:
    """Return the entries after refusing those that an installer must refuse."""
    entries = archive.infolist()
    if len(entries) > MOST:
        archive.close()
        raise TargetError(
            f"{path}: {len(entries)} entries; a wheel of {PACKAGE} has less than {MOST}"
        )
    seen: set[str] = set()
    for info in entries:
        name = info.filename
        if name in seen:
            archive.close()
            raise TargetError(f"{path}: entry {name!r} is in it twice; refused")
        seen.add(name)
        if name.startswith("/") or "\\" in name or ".." in name.split("/"):
            archive.close()
            raise TargetError(f"{path}: entry {name!r} leaves the wheel; refused")
        if stat.S_ISLNK(info.external_attr >> 16):
            archive.close()
            raise TargetError(f"{path}: entry {name!r} is a link; refused")
    return entries
