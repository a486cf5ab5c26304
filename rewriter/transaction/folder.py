"""A directory held open while it is written, and what its entries hold.

Paths are resolved once, folder by folder, without following a link. So nobody can swap a folder
for a link between the check and the write, and a folder that an installer moves away keeps its
identity.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rewriter.errors import RefusedError
from rewriter.transaction.durable import sync_all
from rewriter.transaction.exchange import exchange

_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


class Link(NamedTuple):
    """A symbolic link, by the text that it holds."""

    text: str


Content = bytes | Link | None
"""What stands under a name: a file's bytes, a link, or nothing."""


def fingerprint(content: Content) -> str | None:
    """Return what a journal keeps of a content: a hash, a link's text, or None for nothing."""
    if content is None:
        return None
    if isinstance(content, Link):
        return f"link:{content.text}"
    return hashlib.sha256(content).hexdigest()


def content_of(place: Path) -> Content:
    """Return what a path holds, by the path alone; a link stands for itself."""
    if place.is_symlink():
        return Link(os.fspath(place.readlink()))
    try:
        return place.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


class Folder:
    """An open directory. All names are names of its entries, never paths.

    Attributes:
        path: where it was when it was opened; for messages.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._fd = descriptor

    @classmethod
    def open(cls, base: Path, parts: Sequence[str] = ()) -> Folder:
        """Open ``base``, then the folders below it one by one.

        Raises:
            RefusedError: one of the parts is a link.
            OSError: one of them is not there, or cannot be entered.
        """
        path, descriptor = base, os.open(base, _DIRECTORY)
        for part in parts:
            path = path / part
            try:
                inner = os.open(part, _DIRECTORY | _NO_LINK, dir_fd=descriptor)
            except OSError as error:
                if path.is_symlink():
                    raise RefusedError(
                        f"{path}: a linked directory, which others may share; nothing is "
                        "written through it. Name the directory that it leads to, or reinstall "
                        "the package with copied files"
                    ) from error
                raise
            finally:
                os.close(descriptor)
            descriptor = inner
        return cls(path, descriptor)

    def close(self) -> None:
        """Close it; a second time does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def own_status(self) -> os.stat_result:
        """Return the status of the directory itself."""
        return os.fstat(self._fd)

    def status(self, name: str) -> os.stat_result | None:
        """Return an entry's own status, not that of what a link leads to; None for nothing."""
        try:
            return os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def target_status(self, name: str) -> os.stat_result:
        """Return the status of what an entry leads to."""
        return os.stat(name, dir_fd=self._fd)

    def look(self, name: str) -> Content:
        """Return what stands under a name.

        Raises:
            RefusedError: a directory, a device or a pipe does.
        """
        status = self.status(name)
        if status is None:
            return None
        if stat.S_ISLNK(status.st_mode):
            return Link(os.readlink(name, dir_fd=self._fd))
        if not stat.S_ISREG(status.st_mode):
            raise RefusedError(f"{self.path / name}: expected a file, found something else there")
        with os.fdopen(self.open_file(name), "rb") as file:
            return file.read()

    def open_file(self, name: str) -> int:
        """Open a file for reading and return the descriptor."""
        return os.open(name, os.O_RDONLY | _NO_LINK, dir_fd=self._fd)

    def create(self, name: str) -> int:
        """Create a file that only its owner can read, open it for writing, never an old one."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_LINK
        return os.open(name, flags, 0o600, dir_fd=self._fd)

    def make(self, name: str) -> None:
        """Make a directory that belongs to whom this one belongs; one that is there is as good."""
        try:
            os.mkdir(name, dir_fd=self._fd)
        except FileExistsError:
            return
        if os.geteuid() == 0:
            around = self.own_status()
            os.chown(
                name, around.st_uid, around.st_gid, dir_fd=self._fd, follow_symlinks=False
            )  # fmt: skip

    def symlink(self, text: str, name: str) -> None:
        """Create a symbolic link."""
        os.symlink(text, name, dir_fd=self._fd)

    def link(self, name: str, other: str) -> None:
        """Give an entry, itself a link or not, a second name."""
        os.link(name, other, src_dir_fd=self._fd, dst_dir_fd=self._fd, follow_symlinks=False)

    def rename(self, name: str, other: str) -> None:
        """Rename an entry in one step, in place of whatever stands under the other name."""
        os.rename(name, other, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def exchange(self, name: str, other: str) -> bool:
        """Swap two entries in one step, so that what is replaced is never lost.

        Returns:
            False where the system cannot; then nothing was done.
        """
        return exchange(self._fd, name, other)

    def publish(self, name: str, other: str) -> None:
        """Give an entry a name that nothing has yet; by a link, which fails where it is taken.

        Where there are no links it is looked up first. The first name may or may not remain.

        Raises:
            FileExistsError: somebody has been quicker.
        """
        try:
            self.link(name, other)
        except FileExistsError:
            raise
        except (OSError, NotImplementedError):
            if self.status(other) is not None:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), other) from None
            self.rename(name, other)

    def unlink(self, name: str) -> None:
        """Remove an entry; one that is not there is as good as removed."""
        try:
            os.unlink(name, dir_fd=self._fd)
        except FileNotFoundError:
            return

    def sync(self) -> None:
        """Make the entries durable."""
        os.fsync(self._fd)

    def sync_all(self) -> None:
        """Make durable all that was written to the directory's file system."""
        sync_all(self._fd)

    def refuses(self) -> str:
        """Say why entries cannot be replaced here; empty where they can."""
        flags = os.statvfs(self._fd).f_flag
        if flags & getattr(os, "ST_RDONLY", 0):
            return "is on a read-only file system"
        if not os.access(self.path, os.W_OK | os.X_OK):
            return "cannot be written by this user"
        return ""
