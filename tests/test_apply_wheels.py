"""Real releases, installed by pip and by uv: applied, imported, verified, reverted, removed.

sglang itself cannot be imported here, so "what Python imports" is asked of the loader that an
import uses: it reads byte code if that is fresh by its rules, and the source if not.
"""

from __future__ import annotations

import contextlib
import os
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from installing import record_faults, rewriter, sealed_state, states, tree

from rewriter.targets.release import Release

__all__ = ["sealed_state"]

pytestmark = pytest.mark.wheels

RELEASES = ("0.4.6.post5", "0.5.1", "0.5.9", "0.5.13", "0.5.23")

TARGET = "sglang/srt/layers/attention/flashinfer_mla_backend.py"
COMPANION = "sglang/srt/layers/attention/_rewriter_kv_gather.py"

Releases = Callable[[str], Release]


def run(*command: str | os.PathLike[str], code: int | None = 0) -> str:
    """Run a program and return what it printed; its exit code must be ``code`` if that is set."""
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    assert code is None or done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def interpreter(wheel: Path) -> str:
    """Return a Python that can install a wheel; those of 0.5.11 and later are for 3.12."""
    if "-py3-none-any" in wheel.name:
        return sys.executable
    found = [sys.executable, shutil.which("python3.12")]
    found += [str(path) for path in Path(sys.base_prefix).parent.glob("3.12*/bin/python")]
    for python in filter(None, found):
        with contextlib.suppress(OSError):
            version = subprocess.run(
                [python, "-c", "import sys; print(*sys.version_info[:2])"],
                capture_output=True, check=False, text=True,
            )  # fmt: skip
            if version.stdout.strip() == "3 12":
                return python
    pytest.skip("no Python 3.12 to install this wheel for")


class Environment:
    """A fresh virtual environment, and an installer's commands on it."""

    def __init__(self, place: Path, python: str, installer: str) -> None:
        self.installer = installer
        self.cache = place / "cache"
        run(python, "-m", "venv", "--without-pip", place / "venv")
        self.python = place / "venv" / "bin" / "python"
        self.site_packages = next((place / "venv").glob("lib/python3*/site-packages"))

    def install(self, wheel: Path, *options: str, link_mode: str = "hardlink") -> None:
        if self.installer == "pip":
            self.pip("install", "--no-deps", "--no-compile", *options, wheel)
        else:
            self.uv("install", "--no-deps", "--link-mode", link_mode, *options, wheel)

    def uninstall(self) -> None:
        if self.installer == "pip":
            self.pip("uninstall", "-y", "sglang")
        else:
            self.uv("uninstall", "sglang")

    def check(self) -> str:
        """Return what the installer's own check says; there are no dependencies to find."""
        return self.pip("check", code=1) if self.installer == "pip" else self.uv("check", code=1)

    def pip(self, *arguments: str | Path, code: int = 0) -> str:
        quiet = ("--disable-pip-version-check", "--no-input", "--python", self.python)
        return run(sys.executable, "-m", "pip", *quiet, *arguments, code=code)

    def uv(self, *arguments: str | Path, code: int = 0) -> str:
        from uv import find_uv_bin

        where = ("--offline", "--python", self.python, "--cache-dir", self.cache)
        verb, *rest = arguments
        said = run(find_uv_bin(), "pip", verb, *where, *rest, code=code)
        return "\n".join(line for line in said.splitlines() if "Checked" not in line)

    def imports_the_companion(self) -> bool:
        """Tell whether the loader of an import gives the patched code of the target."""
        script = (
            "import importlib.machinery, importlib.util, sys\n"
            "place = importlib.util.find_spec('sglang').submodule_search_locations[0]\n"
            "path = place + '/srt/layers/attention/flashinfer_mla_backend.py'\n"
            "loader = importlib.machinery.SourceFileLoader('m', path)\n"
            "code = loader.get_code('m')\n"
            "print('_rewriter_kv_gather' in code.co_names + sum((c for c in code.co_consts"
            " if isinstance(c, tuple)), ()))\n"
        )
        said = run(self.python, "-c", script)
        assert said in ("True\n", "False\n"), said
        return said == "True\n"


@pytest.mark.parametrize("installer", ["pip", "uv"])
@pytest.mark.parametrize("version", RELEASES)
def test_release(installer: str, version: str, release: Releases, tmp_path: Path) -> None:
    wheel = release(version).path
    place = Environment(tmp_path, interpreter(wheel), installer)
    site, empty = place.site_packages, tree(place.site_packages)
    place.install(wheel)
    before, checked = tree(site), place.check()
    cached = tree(place.cache) if installer == "uv" else {}
    linked = (site / TARGET).stat()
    assert (linked.st_nlink > 1) == (installer == "uv")
    for mode in py_compile.PycInvalidationMode:  # as an image build leaves them
        compiled(place, mode)
        assert not place.imports_the_companion()

        done = rewriter("apply", "--python", place.python)
        assert done.code == 0, done.err
        assert place.imports_the_companion()
        assert states("mla_kv_gather", "--python", place.python) == {"mla_kv_gather": "applied"}
        gate = ("check", "mla_kv_gather", "--python", place.python, "--require", "applied")
        assert rewriter(*gate).code == 0
        assert record_faults(site) == []

        compiled(place, mode)
        done = rewriter("revert", "--python", place.python)
        assert done.code == 0, done.err
        assert "is as shipped" in done.out
        assert not place.imports_the_companion()
        assert tree(site) == before
    if installer == "uv":
        assert tree(place.cache) == cached, "the cache is what every environment is linked from"
    assert rewriter("apply", "--python", place.python).code == 0
    assert place.check() == checked
    run(place.python, "-m", "compileall", "-q", site / TARGET, site / COMPANION)
    place.uninstall()
    assert tree(site, byte_code=True) == empty


def compiled(place: Environment, mode: py_compile.PycInvalidationMode) -> None:
    run(
        place.python, "-m", "compileall", "-q", "-f", "--invalidation-mode",
        mode.name.lower().replace("_", "-"), place.site_packages / TARGET,
    )  # fmt: skip


def test_uv_with_links_into_its_cache(release: Releases, tmp_path: Path) -> None:
    wheel = release("0.5.9").path
    place = Environment(tmp_path, interpreter(wheel), "uv")
    place.install(wheel, link_mode="symlink")
    before, cached = tree(place.site_packages), tree(place.cache)
    at = ("--site-packages", place.site_packages)
    assert (place.site_packages / TARGET).is_symlink()
    assert rewriter("apply", *at).code == 0
    assert place.imports_the_companion()
    assert record_faults(place.site_packages) == []
    assert rewriter("revert", *at).code == 0
    assert not place.imports_the_companion()
    assert tree(place.site_packages) == before
    assert tree(place.cache) == cached


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_upgrade_while_applied(installer: str, release: Releases, tmp_path: Path) -> None:
    """The installer removes what RECORD lists, ours among it; nothing is left to clean up."""
    old, new = release("0.5.1").path, release("0.5.9").path
    place = Environment(tmp_path, interpreter(old), installer)
    place.install(new)
    expected = tree(place.site_packages)
    place.uninstall()
    place.install(old)
    at = ("--site-packages", place.site_packages)
    assert rewriter("apply", *at).code == 0
    place.install(new, "--upgrade")
    assert tree(place.site_packages) == expected
    told = rewriter("status", "mla_kv_gather", *at)
    assert "(sglang 0.5.9)" in told.out
    assert "mla_kv_gather: ready" in told.out
    assert "left over" not in told.out
    assert rewriter("apply", *at).code == 0
    assert rewriter("revert", *at).code == 0
    assert tree(place.site_packages) == expected


def test_upgrade_of_a_target_directory_while_applied(release: Releases, tmp_path: Path) -> None:
    """`pip install --target --upgrade` leaves the old dist-info behind, with our record in it."""
    old, new = release("0.5.1").path, release("0.5.9").path
    place = tmp_path / "target"
    install = ("-m", "pip", "install", "-q", "--no-deps", "--no-compile", "--upgrade", "--target")
    run(sys.executable, *install, place, old)
    at = ("--site-packages", place)
    done = rewriter("apply", *at)
    assert done.code == 0, done.err
    assert record_faults(place) == []
    run(sys.executable, *install, place, new)
    told = rewriter("status", "mla_kv_gather", *at)
    assert "(sglang 0.5.9)" in told.out
    assert (
        "left over: sglang-0.5.1.dist-info/REWRITER.json (manifest of a former install)" in told.out
    )
    done = rewriter("revert", *at)
    assert done.code == 0, done.err
    assert not list(place.rglob("REWRITER*"))
    assert not (place / COMPANION).exists()
    assert rewriter("apply", *at).code == 0
    assert states("mla_kv_gather", *at) == {"mla_kv_gather": "applied"}


def test_manifest_lost_and_proved_by_the_shipped_pin(release: Releases, tmp_path: Path) -> None:
    """Nothing but the files is left; every byte comes back, RECORD's too."""
    wheel = release("0.5.9").path
    place = Environment(tmp_path, interpreter(wheel), "uv")
    place.install(wheel)
    before = tree(place.site_packages)
    at = ("--site-packages", place.site_packages)
    assert rewriter("apply", *at).code == 0
    (place.site_packages / "sglang-0.5.9.dist-info" / "REWRITER.json").unlink()
    told = rewriter("status", "mla_kv_gather", *at)
    assert "proof: the pin of sglang 0.5.9" in told.out
    done = rewriter("revert", *at)
    assert done.code == 0, done.out + done.err
    assert "is as shipped: pin of sglang 0.5.9" in done.out
    assert tree(place.site_packages) == before
