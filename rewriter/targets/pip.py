"""Fetch wheels from the package index, as pip is configured to reach it."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING

from rewriter.errors import TargetError
from rewriter.targets.disk import PACKAGE
from rewriter.targets.pip_errors import IndexUnreachable, failure

if TYPE_CHECKING:
    import subprocess

Progress = Callable[[int, "int | None"], None]
"""Called with the bytes that have arrived and, where it is known, how many there will be."""

PYTHON = "3.12"
"""The CPython whose wheels are read: from 0.5.11 wheels are per CPython, and from 0.5.22 they
need 3.11 or later. This tool itself may run on another one."""

PLATFORMS = (
    *(f"manylinux_2_{minor}_x86_64" for minor in (39, 35, 34, 31, 28, 17)),
    "manylinux2014_x86_64",
    "any",
)
"""Linux on x86_64, newest C library first; 0.5.11 and later are manylinux_2_34."""

_TAGS = (
    "--only-binary=:all:",
    "--implementation=cp",
    f"--python-version={PYTHON}",
    *(f"--platform={platform}" for platform in PLATFORMS),
)
_QUIET = ("--disable-pip-version-check", "--no-input", "--retries=2")
_BYTES = re.compile(rb"Progress (\d+) of (\d+)")
_INTERVAL = 0.1
"""Seconds between two looks at a download."""


def download(version: str, into: Path, progress: Progress | None = None) -> Path:
    """Fetch the wheel of one version into an empty directory and return its path.

    Raises:
        TargetError: no pip, no network, no such version, or no wheel for Linux x86_64.
    """
    command = [*pip_command(), "download", *_QUIET, "--no-deps", *_TAGS, "-d", str(into)]
    wanted = f"{PACKAGE}=={version}"
    # "raw" tells bytes on standard output; pip before 24.1 refuses it, then files are watched.
    status, output = _run([*command, "--progress-bar=raw", wanted], into, progress)
    if status != 0 and b"invalid choice: 'raw'" in output:
        status, output = _run([*command, "--progress-bar=off", wanted], into, progress)
    if status != 0:
        raise failure(version, output.decode("utf-8", "replace"))
    wheels = list(into.glob(f"{PACKAGE}-*.whl"))
    if len(wheels) != 1:
        raise TargetError(f"pip download {wanted}: expected one wheel, found {len(wheels)}")
    return wheels[0]


@functools.cache
def available_releases() -> tuple[str, ...]:
    """Return the versions that the index has a readable wheel of, oldest first.

    Pre-releases are left out. The answer is kept for the life of the process.

    Raises:
        TargetError: no pip, a pip without ``index``, or no network.
    """
    import tempfile

    from packaging.version import Version

    command = [*pip_command(), "index", "versions", *_QUIET, *_TAGS, PACKAGE]
    with tempfile.TemporaryDirectory(prefix="rewriter-") as scratch:
        status, output = _run(command, Path(scratch), None)
    text = output.decode("utf-8", "replace")
    listed = re.search(r"^Available versions: (.+)$", text, re.MULTILINE)
    if status != 0 or listed is None:
        raise failure(None, text)
    return tuple(sorted(listed.group(1).replace(" ", "").split(","), key=Version))


def pip_command() -> list[str]:
    """Return the command that runs pip: this interpreter's, else one on PATH.

    Environments made by uv have none of their own.

    Raises:
        TargetError: there is none.
    """
    import importlib.util
    import shutil

    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    for name in ("pip3", "pip"):
        found = shutil.which(name)
        if found is not None:
            return [found]
    raise IndexUnreachable(
        f"pip: neither in {sys.executable} nor on PATH; releases are fetched with it: install "
        "pip. A wheel that you have needs none: `rewriter check --wheel FILE`"
    )


def _run(command: list[str], watched: Path, progress: Progress | None) -> tuple[int, bytes]:
    """Run pip to its end, telling progress; return its exit status and all that it printed.

    Its temporary files go below ``watched``, so that what arrives can be measured, nothing stays
    behind when it is killed, and the working directory holds no module that it could import.
    """
    import subprocess
    import tempfile

    # What a user may have set for installs must not silence or forbid a download.
    environment = {**os.environ, "PIP_REQUIRE_VIRTUALENV": "0", "PIP_QUIET": "0"}
    with tempfile.TemporaryDirectory(dir=watched) as scratch, tempfile.TemporaryFile() as log:
        environment["TMPDIR"] = scratch
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=scratch,
            )
        except OSError as error:
            raise TargetError(f"{command[0]}: cannot be run: {error.strerror or error}") from error
        try:
            _wait(process, log, Path(scratch), progress)
        finally:
            process.kill()
            process.wait()
        log.seek(0)
        return process.returncode, log.read()


def _wait(
    process: subprocess.Popen[bytes], log: IO[bytes], scratch: Path, progress: Progress | None
) -> None:
    """Wait for pip, passing on what it says about bytes, or else what lies on disk."""
    import subprocess

    told: tuple[int, int | None] | None = None
    while True:
        try:
            process.wait(_INTERVAL if progress is not None else None)
            ended = True
        except subprocess.TimeoutExpired:
            ended = False
        if progress is None:
            return
        now = _said(log) or (_on_disk(scratch), None)
        if now != told and now[0]:
            progress(*now)
            told = now
        if ended:
            return


def _said(log: IO[bytes]) -> tuple[int, int] | None:
    """Return the last progress line of pip's output."""
    text = os.pread(log.fileno(), 1 << 20, 0)
    lines = _BYTES.findall(text)
    return (int(lines[-1][0]), int(lines[-1][1])) if lines else None


def _on_disk(scratch: Path) -> int:
    """Return the size of what pip has stored so far, in bytes."""
    total = 0
    for folder, _, names in os.walk(scratch):
        for name in names:
            try:
                total += Path(folder, name).stat().st_size
            except FileNotFoundError:  # Moved between the listing and the look.
                continue
    return total
