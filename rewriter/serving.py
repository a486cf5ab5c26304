"""Start a command with an overlay on PYTHONPATH, once it is known to be served there."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rewriter.errors import RefusedError, UsageError

_PROBE = (
    "import sys; print('rewriter-overlay:' + next("
    "(f.rewriter_overlay for f in sys.meta_path if hasattr(f, 'rewriter_overlay')), ''))"
)

_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


class Interpreter(NamedTuple):
    """The Python that a command runs.

    Attributes:
        path: the interpreter.
        flags: its own options, which may make it ignore PYTHONPATH or site.
    """

    path: str
    flags: tuple[str, ...]


def interpreter_of(command: Sequence[str]) -> Interpreter | None:
    """Return the Python that a command runs, by its name or its script's first line.

    None where that cannot be told, e.g. of a shell script.

    Raises:
        UsageError: there is no such command.
    """
    program = shutil.which(command[0])
    if program is None:
        raise UsageError(f"{command[0]}: no such command")
    if _is_python(program):
        return Interpreter(program, _flags(command[1:]))
    with Path(program).open("rb") as file:
        line = file.readline(1024)
    if not line.startswith(b"#!"):
        return None
    words = os.fsdecode(line[2:]).split()
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if word != "-S"]
    if not words or not _is_python(words[0]):
        return None
    return Interpreter(words[0], _flags(words[1:]))


def _is_python(program: str) -> bool:
    return Path(program).name.rstrip("0123456789.").removesuffix(".exe") in ("python", "pypy")


def _flags(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the options before the script, ``-m`` or ``-c``."""
    flags: list[str] = []
    rest = iter(arguments)
    for word in rest:
        if not word.startswith("-") or word in ("-", "--", "-c", "-m"):
            break
        flags.append(word)
        if word in _WITH_VALUE:
            flags.append(next(rest, ""))
    return tuple(flags)


def environment(overlay: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with the overlay in front of PYTHONPATH."""
    before = inherited.get("PYTHONPATH", "")
    others = [entry for entry in before.split(os.pathsep) if entry and entry != str(overlay)]
    return {**inherited, "PYTHONPATH": os.pathsep.join([str(overlay), *others])}


def check_served(overlay: Path, python: Interpreter) -> None:
    """Ask an interpreter whether it serves an overlay; ``-I``, ``-E`` and ``-S`` keep it from that.

    Raises:
        RefusedError: it does not.
    """
    done = subprocess.run(
        [python.path, *python.flags, "-c", _PROBE],
        env=environment(overlay, os.environ), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if f"rewriter-overlay:{overlay}" in done.stdout.splitlines():
        return
    shown = " ".join([python.path, *python.flags])
    complaint = (done.stderr.strip().splitlines() or [""])[-1]
    raise RefusedError(
        f"{shown}: does not run {overlay / 'sitecustomize.py'} at its start, so the patched "
        "modules would not be served; nothing was started. The options -I, -E and -S switch it "
        "off" + (f". It said: {complaint}" if complaint else "")
    )
