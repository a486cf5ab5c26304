"""Frozen values that the rooms hand to each other. No behaviour, no I/O, no third party."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class State(str, Enum):
    """What a codemod is in a target, in order of precedence (the first that holds is told)."""

    INTERRUPTED = "interrupted"
    """A run died half-way; the next writing command recovers it."""
    ORPHANED = "orphaned"
    """A file of ours was left behind by an upgrade of the package."""
    ABSENT = "absent"
    """The file that the codemod edits is not part of this release."""
    TAMPERED = "tampered"
    """The file is neither what was found nor what was written."""
    PARTIAL = "partial"
    """Some sites are ours, some are not."""
    APPLIED = "applied"
    """Every site is ours, and the companion is in place."""
    UPSTREAM = "upstream"
    """The effect is there without us, or was never needed."""
    UNSUPPORTED = "unsupported"
    """The version is outside the range that the codemod supports."""
    DRIFTED = "drifted"
    """A site is missing or ambiguous."""
    READY = "ready"
    """Every site was found; applying would succeed."""

    def __str__(self) -> str:
        return self.value


SATISFIED = frozenset({State.APPLIED, State.UPSTREAM})
"""States in which nothing remains to be done for a codemod."""

FINE = frozenset({State.READY, State.APPLIED, State.UPSTREAM, State.ABSENT})
"""States for which ``check`` exits 0."""


class Nearest(NamedTuple):
    """The candidate that came closest to a site that was not found."""

    line: int
    """1-based line in the file."""
    text: str
    """That line as it stands, stripped and cut to one line."""
    differs: str
    """What makes it different from what was looked for."""


class SiteResult(NamedTuple):
    """One place of one definition, as found."""

    definition: str
    kind: str
    line: int | None
    """1-based line in the judged file, or None where nothing was found."""
    state: State
    reason: str = ""
    nearest: Nearest | None = None
    file: str = ""
    """Path of the file, relative to the package's parent."""


@dataclass(frozen=True)
class Verdict:
    """What one codemod is in one target."""

    codemod: str
    file: str
    """Path of the edited file relative to the package's parent, with forward slashes."""
    state: State
    sites: tuple[SiteResult, ...] = ()
    reason: str = ""
    nearest: Nearest | None = None


class Change(NamedTuple):
    """One file before and after. ``None`` stands for "no such file"."""

    path: str
    """Relative to the package's parent, with forward slashes."""
    before: bytes | None
    after: bytes | None
    executable: bool = False
    """Of a new file: whether it is one to be run."""
