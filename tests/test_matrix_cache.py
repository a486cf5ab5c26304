"""What is kept between runs of a matrix: nothing is judged twice, and nothing kept is wrong."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from matrix_history import CODEMOD, FILE, Repository, repository, source, storied
from test_matrix import rows_of

from rewriter import catalog, judge, verdicts, walk
from rewriter.blobs import Judge
from rewriter.codemod import import_line
from rewriter.matrix import of_history
from rewriter.rows import Row
from rewriter.targets.history import History


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Return a repository that no test changes."""
    return storied(tmp_path_factory.mktemp("story") / "repo")


def run(path: Path) -> tuple[list[Row], int]:
    """Return rows over the whole history, and how many sources were judged for them."""
    history = History(path)
    judging = Judge([catalog.load(CODEMOD)])
    points = walk.commits(history, history.span("HEAD"), judging.codemods)
    return of_history(judging, history, points), judging.judged


def kept(folder: str) -> list[Path]:
    """Return what the cache holds in one of its folders."""
    return sorted(p for p in (verdicts.cache_directory() / folder).rglob("*") if p.is_file())


def test_each_source_is_judged_once(story: Repository) -> None:
    rows, judged = run(story.path)
    assert judged == 10
    again, judged = run(story.path)
    assert again == rows
    assert judged == 1, "a source that does not parse has no verdict to keep"


def test_equal_sources_at_many_commits_are_one(tmp_path: Path) -> None:
    made = repository(tmp_path / "repo")
    for turn in range(3):
        made.commit(f"a {turn}", source(note="a"))
        made.commit(f"b {turn}", source(note="b"))
    rows, judged = run(made.path)
    assert (len(rows), judged) == (6, 2)


def test_a_new_commit_costs_one_judgement(tmp_path: Path) -> None:
    made = repository(tmp_path / "repo")
    made.commit("one", source(note="1"))
    run(made.path)
    made.commit("two", source("drifted"))
    rows, judged = run(made.path)
    assert ([row.word for row in rows], judged) == (["ready", "drifted"], 1)


def test_warm_reads_no_blob_and_walks_no_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = repository(tmp_path / "repo")
    made.commit("one", source())
    rows, _ = run(made.path)

    def forbidden(*_: object) -> None:
        raise AssertionError("not needed")

    monkeypatch.setattr(History, "touching", forbidden)
    monkeypatch.setattr(History, "trees", forbidden)
    monkeypatch.setattr(judge, "judge", forbidden)
    again, judged = run(made.path)
    assert (again, judged) == (rows, 0)


def test_other_code_judges_anew(story: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    run(story.path)
    with monkeypatch.context() as patched:
        patched.setattr(catalog, "digest", lambda name: f"another digest of {name}")
        assert run(story.path)[1] == 10
    with monkeypatch.context() as patched:
        patched.setattr("rewriter.blobs.__version__", "0.0.0")
        assert run(story.path)[1] == 10
    assert run(story.path)[1] == 1


def test_a_tag_that_moves_is_seen(tmp_path: Path) -> None:
    made = repository(tmp_path / "repo")
    made.commit("one", source())
    made.git("tag", "v1")
    made.commit("two", source("drifted"))
    assert [row.word for row in rows_of(made.path, tags=True)] == ["ready"]
    made.git("tag", "-f", "v1", "HEAD")
    assert [row.word for row in rows_of(made.path, tags=True)] == ["drifted"]


def test_a_branch_that_is_rewritten_is_seen(tmp_path: Path) -> None:
    made = repository(tmp_path / "repo")
    made.commit("one", source())
    made.commit("two", source("drifted"))
    assert [row.word for row in rows_of(made.path)] == ["ready", "drifted"]
    made.git("reset", "-q", "--hard", "HEAD~1")
    made.commit("two, rewritten", source("upstream"))
    assert [row.word for row in rows_of(made.path)] == ["ready", "upstream"]


def test_a_shallow_clone_that_is_deepened_is_seen(story: Repository, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    story.git("clone", "-q", "--depth=5", story.path.as_uri(), str(clone))
    short = rows_of(clone)
    assert [row.word for row in short] == ["drifted", "ready", "error", "ready", "ready"]
    assert short[0].before == (), "what was before the cut is not known"
    assert short[0].since is None
    story.git("fetch", "-q", "--unshallow", cwd=clone)
    assert rows_of(clone) == rows_of(story.path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"state": "odd"}', b"\xff\xfe", b"null"])
@pytest.mark.parametrize("folder", ["walks", "verdicts"])
def test_damage_is_made_good(content: bytes, folder: str, tmp_path: Path) -> None:
    made = repository(tmp_path / "repo")
    made.commit("one", source())
    made.commit("two", source("drifted"))
    rows, _ = run(made.path)
    files = kept(folder)
    assert files
    for file in files:
        file.write_bytes(content)
    assert run(made.path)[0] == rows
    assert run(made.path) == (rows, 0), "and kept again"


def test_a_cache_that_cannot_be_written_is_no_error(
    story: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, _ = run(story.path)
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("REWRITER_CACHE_DIR", str(tmp_path / "file"))
    assert run(story.path)[0] == rows


def test_interrupted_while_judging(story: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = 0
    real = judge.judge

    def one_is_interrupted(*arguments: object, **options: object) -> object:
        nonlocal judged
        judged += 1
        if judged == 4:  # the first is of a tree without the file, and no source
            raise KeyboardInterrupt
        return real(*arguments, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(judge, "judge", one_is_interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(story.path)
    rows, left = run(story.path)
    assert left == 8, "what was judged before is kept"
    shutil.rmtree(verdicts.cache_directory())
    assert run(story.path)[0] == rows


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_process_that_is_ended(number: signal.Signals, tmp_path: Path) -> None:
    made = repository(tmp_path / "repo")
    for note in range(12):
        made.commit(f"{note}", source(note=f"{note}" * 40))
    command = [sys.executable, "-m", "rewriter", "matrix", "--repo", str(made.path), "--json"]
    process = subprocess.Popen(
        command, env=os.environ.copy(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 30
    while not kept("verdicts") and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)
    process.send_signal(number)
    process.communicate()
    assert process.returncode in (130, -number, 0), "0: it was done before the signal came"
    rows, _ = run(made.path)
    assert [row.word for row in rows] == ["ready"] * 12
    shutil.rmtree(verdicts.cache_directory())
    assert run(made.path)[0] == rows


def test_two_at_a_time(story: Repository) -> None:
    command = [sys.executable, "-m", "rewriter", "matrix", "--repo", str(story.path), "--json"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    first, second = (process.communicate()[0] for process in both)
    assert first.count(b'"state"') == second.count(b'"state"') > 0
    assert run(story.path)[1] == 1


def test_paths_decide_what_a_walk_is(tmp_path: Path) -> None:
    made = repository(tmp_path / "repo")
    made.commit("one", {FILE: source(), "sglang/other.py": b"x = 1\n"})
    history = History(made.path)
    codemod = catalog.load(CODEMOD)
    other = type(codemod)()
    other.name, other.target, other.companions = "other", "sglang/other.py", ()
    other.sites = (import_line("import os"),)
    span = history.span("HEAD")
    assert FILE in walk.commits(history, span, [codemod])[-1].files
    assert "sglang/other.py" in walk.commits(history, span, [other, codemod])[-1].files
