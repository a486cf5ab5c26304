"""The commit that breaks a codemod, and its diff at the codemod's sites."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from matrix_history import CODEMOD, FILE, Repository, repository, source, storied
from test_matrix import rows_of

from rewriter import cli
from rewriter.bisect import Finding, bisect, pick
from rewriter.errors import RewriterError

READS = "k_buf = self.gathered_rows(layer)"


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Return a repository that no test changes."""
    return storied(tmp_path_factory.mktemp("story") / "repo")


def found_in(path: Path, revs: str) -> Finding:
    """Bisect a range."""
    return bisect(rows_of(path, revs))


def invoke(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Run the command in this process; return its exit code and what it printed."""
    code = cli.build(("bisect", "list"))(["bisect", *arguments], standalone_mode=False)
    assert isinstance(code, int)
    return code, capsys.readouterr().out


def test_names_the_commit(story: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    commit = story.git("rev-parse", "c5")
    code, told = invoke(capsys, CODEMOD, "--repo", str(story.path), "--revs", "v0.4.7..c6")
    assert code == 0
    assert told.startswith(
        f"{CODEMOD} no longer applies after {commit[:10]}: ready → drifted\n"
        f"commit {commit}\ndate   2025-01-08T00:00:00+00:00\ntitle  5: drifted\n"
    )
    line = source("drifted").decode().splitlines().index(f"        {READS}") + 1
    assert f"  nearest: line {line}: {READS}\n" in told
    assert "each change" not in told


def test_shows_the_diff_at_the_sites_alone(tmp_path: Path) -> None:
    made = repository(tmp_path / "repo")
    filler = b"\n\ndef unrelated():\n" + b"    pass\n" * 30
    made.commit("one", source() + filler)
    broken = made.commit("two", source("drifted") + filler + b"\n\nelsewhere = 1\n")
    found = found_in(made.path, "main")
    assert found.culprit is not None
    assert found.culprit.row.commit is not None
    assert found.culprit.row.commit.id == broken
    whole = made.git("diff", "HEAD~1", "HEAD")
    assert whole.count("\n@@ ") == 2
    diff = json_of(made.path, "main")["diff"]
    assert diff.count("\n@@ ") == 1
    assert "+        k_buf = self.gathered_rows(layer)" in diff
    assert "elsewhere" not in diff


def json_of(path: Path, revs: str) -> dict[str, str]:
    """Return what ``--json`` prints."""
    import contextlib
    import io

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        cli.build(("bisect", "list"))(
            ["bisect", CODEMOD, "--repo", str(path), "--revs", revs, "--json"],
            standalone_mode=False,
        )
    told = json.loads(printed.getvalue())
    assert isinstance(told, dict)
    return told


def test_a_history_that_is_not_monotonic(
    story: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = invoke(capsys, CODEMOD, "--repo", str(story.path), "--revs", "c2..c8")
    assert code == 0
    last = story.git("rev-parse", "--short=10", "c8")
    assert told.startswith(f"{CODEMOD} no longer applies after {last}: ready → error\n")
    changes = told.partition("not monotonic; each change:\n")[2].splitlines()
    assert [line.split("  ")[1] for line in changes[:3]] == [
        "ready → drifted", "drifted → ready", "ready → error",
    ]  # fmt: skip


def test_applies_at_the_end(story: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    code, told = invoke(capsys, CODEMOD, "--repo", str(story.path), "--revs", "c2..c4")
    assert (code, told) == (1, f"{CODEMOD} applies at c4: ready\n")
    code, told = invoke(capsys, CODEMOD, "--repo", str(story.path), "--revs", "c2..c7")
    assert code == 1
    assert told.startswith(
        f"{CODEMOD} applies at c7: ready; it was broken 1 time and mended\n"
        "not monotonic; each change:\n"
    )


def test_never_applied(story: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    code, told = invoke(capsys, CODEMOD, "--repo", str(story.path), "--revs", "c0..c1")
    assert code == 1
    assert told == (
        f"{CODEMOD} never applied up to c1: upstream "
        "(`run` gets the pool's rows without a change of dtype)\n"
    )


def test_range_that_starts_broken(story: Repository) -> None:
    found = found_in(story.path, "c5..c6")
    assert (found.culprit, found.turns) == (None, ())
    assert found.start is not None
    assert found.start.word == found.end.word == "drifted"


def test_retirement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = repository(tmp_path / "repo")
    made.commit("one", source())
    made.commit("upstream mends it", source("upstream"))
    code, told = invoke(capsys, CODEMOD, "--repo", str(made.path), "--revs", "main")
    assert code == 0
    assert "ready → upstream" in told
    assert "  drop when: upstream reads FP8 rows" in told


def test_a_file_that_moves_or_goes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = repository(tmp_path / "repo")
    made.commit("one", source())
    made.commit("move", {FILE: None, "sglang/mla.py": source()})
    code, told = invoke(capsys, CODEMOD, "--repo", str(made.path), "--revs", "main")
    assert code == 0
    assert "ready → moved" in told
    assert "why: the file was moved to python/sglang/mla.py by " in told
    assert "deleted file mode" in told
    assert "class FlashInferMLAAttnBackend" not in told, "not the whole file"


def test_a_break_on_a_branch_is_found_where_it_was_made(tmp_path: Path) -> None:
    made = repository(tmp_path / "repo")
    made.commit("one", source())
    made.git("checkout", "-q", "-b", "side")
    broken = made.commit("break on the side", source("drifted"))
    made.git("checkout", "-q", "main")
    made.commit("beside", {"sglang/other.py": b""})
    made.git("merge", "-q", "-m", "merge", "side")
    found = found_in(made.path, "main")
    assert found.culprit is not None
    assert found.culprit.row.commit is not None
    assert found.culprit.row.commit.id == broken
    assert found.monotonic


def test_json(story: Repository) -> None:
    told = json_of(story.path, "c3..c6")
    commit = story.git("rev-parse", "c5")
    assert told["commit"] == {
        "id": commit, "date": "2025-01-08T00:00:00+00:00", "subject": "5: drifted",
    }  # fmt: skip
    assert (told["start"], told["end"], told["monotonic"], told["exit"]) == (
        "ready", "drifted", True, 0,
    )  # fmt: skip
    assert told["changes"][0]["breaks"]  # type: ignore[index]


@pytest.mark.parametrize("revs", ["c4..c4", "nope..c4"])
def test_bad_ranges(revs: str, story: Repository) -> None:
    with pytest.raises(RewriterError, match=r"the range is empty|no commit 'nope'"):
        json_of(story.path, revs)


HEAD = b"diff --git a/x b/x\n--- a/x\n+++ b/x\n"
FIRST = b"@@ -1,3 +1,4 @@ def a():\n one\n+two\n three\n four\n"
SECOND = b"@@ -10,3 +11,2 @@\n ten\n-eleven\n twelve\n"


@pytest.mark.parametrize(
    ("old", "new", "hunks"),
    [
        ([], [(2, 2)], FIRST),
        ([], [(1, 1)], b""),
        ([(11, 11)], [], SECOND),
        ([(11, 11)], [(2, 2)], FIRST + SECOND),
        ([(10, 10)], [(3, 11)], b""),
        ([(1, 20)], [(1, 20)], FIRST + SECOND),
    ],
)
def test_hunks_by_lines(
    old: list[tuple[int, int]], new: list[tuple[int, int]], hunks: bytes
) -> None:
    assert pick(HEAD + FIRST + SECOND, old, new) == (HEAD + hunks if hunks else b"")


def test_hunks_of_a_file_without_a_last_newline() -> None:
    diff = (
        HEAD
        + b"@@ -1 +1 @@\n-one\n\\ No newline at end of file\n+two\n\\ No newline at end of file\n"
    )
    assert pick(diff, [(1, 1)], []) == diff
    assert pick(b"", [(1, 1)], [(1, 1)]) == b""
