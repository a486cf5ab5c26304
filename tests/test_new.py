"""A codemod to start from: valid as it stands, for whatever its author points at."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rewriter import catalog, skeleton
from rewriter.cli import main
from rewriter.codemod import Codemod
from rewriter.errors import UsageError
from rewriter.skeleton import Place

FILE = "sglang/srt/layers/noise.py"
RAW = b"""\
import os

class Noise:
    \"\"\"Makes some.\"\"\"

    level: int = 3
    name: str = "it's \\\\ \\"loud\\""

    def make(self, x):
        if x:
            y = loud(
                x,  # very
                level=self.level,
            )
            print("a", 'b'); z = f"{y}"
        return y

    async def later(self):
        await self.make(1)

def make(x):
    return os.sep + x
"""

POINTED = [("Noise.make", 11), ("Noise.make", 13), ("Noise.make", 16), ("Noise.later", 19),
           ("make", 22), ("Noise.<fields>", 6), ("Noise.<fields>", 7)]  # fmt: skip


def run(tests: str, monkeypatch: pytest.MonkeyPatch, module: str) -> int:
    """Run a generated test against the generated module; return how many tests there are."""
    made: dict[str, Any] = {"__name__": "made"}
    exec(compile(module, "made", "exec", dont_inherit=True), made)
    (kind,) = [v for v in made.values() if isinstance(v, type) and v.__module__ == "made"]
    assert issubclass(kind, Codemod)
    codemod = kind()
    codemod.name = "new_one"
    monkeypatch.setattr(catalog, "load", lambda name: codemod)
    space: dict[str, Any] = {}
    exec(compile(tests, "test", "exec", dont_inherit=True), space)
    checks = [value for name, value in space.items() if name.startswith("test_")]
    for check in checks:
        check()
    return len(checks)


@pytest.mark.parametrize(("within", "line"), POINTED)
def test_its_tests_pass_and_it_is_ready(
    monkeypatch: pytest.MonkeyPatch, within: str, line: int
) -> None:
    place = Place("new_one", FILE, within, skeleton.pointed_at(FILE, RAW, within, line))
    made = skeleton.files(place, RAW, in_place=True)
    assert list(made) == ["codemods/new_one.py", "tests/test_new_one.py"]
    module, test = made.values()
    assert run(test, monkeypatch, module) == 3
    assert place.codemod().sites[0].within == within


@pytest.mark.parametrize(
    "find", ["y = loud({x}, level={y})", "g({x}, {*rest})", "print({x})", "x['a'] = {'b': {y}}"]
)
def test_a_template_with_holes(monkeypatch: pytest.MonkeyPatch, find: str) -> None:
    module, test = skeleton.files(
        Place("new_one", FILE, "Noise.make", find), RAW, in_place=True
    ).values()
    assert run(test, monkeypatch, module) == 3


def test_an_author_is_told_what_to_write() -> None:
    made = skeleton.files(Place("new_one", FILE, "make", "return {x}"), RAW, in_place=True)
    module = made["codemods/new_one.py"]
    assert re.search(r"^Why: .{40}", module, re.MULTILINE)
    assert re.search(r"^Drop when: .{20}", module, re.MULTILINE)
    assert max(map(len, module.splitlines())) <= 100


@pytest.mark.parametrize(
    ("within", "line", "message"),
    [
        ("Noise.make", 17, "no simple statement of Noise.make is at line 17; near: 11, 15, 16"),
        ("Noise.made", 9, "has no Noise.made; there is Noise"),
        ("Noise.make", 10, "no simple statement of Noise.make is at line 10"),
    ],
)
def test_a_line_that_is_no_statement(within: str, line: int, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        skeleton.pointed_at(FILE, RAW, within, line)


@pytest.mark.parametrize("find", ["x = (", "if x: pass", "a; b", "break"])
def test_what_is_no_statement_to_start_from(find: str) -> None:
    with pytest.raises(UsageError, match="is no statement"):
        skeleton.files(Place("new_one", FILE, "make", find), RAW, in_place=True)


@pytest.mark.parametrize("name", ["", "A", "a-b", "class", "1a", "../a", "_a"])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be a codemod's name"):
        skeleton.check_name(name)


def test_a_package_of_its_own_installed_and_tested(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, write_files: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The command, then what it says comes next."""
    root = write_files(tmp_path / "site", {FILE: RAW, "sglang/__init__.py": b""})
    monkeypatch.chdir(tmp_path)
    arguments = ["new", "noise_level", "--file", FILE, "--within", "Noise.make", "--line", "11",
                 "--site-packages", str(root)]  # fmt: skip
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    out = capsys.readouterr().out
    assert ended.value.code == 0
    assert "it is ready\nnext: pip install -e noise_level\nnext: pytest noise_level\n" in out
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "exists; nothing was written" in capsys.readouterr().err
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index",
           "--no-build-isolation", "--disable-pip-version-check", "--target", "place"]  # fmt: skip
    subprocess.run([*pip, "./noise_level"], check=True)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "place"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "noise_level/tests"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "3 passed" in done.stdout
    done = subprocess.run(
        [sys.executable, "-m", "rewriter", "check", "noise_level", "--site-packages", root],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "noise_level: ready" in done.stdout
