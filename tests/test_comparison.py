"""What docs/comparison.md says of other tools, by running them: all on the same small source.

npm's patch-package was run by hand, version 8.0.1; the page says so.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Git
from snippets import made, state

from rewriter import engine
from rewriter.codemod import Insert, Site
from rewriter.model import State
from rewriter.targets.release import Release

SOURCE = """\
class Fast:
    def step(self, x):
        a = self.start(x)
        y = self.scale(a)
        self.note(y)
        return y


class Exact:
    def step(self, x):
        a = self.start(x)
        y = self.scale(a)
        self.note(y)
        return y
"""
"""Upstream: two classes with the same lines."""

PLACE, LINE = "        y = self.scale(a)\n", "        y = min(y, 1)\n"
HEAD, TAIL = SOURCE.split("\n\n\n")
PATCHED = f"{HEAD}\n\n\n{TAIL.replace(PLACE, PLACE + LINE)}"
"""Ours: a line behind one call, in the second class."""

NEARBY = f"{HEAD}\n\n\n{TAIL.replace('self.note(y)', 'self.note(y, 2)')}"
"""Upstream changed the line behind the place."""

CODEMOD = made(Site("Exact.step", "bound", "y = self.scale({x})", Insert("y = min(y, 1)")))


@pytest.fixture
def diff(sealed_git: Git, tmp_path: Path) -> Path:
    """Return a patch file, from the source to ours."""
    made_in = repository(sealed_git, tmp_path / "made", SOURCE)
    (made_in / "m.py").write_text(PATCHED)
    place = tmp_path / "own.patch"
    place.write_bytes(sealed_git("diff", cwd=made_in))
    return place


def repository(git: Git, place: Path, source: str) -> Path:
    place.mkdir()
    (place / "m.py").write_text(source)
    git("init", "-q", cwd=place)
    git("add", ".", cwd=place)
    git("commit", "-q", "-m", "x", cwd=place)
    return place


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, check=False, text=True)


# --- git apply and patch -------------------------------------------------------------------


def test_a_change_nearby(diff: Path, sealed_git: Git, tmp_path: Path) -> None:
    """The context of the second place is gone, that of the first fits: git apply takes it."""
    place = repository(sealed_git, tmp_path / "new", NEARBY)
    done = run("git", "apply", diff, cwd=place)
    landed = (place / "m.py").read_text()
    assert (done.returncode, landed.index(LINE) < landed.index("class Exact")) == (0, True)
    assert engine.apply(CODEMOD, "sglang/srt/m.py", NEARBY.encode()).decode() == NEARBY.replace(
        f"{PLACE}        self.note(y, 2)", f"{PLACE}{LINE}        self.note(y, 2)"
    )


def test_a_change_nearby_and_no_other_place(diff: Path, sealed_git: Git, tmp_path: Path) -> None:
    alone = NEARBY.replace("class Fast:\n    def step", "class Fast:\n    def go").replace(
        "a = self.start(x)", "a = x", 1
    )
    place = repository(sealed_git, tmp_path / "new", alone)
    assert run("git", "apply", diff, cwd=place).returncode == 1
    assert (place / "m.py").read_text() == alone
    assert state(CODEMOD, alone.encode()) is State.READY


def test_what_upstream_took_over(diff: Path, sealed_git: Git, tmp_path: Path) -> None:
    """Where both classes hold the line: git refuses, as it does for any other misfit."""
    both = SOURCE.replace(PLACE, PLACE + LINE)
    place = repository(sealed_git, tmp_path / "new", both)
    assert run("git", "apply", diff, cwd=place).returncode == 1
    assert run("git", "apply", "-R", "--check", diff, cwd=place).returncode == 0
    assert state(CODEMOD, both.encode()) is State.APPLIED


def test_inside_another_repository_git_apply_does_nothing(
    diff: Path, sealed_git: Git, tmp_path: Path
) -> None:
    """As a site-packages in somebody's project: it exits 0 without a word."""
    top = repository(sealed_git, tmp_path / "project", "x = 1\n")
    packages = top / "venv"
    packages.mkdir()
    (packages / "m.py").write_text(SOURCE)
    done = run("git", "apply", diff, cwd=packages)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (packages / "m.py").read_text() == SOURCE


# --- at run time ---------------------------------------------------------------------------


@pytest.fixture
def upstream(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], types.ModuleType]:
    """Return a function that puts a source into a module ``upstream`` and imports it anew."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def imported(source: str) -> types.ModuleType:
        (tmp_path / "upstream.py").write_text(source)
        monkeypatch.delitem(sys.modules, "upstream", raising=False)
        importlib.invalidate_caches()
        return importlib.import_module("upstream")

    return imported


RUNS = "class Exact:\n    def step(self, x):\n        y = x * 2\n        return y\n"
GONE = RUNS.replace("step", "advance")
CHANGED = RUNS.replace("x * 2", "x * 3")


def test_monkeypatching_goes_on_where_the_name_is_gone(
    upstream: Callable[[str], types.ModuleType],
) -> None:
    module = upstream(GONE)
    module.Exact.step = lambda self, x: 1
    assert module.Exact().advance(2) == 4


@pytest.fixture
def registry(release: Callable[[str], Release], tmp_path: Path) -> types.ModuleType:
    """Return the module of hooks that sglang has had since 0.5.11, on its own."""
    path = "sglang/srt/plugins/hook_registry.py"
    assert release("0.5.10.post1").read(path) is None
    raw = release("0.5.12.post1").read(path)
    assert raw is not None
    place = tmp_path / "hook_registry.py"
    place.write_bytes(raw)
    spec = importlib.util.spec_from_file_location("hook_registry", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.wheels
def test_hooks_of_sglang_reach_every_function(
    registry: types.ModuleType, upstream: Callable[[str], types.ModuleType]
) -> None:
    """Around a function, not inside of it; a changed body is not looked at."""
    for source, result in ((RUNS, 5), (CHANGED, 7)):
        registry.HookRegistry.reset()
        module = upstream(source)
        registry.HookRegistry.register(
            "upstream.Exact.step", lambda original, *a: original(*a) + 1, registry.HookType.AROUND
        )
        registry.HookRegistry.apply_hooks()
        assert module.Exact().step(2) == result


@pytest.mark.wheels
def test_a_hook_whose_function_is_gone_is_logged(
    registry: types.ModuleType, upstream: Callable[[str], types.ModuleType],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """And the server goes on without it."""
    upstream(GONE)
    registry.HookRegistry.register("upstream.Exact.step", lambda result, *a: result)
    with caplog.at_level(logging.ERROR):
        registry.HookRegistry.apply_hooks()
    assert "Failed to apply hooks to upstream.Exact.step" in caplog.text


MPAT = """\
from mpat import patch


@patch("upstream.Exact.step", note="bound")
def step(original, self, x):
    return min(original(self, x), 1)
"""


def test_mpat_notices_what_it_patches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A comment is nothing, a body is: told by its check, warned of at import, and patched."""
    pytest.importorskip("mpat")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    (tmp_path / "patches.py").write_text(MPAT)
    (tmp_path / "pyproject.toml").write_text('[tool.mpat]\nmodules = ["patches"]\n')

    def mpat(verb: str, source: str) -> int:
        (tmp_path / "upstream.py").write_text(source)
        return run(Path(sys.executable).parent / "mpat", verb, cwd=tmp_path).returncode

    assert mpat("lock", RUNS) == 0
    assert mpat("check", RUNS.replace("x * 2", "x * 2  # twice")) == 0
    assert mpat("check", CHANGED) == 1
    script = "import patches, upstream; print(upstream.Exact().step(5))"
    done = run(sys.executable, "-c", script, cwd=tmp_path)
    assert (done.returncode, done.stdout, "drift (body)" in done.stderr) == (0, "1\n", True)
    assert mpat("check", GONE) == 1
    assert run(sys.executable, "-c", script, cwd=tmp_path).returncode == 1


def test_patchy_patches_inside_a_function_by_context_with_fuzz(
    upstream: Callable[[str], types.ModuleType],
) -> None:
    """The rest of the file may change, and of the function some lines: it goes on regardless."""
    patchy = pytest.importorskip("patchy")
    own = (
        "@@ -1,3 +1,4 @@\n def step(self, x):\n     y = x * 2\n+    y = min(y, 1)\n     return y\n"
    )
    for source in (f"import os\n\n{RUNS}", CHANGED):
        module = upstream(source)
        assert module.Exact().step(5) > 1
        patchy.patch(module.Exact.step, own)
        assert module.Exact().step(5) == 1
