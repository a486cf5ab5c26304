"""Ask an interpreter where its sglang is: this one directly, another by a short subprocess."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

from rewriter.errors import TargetError
from rewriter.targets import probe
from rewriter.targets.disk import PACKAGE

TIMEOUT = 60.0
"""Seconds to wait for another interpreter; start-up files on a network mount can be slow."""


class Found(NamedTuple):
    """An interpreter's answer."""

    interpreter: str
    python: str
    """Its version, e.g. ``3.12.1``."""
    package: Path | None
    """The directory of the package, or None when it has none."""
    namespace: tuple[Path, ...]
    """Directories of that name that are no package (no ``__init__.py``)."""
    path: tuple[Path, ...]
    """Its search path, absolute."""


def ask(python: str | os.PathLike[str] | None) -> Found:
    """Locate sglang in this interpreter (None) or in another one.

    Args:
        python: an interpreter, the name of one on PATH, or the directory of a virtual
            environment.

    Raises:
        TargetError: that interpreter does not exist, does not run, or does not answer.
    """
    if python is None:
        search = probe.without_working_directory(list(sys.path))
        return _found(sys.executable, probe.locate(PACKAGE, search))
    interpreter = _executable(os.fspath(python))
    return _found(interpreter, _answer(interpreter))


def _found(interpreter: str, answer: dict[str, object]) -> Found:
    """Turn the probe's plain answer into a value."""
    origin, namespace, path = answer["origin"], answer["namespace"], answer["path"]
    assert isinstance(namespace, list)
    assert isinstance(path, list)
    return Found(
        interpreter=interpreter,
        python=str(answer["python"]),
        package=Path(origin).parent if isinstance(origin, str) else None,
        namespace=tuple(Path(place) for place in namespace),
        path=tuple(Path(entry) for entry in path),
    )


def _executable(python: str) -> str:
    """Resolve what a user may give for an interpreter to a path that can be run."""
    import shutil

    given = Path(python).expanduser()
    if given.is_dir():
        for inner in ("bin/python", "bin/python3", "Scripts/python.exe"):
            if (given / inner).is_file():
                return str(given / inner)
        raise TargetError(
            f"{given}: expected an interpreter or a virtual environment, found a directory "
            "without bin/python"
        )
    found = shutil.which(str(given))
    if found is None:
        state = "is not executable" if given.is_file() else "does not exist"
        raise TargetError(f"{given}: no interpreter there: the file {state}")
    return found


def _answer(interpreter: str) -> dict[str, object]:
    """Run the probe in another interpreter.

    ``-B`` because start-up files would else leave byte code in the environment. Not ``-I``:
    a server there sees PYTHONPATH and the user's site-packages, so the probe must too.
    """
    import json
    import subprocess

    command = [interpreter, "-B", str(Path(probe.__file__)), PACKAGE]
    try:
        done = subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        raise TargetError(f"{interpreter}: gave no answer within {TIMEOUT:.0f} s") from None
    except OSError as error:
        raise TargetError(f"{interpreter}: cannot be run: {error.strerror or error}") from error
    lines = done.stdout.decode("utf-8", "surrogateescape").splitlines()
    answers = [line for line in lines if line.startswith(probe.MARK)]
    if done.returncode != 0 or not answers:
        complaint = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no output"]
        raise TargetError(
            f"{interpreter}: expected a Python 3.8 or later, "
            f"found exit code {done.returncode}: {complaint[-1]}"
        )
    answer: dict[str, object] = json.loads(answers[-1][len(probe.MARK) :])
    return answer
