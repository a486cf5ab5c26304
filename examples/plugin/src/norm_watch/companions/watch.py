"""Installed into sglang: it imports nothing of ours."""

import logging

VERSION = "1"

_told: set[int] = set()


def watch(norm, variance) -> None:
    """Log once for each norm that a variance is not finite."""
    if id(norm) not in _told and not bool(variance.isfinite().all()):
        _told.add(id(norm))
        logging.getLogger(__name__).warning("%s: not finite", type(norm).__name__)
