"""The help fits a screen and needs no colour; shells complete, and others pay nothing for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable

import pytest
from installing import rewriter, sealed_state

from rewriter import catalog
from rewriter.cli import COMMANDS

__all__ = ["sealed_state"]

LINES, COLUMNS = 24, 80
LONGER = {"": 40, "matrix": 32, "carry": 34, "smoke": 30, "diagnose": 32, "advise": 40, "bench": 36}
"""Commands with more options than a screen has lines, and how long they may be; no others."""

pytestmark = pytest.mark.usefixtures("screen")


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "PY_COLORS", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.mark.parametrize("verb", ["", *COMMANDS])
def test_help_fits_a_screen(verb: str) -> None:
    done = rewriter(*([verb] if verb else []), "--help")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert max(map(len, lines)) <= COLUMNS
    assert len(lines) <= LONGER.get(verb, LINES)
    assert "\x1b" not in done.out


def test_the_list_of_verbs_cuts_no_sentence() -> None:
    done = rewriter("--help")
    listed = [line for line in done.out.partition("Look:\n")[2].splitlines() if line[:2] == "  "]
    assert [line.split()[0] for line in listed] == list(COMMANDS)
    assert [line for line in listed if line.endswith("...")] == []


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_option_says_what_it_does(verb: str) -> None:
    import typer

    from rewriter import cli

    command = typer.main.get_command(cli.build([verb]))
    parameters: Iterable[object] = command.commands[verb].params  # type: ignore[attr-defined]
    without = [p.name for p in parameters if not getattr(p, "help", None)]  # type: ignore[attr-defined]
    assert without == []


def complete(shell: str, *words: str) -> list[str]:
    """Return what a shell is told for a half-typed command line."""
    line = " ".join(("rewriter", *words))
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(words))}
    if shell != "bash":
        asked = {"_TYPER_COMPLETE_ARGS": line}
    environment = {**os.environ, **asked, "_REWRITER_COMPLETE": f"complete_{shell}",
                   "_TYPER_COMPLETE_FISH_ACTION": "get-args"}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "rewriter"], env=environment, capture_output=True, check=False,
        text=True,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_bash_completes() -> None:
    assert complete("bash", "ch") == ["check"]
    assert complete("bash", "check", "--ov") == ["--overlay"]
    assert complete("bash", "check", "") == catalog.names()


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_complete(shell: str) -> None:
    assert any("mla_kv_gather" in line for line in complete(shell, "check", "mla"))
    assert any("check" in line for line in complete(shell, "ch"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_show_completion(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shellingham = pytest.importorskip("shellingham")
    monkeypatch.setattr(shellingham, "detect_shell", lambda *_: (shell, shell))
    done = rewriter("--show-completion")
    assert (done.code, f"_REWRITER_COMPLETE=complete_{shell}" in done.out) == (0, True)


def test_a_command_pays_nothing_for_it() -> None:
    """It has neither the options nor the callbacks; the shell's own question loads one verb."""
    from rewriter import cli

    for completion in (False, True):
        app = cli.build(["check"], completion=completion)
        assert app._add_completion is completion
    done = rewriter("check", "--help")
    assert "completion" not in done.out
