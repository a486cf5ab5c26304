"""Two directory entries swapped in one step: what Python's ``os`` does not offer."""

from __future__ import annotations

import ctypes
import errno
import os

from rewriter.transaction import libc

_SWAP = 2  # RENAME_EXCHANGE of <linux/fs.h>

_UNABLE = frozenset({errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP})


def exchange(folder: int, name: str, other: str) -> bool:
    """Swap two entries of an open directory.

    Returns:
        False where the system or the file system cannot; then nothing was done.

    Raises:
        OSError: it can, and refused.
    """
    name_at = (ctypes.c_int, ctypes.c_char_p)
    # of Linux, in glibc 2.28 and later
    call = libc.function("renameat2", *name_at, *name_at, ctypes.c_uint)
    if call is None:
        return False
    if call(folder, os.fsencode(name), folder, os.fsencode(other), _SWAP) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNABLE:
        return False
    raise OSError(number, os.strerror(number), name)
