"""Where fetched wheels are kept."""

from __future__ import annotations

from pathlib import Path

from rewriter.cache import VARIABLE, cache_directory
from rewriter.errors import TargetError


def wheel_cache() -> Path:
    """Return the directory of fetched wheels, made if need be.

    Raises:
        TargetError: it cannot be made.
    """
    directory = cache_directory() / "wheels"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TargetError(
            f"{directory}: the cache cannot be made there: {error.strerror or error}; "
            f"set {VARIABLE} to a directory that can be written"
        ) from error
    return directory
