"""Fixtures that every test file may use: a sealed environment, fake packages, wheels, git.

The fake packages hold our own text. Upstream's sources come only out of the wheels that the
``release`` fixture fetches, and stay in its cache.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import pytest
from fake_sglang import FILES, installed_files

from rewriter.targets.pip_errors import IndexUnreachable
from rewriter.targets.release import Release

_SEALED = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
_OURS = ("REWRITER_CACHE_DIR", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM")
_AS_USER = {name: os.environ.get(name) for name in (*_SEALED, *_OURS)}
"""The environment before it was sealed: pip's configuration is found through it."""


@pytest.fixture(autouse=True)
def sealed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point every place that a program keeps user data in to a directory of the test's own."""
    home = tmp_path_factory.mktemp("home")
    for name in _SEALED:
        place = home if name == "HOME" else home / name.lower()
        monkeypatch.setenv(name, str(place))
    config = home / "gitconfig"
    config.write_text('[init]\n\tdefaultBranch = main\n[protocol "file"]\n\tallow = always\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    monkeypatch.setenv("REWRITER_CACHE_DIR", str(home / "cache"))
    monkeypatch.setattr("rewriter.transaction.run.GRACE", 0.0)  # for readers, who are not here
    for name in list(os.environ):
        if name.startswith("GIT_") and not name.startswith(("GIT_CONFIG_", "GIT_PYTHON_")):
            monkeypatch.delenv(name)
    return home


class Git(Protocol):
    """Run git in ``cwd`` and return what it printed, byte for byte."""

    def __call__(self, *arguments: str, cwd: Path) -> bytes: ...


@pytest.fixture
def sealed_git(sealed: Path) -> Git:
    """Return a function that runs git with no configuration but the test's own."""
    person = {"NAME": "Test", "EMAIL": "test@example.invalid", "DATE": "2024-01-01T00:00:00+0000"}
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(sealed),
        "GIT_CONFIG_GLOBAL": os.environ["GIT_CONFIG_GLOBAL"],
        "GIT_CONFIG_SYSTEM": os.devnull,
        "LC_ALL": "C",
        **{
            f"GIT_{who}_{key}": text
            for who in ("AUTHOR", "COMMITTER")
            for key, text in person.items()
        },
    }

    def git(*arguments: str, cwd: Path) -> bytes:
        done = subprocess.run(
            ["git", *arguments], cwd=cwd, env=environment, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    return git


@pytest.fixture
def write_files() -> Callable[..., Path]:
    """Return a function that writes files, path → bytes, below a directory and returns it."""

    def write(root: Path, files: Mapping[str, bytes] = FILES) -> Path:
        for path, data in files.items():
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        return root

    return write


@pytest.fixture
def fake_wheel(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that makes a wheel of the given files (default: a fake sglang)."""

    def make(
        files: Mapping[str, bytes] | None = None,
        version: str = "0.5.2",
        directory: Path = tmp_path,
    ) -> Path:
        path = directory / f"sglang-{version}-py3-none-any.whl"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in (installed_files(version) if files is None else files).items():
                archive.writestr(name, data)
        return path

    return make


@pytest.fixture
def virtual_environment(tmp_path: Path) -> tuple[Path, Path]:
    """Return the interpreter and the site-packages of an empty virtual environment.

    Made by hand: the ``venv`` module takes a hundred times as long.
    """
    place = tmp_path / "venv"
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    site_packages = place / "lib" / version / "site-packages"
    site_packages.mkdir(parents=True)
    python = place / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    home = Path(sys.executable).resolve().parent
    (place / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\n")
    return python, site_packages


Snapshot = dict[str, tuple[int, int, bytes]]


@pytest.fixture
def snapshot() -> Callable[[Path], Snapshot]:
    """Return a function that tells all there is below a directory: path → mode, mtime, bytes."""

    def take(root: Path) -> Snapshot:
        seen: Snapshot = {}
        for path in sorted(root.rglob("*")):
            status = path.lstat()
            data = path.read_bytes() if path.is_file() else b""
            seen[str(path.relative_to(root))] = (status.st_mode, status.st_mtime_ns, data)
        return seen

    return take


@pytest.fixture(scope="session")
def wheel_cache_of_tests() -> Path:
    """Return where the fetched wheels stay from one test session to the next."""
    from platformdirs import user_cache_dir

    chosen = os.environ.get("REWRITER_TEST_CACHE")
    return Path(chosen) if chosen else Path(user_cache_dir("sglang-rewriter-tests", False))


@pytest.fixture
def release(wheel_cache_of_tests: Path) -> Iterator[Callable[[str], Release]]:
    """Return a function that gives a real release by version, for tests marked ``wheels``.

    Without network the test is skipped; in CI (``CI`` is set) that is a failure.
    """
    opened: list[Release] = []

    def of(version: str) -> Release:
        with pytest.MonkeyPatch.context() as environment:
            for name, value in _AS_USER.items():
                environment.delenv(name, raising=False)
                if value is not None:
                    environment.setenv(name, value)
            environment.setenv("REWRITER_CACHE_DIR", str(wheel_cache_of_tests))
            try:
                opened.append(Release(version))
            except IndexUnreachable as error:
                if os.environ.get("CI"):
                    raise
                pytest.skip(str(error))
        return opened[-1]

    yield of
    for each in opened:
        each.close()
