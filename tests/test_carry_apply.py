"""``carry --apply``: into a package and out again, alone, over and under codemods."""

from __future__ import annotations

import io
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Mapping
from itertools import permutations
from pathlib import Path

import pytest
from conftest import Git
from fake_sglang import installed_files
from installing import (
    MIXER,
    SCALER,
    Install,
    codemods,
    record_faults,
    rewriter,
    sealed_state,
    states,
    tree,
)
from patching import (
    CRLF,
    EDITS,
    FRESH,
    MOVED,
    NEWER,
    NORM,
    NOTES,
    OLDER,
    OPEN,
    Team,
    contents,
    imported,
    patched,
    replaced,
    team,
)

__all__ = ["codemods", "sealed_state", "team"]

pytestmark = pytest.mark.usefixtures("codemods")

RECORD = "sglang-0.5.2.dist-info/RECORD"
MANIFEST = "sglang-0.5.2.dist-info/REWRITER.json"


@pytest.fixture
def site_packages(tmp_path: Path, write_files: Install) -> Path:
    """Return the newer package as pip leaves it."""
    return write_files(tmp_path / "site-packages", installed_files("0.5.2", NEWER))


def at(place: Path) -> tuple[str, str]:
    return "--site-packages", str(place)


def named(place: Path, *names: str) -> dict[str, str]:
    """Return the states of patches and codemods that are in, patches by their file."""
    told = states(*names, *at(place))
    return {name.partition("@")[0]: state for name, state in told.items() if state != "ready"}


# --- in and out ----------------------------------------------------------------------------


def test_every_kind_of_change_in_and_out(team: Team, site_packages: Path) -> None:
    (site_packages / NORM).chmod(0o755)
    before = tree(site_packages)
    done = rewriter(*team.apply(team.patch()), *at(site_packages))
    assert done.code == 0, done.err
    assert contents(site_packages) == patched()
    assert record_faults(site_packages) == []
    assert f"removed {NORM} (the patch deletes it)" in done.out
    assert f"wrote {FRESH} (new file)" in done.out
    assert imported(site_packages, "sglang.srt.team.deep.fresh", "m.VALUE", sys.executable) == "1"
    assert named(site_packages) == {"team.patch": "applied"}
    done = rewriter("revert", *at(site_packages))
    assert done.code == 0, done.err
    assert f"wrote {NORM} (there again, as before)" in done.out
    assert tree(site_packages) == before


def test_modules_that_are_links(team: Team, site_packages: Path, tmp_path: Path) -> None:
    """As uv installs them with --link-mode symlink: what the links lead to is never written."""
    cache = tmp_path / "cache"
    for number, path in enumerate((MIXER, NORM, OPEN)):
        cache.mkdir(exist_ok=True)
        (site_packages / path).rename(cache / f"{number}.py")
        (site_packages / path).symlink_to(cache / f"{number}.py")
    before, cached = tree(site_packages), tree(cache)
    done = rewriter(*team.apply(team.patch()), *at(site_packages))
    assert done.code == 0, done.err
    assert contents(site_packages) == patched()
    assert not (site_packages / NORM).is_symlink()
    rewriter("apply", "alpha", *at(site_packages))
    assert rewriter("revert", *at(site_packages)).code == 0
    assert tree(site_packages) == before
    assert tree(cache) == cached


def test_a_renamed_file(team: Team, site_packages: Path) -> None:
    before = tree(site_packages)
    longer = NEWER[SCALER] + b"\nTEAM = 1\n"
    patch = team.patch({MOVED: longer}, renames={SCALER: MOVED})
    assert b"rename from" in patch.read_bytes()
    done = rewriter(*team.apply(patch), *at(site_packages))
    assert done.code == 0, done.err
    assert f"{MOVED}\n  hunk 1: exactly, line 11 (renamed from {SCALER})" in done.out
    wanted = {**NEWER, MOVED: longer}
    del wanted[SCALER]
    assert contents(site_packages) == wanted
    assert record_faults(site_packages) == []
    assert rewriter("revert", *at(site_packages)).code == 0
    assert tree(site_packages) == before


def test_status_tells_the_patch_its_files_and_what_it_rests_on(
    team: Team, site_packages: Path
) -> None:
    rewriter(*team.apply(team.patch()), *at(site_packages))
    told = rewriter("status", "team.patch", *at(site_packages)).out
    name = next(line for line in told.splitlines() if line.startswith("team.patch@"))
    assert name.endswith(": applied")
    assert f"  {MIXER}\n      7  hunk 1\n     16  hunk 2      Mixer.mix\n" in told
    assert f"  {NORM}\n      -  deleted\n" in told
    assert f"patch: made for {team.older}, sha256 " in told
    assert "proof: every file has the hash that the record holds" in told
    assert f"ours: {FRESH} (brought by team.patch@" in told
    value = rewriter("status", *at(site_packages), "--json").json
    [held] = value["record"]["codemods"]
    assert held["patch"]["files"] == sorted(EDITS)
    assert held["patch"]["from"] == str(team.older)


def test_a_dry_run_writes_nothing(team: Team, site_packages: Path) -> None:
    before = tree(site_packages)
    patch = team.patch()
    done = rewriter(*team.apply(patch), *at(site_packages), "--dry-run")
    assert (done.code, f"would remove {NORM}" in done.out) == (0, True)
    value = rewriter(*team.apply(patch), *at(site_packages), "--dry-run", "--json").json
    assert (value["exit"], value["written"]) == (0, [])
    assert set(EDITS) < set(value["planned"])
    rewriter(*team.apply(patch), *at(site_packages))
    after = tree(site_packages)
    assert "would write" in rewriter("revert", *at(site_packages), "--dry-run").out
    assert tree(site_packages) == after != before


def test_json(team: Team, site_packages: Path) -> None:
    value = rewriter(*team.apply(team.patch()), *at(site_packages), "--json").json
    assert [row["state"] for row in value["results"]] == ["applied"]
    assert set(EDITS) < set(value["written"])
    [patch] = value["patches"]
    assert {hunk["fate"] for hunk in patch["hunks"]} == {"exactly"}
    assert {proof["file"] for proof in value["proofs"]} == {MIXER, NORM, CRLF, OPEN}


def test_twice_is_a_no_op(team: Team, site_packages: Path) -> None:
    arguments = (*team.apply(team.patch()), *at(site_packages))
    rewriter(*arguments)
    before = tree(site_packages)
    done = rewriter(*arguments)
    assert (done.code, tree(site_packages)) == (0, before)
    assert "was applied already; nothing to write for it" in done.out


def test_what_upstream_has_is_nothing_to_apply(
    team: Team, tmp_path: Path, write_files: Install
) -> None:
    place = write_files(tmp_path / "there", installed_files("0.5.3", patched()))
    before = tree(place)
    done = rewriter(*team.apply(team.patch()), *at(place))
    assert (done.code, tree(place)) == (1, before)
    assert "was upstream already; nothing to write for it" in done.out


def test_a_conflict_writes_nothing(team: Team, tmp_path: Path, write_files: Install) -> None:
    other = replaced(NEWER[MIXER], b"return sqrt(y)", b"return sqrt(y) - 1")
    place = write_files(tmp_path / "other", installed_files("0.5.3", {**NEWER, MIXER: other}))
    before = tree(place)
    ours = replaced(OLDER[MIXER], b"return sqrt(y)", b"return sqrt(y) + 1")
    done = rewriter(*team.apply(team.patch({MIXER: ours})), *at(place))
    assert done.code == 1
    assert "hunk 1: conflict" in done.out
    assert "nothing was written: an install gets all of a patch or nothing" in done.out
    assert "  rewriter carry new.patch --from 0.5.3 --apply\n" in done.out
    assert tree(place) == before


def test_a_file_that_nothing_proves(team: Team, site_packages: Path) -> None:
    path = site_packages / MIXER
    path.write_bytes(replaced(path.read_bytes(), b'"""Mixes."""', b'"""Mixes it."""'))
    before = tree(site_packages)
    arguments = (*team.apply(team.patch()), *at(site_packages))
    done = rewriter(*arguments)
    assert (done.code, "is not known to be as shipped" in done.err) == (2, True)
    assert rewriter(*arguments, "--accept-unproven").code == 0
    assert rewriter("revert", *at(site_packages)).code == 0
    assert tree(site_packages) == before


# --- with codemods -------------------------------------------------------------------------

ALL = ("patch", "alpha", "gamma", "delta")


@pytest.mark.parametrize("order", list(permutations(("patch", "alpha", "gamma"))))
def test_with_codemods_in_any_order_and_back(
    order: tuple[str, ...], team: Team, site_packages: Path
) -> None:
    """What stands is a function of the list: the patch beneath, the codemods over it."""
    patch, stages = team.patch(), [tree(site_packages)]
    for name in order:
        own = team.apply(patch) if name == "patch" else ["apply", name]
        assert rewriter(*own, *at(site_packages)).code == 0
        assert record_faults(site_packages) == []
        stages.append(tree(site_packages))
    text = (site_packages / MIXER).read_bytes()
    for line in (b"y = _tools.note(y)", b"y = y + TEAM", b"(x,) * self.width  # spread"):
        assert line in text
    done = {"team.patch" if name == "patch" else name for name in order}
    for name in order:  # not the order in which a stack would come down
        assert named(site_packages) == dict.fromkeys(done, "applied")
        own_name = "team.patch" if name == "patch" else name
        assert rewriter("revert", own_name, *at(site_packages)).code == 0
        assert record_faults(site_packages) == []
        done.discard(own_name)
    assert tree(site_packages) == stages[0]


def test_the_lines_that_status_shows_are_those_of_the_file(team: Team, site_packages: Path) -> None:
    rewriter(*team.apply(team.patch()), *at(site_packages))
    rewriter("apply", "alpha", *at(site_packages))
    value = rewriter("status", "team.patch", *at(site_packages), "--json").json
    rows = (site_packages / MIXER).read_text().splitlines()
    shown = [rows[s["line"] - 1] for s in value["results"][0]["sites"] if s["file"] == MIXER]
    assert shown == ["TEAM = 0", "        y = y + TEAM"]


def test_a_codemod_that_does_not_go_over_the_patch(team: Team, site_packages: Path) -> None:
    """Both want one line: neither is put over the other by force."""
    other = replaced(NEWER[MIXER], b"y = x * SCALE", b"y = SCALE * x")
    patch = team.patch({MIXER: other})
    rewriter("apply", "alpha", *at(site_packages))
    before = tree(site_packages)
    done = rewriter(*team.apply(patch), *at(site_packages))
    assert done.code == 2
    assert "alpha is drifted on the files with team.patch@" in done.err
    assert "They cannot both be in: rewriter revert one" in done.err
    assert tree(site_packages) == before
    rewriter("revert", "alpha", *at(site_packages))
    assert rewriter(*team.apply(patch), *at(site_packages)).code == 0
    done = rewriter("apply", "alpha", *at(site_packages))
    assert (done.code, "alpha is drifted" in done.err) == (2, True)


def test_a_codemod_in_a_file_that_the_patch_brings_or_deletes(
    team: Team, site_packages: Path
) -> None:
    before = tree(site_packages)
    rewriter("apply", "delta", *at(site_packages))
    done = rewriter(*team.apply(team.patch({SCALER: None})), *at(site_packages))
    assert done.code == 2
    assert "delta is absent on the files with team.patch@" in done.err
    rewriter("revert", *at(site_packages))
    assert tree(site_packages) == before


# --- several patches -----------------------------------------------------------------------


def test_a_series_is_carried_in_its_order(team: Team, site_packages: Path) -> None:
    before = tree(site_packages)
    first = team.patch({FRESH: b"VALUE = 1\n"}, "one.patch")
    second = team.written(
        f"--- a/{FRESH}\n+++ b/{FRESH}\n@@ -1 +1 @@\n-VALUE = 1\n+VALUE = 2\n".encode(), "two.patch"
    )
    done = rewriter(*team.apply(first, second), *at(site_packages))
    assert done.code == 0, done.err
    assert (site_packages / FRESH).read_bytes() == b"VALUE = 2\n"
    assert named(site_packages) == {"one.patch": "applied", "two.patch": "applied"}
    refused = rewriter("revert", "one.patch", *at(site_packages))
    assert (refused.code, "First: rewriter revert two.patch@" in refused.err) == (2, True)
    assert rewriter("revert", "two.patch", *at(site_packages)).code == 0
    assert (site_packages / FRESH).read_bytes() == b"VALUE = 1\n"
    assert rewriter("revert", "one.patch", *at(site_packages)).code == 0
    assert tree(site_packages) == before


def test_a_patch_upon_one_that_is_in_already(team: Team, site_packages: Path) -> None:
    before = tree(site_packages)
    first = team.patch({FRESH: b"VALUE = 1\n"}, "one.patch")
    second = team.written(
        f"--- a/{FRESH}\n+++ b/{FRESH}\n@@ -1 +1 @@\n-VALUE = 1\n+VALUE = 2\n".encode(), "two.patch"
    )
    assert rewriter(*team.apply(first), *at(site_packages)).code == 0
    alone = rewriter(*team.apply(second), *at(site_packages))
    assert (alone.code, "not in the release that the patch is for" in alone.err) == (2, True)
    done = rewriter(*team.apply(first, second), *at(site_packages))
    assert done.code == 0, done.err
    assert "one.patch@" in done.out
    assert "was applied already; nothing to write for it" in done.out
    assert (site_packages / FRESH).read_bytes() == b"VALUE = 2\n"
    assert rewriter("revert", *at(site_packages)).code == 0
    assert tree(site_packages) == before


@pytest.mark.parametrize("back", list(permutations(("one.patch", "two.patch"))))
def test_two_patches_of_one_file_come_out_in_any_order(
    back: tuple[str, str], team: Team, site_packages: Path
) -> None:
    before = tree(site_packages)
    raw = team.older.joinpath(MIXER).read_bytes()
    one = team.patch({MIXER: replaced(raw, b"  # spread", b"  # spreads")}, "one.patch")
    two = team.patch({MIXER: replaced(raw, b'"""Mixes."""', b'"""Mixer."""')}, "two.patch")
    for patch in (one, two):
        assert rewriter(*team.apply(patch), *at(site_packages)).code == 0
    rewriter("apply", "alpha", *at(site_packages))
    for name in back:
        assert rewriter("revert", name, *at(site_packages)).code == 0
        assert record_faults(site_packages) == []
    assert named(site_packages) == {"alpha": "applied"}
    rewriter("revert", *at(site_packages))
    assert tree(site_packages) == before


def test_another_version_of_a_patch_is_told(team: Team, site_packages: Path) -> None:
    rewriter(*team.apply(team.patch()), *at(site_packages))
    before = tree(site_packages)
    newer = team.patch({**EDITS, NOTES: b"for more people\n"})
    done = rewriter(*team.apply(newer), *at(site_packages))
    assert done.code == 2
    assert "another version of it, team.patch@" in done.err
    assert ", is applied here; `rewriter sync` replaces it" in done.err
    assert "rewriter revert team.patch@" in done.err
    assert tree(site_packages) == before


# --- what others do to the files -----------------------------------------------------------


def test_own_edits_elsewhere_stay(team: Team, site_packages: Path) -> None:
    rewriter(*team.apply(team.patch()), *at(site_packages))
    rewriter("apply", "alpha", *at(site_packages))
    path = site_packages / MIXER
    path.write_bytes(replaced(path.read_bytes(), b"= width\n", b"= width  # mine\n"))
    assert named(site_packages) == {"team.patch": "applied", "alpha": "applied"}
    told = rewriter("status", "team.patch", *at(site_packages)).out
    assert "the files were edited elsewhere since; its lines are whole" in told
    done = rewriter("revert", "team.patch", *at(site_packages))
    assert done.code == 0, done.err
    assert b"TEAM" not in path.read_bytes()
    assert b"_tools.note(y)" in path.read_bytes()
    rewriter("revert", *at(site_packages))
    assert path.read_bytes() == replaced(NEWER[MIXER], b"= width\n", b"= width  # mine\n")


EDITED = {
    "a line of the patch": (MIXER, b"y = y + TEAM", b"y = y + TEAM + 1", "tampered"),
    "a line beside one": (
        MIXER,
        b"SCALE\n        y = y",
        b"SCALE  # mine\n        y = y",
        "tampered",
    ),
    "one hunk taken out": (MIXER, b"        y = y + TEAM\n", b"", "partial"),
    "a file that it brought": (NOTES, b"people", b"all", "tampered"),
    "a file with no newline at its end": (OPEN, b"C = 3", b"C = 3\n", "tampered"),
}


@pytest.mark.parametrize("case", EDITED)
def test_its_own_lines_edited(case: str, team: Team, site_packages: Path) -> None:
    path, old, new, state = EDITED[case]
    before = tree(site_packages)
    rewriter(*team.apply(team.patch()), *at(site_packages))
    whole = tree(site_packages)
    place = site_packages / path
    place.write_bytes(replaced(place.read_bytes(), old, new))
    assert named(site_packages) == {"team.patch": state}
    gate = rewriter("check", "team.patch", *at(site_packages), "--require", "applied")
    assert gate.code == 1
    edited = tree(site_packages)
    done = rewriter("revert", *at(site_packages))
    if state == "partial":  # what is left comes out, and the file proves itself
        assert (done.code, tree(site_packages)) == (0, before)
        return
    assert done.code == 2
    assert "edited" in done.err
    assert tree(site_packages) == edited
    place.write_bytes(replaced(place.read_bytes(), new, old))
    assert tree(site_packages) == whole
    assert rewriter("revert", *at(site_packages)).code == 0
    assert tree(site_packages) == before


def test_a_deleted_file_that_is_there_again(team: Team, site_packages: Path) -> None:
    before = tree(site_packages)
    rewriter(*team.apply(team.patch()), *at(site_packages))
    (site_packages / NORM).write_bytes(b"x = 1\n")
    assert named(site_packages) == {"team.patch": "tampered"}
    done = rewriter("revert", *at(site_packages))
    assert (done.code, "it is there again, otherwise than it was" in done.err) == (2, True)
    (site_packages / NORM).write_bytes(NEWER[NORM])
    assert named(site_packages) == {"team.patch": "partial"}
    assert rewriter("revert", *at(site_packages)).code == 0
    assert tree(site_packages) == before


def test_a_patched_file_that_is_gone(team: Team, site_packages: Path) -> None:
    rewriter(*team.apply(team.patch()), *at(site_packages))
    (site_packages / OPEN).unlink()
    assert named(site_packages) == {"team.patch": "partial"}
    assert rewriter("revert", *at(site_packages)).code == 0
    assert contents(site_packages) == {p: raw for p, raw in NEWER.items() if p != OPEN}


def upgraded(site_packages: Path, write_files: Install, files: dict[str, bytes]) -> None:
    """Do what pip does: remove what RECORD lists, install the new release."""
    for line in (site_packages / RECORD).read_text().splitlines():
        (site_packages / line.split(",")[0]).unlink(missing_ok=True)
    for place in sorted(site_packages.rglob("*"), reverse=True):
        if place.is_dir() and not any(place.iterdir()):
            place.rmdir()
    write_files(site_packages, installed_files("0.5.3", files))


def test_an_upgrade_leaves_nothing(
    team: Team, site_packages: Path, write_files: Install, tmp_path: Path
) -> None:
    rewriter(*team.apply(team.patch()), *at(site_packages))
    newer = {**NEWER, MIXER: NEWER[MIXER] + b"\n# more\n"}
    upgraded(site_packages, write_files, newer)
    clean = write_files(tmp_path / "clean", installed_files("0.5.3", newer))
    assert tree(site_packages) == tree(clean)
    assert named(site_packages) == {}
    assert rewriter(*team.apply(team.patch()), *at(site_packages)).code == 0
    assert named(site_packages) == {"team.patch": "applied"}


def test_a_record_that_an_upgrade_left_is_orphaned(
    team: Team, site_packages: Path, write_files: Install
) -> None:
    """Installers that go by no RECORD: the files are another release's, the record is ours."""
    patch = team.patch()
    rewriter(*team.apply(patch), *at(site_packages))
    newer = {**NEWER, MIXER: NEWER[MIXER].replace(b"sqrt(y)", b"sqrt(abs(y))")}
    manifest = (site_packages / MANIFEST).read_bytes()
    upgraded(site_packages, write_files, newer)
    clean = tree(site_packages)
    place = site_packages / "sglang-0.5.3.dist-info/REWRITER.json"
    place.write_bytes(manifest)
    assert named(site_packages) == {"team.patch": "orphaned"}
    assert rewriter("revert", *at(site_packages)).code == 0
    assert tree(site_packages) == clean
    place.write_bytes(manifest)
    other = team.patch({OPEN: b"A = 1\nB = 2\nC = 3"}, "team.patch")
    done = rewriter(*team.apply(other), *at(site_packages))
    assert done.code == 0, done.err
    assert named(site_packages) == {"team.patch": "applied"}
    assert record_faults(site_packages) == []


def test_a_record_that_is_damaged(team: Team, site_packages: Path) -> None:
    rewriter(*team.apply(team.patch()), *at(site_packages))
    first = (site_packages / MANIFEST).read_text()
    kept = {"before": None, "after": "0" * 64, "packed": "", "undo": []}
    for key, new in (
        ("files", {"../x.py": kept}),
        ("files", {MIXER: {**kept, "packed": 5}}),
        ("files", {MIXER: {**kept, "packed": None}}),
        ("files", {MIXER: {**kept, "packed": "eJwDAAAAAAE=", "undo": [[-1, 0, ""]]}}),
        ("hunks", [[MIXER, "hunk 1"]]),
        ("hunks", [["/etc/x.py", "hunk 1", "", 1, 1, ""]]),
        ("hunks", [[MIXER, "hunk 1", "", "one", 1, ""]]),
    ):
        value = json.loads(first)
        value["codemods"][0]["patch"][key] = new
        (site_packages / MANIFEST).write_text(json.dumps(value))
        before = tree(site_packages)
        for verb in ("status", "revert"):
            done = rewriter(verb, *at(site_packages))
            assert (done.code, "it was damaged or edited" in done.err) == (2, True), new
        assert tree(site_packages) == before


@pytest.mark.parametrize("packed", ["eJwDAAAAAAE=", "AAAA", "%", "other"])
def test_a_file_of_the_record_that_is_not_what_was_kept(
    packed: str, team: Team, site_packages: Path
) -> None:
    rewriter(*team.apply(team.patch()), *at(site_packages))
    value = json.loads((site_packages / MANIFEST).read_text())
    files = value["codemods"][0]["patch"]["files"]
    files[MIXER]["packed"] = files[CRLF]["packed"] if packed == "other" else packed
    (site_packages / MANIFEST).write_text(json.dumps(value))
    before = tree(site_packages)
    done = rewriter("apply", "alpha", *at(site_packages))
    assert (done.code, "does not give the file of a carried patch" in done.err) == (2, True)
    assert tree(site_packages) == before


# --- other targets -------------------------------------------------------------------------


def test_a_checkout(team: Team, tmp_path: Path, write_files: Install, sealed_git: Git) -> None:
    root = tmp_path / "checkout"
    write_files(root, {f"python/{path}": raw for path, raw in NEWER.items()})
    (root / "python/pyproject.toml").write_text('[project]\nname = "sglang"\n')
    sealed_git("init", cwd=root)
    sealed_git("add", "-A", cwd=root)
    sealed_git("commit", "-m", "x", cwd=root)
    before = tree(root / "python")
    done = rewriter(*team.apply(team.patch()), "--checkout", root)
    assert done.code == 0, done.err
    assert "proof: mixer.py was as shipped: HEAD" in done.out
    assert contents(root / "python") == patched()
    assert rewriter("status", "team.patch", "--checkout", root).out.count("applied") == 1
    sealed_git("checkout", ".", cwd=root)
    told = rewriter("status", "--checkout", root, "--json").json
    assert told["results"][0]["state"] in ("partial", "orphaned")
    assert rewriter("revert", "--checkout", root).code == 0
    assert tree(root / "python") == before


TOOL = "sglang/srt/team/tool.py"


def of_a_tool(team: Team, more: Mapping[str, bytes | None] | None = None) -> Path:
    """Return a patch that brings a file to be run."""
    raw = team.patch({TOOL: b"#!/usr/bin/env python3\n", **(more or {})}).read_bytes()
    head = f"b/{TOOL}\nnew file mode 100".encode()
    assert raw.count(head + b"644") == 1
    return team.written(raw.replace(head + b"644", head + b"755"))


def mode(place: Path) -> int:
    return stat.S_IMODE(place.stat().st_mode)


@pytest.mark.parametrize("own", [0o644, 0o664, 0o600])
def test_a_new_file_to_be_run(own: int, team: Team, site_packages: Path) -> None:
    """Whoever may read the package may run it; nobody else."""
    (site_packages / "sglang/__init__.py").chmod(own)
    before = tree(site_packages)
    patch = of_a_tool(team, {FRESH: b"A = 1\n"})
    assert rewriter(*team.apply(patch), *at(site_packages)).code == 0
    assert mode(site_packages / TOOL) == own | (own & 0o444) >> 2
    assert mode(site_packages / FRESH) == own
    record = json.loads((site_packages / MANIFEST).read_text())
    assert int(record["files"][TOOL]["mode"], 8) == mode(site_packages / TOOL)
    assert named(site_packages) == {"team.patch": "applied"}
    assert rewriter("apply", "alpha", *at(site_packages)).code == 0
    assert mode(site_packages / TOOL) == own | (own & 0o444) >> 2
    assert rewriter("revert", "alpha", *at(site_packages)).code == 0
    assert mode(site_packages / TOOL) == own | (own & 0o444) >> 2
    assert rewriter("revert", *at(site_packages)).code == 0
    assert tree(site_packages) == before


def test_a_new_file_to_be_run_in_a_diff_and_an_output(
    team: Team, site_packages: Path, tmp_path: Path, sealed_git: Git
) -> None:
    out, new = tmp_path / "out", tmp_path / "new.patch"
    ends = ["--from", str(team.older), "--onto", str(site_packages)]
    done = rewriter(
        "carry", str(of_a_tool(team)), *ends, "--output", str(out), "--patch", str(new)
    )  # fmt: skip
    assert done.code == 0, done.err
    assert mode(out / TOOL) == 0o755
    assert b"\nnew file mode 100755\n" in new.read_bytes()
    again = tmp_path / "again"
    again.mkdir()
    sealed_git("init", cwd=again)
    sealed_git("apply", str(new), cwd=again)
    assert mode(again / TOOL) & 0o100
    told = rewriter("diff", "team.patch", *at(out)).out
    assert told == ""  # it is in


def test_a_file_to_be_run_renamed(team: Team, site_packages: Path) -> None:
    before = tree(site_packages)
    longer = NEWER[SCALER] + b"\nTEAM = 1\n"
    raw = team.patch({MOVED: longer}, renames={SCALER: MOVED}).read_bytes()
    plain = re.sub(rb"(?m)^(index \S+) 100644$", rb"\1 100755", raw)
    assert plain != raw
    assert rewriter(*team.apply(team.written(plain)), *at(site_packages)).code == 0
    assert mode(site_packages / MOVED) & 0o111
    assert rewriter("revert", *at(site_packages)).code == 0
    assert tree(site_packages) == before


def test_another_mode_of_a_file_that_is_there_is_said(team: Team, site_packages: Path) -> None:
    raw = team.patch({MIXER: EDITS[MIXER]}).read_bytes()
    head, rest = raw.split(b"index ", 1)
    raw = head + b"old mode 100644\nnew mode 100755\nindex " + rest.replace(b" 100644", b"", 1)
    own = mode(site_packages / MIXER)
    done = rewriter(*team.apply(team.written(raw)), *at(site_packages))
    assert done.code == 0, done.err
    assert "its change of the file's mode is left out" in done.out
    assert mode(site_packages / MIXER) == own


def test_an_overlay(team: Team, tmp_path: Path, site_packages: Path) -> None:
    before = tree(site_packages)
    edits = {path: raw for path, raw in EDITS.items() if path != NOTES}
    overlay = tmp_path / "overlay"
    where = (*at(site_packages), "--overlay", overlay)
    done = rewriter(*team.apply(team.patch(edits)), *where)
    assert done.code == 0, done.err
    assert tree(site_packages) == before
    path = f"{overlay}:{site_packages}"
    module = "sglang.srt.team.deep.fresh"
    assert imported(Path(path), module, "m.VALUE", sys.executable) == "1"
    assert imported(Path(path), "sglang.srt.layers.mixer", "m.TEAM", sys.executable) == "0"
    assert states("team.patch", *where).popitem()[1] == "applied"
    assert rewriter("apply", "alpha", *where).code == 0
    assert b"y = y + TEAM" in (overlay / MIXER).read_bytes()
    wanted = ("alpha", "team.patch", "--require", "applied")
    assert rewriter("check", *wanted, *where).code == 0
    assert rewriter("revert", "team.patch", *where).code == 0
    assert not (overlay / FRESH).exists()
    assert rewriter("revert", *where).code == 0
    assert [p for p in overlay.rglob("*") if p.is_file()] == []


NORM_MODULE = NORM.removesuffix(".py").replace("/", ".")


def importing(overlay: Path, site_packages: Path, module: str) -> tuple[int, str]:
    """Import a module in a process of its own; return its code and what it says last."""
    done = subprocess.run(
        [sys.executable, "-B", "-c", f"import {module}; print({module}.__file__)"],
        env={**os.environ, "PYTHONPATH": f"{overlay}:{site_packages}"},
        capture_output=True, check=False, text=True,
    )  # fmt: skip
    return done.returncode, (done.stdout + done.stderr).strip().splitlines()[-1]


def test_an_overlay_takes_a_module_away(team: Team, tmp_path: Path, site_packages: Path) -> None:
    before = tree(site_packages)
    overlay = tmp_path / "overlay"
    where = (*at(site_packages), "--overlay", str(overlay))
    assert importing(overlay, site_packages, NORM_MODULE) == (0, str(site_packages / NORM))
    done = rewriter(*team.apply(team.patch({NORM: None})), *where)
    assert done.code == 0, done.err
    assert tree(site_packages) == before
    code, told = importing(overlay, site_packages, NORM_MODULE)
    assert code == 1
    assert told == (
        f"ModuleNotFoundError: No module named '{NORM_MODULE}': the overlay {overlay} takes it away"
    )
    assert states("team.patch", *where).popitem()[1] == "applied"
    assert rewriter("check", "team.patch", "--require", "applied", *where).code == 0
    assert rewriter(*team.apply(team.patch({NORM: None})), *where).code == 0  # nothing to do
    assert rewriter("revert", "team.patch", *where).code == 0
    assert importing(overlay, site_packages, NORM_MODULE) == (0, str(site_packages / NORM))
    assert tree(site_packages) == before


def test_an_overlay_of_a_taken_module_that_is_another_one_by_now(
    team: Team, tmp_path: Path, site_packages: Path
) -> None:
    overlay = tmp_path / "overlay"
    where = (*at(site_packages), "--overlay", str(overlay))
    assert rewriter(*team.apply(team.patch({NORM: None})), *where).code == 0
    (site_packages / NORM).write_bytes(b"NEW = 1\n")
    code, told = importing(overlay, site_packages, NORM_MODULE)
    assert code == 1
    assert "is not the file that the overlay was made from" in told
    assert states("team.patch", *where).popitem()[1] == "orphaned"
    assert rewriter("check", "team.patch", "--require", "applied", *where).code == 1
    (site_packages / NORM).unlink()  # gone without us: nobody can import it
    code, told = importing(overlay, site_packages, NORM_MODULE)
    assert told.startswith("ModuleNotFoundError: No module named")


def test_an_overlay_with_a_renamed_module(
    team: Team, tmp_path: Path, site_packages: Path
) -> None:  # fmt: skip
    before = tree(site_packages)
    overlay = tmp_path / "overlay"
    where = (*at(site_packages), "--overlay", str(overlay))
    longer = NEWER[SCALER] + b"\nTEAM = 1\n"
    done = rewriter(*team.apply(team.patch({MOVED: longer}, renames={SCALER: MOVED})), *where)
    assert done.code == 0, done.err
    old, new = (path.removesuffix(".py").replace("/", ".") for path in (SCALER, MOVED))
    assert importing(overlay, site_packages, new) == (0, str(overlay / MOVED))
    assert importing(overlay, site_packages, old)[1].startswith("ModuleNotFoundError")
    assert states("team.patch", *where).popitem()[1] == "applied"
    assert rewriter("revert", *where).code == 0
    assert importing(overlay, site_packages, old) == (0, str(site_packages / SCALER))
    assert tree(site_packages) == before
    assert [p for p in overlay.rglob("*") if p.is_file()] == []


LAYERS = "sglang/srt/layers/__init__.py"


@pytest.mark.parametrize(
    ("edits", "about", "why"),
    [
        ({NOTES: EDITS[NOTES]}, NOTES, "it is no module"),
        ({LAYERS: None}, LAYERS, "what is left of its package could not be imported"),
        (
            {NORM: None, NORM.replace(".py", "/__init__.py"): b"NEW = 1\n"}, NORM,
            f"{NORM.replace('.py', '/__init__.py')} is the same module",
        ),
    ],
)  # fmt: skip
def test_what_an_overlay_cannot_do(
    edits: dict[str, bytes | None], about: str, why: str,
    team: Team, tmp_path: Path, site_packages: Path,
) -> None:  # fmt: skip
    overlay = tmp_path / "overlay"
    where = (*at(site_packages), "--overlay", str(overlay))
    done = rewriter(*team.apply(team.patch(edits)), *where)
    assert done.code == 2, done.out
    assert f"{about}: a patch" in done.err
    assert why in done.err
    assert "which an overlay cannot do" in done.err
    assert not overlay.exists()


def test_output_is_known_again(team: Team, site_packages: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ends = ["--from", str(team.older), "--onto", str(site_packages)]
    done = rewriter("carry", str(team.patch()), *ends, "--output", str(out), "--full")
    assert done.code == 0, done.err
    assert contents(out) == patched()
    assert named(out) == {"team.patch": "applied"}
    assert rewriter("revert", *at(out)).code == 0
    assert contents(out) == dict(NEWER)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--onto", "0.5.9"], "--apply writes into a target; --onto goes without it"),
        (["--partial"], "an install gets all or nothing"),
        (["--patch", "x.diff"], "--patch goes without it"),
        (["--release", "0.5.9"], "a release is never written"),
        (["--rev", "HEAD"], "a commit is never written"),
    ],
)
def test_misuse(more: list[str], message: str, team: Team, site_packages: Path) -> None:
    before = tree(site_packages)
    target = [] if more[0] == "--release" else at(site_packages)
    done = rewriter(*team.apply(team.patch()), *target, *more)
    assert done.code == 2, done.out
    assert message in done.err
    assert tree(site_packages) == before


def test_from_standard_input(
    team: Team, site_packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = team.patch().read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
    assert rewriter(*team.apply(Path("-")), *at(site_packages)).code == 0
    assert contents(site_packages) == patched()
    assert named(site_packages) == {"stdin": "applied"}
    assert rewriter("revert", "stdin", *at(site_packages)).code == 0
