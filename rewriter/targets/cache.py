"""Where fetched wheels are kept."""

from __future__ import annotations

import os
from pathlib import Path

from rewriter.errors import TargetError

VARIABLE = "REWRITER_CACHE_DIR"
"""Environment variable that replaces the whole cache directory."""


def wheel_cache() -> Path:
    """Return the directory of fetched wheels, made if need be.

    Raises:
        TargetError: it cannot be made.
    """
    chosen = os.environ.get(VARIABLE)
    if chosen:
        base = Path(chosen).expanduser().absolute()
    else:
        from platformdirs import user_cache_dir

        base = Path(user_cache_dir("sglang-rewriter", appauthor=False))
    directory = base / "wheels"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TargetError(
            f"{directory}: the cache cannot be made there: {error.strerror or error}; "
            f"set {VARIABLE} to a directory that can be written"
        ) from error
    return directory
