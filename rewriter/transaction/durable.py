"""Everything that was written to a file system made durable at once.

A run over a few files syncs each by itself, so that nothing waits for what other programs write.
Over thousands, most of the time went into that: each is a transaction of the file system's own.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Sized

from rewriter.transaction import libc

MANY = 64
"""Up to so many names are synced one by one."""

_UNABLE = frozenset({errno.ENOSYS, errno.EPERM})  # a sandbox that does not let it through


def at_once(names: Sized) -> bool:
    """Tell whether so many names are to be synced together.

    Only on Linux: elsewhere ``sync`` may come back before anything is durable.
    """
    return len(names) > MANY and sys.platform == "linux"


def sync_all(descriptor: int) -> None:
    """Make durable what was written to the file system of an open directory: bytes and names.

    Raises:
        OSError: the device failed. Linux tells that since 5.8; what it tells is then read back.
    """
    call = libc.function("syncfs", ctypes.c_int)  # glibc 2.14 and later, musl
    if call is not None:
        if call(descriptor) == 0:
            return
        number = ctypes.get_errno()
        if number not in _UNABLE:
            raise OSError(number, os.strerror(number))
    os.sync()
