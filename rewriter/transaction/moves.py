"""Moves of one file that lose nothing: what is replaced is looked at, and kept until the end."""

from __future__ import annotations

import errno
import os

from rewriter.transaction import attributes
from rewriter.transaction.folder import Folder, Link
from rewriter.transaction.journal import Write


class Moved(Exception):
    """The target is no longer what the run was planned for."""


CHANGED = "changed by another process while this run was at work"


def put(folder: Folder, write: Write, new: str, place: str) -> None:
    """Put the new file in the old one's place, and look at what came out of it.

    Raises:
        Moved: that was something else by then; it is back in its place.
    """
    if not folder.exchange(new, write.name):
        folder.rename(new, write.name)
    elif folder.look(new) != write.before:
        folder.exchange(new, write.name)
        raise Moved(f"{place}: {CHANGED}")


def take_away(folder: Folder, write: Write, aside: str, place: str) -> None:
    """Move a file aside, and look at it before it goes for good.

    Raises:
        Moved: it was something else by then; it is back in its place.
    """
    folder.rename(write.name, aside)
    if folder.look(aside) != write.before:
        folder.publish(aside, write.name)
        raise Moved(f"{place}: {CHANGED}")


def second_name(folder: Folder, name: str, old: str) -> None:
    """Give a file a second name; a copy where the file system has no hard links."""
    try:
        folder.link(name, old)
        return
    except FileExistsError:
        raise
    except (OSError, NotImplementedError):
        content = folder.look(name)
    if isinstance(content, Link):
        folder.symlink(content.text, old)
        return
    if content is None:  # an installer has just taken it away
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    kept = attributes.of(folder, name)
    descriptor = folder.create(old)
    try:
        write_all(descriptor, content)
        attributes.keep(descriptor, kept)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, raw: bytes) -> None:
    """Write all bytes: the system may take fewer at a time."""
    rest = memoryview(raw)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
