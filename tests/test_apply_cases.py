"""Real cases (docs: the list of public reports) that belong to writing, each by its number."""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Git
from fake_sglang import installed_files
from installing import (
    MIXER,
    MIXER_SOURCE,
    PACKAGE,
    SCALER,
    TOOLS,
    FakeCodemods,
    codemods,
    record_faults,
    result_of,
    rewriter,
    sealed_state,
    site_packages,
    states,
    tree,
)

__all__ = ["codemods", "sealed_state", "site_packages"]

pytestmark = pytest.mark.usefixtures("codemods")

Write = Callable[..., Path]


def test_case_01_site_packages_inside_somebodys_repository(
    site_packages: Path, sealed_git: Git
) -> None:
    """`git apply` resolved paths against that repository, skipped every file and exited 0."""
    sealed_git("init", "-q", cwd=site_packages.parent)
    done = rewriter("apply", "alpha", "--site-packages", site_packages)
    assert done.code == 0, done.err
    assert f"wrote {MIXER}" in done.out
    assert b"_tools.note" in (site_packages / MIXER).read_bytes()
    assert not (site_packages.parent / ".git" / "rewriter").exists()


def test_case_01_applying_to_nothing_is_an_error(tmp_path: Path, site_packages: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert rewriter("apply", "alpha", "--site-packages", tmp_path / "empty").code == 2
    (site_packages / MIXER).unlink()
    assert rewriter("apply", "alpha", "--site-packages", site_packages).code == 1


def test_case_02_unrelated_context_does_not_matter(site_packages: Path) -> None:
    """Lines around a site changed: a context diff would fail, the structure is the same."""
    changed = MIXER_SOURCE.replace(
        b"        return sqrt(y)", b"        # new\n        return sqrt(+y)"
    )
    changed = changed.replace(b"self.width = width", b"self.width = int(width)")
    (site_packages / MIXER).write_bytes(changed)
    at = ("--site-packages", site_packages)
    assert rewriter("apply", "alpha", *at, "--accept-unproven").code == 0
    assert result_of(site_packages, "Mixer(2).mix(9)") == "3.0"
    assert rewriter("revert", *at).code == 0
    assert (site_packages / MIXER).read_bytes() == changed


def test_case_02_a_failing_site_says_what_it_looked_for(site_packages: Path) -> None:
    drifted = MIXER_SOURCE.replace(b"y = x * SCALE", b"y = SCALE * x")
    (site_packages / MIXER).write_bytes(drifted)
    done = rewriter("apply", "alpha", "--site-packages", site_packages)
    assert done.code == 2
    assert "alpha is drifted: `Mixer.mix` has no `y = {x} * SCALE`" in done.err


def test_case_03_one_of_a_set_is_there_already(site_packages: Path) -> None:
    """The whole set was skipped silently, and the server ran unpatched."""
    at = ("--site-packages", site_packages)
    rewriter("apply", "alpha", *at)
    done = rewriter("apply", "alpha", "gamma", "delta", *at)
    assert done.code == 0
    assert "alpha was applied already; nothing to write for it" in done.out
    assert set(states("alpha", "gamma", "delta", *at).values()) == {"applied"}


def test_case_04_every_layout_is_found(
    site_packages: Path, tmp_path: Path, write_files: Write, sealed_git: Git
) -> None:
    """Wheels were skipped without a word; here all four are patched alike."""
    clone = write_files(tmp_path / "clone" / "python", PACKAGE).parent
    sealed_git("init", "-q", cwd=clone)
    sealed_git("add", ".", cwd=clone)
    sealed_git("commit", "-qm", "one", cwd=clone)
    bare = write_files(tmp_path / "bare", PACKAGE)
    roots = {
        ("--site-packages", site_packages): site_packages,
        ("--checkout", clone): clone / "python",
        ("--site-packages", bare, "--accept-unproven"): bare,
    }
    written = set()
    for at, root in roots.items():
        assert rewriter("apply", "alpha", *at).code == 0
        written.add((root / MIXER).read_bytes())
    assert len(written) == 1


def test_case_04_out_of_range_is_refused_with_a_way_on(
    site_packages: Path, codemods: FakeCodemods
) -> None:
    codemods.edit("alpha.py", ">=0.5,<0.6", "==0.4.9")
    done = rewriter("apply", "alpha", "--site-packages", site_packages)
    assert done.code == 2
    assert "--force-version goes by structure alone" in done.err
    (site_packages / MIXER).write_bytes(MIXER_SOURCE.replace(b"* SCALE", b"+ SCALE"))
    done = rewriter("apply", "alpha", "--site-packages", site_packages, "--force-version")
    assert (done.code, "alpha is drifted" in done.err) == (2, True), "the structure is demanded"


def test_case_05_start_up_gate(site_packages: Path, codemods: FakeCodemods) -> None:
    """The patch source was unreadable for a moment and the server started unpatched."""
    gate = ("check", "alpha", "--site-packages", site_packages, "--require", "applied")
    assert rewriter(*gate).code == 1
    rewriter("apply", "alpha", "--site-packages", site_packages)
    assert rewriter(*gate).code == 0
    codemods.use({"alpha.py": None})
    assert rewriter(*gate).code == 2


def test_case_08_half_applied_is_told_site_by_site(site_packages: Path) -> None:
    at = ("--site-packages", site_packages)
    rewriter("apply", "alpha", *at)
    path = site_packages / MIXER
    path.write_bytes(path.read_bytes().replace(b"        y = _tools.note(y)\n", b""))
    done = rewriter("apply", "alpha", *at)
    assert done.code == 2
    assert "alpha is partial: 1 of 2 places are ours; not: note in `Mixer.mix`" in done.err
    told = rewriter("status", "alpha", *at).out
    assert "import      <imports>  applied" in told
    assert "note        Mixer.mix  ready" in told


def test_case_08_twice_is_a_no_op_not_an_error(site_packages: Path) -> None:
    at = ("--site-packages", site_packages)
    assert rewriter("apply", "alpha", *at).code == 0
    once = tree(site_packages)
    assert rewriter("apply", "alpha", *at).code == 0
    assert tree(site_packages) == once


def test_case_11_state_is_proven_after_an_upgrade(site_packages: Path, write_files: Write) -> None:
    """Guessed wrongly, with a message that says nothing, it made users delete the install."""
    at = ("--site-packages", site_packages)
    assert (
        "proof: as shipped: sglang-0.5.2.dist-info/RECORD" in rewriter("status", "alpha", *at).out
    )
    rewriter("apply", "alpha", *at)
    assert "every file has the hash that the record holds" in rewriter("status", "alpha", *at).out
    newer = {**PACKAGE, "sglang/version.py": b'__version__ = "0.5.3"\n'}
    import shutil

    for left in site_packages.glob("*.dist-info"):
        shutil.rmtree(left)
    write_files(site_packages, installed_files("0.5.3", newer))
    told = rewriter("status", "alpha", *at)
    assert "(sglang 0.5.3)" in told.out
    assert "alpha: orphaned" in told.out
    assert "`rewriter revert` removes it" in told.out


def test_case_13_applied_is_said_of_what_is_on_disk(site_packages: Path) -> None:
    """The log said "applied" and the installed file was unchanged."""
    done = rewriter("apply", "alpha", "--site-packages", site_packages, "--json")
    assert done.json["results"][0]["state"] == "applied"
    assert b"_tools.note" in (site_packages / MIXER).read_bytes()
    (site_packages / MIXER).write_bytes(MIXER_SOURCE)
    assert states("alpha", "--site-packages", site_packages) != {"alpha": "applied"}


def test_case_14_the_neighbour_is_untouched(site_packages: Path) -> None:
    """A new class holds the old text, the original changed: fuzz edits the wrong one."""
    moved = MIXER_SOURCE.replace(b"y = x * SCALE", b"y = self.scaled(x)") + (
        b"\n\nclass Other:\n    def mix(self, x):\n        y = x * SCALE\n        return sqrt(y)\n"
    )
    (site_packages / MIXER).write_bytes(moved)
    done = rewriter("apply", "alpha", "--site-packages", site_packages, "--accept-unproven")
    assert done.code == 2
    assert "alpha is drifted" in done.err
    assert (site_packages / MIXER).read_bytes() == moved


# --- 15: the new code is what gets imported ------------------------------------------------


def compiled(site_packages: Path, mode: py_compile.PycInvalidationMode) -> None:
    """Leave byte code of the module as it stands, as an installer or an image build does."""
    for level in (-1, 1, 2):
        py_compile.compile(
            str(site_packages / MIXER), doraise=True, invalidation_mode=mode, optimize=level
        )


@pytest.mark.parametrize("mode", list(py_compile.PycInvalidationMode))
def test_case_15_new_code_runs_both_ways(
    mode: py_compile.PycInvalidationMode, site_packages: Path
) -> None:
    at = ("--site-packages", site_packages)
    has = "'_tools' in vars(__import__('sys').modules['sglang.srt.layers.mixer'])"
    compiled(site_packages, mode)
    assert result_of(site_packages, has) == "False"
    assert rewriter("apply", "alpha", *at).code == 0
    assert result_of(site_packages, has) == "True"
    compiled(site_packages, mode)
    assert rewriter("revert", "alpha", *at).code == 0
    assert result_of(site_packages, has) == "False"


def test_case_15_same_size_and_old_time(site_packages: Path, codemods: FakeCodemods) -> None:
    """Python takes a cached file for fresh if time and size of the source are the same."""
    codemods.edit("gamma.py", "({x},) * self.width", "({x} ,) * self.width")
    at = ("--site-packages", site_packages)
    compiled(site_packages, py_compile.PycInvalidationMode.TIMESTAMP)
    old = (site_packages / MIXER).stat()
    assert rewriter("apply", "gamma", *at).code == 0
    assert (site_packages / MIXER).stat().st_size == old.st_size
    os.utime(site_packages / MIXER, ns=(old.st_atime_ns, old.st_mtime_ns))
    assert result_of(site_packages, "Mixer(2).spread(1)") == "(1, 1)"
    assert rewriter("revert", "gamma", *at).code == 0
    os.utime(site_packages / MIXER, ns=(old.st_atime_ns, old.st_mtime_ns))
    assert result_of(site_packages, "Mixer(2).spread(1)") == "[1, 1]"


def test_case_15_cache_folder_elsewhere(
    site_packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path / "prefix"))
    at = ("--site-packages", site_packages)
    run = [sys.executable, "-c", "import sglang.srt.layers.mixer"]
    environment = {**os.environ, "PYTHONPATH": str(site_packages)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run(run, env=environment, check=True)
    assert list(tmp_path.glob("prefix/**/mixer.*.pyc"))
    assert rewriter("apply", "alpha", *at).code == 0
    assert not list(tmp_path.glob("prefix/**/mixer.*.pyc"))
    subprocess.run(run, env=environment, check=True)
    assert rewriter("revert", "alpha", *at).code == 0
    assert not list(tmp_path.glob("prefix/**/mixer.*.pyc"))
    assert not list(tmp_path.glob("prefix/**/_rewriter_tools.*.pyc"))


def test_case_15_byte_code_that_cannot_be_dropped(
    site_packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled(site_packages, py_compile.PycInvalidationMode.UNCHECKED_HASH)
    before = tree(site_packages, byte_code=True)
    real = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: "__pycache__" not in str(path) and real(path, mode)
    )
    done = rewriter("apply", "alpha", "--site-packages", site_packages)
    assert done.code == 2
    assert "byte code that this user cannot remove" in done.err
    assert tree(site_packages, byte_code=True) == before


# --- 16, 17 --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        MIXER_SOURCE.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + MIXER_SOURCE,
        MIXER_SOURCE.removesuffix(b"\n"),
        MIXER_SOURCE.replace(b"# spread", b"# spr\rx = 1"),
        b"# -*- coding: latin-1 -*-\n" + MIXER_SOURCE.replace(b"Mixes", b"Mix\xe9s"),
        MIXER_SOURCE + b"\x0c\nz = 1\n",
    ],
    ids=["crlf", "bom", "no last newline", "lone cr", "latin-1", "form feed"],
)
def test_case_16_bytes_outside_are_identical(raw: bytes, site_packages: Path) -> None:
    (site_packages / MIXER).write_bytes(raw)
    at = ("--site-packages", site_packages)
    assert rewriter("apply", "alpha", *at, "--accept-unproven").code == 0
    patched = (site_packages / MIXER).read_bytes()
    assert len(patched.splitlines()) == len(raw.splitlines()) + 2
    assert set(raw.splitlines()) <= set(patched.splitlines())
    assert rewriter("revert", *at).code == 0
    assert (site_packages / MIXER).read_bytes() == raw


def test_case_16_a_file_that_cannot_be_judged_is_refused(site_packages: Path) -> None:
    (site_packages / MIXER).write_bytes(MIXER_SOURCE + b"# \xff\n")
    before = tree(site_packages)
    done = rewriter("apply", "alpha", "--site-packages", site_packages, "--accept-unproven")
    assert done.code == 2
    assert MIXER in done.err
    assert tree(site_packages) == before


def test_case_17_record_is_true_while_applied_and_first_again_after(site_packages: Path) -> None:
    at = ("--site-packages", site_packages)
    first = (site_packages / "sglang-0.5.2.dist-info/RECORD").read_bytes()
    assert record_faults(site_packages) == []
    rewriter("apply", "alpha", "delta", *at)
    assert record_faults(site_packages) == [], "no row is wrong, and no file of ours is missing"
    record = (site_packages / "sglang-0.5.2.dist-info/RECORD").read_text()
    for path in (TOOLS, MIXER, SCALER, "sglang-0.5.2.dist-info/REWRITER.json"):
        assert f"\n{path},sha256=" in record
    rewriter("revert", "alpha", "delta", *at)
    assert (site_packages / "sglang-0.5.2.dist-info/RECORD").read_bytes() == first
