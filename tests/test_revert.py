"""``revert``: every byte back, proved; the user's own edits stay; ours edited are refused."""

from __future__ import annotations

import json
import os
import shutil
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
    Install,
    codemods,
    record_faults,
    rewriter,
    sealed_state,
    site_packages,
    states,
    tree,
)

from rewriter import pins
from rewriter.model import State

__all__ = ["codemods", "sealed_state", "site_packages"]

pytestmark = pytest.mark.usefixtures("codemods")

MANIFEST = "sglang-0.5.2.dist-info/REWRITER.json"
RECORD = "sglang-0.5.2.dist-info/RECORD"


def edit(path: Path, old: bytes, new: bytes) -> None:
    """Change a file as a user would."""
    raw = path.read_bytes()
    assert old in raw
    path.write_bytes(raw.replace(old, new))


def test_every_byte_and_the_proof(site_packages: Path) -> None:
    before = tree(site_packages)
    rewriter("apply", "alpha", "--site-packages", site_packages)
    done = rewriter("revert", "alpha", "--site-packages", site_packages)
    assert done.code == 0, done.err
    assert tree(site_packages) == before
    assert "proof: mixer.py is as shipped: sglang-0.5.2.dist-info/RECORD (sha256=" in done.out
    assert "…), taken before the first write" in done.out
    assert "alpha: ready" in done.out


def test_on_ready_says_so(site_packages: Path) -> None:
    before = tree(site_packages)
    done = rewriter("revert", "alpha", "--site-packages", site_packages)
    assert done.code == 0
    assert "alpha is ready, not applied: nothing to revert" in done.out
    assert tree(site_packages) == before


def test_dry_run(site_packages: Path) -> None:
    rewriter("apply", "alpha", "--site-packages", site_packages)
    before = tree(site_packages)
    done = rewriter("revert", "alpha", "--site-packages", site_packages, "--dry-run")
    assert done.code == 0
    assert f"would write {MIXER} (-2 lines)" in done.out
    assert f"would remove {TOOLS} (ours)" in done.out
    assert tree(site_packages) == before


def test_own_edits_elsewhere_stay(site_packages: Path) -> None:
    """Ours go, theirs stay, RECORD gets its first bytes; and all three are said."""
    record = (site_packages / RECORD).read_bytes()
    rewriter("apply", "alpha", "--site-packages", site_packages)
    edit(site_packages / MIXER, b"self.width = width", b"self.width = width  # mine")
    assert states("alpha", "--site-packages", site_packages) == {"alpha": "applied"}
    done = rewriter("revert", "alpha", "--site-packages", site_packages)
    assert done.code == 0, done.err
    expected = MIXER_SOURCE.replace(b"self.width = width", b"self.width = width  # mine")
    assert (site_packages / MIXER).read_bytes() == expected
    assert (site_packages / RECORD).read_bytes() == record
    assert "mixer.py: our lines are out; edits of your own stay" in done.out
    assert "RECORD has its first bytes again and does not describe that file" in done.out
    assert record_faults(site_packages) == [f"hash: {MIXER}"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"_tools.note(y)", b"_tools.note(y + 1)"),
        (b"        y = _tools.note(y)\n", b"        y = _tools.note(y); y += 1\n"),
    ],
)
def test_our_lines_edited_are_refused_and_shown(
    old: bytes, new: bytes, site_packages: Path
) -> None:
    rewriter("apply", "alpha", "--site-packages", site_packages)
    edit(site_packages / MIXER, old, new)
    before = tree(site_packages)
    assert states("alpha", "--site-packages", site_packages)["alpha"] in ("partial", "tampered")
    done = rewriter("revert", "alpha", "--site-packages", site_packages)
    assert done.code == 2
    assert MIXER in done.err
    assert "nothing was written" in done.err
    assert tree(site_packages) == before


def test_half_of_our_lines_gone_but_the_rest_proven(site_packages: Path) -> None:
    before = tree(site_packages)
    rewriter("apply", "alpha", "--site-packages", site_packages)
    edit(site_packages / MIXER, b"        y = _tools.note(y)\n", b"")
    assert states("alpha", "--site-packages", site_packages) == {"alpha": "partial"}
    done = rewriter("revert", "alpha", "--site-packages", site_packages)
    assert done.code == 0, done.err
    assert tree(site_packages) == before


def test_edited_companion_is_refused(site_packages: Path) -> None:
    rewriter("apply", "alpha", "--site-packages", site_packages)
    edit(site_packages / TOOLS, b"return value", b"return value + 1")
    before = tree(site_packages)
    done = rewriter("revert", "alpha", "--site-packages", site_packages)
    assert done.code == 2
    assert f"{TOOLS} was edited, so it is neither replaced nor removed" in done.err
    assert tree(site_packages) == before


def test_formatter_ran_over_our_lines(site_packages: Path) -> None:
    """The same tokens come back; the layout is the formatter's."""
    rewriter("apply", "alpha", "--site-packages", site_packages)
    edit(site_packages / MIXER, b"y = _tools.note(y)", b"y = _tools.note( y )")
    assert states("alpha", "--site-packages", site_packages) == {"alpha": "applied"}
    done = rewriter("revert", "alpha", "--site-packages", site_packages)
    assert done.code == 0, done.err
    assert (site_packages / MIXER).read_bytes() == MIXER_SOURCE


# --- the manifest is lost ------------------------------------------------------------------


def lose_manifest(site_packages: Path) -> None:
    (site_packages / MANIFEST).unlink()


def pin(codemods: FakeCodemods, monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    """Ship a pin of the fake package's mixer."""
    known = pins.Pin(
        MIXER, pins.sha256(MIXER_SOURCE), ("0.5.2",), State.READY, (), pins.sha256(b"patched")
    )
    pins.save("alpha", [known], place)
    monkeypatch.setattr(pins, "shipped", lambda: place)


def test_without_manifest_proved_by_a_pin(
    site_packages: Path, codemods: FakeCodemods, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = tree(site_packages)
    pin(codemods, monkeypatch, tmp_path / "pins")
    rewriter("apply", "alpha", "--site-packages", site_packages)
    lose_manifest(site_packages)
    assert states("alpha", "--site-packages", site_packages) == {"alpha": "applied"}
    done = rewriter("revert", "alpha", "--site-packages", site_packages)
    assert done.code == 0, done.err
    assert "proof: mixer.py is as shipped: pin of sglang 0.5.2" in done.out
    assert tree(site_packages) == before, "RECORD's rows are made again, byte for byte"


def test_without_manifest_proved_by_the_wheel(
    site_packages: Path, sealed: Path, fake_wheel: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(site_packages)
    wheels = sealed / "cache" / "wheels"
    wheels.mkdir(parents=True)
    fake_wheel(installed_files("0.5.2", PACKAGE), directory=wheels)
    rewriter("apply", "alpha", "--site-packages", site_packages)
    lose_manifest(site_packages)
    done = rewriter("revert", "alpha", "--site-packages", site_packages)
    assert done.code == 0, done.err
    assert "proof: mixer.py is as shipped: wheel of sglang 0.5.2" in done.out
    assert tree(site_packages) == before


@pytest.fixture
def no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make fetching a release fail, as without a network."""
    from rewriter import targets
    from rewriter.errors import TargetError

    real = targets.resolve

    def resolve(**named: object) -> object:
        if named.get("release"):
            raise TargetError("no network")
        return real(**named)  # type: ignore[arg-type]

    monkeypatch.setattr(targets, "resolve", resolve)


@pytest.mark.usefixtures("no_index")
def test_without_manifest_and_proof(site_packages: Path) -> None:
    before = tree(site_packages)
    rewriter("apply", "alpha", "--site-packages", site_packages)
    lose_manifest(site_packages)
    done = rewriter("revert", "alpha", "--site-packages", site_packages)
    assert done.code == 1
    assert "reverted, unproven: mixer.py" in done.out
    assert tree(site_packages) == before
    assert rewriter("revert", "alpha", "--site-packages", site_packages, "--json").json["exit"] == 0


@pytest.mark.usefixtures("no_index")
def test_without_manifest_and_with_own_edits(site_packages: Path) -> None:
    rewriter("apply", "alpha", "--site-packages", site_packages)
    lose_manifest(site_packages)
    edit(site_packages / MIXER, b"self.width = width", b"self.width = width  # mine")
    done = rewriter("revert", "alpha", "--site-packages", site_packages, "--json")
    assert (done.code, done.json["proven"]) == (1, False)
    expected = MIXER_SOURCE.replace(b"self.width = width", b"self.width = width  # mine")
    assert (site_packages / MIXER).read_bytes() == expected


@pytest.mark.usefixtures("no_index")
def test_without_manifest_a_replacement_gives_back_the_template(site_packages: Path) -> None:
    """Only codemods of insertions promise bytes without a record; this one promises the code."""
    rewriter("apply", "gamma", "--site-packages", site_packages)
    lose_manifest(site_packages)
    assert rewriter("revert", "gamma", "--site-packages", site_packages).code == 1
    expected = MIXER_SOURCE.replace(b"[ x ] * self.width", b"[x] * self.width")
    assert (site_packages / MIXER).read_bytes() == expected


def test_with_manifest_a_replacement_gives_back_the_bytes(site_packages: Path) -> None:
    before = tree(site_packages)
    rewriter("apply", "gamma", "--site-packages", site_packages)
    assert rewriter("revert", "gamma", "--site-packages", site_packages).code == 0
    assert tree(site_packages) == before


@pytest.mark.parametrize(
    "damage",
    [
        b"{",
        b"null",
        b'{"schema": 2}',
        b'{"schema": 1, "tool": "t", "package": {"version": null}, "codemods": [], '
        b'"files": {"../../etc/passwd": {"before": null, "after": "", "mode": "0644"}}}',
        b'{"schema": 1, "tool": "t", "package": {"version": null}, "codemods": [{"name": "alpha",'
        b' "files": [], "companions": {"/etc/passwd": "x"}, "requires": []}], "files": {}}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_damaged_or_hostile_manifest(damage: bytes, site_packages: Path) -> None:
    rewriter("apply", "alpha", "--site-packages", site_packages)
    (site_packages / MANIFEST).write_bytes(damage)
    before = tree(site_packages)
    for verb in ("status", "check", "apply", "revert"):
        done = rewriter(verb, "alpha", "--site-packages", site_packages)
        assert done.code == 2, verb
        assert "expected the manifest of an applied codemod" in done.err
        assert "Remove it, and `rewriter revert` goes by the structure" in done.err
    assert tree(site_packages) == before


def test_manifest_whose_undo_was_edited(site_packages: Path) -> None:
    rewriter("apply", "alpha", "--site-packages", site_packages)
    manifest = json.loads((site_packages / MANIFEST).read_bytes())
    manifest["files"][MIXER]["undo"][0][0] += 1
    (site_packages / MANIFEST).write_text(json.dumps(manifest))
    before = tree(site_packages)
    done = rewriter("revert", "alpha", "--site-packages", site_packages)
    assert done.code == 2
    assert "the manifest does not give back the original" in done.err
    assert tree(site_packages) == before


# --- RECORD --------------------------------------------------------------------------------


def test_record_changed_by_another_tool_keeps_its_rows(site_packages: Path) -> None:
    first = (site_packages / RECORD).read_bytes()
    rewriter("apply", "alpha", "--site-packages", site_packages)
    with (site_packages / RECORD).open("ab") as file:
        file.write(b"sglang/added.py,sha256=abc,1\n")
    assert rewriter("revert", "alpha", "--site-packages", site_packages).code == 0
    assert (site_packages / RECORD).read_bytes() == first + b"sglang/added.py,sha256=abc,1\n"


@pytest.mark.parametrize("change", ["carriage returns", "no last newline", "no hash", "sha384"])
def test_record_in_other_spellings(change: str, site_packages: Path) -> None:
    from rewriter.targets.record import digest

    raw = (site_packages / RECORD).read_bytes()
    if change == "carriage returns":
        raw = raw.replace(b"\n", b"\r\n")
    elif change == "no last newline":
        raw = raw.removesuffix(b"\n")
    else:
        row = f"{MIXER},{digest(MIXER_SOURCE)},{len(MIXER_SOURCE)}".encode()
        new = f"{MIXER},{digest(MIXER_SOURCE, 'sha384')},{len(MIXER_SOURCE)}".encode()
        new = f"{MIXER},,".encode() if change == "no hash" else new
        assert row in raw
        raw = raw.replace(row, new)
    (site_packages / RECORD).write_bytes(raw)
    accept = ["--accept-unproven"] if change == "no hash" else []
    done = rewriter("apply", "alpha", "--site-packages", site_packages, *accept)
    assert done.code == 0, done.err
    assert record_faults(site_packages) == []
    patched = (site_packages / RECORD).read_bytes()
    assert (b"\r\n" in patched) == (change == "carriage returns")
    assert (f"{MIXER},sha384=".encode() in patched) == (change == "sha384")
    assert rewriter("revert", "alpha", "--site-packages", site_packages).code == 0
    assert (site_packages / RECORD).read_bytes() == raw


# --- left over -----------------------------------------------------------------------------


def upgrade(site_packages: Path, write_files: Install, version: str = "0.5.3") -> None:
    """Put another release over the package, as a cached environment or an overlay does."""
    for old in site_packages.glob("sglang-*.dist-info"):
        (old / "METADATA").unlink()
        (old / "RECORD").unlink()
    newer = {**PACKAGE, MIXER: MIXER_SOURCE.replace(b'"1"', b'"2"')}
    newer["sglang/version.py"] = f'__version__ = "{version}"\n'.encode()
    write_files(site_packages, installed_files(version, newer))


def test_case_06_files_left_by_an_upgrade(site_packages: Path, write_files: Install) -> None:
    rewriter("apply", "alpha", "--site-packages", site_packages)
    upgrade(site_packages, write_files)
    told = rewriter("status", "alpha", "--site-packages", site_packages)
    assert "alpha: orphaned" in told.out
    assert f"left over: {TOOLS} (companion tools 1); `rewriter revert` removes it" in told.out
    assert f"left over: {MANIFEST} (manifest of a former install)" in told.out
    assert rewriter("check", "alpha", "--site-packages", site_packages).code == 1
    done = rewriter("revert", "alpha", "--site-packages", site_packages)
    assert done.code == 0, done.err
    assert states("alpha", "--site-packages", site_packages) == {"alpha": "ready"}
    assert not (site_packages / TOOLS).exists()
    assert not (site_packages / MANIFEST).exists()
    shutil.rmtree(site_packages / "sglang-0.5.2.dist-info")
    assert record_faults(site_packages) == []


def test_what_pip_has_stashed_is_left_alone(site_packages: Path) -> None:
    """While it upgrades; it puts that back where the upgrade fails."""
    rewriter("apply", "alpha", "--site-packages", site_packages)
    stash = site_packages / "~glang-0.5.2.dist-info"
    shutil.copytree(site_packages / "sglang-0.5.2.dist-info", stash)
    before = tree(stash)
    assert "left over" not in rewriter("status", "alpha", "--site-packages", site_packages).out
    assert rewriter("revert", "alpha", "--site-packages", site_packages).code == 0
    assert tree(stash) == before
    shutil.rmtree(site_packages / "sglang-0.5.2.dist-info")
    done = rewriter("apply", "alpha", "--site-packages", site_packages)
    assert done.code == 2
    assert "there is no RECORD and no commit to compare it with" in done.err
    assert tree(stash) == before


def test_case_06_apply_starts_clean_after_an_upgrade(
    site_packages: Path, write_files: Install
) -> None:
    rewriter("apply", "alpha", "--site-packages", site_packages)
    upgrade(site_packages, write_files)
    done = rewriter("apply", "alpha", "--site-packages", site_packages)
    assert done.code == 0, done.err
    assert states("alpha", "--site-packages", site_packages) == {"alpha": "applied"}
    assert not (site_packages / MANIFEST).exists()
    shutil.rmtree(site_packages / "sglang-0.5.2.dist-info")
    assert record_faults(site_packages) == []
    assert rewriter("revert", "alpha", "--site-packages", site_packages).code == 0
    assert not (site_packages / TOOLS).exists()


def test_edited_leftover_is_kept_and_told(site_packages: Path, write_files: Install) -> None:
    rewriter("apply", "alpha", "--site-packages", site_packages)
    upgrade(site_packages, write_files)
    edit(site_packages / TOOLS, b"return value", b"return value + 1")
    told = rewriter("status", "alpha", "--site-packages", site_packages)
    assert (
        f"left over: {TOOLS} (companion tools 1, edited by somebody); remove it by hand" in told.out
    )
    rewriter("revert", "alpha", "--site-packages", site_packages)
    assert (site_packages / TOOLS).exists()


def test_module_restored_by_hand(site_packages: Path) -> None:
    """The record and the companion are what is left over then."""
    before = tree(site_packages)
    rewriter("apply", "alpha", "--site-packages", site_packages)
    (site_packages / MIXER).write_bytes(MIXER_SOURCE)
    assert states("alpha", "--site-packages", site_packages) == {"alpha": "orphaned"}
    assert rewriter("revert", "alpha", "--site-packages", site_packages).code == 0
    assert tree(site_packages) == before


def test_release_without_the_file(site_packages: Path) -> None:
    rewriter("apply", "alpha", "--site-packages", site_packages)
    (site_packages / MIXER).unlink()
    assert states("alpha", "--site-packages", site_packages) == {"alpha": "orphaned"}
    done = rewriter("revert", "alpha", "--site-packages", site_packages)
    assert done.code == 0, done.err
    assert states("alpha", "--site-packages", site_packages) == {"alpha": "absent"}
    assert not (site_packages / TOOLS).exists()


def test_files_of_others_are_never_removed(site_packages: Path) -> None:
    """A file of our name that does not say it is ours."""
    (site_packages / TOOLS).write_bytes(b"# somebody else's\n")
    done = rewriter("apply", "delta", "--site-packages", site_packages)
    assert done.code == 2
    rewriter("revert", "delta", "--site-packages", site_packages)
    assert (site_packages / TOOLS).read_bytes() == b"# somebody else's\n"
    assert (site_packages / SCALER).is_file()
    assert os.listxattr(site_packages / TOOLS) == []
