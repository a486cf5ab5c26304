"""An older fake release, a patch that a team has for it, and the package that it goes into."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from conftest import Git
from installing import MIXER, MIXER_SOURCE, PACKAGE, SCALER, SCALER_SOURCE

NORM = "sglang/srt/layers/norm.py"
CRLF = "sglang/srt/crlf.py"
OPEN = "sglang/srt/layers/open.py"
FRESH = "sglang/srt/team/deep/fresh.py"
EMPTY = "sglang/srt/team/__init__.py"
NOTES = "sglang/srt/team/notes.txt"
MOVED = "sglang/srt/layers/scales.py"

OPEN_SOURCE = b"A = 1\nB = 2"

NEWER: Mapping[str, bytes] = {**PACKAGE, OPEN: OPEN_SOURCE}
"""What is installed."""

OLDER: Mapping[str, bytes] = {
    **NEWER,
    MIXER: MIXER_SOURCE.replace(b"from math import sqrt\n", b"import sys\nfrom math import sqrt\n"),
}
"""What the patches are for: other lines stand above the places."""


def replaced(raw: bytes, old: bytes, new: bytes) -> bytes:
    assert raw.count(old) == 1, old
    return raw.replace(old, new)


def mixed(raw: bytes) -> bytes:
    """Return the mixer as the team has it: a line in ``mix``, and a method at the end."""
    last = b"        return sqrt(y)\n"
    raw = replaced(raw, last, b"        y = y + TEAM\n" + last)
    raw = replaced(raw, b"\n\nclass Mixer:", b"TEAM = 0\n\n\nclass Mixer:")
    return raw + b"\n    def team(self):\n        return self.width\n"


EDITS: Mapping[str, bytes | None] = {
    MIXER: mixed(OLDER[MIXER]),
    NORM: None,
    CRLF: b"\xef\xbb\xbfx = 1\r\nx2 = 3\r\ny = 2\r\n\r\n",
    OPEN: b"A = 1\nB = 2\nC = 3",
    EMPTY: b"",
    FRESH: b'"""Fresh."""\n\nVALUE = 1',
    NOTES: b"for people\n",
}
"""Changed, deleted, new and empty files; carriage returns; ends without a newline."""


def patched(edits: Mapping[str, bytes | None] = EDITS) -> dict[str, bytes]:
    """Return the newer package as it must be with the team's patch, by hand."""
    made = {path: raw for path, raw in {**NEWER, **edits}.items() if raw is not None}
    if MIXER in edits:
        made[MIXER] = mixed(NEWER[MIXER])
    return made


class Team:
    """What a team has: the release that its patches are for, and the patches."""

    def __init__(self, place: Path, git: Git, write: Callable[..., Path]) -> None:
        self.place, self._git = place, git
        self.older = write(place / "older", OLDER)
        git("init", cwd=self.older)
        git("add", "-A", cwd=self.older)
        git("commit", "-m", "older", cwd=self.older)

    def patch(
        self, edits: Mapping[str, bytes | None] = EDITS, name: str = "team.patch",
        renames: Mapping[str, str] | None = None,
    ) -> Path:  # fmt: skip
        """Write a patch as ``git diff`` makes it."""
        for old, new in (renames or {}).items():
            (self.older / old).rename(self.older / new)
        for path, raw in edits.items():
            place = self.older / path
            if raw is None:
                place.unlink()
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(raw)
        self._git("add", "-A", cwd=self.older)
        made = self._git("diff", "--cached", "-M", "--binary", "HEAD", cwd=self.older)
        self._git("reset", "--hard", cwd=self.older)
        self._git("clean", "-fd", cwd=self.older)
        return self.written(made, name)

    def written(self, raw: bytes, name: str = "team.patch") -> Path:
        """Write a patch's bytes."""
        place = self.place / name
        place.write_bytes(raw)
        return place

    def apply(self, *patches: Path) -> list[str]:
        """Return the command line that applies patches, without its target."""
        return ["carry", *map(str, patches), "--from", str(self.older), "--apply"]


@pytest.fixture
def team(tmp_path: Path, sealed_git: Git, write_files: Callable[..., Path]) -> Team:
    """Return a team with its older release."""
    return Team(tmp_path, sealed_git, write_files)


def contents(root: Path) -> dict[str, bytes]:
    """Return the package's files as they are on disk, without byte code."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted((root / "sglang").rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def imported(root: Path, module: str, expression: str, python: str) -> str:
    """Return what a fresh interpreter prints of a module of the package."""
    code = f"import {module} as m; print({expression})"
    done = subprocess.run(
        [python, "-c", code], env={"PYTHONPATH": str(root)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


__all__ = ["SCALER", "SCALER_SOURCE"]
