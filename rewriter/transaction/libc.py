"""Functions of the C library that Python's ``os`` does not offer."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any


@cache
def function(name: str, *arguments: type) -> Any:
    """Return a function by name, whose error ``ctypes.get_errno`` tells; None where it is not.

    Args:
        name: its name.
        arguments: the ``ctypes`` types of its arguments.
    """
    try:
        found = getattr(ctypes.CDLL(None, use_errno=True), name)
    except (OSError, AttributeError, TypeError):
        return None
    found.argtypes = arguments
    found.restype = ctypes.c_int
    return found
