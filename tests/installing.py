"""Fixtures and words for tests of writing: fake installs, fake codemods, the command line.

A test module imports the fixtures that it uses, and ``sealed_state``, which is for all.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import io
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from fake_sglang import FILES, installed_files

from rewriter import catalog, cli
from rewriter.targets.record import parse_record

MIXER = "sglang/srt/layers/mixer.py"
SCALER = "sglang/srt/layers/scaler.py"
TOOLS = "sglang/srt/layers/_rewriter_tools.py"

MIXER_SOURCE = b'''\
"""Mixes."""

import os
from math import sqrt

SCALE = float(os.environ.get("SCALE", "1"))


class Mixer:
    def __init__(self, width):
        self.width = width

    def mix(self, x):
        y = x * SCALE
        return sqrt(y)

    def spread(self, x):
        return [ x ] * self.width  # spread
'''

SCALER_SOURCE = b'''\
"""Scales."""

import os


class Scaler:
    factor = int(os.environ.get("FACTOR", "3"))

    def scale(self, x):
        return x * self.factor
'''

PACKAGE: Mapping[str, bytes] = {**FILES, MIXER: MIXER_SOURCE, SCALER: SCALER_SOURCE,
                                "sglang/srt/layers/__init__.py": b""}  # fmt: skip
"""A package that the fake codemods can patch."""


class Done(NamedTuple):
    """What a run of the command line gave."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)


def rewriter(*arguments: str | os.PathLike[str]) -> Done:
    """Run the command line in this process."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    err = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main([os.fspath(argument) for argument in arguments])
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        finally:
            gc.enable()  # a command that ends turns it off for good
            gc.unfreeze()
    assert isinstance(out.buffer, io.BytesIO)
    words = [os.fspath(argument) for argument in arguments]
    assert foreign_options(words, err.getvalue()) == set(), err.getvalue()
    return Done(code, out.buffer.getvalue().decode("utf-8"), err.getvalue())


def foreign_options(words: Sequence[str], message: str) -> set[str]:
    """Return the options that a message sends its reader to, and that the verb does not have.

    Another command's stand in backquotes, or behind its name.
    """
    verb = next((word for word in words if word in cli.COMMANDS), "")
    if not verb or message.startswith(("Usage:", "Traceback")):
        return set()
    own = re.sub("`[^`]*`|^  rewriter .*$|git [a-z]+ --\\S+", "", message, flags=re.MULTILINE)
    named = set(re.findall(r"(?<![\w-])--[a-z]+(?:-[a-z]+)*", own)) - set(words)
    return named - _options(verb)


@functools.cache
def _options(verb: str) -> frozenset[str]:
    command = typer.main.get_command(cli.build((verb,)))
    found = command.commands[verb] if hasattr(command, "commands") else command
    return frozenset(option for parameter in found.params for option in parameter.opts)


def states(*arguments: str | os.PathLike[str]) -> dict[str, str]:
    """Return codemod → state, as ``status`` tells it."""
    done = rewriter("status", *arguments, "--json")
    assert done.code == 0, done.err
    return {row["codemod"]: row["state"] for row in done.json["results"]}


def tree(root: Path, *, byte_code: bool = False) -> dict[str, tuple[int, str | bytes]]:
    """Return all there is below a directory: path → mode, and bytes or a link's text."""
    found: dict[str, tuple[int, str | bytes]] = {}
    for path in sorted(root.rglob("*")):
        if "__pycache__" in path.parts and not byte_code:
            continue
        mode = path.lstat().st_mode
        if path.is_symlink():
            found[str(path.relative_to(root))] = (mode, os.fspath(path.readlink()))
        else:
            found[str(path.relative_to(root))] = (mode, path.read_bytes() if path.is_file() else "")
    return found


def record_faults(site_packages: Path) -> list[str]:
    """Verify every RECORD of a site-packages, and that every file is in one; return what is not.

    Byte code is left out: installers list it without a hash, and interpreters add and drop it.
    """
    faults: list[str] = []
    listed: set[Path] = set()
    for record in site_packages.glob("*.dist-info/RECORD"):
        for path, row in parse_record(record.read_bytes()).items():
            place = Path(os.path.normpath(site_packages / path))
            listed.add(place)
            if path.endswith(".pyc"):
                continue
            if not place.is_file():
                faults.append(f"missing: {path}")
            elif row.hash and not row.matches(place.read_bytes()):
                faults.append(f"hash: {path}")
            elif row.size is not None and row.size != place.stat().st_size:
                faults.append(f"size: {path}")
    for package in ("sglang", "sglang-*.dist-info"):
        for folder in site_packages.glob(package):
            for place in folder.rglob("*"):
                hidden = "__pycache__" in place.parts
                if place.is_file() and not hidden and place not in listed:
                    faults.append(f"not listed: {place.relative_to(site_packages)}")
    return faults


def result_of(site_packages: Path, call: str, python: str = sys.executable) -> str:
    """Import the package in a fresh interpreter, call something there, return what it printed."""
    script = (
        "from sglang.srt.layers.mixer import Mixer\n"
        "from sglang.srt.layers.scaler import Scaler\n"
        f"print({call})"
    )
    environment = {**os.environ, "PYTHONPATH": os.fspath(site_packages)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [python, "-c", script], env=environment, capture_output=True, check=False, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


_NUMBERS = itertools.count()
"""A package is imported once, so each version of the codemods needs a name of its own."""


class FakeCodemods:
    """The fake codemods in a directory of the test's own, where they can be changed."""

    OURS = Path(__file__).parent / "fake_codemods"

    def __init__(self, monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
        self._monkeypatch = monkeypatch
        self._place = place
        self.directory = self.OURS
        self.use({})

    def use(self, changes: Mapping[str, str | None]) -> None:
        """Load the codemods anew, with some files changed (or, for None, removed).

        That is another version of the tool, as far as a target can tell.
        """
        name = f"fake_codemods_{next(_NUMBERS)}"
        directory = self._place / name
        shutil.copytree(self.directory, directory, ignore=shutil.ignore_patterns("__pycache__"))
        for path, text in changes.items():
            if text is None:
                (directory / path).unlink()
            else:
                (directory / path).write_text(text)
        self.directory = directory
        self._monkeypatch.syspath_prepend(self._place)
        importlib.invalidate_caches()
        self._monkeypatch.setattr(catalog, "PACKAGE", name)
        for cached in (catalog.directory, catalog.load, catalog.companion_bytes):
            cached.cache_clear()

    def edit(self, path: str, old: str, new: str) -> None:
        """Load the codemods anew with a text replaced in one file."""
        text = (self.directory / path).read_text()
        assert old in text
        self.use({path: text.replace(old, new)})


@contextlib.contextmanager
def fake_codemods(place: Path) -> Iterator[FakeCodemods]:
    """Put the fake codemods in the place of ours, and ours back: alpha, beta, gamma, delta."""
    with pytest.MonkeyPatch.context() as patched:
        yield FakeCodemods(patched, place)
    for cached in (catalog.directory, catalog.load, catalog.companion_bytes):
        cached.cache_clear()


@pytest.fixture
def codemods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeCodemods]:
    """Put the fake codemods in the place of ours for a test."""
    with fake_codemods(tmp_path_factory.mktemp("codemods")) as found:
        yield found


@pytest.fixture(autouse=True)
def sealed_state(sealed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep locks in a directory of the test's own, and any configuration out."""
    state = sealed / "state"
    monkeypatch.setenv("REWRITER_STATE_DIR", str(state))
    monkeypatch.chdir(sealed)
    return state


Install = Callable[..., Path]


@pytest.fixture
def site_packages(tmp_path: Path, write_files: Install) -> Path:
    """Return a site-packages with the fake package installed in it, as pip leaves it."""
    return write_files(tmp_path / "site-packages", installed_files("0.5.2", PACKAGE))
