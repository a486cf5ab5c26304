"""``rewriter carry``: exit codes, what is written, and what is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Git
from installing import rewriter

BASE = "import os\n\n\ndef run(batch):\n    a = 1\n    b = 2\n    return batch\n"
OURS = BASE.replace("b = 2\n", "b = 2\n    c = 3\n")
NEWER = BASE.replace("import os\n", "import os\nimport sys\n")
OTHER = BASE.replace("b = 2\n", "b = 2\n    d = 4\n")


@pytest.fixture
def place(tmp_path: Path, sealed_git: Git) -> Path:
    """Return a directory with three checkouts and a patch for the first."""
    for name, text in (("old", BASE), ("new", NEWER), ("other", OTHER)):
        package = tmp_path / name / "python" / "sglang"
        (package / "srt").mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "srt" / "mod.py").write_text(text)
    root = tmp_path / "old"
    sealed_git("init", cwd=root)
    sealed_git("add", ".", cwd=root)
    sealed_git("commit", "-m", "x", cwd=root)
    (root / "python/sglang/srt/mod.py").write_text(OURS)
    (tmp_path / "own.patch").write_bytes(sealed_git("diff", cwd=root))
    (root / "python/sglang/srt/mod.py").write_text(BASE)
    return tmp_path


def arguments(place: Path, onto: str, *more: str) -> list[str]:
    ends = ["--from", str(place / "old"), "--onto", str(place / onto)]
    return ["carry", str(place / "own.patch"), *ends, *more]


def test_the_new_diff_is_one_that_git_applies(place: Path, sealed_git: Git) -> None:
    done = rewriter(*arguments(place, "new", "--patch", str(place / "new.patch")))
    assert done.code == 0
    assert "hunk 1: exactly, line 8, in run\n" in done.out
    assert done.out.endswith(f"1 hunk: 1 exactly\nwrote {place / 'new.patch'}\n")
    sealed_git("init", cwd=place / "new")
    sealed_git("apply", str(place / "new.patch"), cwd=place / "new")
    made = (place / "new/python/sglang/srt/mod.py").read_text()
    assert made == NEWER.replace("b = 2\n", "b = 2\n    c = 3\n")
    again = rewriter(*arguments(place, "new"))
    assert (again.code, again.out.splitlines()[-1]) == (0, "1 hunk: 1 already upstream")


def test_the_patched_tree(place: Path) -> None:
    done = rewriter(*arguments(place, "new", "--output", str(place / "out"), "--full"))
    assert done.code == 0
    assert (place / "out/sglang/__init__.py").read_text() == ""
    assert "c = 3" in (place / "out/sglang/srt/mod.py").read_text()
    again = rewriter(*arguments(place, "new", "--output", str(place / "out")))
    assert (again.code, (place / "out/sglang/__init__.py").exists()) == (0, False)
    (place / "mine").mkdir()
    (place / "mine/x").write_text("")
    full = rewriter(*arguments(place, "new", "--output", str(place / "mine")))
    assert (full.code, "is not empty and no output of rewriter" in full.err) == (2, True)


def test_a_conflict_writes_nothing(place: Path) -> None:
    where = str(place / "new.patch"), str(place / "out")
    done = rewriter(*arguments(place, "other", "--patch", where[0], "--output", where[1]))
    assert done.code == 1
    assert "hunk 1: conflict" in done.out
    assert "    the patch:\n      c = 3\n    upstream:\n      d = 4\n" in done.out
    assert "nothing was written" in done.out
    assert not any(Path(p).exists() for p in where)


def test_json(place: Path) -> None:
    done = rewriter(*arguments(place, "other", "--json"))
    value = json.loads(done.out)
    assert (done.code, value["exit"], value["command"]) == (1, 1, "carry")
    [hunk] = value["hunks"]
    assert (hunk["file"], hunk["hunk"], hunk["fate"]) == ("sglang/srt/mod.py", 1, "conflict")
    assert hunk["changes"][0]["theirs"] == "d = 4"


def test_the_diff_on_standard_output_is_alone_there(place: Path) -> None:
    done = rewriter(*arguments(place, "new", "--patch", "-"))
    assert done.out.startswith("diff --git a/python/sglang/srt/mod.py")
    assert "hunk 1: exactly" in done.err


def test_commits_of_a_repository(place: Path, sealed_git: Git) -> None:
    root = place / "old"
    (root / "python/sglang/srt/mod.py").write_text(NEWER)
    sealed_git("commit", "-am", "y", cwd=root)
    done = rewriter(
        "carry", str(place / "own.patch"), "--repo", str(root), "--from", "HEAD~1",
        "--onto", "HEAD", "--patch", str(place / "new.patch"),
    )  # fmt: skip
    assert done.code == 0
    sealed_git("apply", "--check", str(place / "new.patch"), cwd=root)


@pytest.mark.parametrize(
    ("more", "message"),
    [(["--full"], "--full goes with --output"), (["gone.patch"], "gone.patch: cannot be read")],
)
def test_misuse(place: Path, more: list[str], message: str) -> None:
    done = rewriter(*arguments(place, "new", *more))
    assert done.code == 2
    assert message in done.err
