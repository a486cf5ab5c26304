"""What a file keeps when another inode takes its place: mode, owner, extended attributes."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from typing import NamedTuple

from rewriter.transaction.folder import Folder


class Attributes(NamedTuple):
    """The attributes of one file."""

    mode: int
    owner: int
    group: int
    extended: Mapping[str, bytes]


def of(folder: Folder, name: str) -> Attributes:
    """Return the attributes of an entry. A link's mode is that of what it leads to.

    Its extended attributes are not asked for: they belong to the other file.
    """
    own = folder.status(name)
    if own is None:  # an installer has just taken it away
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    if stat.S_ISLNK(own.st_mode):
        mode = stat.S_IMODE(folder.target_status(name).st_mode)
        return Attributes(mode, own.st_uid, own.st_gid, {})
    extended: dict[str, bytes] = {}
    if hasattr(os, "listxattr"):
        descriptor = folder.open_file(name)
        try:
            extended = _extended(descriptor)
        finally:
            os.close(descriptor)
    return Attributes(stat.S_IMODE(own.st_mode), own.st_uid, own.st_gid, extended)


def plain(model: Attributes) -> Attributes:
    """Return the attributes of a new file beside ``model``: readable by the same users."""
    return model._replace(mode=model.mode & 0o666, extended={})


def keep(descriptor: int, wanted: Attributes) -> None:
    """Give an open file attributes. Owner before mode: a change of owner drops mode bits."""
    now = os.fstat(descriptor)
    if (now.st_uid, now.st_gid) != (wanted.owner, wanted.group):
        os.fchown(descriptor, wanted.owner, wanted.group)
    os.fchmod(descriptor, wanted.mode)
    if not hasattr(os, "setxattr"):
        return
    have = _extended(descriptor)
    for key, value in wanted.extended.items():
        if have.get(key) != value:  # labels that the system gives itself are right already
            os.setxattr(descriptor, key, value)
    for key in have.keys() - wanted.extended.keys():
        if not key.startswith("security."):  # an access list that the directory hands down
            os.removexattr(descriptor, key)


def foreign(wanted: Attributes) -> str:
    """Say why this user could not keep the owner or group; empty where that is possible."""
    if os.geteuid() == 0:
        return ""
    if wanted.owner != os.geteuid():
        return f"belongs to user {wanted.owner}; this is user {os.geteuid()}"
    if wanted.group not in (os.getegid(), *os.getgroups()):
        return f"belongs to group {wanted.group}, which user {os.geteuid()} is not in"
    return ""


def _extended(descriptor: int) -> dict[str, bytes]:
    try:
        return {key: os.getxattr(descriptor, key) for key in os.listxattr(descriptor)}
    except OSError:  # a file system without them
        return {}


def new(folder: Folder) -> Attributes:
    """Return the attributes of a new file that has no model: readable by all, the folder's owner.

    Root writes a record into another user's tree; that user must be able to remove it.
    """
    own = folder.own_status()
    if os.geteuid() == 0:
        return Attributes(0o644, own.st_uid, own.st_gid, {})
    return Attributes(0o644, os.geteuid(), os.getegid(), {})
