"""What ``verify`` answers; needs no torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ModeRow:
    """What one mode showed.

    Attributes:
        mode: its name.
        state: "equal", "untouched" (equal, and it must stay as it was), "differs",
            "not in this release", or "not run" (no stand-in for what the release does there).
            The answer of ``verify`` is no where a row says "differs" or "not run".
        before: rows converted by the original, all layers and steps together.
        after: the same for the patched copy.
        listed: rows that the batches referred to.
        detail: what differed, or what was missing.
    """

    mode: str
    state: str
    before: int = 0
    after: int = 0
    listed: int = 0
    detail: str = ""
