"""``matrix --patch``: how far an ordinary patch carries, over commits, tags, releases and trees."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from conftest import Git
from installing import MIXER, SCALER, Install, rewriter, sealed_state
from patching import OLDER, Team, replaced, team

from rewriter.carry import single

__all__ = ["sealed_state", "team"]

OURS = {
    MIXER: replaced(
        OLDER[MIXER], b"        return sqrt(y)\n", b"        y = abs(y)\n        return sqrt(y)\n"
    ),
    SCALER: replaced(OLDER[SCALER], b"x * self.factor", b"x * self.factor + 1"),
}

ABOVE = replaced(OLDER[MIXER], b"import os\n", b"import os\nimport re\n")
_MIX = b"    def mix(self, x):\n        y = x * SCALE\n        return sqrt(y)\n"
AROUND = replaced(ABOVE, _MIX + b"\n", b"") + b"\n" + _MIX
CHANGED = replaced(OLDER[SCALER], b"x * self.factor", b"x * self.factor * 2")

STORY: list[tuple[str, dict[str, bytes | None]]] = [
    ("c0", {}),
    ("above", {MIXER: ABOVE}),
    ("elsewhere", {"sglang/srt/other.py": b"x = 1\n"}),
    ("around", {MIXER: AROUND}),
    ("changed", {SCALER: CHANGED}),
    ("back", {SCALER: OLDER[SCALER]}),
    ("moved", {MIXER: None, "sglang/srt/layers/deep/mixer.py": AROUND}),
    ("merged", {"sglang/srt/layers/deep/mixer.py": None, **OURS}),
]
"""Commits, and what each makes of the files."""


@pytest.fixture
def repository(tmp_path: Path, sealed_git: Git, write_files: Install) -> Path:
    root = tmp_path / "repository"
    write_files(root, {f"python/{path}": raw for path, raw in OLDER.items()})
    sealed_git("init", cwd=root)
    for name, files in STORY:
        for path, raw in files.items():
            place = root / "python" / path
            if raw is None:
                place.unlink()
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(raw)
        sealed_git("add", "-A", cwd=root)
        sealed_git("commit", "-m", name, cwd=root)
        sealed_git("tag", f"v-{name}", cwd=root)
    return root


def rows(*arguments: str) -> dict[str, dict[str, Any]]:
    """Return the rows by the subject of their commits, or else by label."""
    done = rewriter("matrix", *arguments, "--json")
    assert done.code in (0, 1), done.err
    found = {}
    for row in done.json["rows"]:
        commit = row["revision"]["commit"]
        found[commit["subject"] if commit else row["revision"]["label"]] = row
    return found


def over(team: Team, repository: Path, *more: str) -> list[str]:
    patch = team.patch(OURS)
    return ["--patch", str(patch), "--from", str(team.older), "--repo", str(repository), *more]


def test_every_commit_that_changes_its_files(team: Team, repository: Path) -> None:
    found = rows(*over(team, repository, "--revs", "v-c0..v-merged"))
    assert {name: row["how"] for name, row in found.items()} == {
        "c0": "exactly",
        "above": "exactly",
        "around": "by structure",
        "changed": "conflict",
        "back": "by structure",
        "moved": "by structure",
        "merged": "upstream",
    }
    conflict = found["changed"]
    assert (conflict["state"], conflict["fine"]) == ("drifted", False)
    assert conflict["reason"].startswith(f"{SCALER}, hunk 1: upstream changed the same part")
    assert [s["state"] for s in conflict["sites"]] == ["ready", "drifted"]
    assert found["around"]["reason"] == "2 hunks: 1 exactly, 1 by structure"
    since = {name: row["since"]["commit"]["subject"] for name, row in found.items() if row["since"]}
    assert since == {
        "around": "around", "changed": "changed", "back": "back", "moved": "back",
        "merged": "merged",
    }  # fmt: skip


def test_each_row_is_what_carry_says(team: Team, repository: Path) -> None:
    arguments = over(team, repository, "--tags")
    for name, row in rows(*arguments).items():
        onto = rewriter(
            "carry", arguments[1], "--repo", str(repository), "--from", "v-c0",
            "--onto", f"v-{name}", "--json",
        )  # fmt: skip
        fates = {hunk["fate"].removeprefix("already ") for hunk in onto.json["hunks"]}
        assert row["how"] in fates, name
        assert row["fine"] == (onto.code == 0), name


def test_a_commit_of_the_repository_is_what_it_is_for(team: Team, repository: Path) -> None:
    arguments = over(team, repository, "--revs", "v-c0..v-above")
    arguments[3] = "v-c0"
    assert rows(*arguments)["above"]["how"] == "exactly"
    arguments[3] = "v-above"
    done = rewriter("matrix", *arguments)
    assert done.code == 0, done.err


def test_text(team: Team, repository: Path) -> None:
    done = rewriter("matrix", *over(team, repository))
    assert done.code == 1
    assert "\n  by structure  1  " in done.out
    assert "       why: 2 hunks: 1 exactly, 1 by structure\n" in done.out
    assert f"       why: {SCALER}, hunk 1: upstream changed the same part" in done.out
    assert "has nothing to do at HEAD: all of the patch is there already" in done.out
    assert done.out.endswith("revisions: conflict (not now; last: " + done.out[-12:])


def test_every_format(team: Team, repository: Path, tmp_path: Path) -> None:
    names = {"sarif": tmp_path / "s.json", "junit": tmp_path / "j.xml", "html": tmp_path / "p.html"}
    more = [part for name, place in names.items() for part in (f"--{name}", str(place))]
    done = rewriter("matrix", *over(team, repository, "--github", "--markdown", *more))
    assert done.code == 1, done.err
    assert "| ❌ conflict |" in done.out
    assert f"::error file=python/{SCALER},line=10,title=team.patch@" in done.out
    log = json.loads(names["sarif"].read_text())
    [rule] = log["runs"][0]["tool"]["driver"]["rules"]
    assert rule["id"].startswith("team.patch@")
    wrong = next(r for r in log["runs"][0]["results"] if r["level"] == "error")
    assert wrong["properties"]["state"] == "conflict"
    assert ": conflict at " in wrong["message"]["text"]
    suite = ET.parse(names["junit"]).getroot()
    assert len(list(suite.iter("failure"))) == 1
    page = names["html"].read_text()
    assert '<span class="cell by-structure" tabindex="0">S' in page
    assert "by structure: every hunk has one place" in page


def test_kept_between_runs_and_placed_once(
    team: Team, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, bytes]] = []
    first = single.python

    def counted(path: str, base: bytes, ours: bytes, onto: str, sources: Any) -> Any:
        seen.append((path, sources.newer.read(onto)))
        return first(path, base, ours, onto, sources)

    monkeypatch.setattr("rewriter.carry.single.python", counted)
    arguments = over(team, repository, "--revs", "v-c0..v-back", "--json")
    done = rewriter("matrix", *arguments).json
    assert len(seen) == len(set(seen)), "a blob is placed once"
    assert (done["sources"], done["judged"]) == (4, 4)
    monkeypatch.setattr("rewriter.carry.single.python", None)
    again = rewriter("matrix", *arguments).json
    assert again["judged"] == 0
    assert again["rows"] == done["rows"]


def test_what_another_file_says_counts(
    team: Team, tmp_path: Path, sealed_git: Git, write_files: Install
) -> None:
    """The patch's own file is the same blob; what it imports is gone from another one."""
    path, other = "sglang/srt/user.py", "sglang/srt/tools.py"
    for at, files in ((team.older, {path: b"x = 1\n", other: b"def f():\n    return 1\n"}),):
        write_files(at, files)
    sealed_git("add", "-A", cwd=team.older)
    sealed_git("commit", "-m", "more", cwd=team.older)
    patch = team.patch({path: b"from sglang.srt.tools import f\n\nx = f()\n"})
    root = tmp_path / "repository"
    write_files(root, {"python/sglang/__init__.py": b"", f"python/{path}": b"x = 1\n"})
    write_files(root, {f"python/{other}": b"def f():\n    return 1\n"})
    sealed_git("init", cwd=root)
    for name, text in (("one", None), ("two", "def g():\n    return 1\n")):
        if text is not None:
            (root / "python" / other).write_text(text)
        sealed_git("add", "-A", cwd=root)
        sealed_git("commit", "-m", name, cwd=root)
        sealed_git("tag", name, cwd=root)
    arguments = ["--patch", str(patch), "--from", str(team.older), "--repo", str(root), "--tags"]
    for _ in range(2):  # made, and found again
        assert {n: r["fine"] for n, r in rows(*arguments).items()} == {"one": True, "two": False}


def test_a_working_tree(team: Team, repository: Path) -> None:
    patch = str(team.patch(OURS))
    ends = ["--patch", patch, "--from", str(team.older), "--checkout", str(repository)]
    assert rows(*ends)[str(repository)]["how"] == "upstream"
    git_tree = repository / "python" / SCALER
    git_tree.write_bytes(CHANGED)
    (repository / "python" / MIXER).write_bytes(AROUND)
    assert rows(*ends)[str(repository)]["how"] == "conflict"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--patch", "x.patch"], "--patch FILE and --from A go together"),
        (["--from", "0.5.9"], "--patch FILE and --from A go together"),
        (["mla_kv_gather", "--patch", "x", "--from", "0.5.9"], "leave out mla_kv_gather"),
        (["--patch", "gone.patch", "--from", "0.5.9"], "gone.patch: cannot be read"),
    ],
)
def test_misuse(more: list[str], message: str, repository: Path) -> None:
    done = rewriter("matrix", *more, "--repo", str(repository))
    assert (done.code, message in done.err) == (2, True), done.err
