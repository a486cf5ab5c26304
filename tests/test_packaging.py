"""What is built: the wheel and the sdist, and the command in an environment of its own."""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from rewriter import __version__, pins
from rewriter.targets.release import Release

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build sdist and wheel, the wheel from the sdist, with the backend that is installed here."""
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)],
        check=True, capture_output=True,
    )  # fmt: skip
    return out


def contents(built: Path) -> dict[str, bytes]:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_holds_both_packages_the_pins_and_the_types(built: Path) -> None:
    files = contents(built)
    for package in ("rewriter", "codemods"):
        for path in (ROOT / package).rglob("*.py"):
            assert files[path.relative_to(ROOT).as_posix()] == path.read_bytes()
        assert f"{package}/py.typed" in files
    shipped = {name for name in files if name.startswith("rewriter/fixtures/")}
    expected = {
        f"rewriter/{p.relative_to(ROOT).as_posix()}" for p in pins.shipped().rglob("*.toml")
    }
    assert shipped == expected
    assert len(shipped) > 30


def test_the_wheel_holds_nothing_else(built: Path) -> None:
    roots = {name.partition("/")[0] for name in contents(built)}
    assert roots == {"rewriter", "codemods", f"sglang_rewriter-{__version__}.dist-info"}
    assert not [name for name in contents(built) if name.endswith(".pyc")]


def test_the_metadata(built: Path) -> None:
    files = contents(built)
    info = f"sglang_rewriter-{__version__}.dist-info"
    metadata = files[f"{info}/METADATA"].decode()
    assert f"\nVersion: {__version__}\n" in metadata
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert "\nRequires-Python: >=3.10\n" in metadata
    assert f"{info}/licenses/LICENSE" in files
    scripts = configparser.ConfigParser()
    scripts.read_string(files[f"{info}/entry_points.txt"].decode())
    assert dict(scripts["console_scripts"]) == {"rewriter": "rewriter.cli:main"}


def test_the_sdist_holds_what_its_tests_need(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for needed in (
        "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "tests/conftest.py",
        "tests/test_packaging.py", "codemods/mla_kv_gather.py", "benchmarks/check.py",
        "docs/decisions.md", "rewriter/cli.py",
    ):  # fmt: skip
        assert needed in names
    assert any(name.startswith("fixtures/mla_kv_gather/0.5.") for name in names)
    assert not [name for name in names if name.startswith((".git/", ".ci/", "dist/"))]


def test_the_version_is_said_once_in_two_places() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'\nversion = "{__version__}"\n' in text


@pytest.fixture(scope="module")
def environment(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a virtual environment with the wheel and what it requires, and nothing more."""
    place = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    (wheel,) = built.glob("*.whl")
    done = subprocess.run(
        [str(place / "bin/python"), "-m", "pip", "install", "--quiet", str(wheel)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode and not os.environ.get("CI"):
        pytest.skip(f"cannot install: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return place


@pytest.mark.wheels
def test_the_command_in_an_empty_environment(
    environment: Path, release: Callable[[str], Release], tmp_path: Path
) -> None:
    """Without the checkout: the pins come out of the wheel."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(environment / "bin/rewriter"), *arguments],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip

    assert run("--version").stdout == f"rewriter {__version__}\n"
    assert "mla_kv_gather" in run("list").stdout
    wheel = str(release("0.5.23").path)
    assert run("check", "--wheel", wheel).returncode == 0
    applied = run("apply", "--wheel", wheel, "--output", "patched", "--full")
    assert (applied.returncode, applied.stderr) == (0, "")
    gate = run("check", "--site-packages", "patched", "--require", "applied")
    assert (gate.returncode, gate.stderr) == (0, "")
    where = (
        "from rewriter import pins; print(pins.shipped()); print(len(pins.load('mla_kv_gather')))"
    )
    told = subprocess.run(
        [str(environment / "bin/python"), "-c", where],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    place, count = told.stdout.split()
    assert Path(place).is_relative_to(environment)
    assert int(count) == len(pins.load("mla_kv_gather"))
