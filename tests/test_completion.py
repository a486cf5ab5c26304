"""Completion as a user has it: installed by the command, then the tabulator in a real shell."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

SECONDS = 30.0


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home with a program ``rewriter``, which is this one."""
    programs = tmp_path / "bin"
    programs.mkdir()
    script = programs / "rewriter"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rewriter "$@"\n')
    script.chmod(0o755)
    return tmp_path


def environment(home: Path) -> dict[str, str]:
    kept = {k: os.environ[k] for k in ("LANG", "LC_ALL") if k in os.environ}
    path = os.pathsep.join([str(home / "bin"), "/usr/local/bin", "/usr/bin", "/bin"])
    return {**kept, "HOME": str(home), "PATH": path, "TERM": "xterm", "PS1": "> ",
            "XDG_CONFIG_HOME": str(home / ".config")}  # fmt: skip


def installed(shell: str, home: Path) -> None:
    """Let the shell run the command that installs its completion."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run(
        [program, "-c", "rewriter --install-completion; exit $?" if shell != "fish" else
         "rewriter --install-completion; exit $status"],
        env={**environment(home), "SHELL": program}, capture_output=True, check=False, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done
    assert f"{shell} completion installed" in done.stdout


def typed(shell: list[str], line: str, wanted: str, home: Path) -> str:
    """Start an interactive shell on a terminal, type a line and a tabulator; return what it shows.

    Waits until what is wanted is shown, and a while at most.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(shell[0], shell, environment(home))
    shown = b""
    end = time.monotonic() + SECONDS
    try:
        for keys, until in (("echo rea''dy\n", b"ready\r\n"), (f"{line}\t", wanted.encode())):
            os.write(terminal, keys.encode())
            shown = b""
            while until not in shown and time.monotonic() < end:
                if select.select([terminal], [], [], 0.1)[0]:
                    shown += os.read(terminal, 65536)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(terminal)
    return shown.decode(errors="replace")


CASES = [
    ("rewriter che", "check"), ("rewriter check mla", "mla_kv_gather"),
    ("rewriter check --overl", "--overlay"), ("rewriter diagnose --comp", "--compare"),
]  # fmt: skip
"""Half a line, and the word that is completed. Each in a shell of its own, at the first try."""


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_tabulator_completes(shell: str, home: Path) -> None:
    installed(shell, home)
    program = shutil.which(shell)
    assert program is not None
    for line, wanted in CASES:
        left = wanted.removeprefix(line.rpartition(" ")[2])
        assert left in typed([program, "-i"], line, left, home), (line, wanted)


def test_fish_completes(home: Path) -> None:
    installed("fish", home)
    for line, wanted in CASES:
        done = subprocess.run(
            ["fish", "-c", f"complete -C '{line}'"], env=environment(home), capture_output=True,
            check=False, text=True,
        )  # fmt: skip
        assert wanted in [row.partition("\t")[0] for row in done.stdout.splitlines()], done


def test_the_tabulator_completes_paths_as_well(home: Path) -> None:
    """Where an option wants a directory the shell's own completion goes on."""
    installed("bash", home)
    (home / "site-packages-of-mine").mkdir()
    line = f"rewriter check --site-packages {home}/site-p"
    assert "ackages-of-mine" in typed(["/bin/bash", "-i"], line, "ackages-of-mine", home)
