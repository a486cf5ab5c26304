"""``sync``: from any state to what the configuration says; ``lock``, and ``--locked``."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
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
    rewriter,
    sealed_state,
    site_packages,
    states,
    tree,
)

__all__ = ["codemods", "sealed_state", "site_packages"]

NAMES = ("alpha", "beta", "delta", "gamma")


def configure(*names: str, more: str = "") -> None:
    Path("rewriter.toml").write_text(f"codemods = {list(names)!r}\n{more}", encoding="utf-8")


def applied(place: Path) -> set[str]:
    return {n for n, state in states("--site-packages", place).items() if state == "applied"}


def test_takes_out_and_puts_in_as_one_transition(
    site_packages: Path, codemods: FakeCodemods
) -> None:
    option = ("--site-packages", str(site_packages))
    assert rewriter("apply", "gamma", *option).code == 0
    configure("beta", "alpha")
    dry = rewriter("sync", "--dry-run", *option)
    assert (dry.code, applied(site_packages)) == (0, {"gamma"})
    assert "gamma: would be taken out\nalpha: would be put in\nbeta: would be put in\n" in dry.out
    done = rewriter("sync", *option, "--json")
    assert done.code == 0, done.err
    assert (done.json["put_in"], done.json["taken_out"]) == (["alpha", "beta"], ["gamma"])
    assert applied(site_packages) == {"alpha", "beta"}
    assert record_faults(site_packages) == []
    again = rewriter("sync", *option)
    assert "everything is as the configuration says; nothing to write" in again.out


def test_an_empty_list_takes_all_out(site_packages: Path, codemods: FakeCodemods) -> None:
    before = tree(site_packages)
    option = ("--site-packages", str(site_packages))
    assert rewriter("apply", *NAMES, *option).code == 0
    configure()
    assert rewriter("sync", *option).code == 0
    assert tree(site_packages) == before


def test_an_older_version_is_renewed(site_packages: Path, codemods: FakeCodemods) -> None:
    option = ("--site-packages", str(site_packages))
    configure("alpha")
    rewriter("sync", *option)
    codemods.edit("runtime/tools.py", 'VERSION = "1"', 'VERSION = "2"')
    assert "alpha: brought up to this version" in rewriter("sync", *option).out
    assert "nothing to write" in rewriter("sync", *option).out


def test_a_codemod_that_is_gone_is_taken_out(site_packages: Path, codemods: FakeCodemods) -> None:
    before = tree(site_packages)
    option = ("--site-packages", str(site_packages))
    rewriter("apply", "gamma", *option)
    codemods.use({"gamma.py": None})
    configure()
    assert "gamma: taken out" in rewriter("sync", *option).out
    assert tree(site_packages) == before


def test_what_this_release_has_no_file_for(site_packages: Path, codemods: FakeCodemods) -> None:
    (site_packages / SCALER).unlink()
    configure("delta", "alpha")
    done = rewriter("sync", "--site-packages", site_packages)
    assert (done.code, "delta: its file is not part of this release" in done.out) == (1, True)
    assert applied(site_packages) == {"alpha"}


def test_a_checkout_and_an_overlay(
    site_packages: Path, tmp_path: Path, codemods: FakeCodemods, write_files: Callable[..., Path]
) -> None:
    configure("alpha", "delta")
    over = ("--site-packages", str(site_packages), "--overlay", str(tmp_path / "overlay"))
    tree_ = write_files(tmp_path / "tree" / "python", PACKAGE)
    options = ("--checkout", str(tree_.parent), "--accept-unproven")
    for option in (over, options):
        assert rewriter("sync", *option).code == 0
        assert "nothing to write" in rewriter("sync", *option).out
    configure("alpha")
    assert "delta: taken out" in rewriter("sync", *over).out
    assert "'sglang.srt.layers.scaler'" not in (tmp_path / "overlay/sitecustomize.py").read_text()
    configure()
    assert rewriter("sync", *over).code == 0
    assert tree(tmp_path / "overlay", byte_code=True) == {}


@pytest.mark.parametrize("text", [None, "keep-going = true\n"])
def test_without_a_list_of_codemods(
    text: str | None, site_packages: Path, codemods: FakeCodemods
) -> None:
    if text is not None:
        Path("rewriter.toml").write_text(text)
    for verb in ("sync", "lock"):
        done = rewriter(verb, "--site-packages", site_packages)
        assert (done.code, "there is no list of `codemods`" in done.err) == (2, True)


def test_a_requirement_that_is_not_listed(site_packages: Path, codemods: FakeCodemods) -> None:
    configure("beta")
    rewriter("apply", "alpha", "--site-packages", site_packages)
    done = rewriter("sync", "--site-packages", site_packages)
    assert (done.code, "beta requires alpha" in done.err) == (2, True)
    assert applied(site_packages) == {"alpha"}


# --- rewriter.lock -------------------------------------------------------------------------


@pytest.fixture
def locked(site_packages: Path, codemods: FakeCodemods) -> tuple[str, str]:
    """Lock alpha and delta; return the options that name the target."""
    configure("alpha", "delta")
    option = ("--site-packages", str(site_packages))
    before = tree(site_packages)
    done = rewriter("lock", *option)
    assert done.code == 0, done.err
    assert tree(site_packages) == before
    return option


def test_the_lock_is_the_same_before_and_after(locked: tuple[str, str]) -> None:
    first = Path("rewriter.lock").read_text()
    assert rewriter("check", "--locked", *locked).code == 0
    assert rewriter("sync", "--locked", *locked).code == 0
    assert rewriter("check", "--locked", "--require", "applied", *locked).code == 0
    rewriter("lock", *locked)
    assert Path("rewriter.lock").read_text() == first


def unlike(options: tuple[str, str]) -> str:
    """Return what check tells; sync refuses for the same reason and writes nothing."""
    place = Path(options[1])
    before = tree(place)
    checked, synced = (
        rewriter("check", "--locked", *options),
        rewriter("sync", "--locked", *options),
    )
    assert (checked.code, synced.code) == (1, 2), (checked, synced)
    assert tree(place) == before
    told = [line for line in checked.out.splitlines() if line.startswith(("not as", "note"))]
    assert all(line.partition(": ")[2] in synced.err for line in told)
    return "\n".join(told)


def test_another_release(locked: tuple[str, str], write_files: Callable[..., Path]) -> None:
    place = Path(locked[1])
    shutil.rmtree(place)
    write_files(place, installed_files("0.5.3", {**PACKAGE, MIXER: MIXER_SOURCE + b"# new\n"}))
    told = unlike(locked)
    assert "sglang 0.5.3 is here, locked was 0.5.2" in told
    assert f"{MIXER}: another original file than the locked one: it is of another release" in told


def test_a_rebuilt_file(locked: tuple[str, str], write_files: Callable[..., Path]) -> None:
    write_files(Path(locked[1]),
                installed_files("0.5.2", {**PACKAGE, MIXER: MIXER_SOURCE + b"#\n"}))  # fmt: skip
    assert "it was edited or rebuilt since" in unlike(locked)


def test_another_version_of_a_codemod(locked: tuple[str, str], codemods: FakeCodemods) -> None:
    codemods.edit("runtime/tools.py", 'VERSION = "1"', 'VERSION = "2"')
    told = unlike(locked)
    assert "alpha brings tools 2, locked was tools 1" in told
    assert f"{TOOLS}: would be patched otherwise than it was locked" in told


def test_another_version_that_writes_the_same(
    locked: tuple[str, str], codemods: FakeCodemods
) -> None:
    codemods.edit("alpha.py", "A pure insertion", "Just an insertion")
    done = rewriter("check", "--locked", *locked)
    assert (done.code, "note: alpha is not the version that was locked" in done.out) == (0, True)
    assert rewriter("sync", "--locked", *locked).code == 0


def test_another_list(locked: tuple[str, str]) -> None:
    configure("alpha", "gamma")
    told = unlike(locked)
    assert "delta is locked, and the configuration does not name it any more" in told
    assert "gamma is in the configuration, and was not when it was locked" in told


@pytest.mark.parametrize("text", [None, "schema = 2\n", "[[[", "schema = 1\ncodemods = 3\n"])
def test_a_lock_that_cannot_be_read(text: str | None, locked: tuple[str, str]) -> None:
    Path("rewriter.lock").unlink()
    if text is not None:
        Path("rewriter.lock").write_text(text)
    for verb in ("check", "sync"):
        done = rewriter(verb, "--locked", *locked)
        assert (done.code, "rewriter.lock" in done.err) == (2, True)


def test_a_release_is_not_locked(locked: tuple[str, str], fake_wheel: Callable[..., Path]) -> None:
    done = rewriter("lock", "--wheel", fake_wheel(installed_files("0.5.2", PACKAGE)))
    assert (done.code, "nothing to lock" in done.err) == (2, True)
