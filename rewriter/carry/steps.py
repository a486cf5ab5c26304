"""What became of each change of a patch. Frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

Lines = tuple[int, int]
"""First and last line, 1-based; the last is one less than the first where there is none."""


class Fate(str, Enum):
    """What became of a change; the worst of a hunk's is told last.

    REVIEW is placed, and there is evidence that its lines should be others by now. HELD has a
    place and needs what a conflict brings.
    """

    UPSTREAM = "already upstream"
    EXACTLY = "exactly"
    STRUCTURE = "by structure"
    REVIEW = "to be reviewed"
    HELD = "held back"
    CONFLICT = "conflict"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Step:
    """One change of the patch and its fate.

    Attributes:
        old: the lines that it removes from its own release.
        new: the lines that it adds, numbered as after the patch.
        definition: the qualified name around it; empty for a module's own lines.
        line: where it is, or would have been nearest, in the other release.
        reason: how it was placed, or why it was not.
        ours, theirs: both sides of a conflict.
    """

    fate: Fate
    old: Lines
    new: Lines
    definition: str = ""
    line: int | None = None
    reason: str = ""
    ours: str = ""
    theirs: str = ""
