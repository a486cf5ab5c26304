"""Where the tool keeps what it can fetch or make again: wheels, verdicts, walks."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "REWRITER_CACHE_DIR"
"""Environment variable that replaces the whole cache directory."""


def cache_directory() -> Path:
    """Return the cache: the user's own, or what the environment names. It may not exist yet."""
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen).expanduser().absolute()
    from platformdirs import user_cache_path

    return user_cache_path("sglang-rewriter", appauthor=False)
