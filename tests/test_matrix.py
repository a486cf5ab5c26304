"""Rows of a matrix: states, where they began, and what brought them, over histories of our own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from conftest import Snapshot
from fake_sglang import FILES, installed_files
from matrix_history import CODEMOD, COMPANION, FILE, Repository, repository, source, storied

from rewriter import catalog, walk
from rewriter.blobs import Judge, blob_id
from rewriter.codemod import import_line
from rewriter.matrix import of_history, of_releases, of_tree
from rewriter.model import State
from rewriter.rows import Matrix, Row
from rewriter.targets import resolve
from rewriter.targets.history import History


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Return a repository that no test changes."""
    return storied(tmp_path_factory.mktemp("story") / "repo")


def rows_of(
    path: Path, revs: str = "HEAD", *, since: str | None = None, tags: bool = False,
    force_version: bool = False,
) -> list[Row]:  # fmt: skip
    """Judge the default codemod over a range."""
    history = History(path)
    judge = Judge([catalog.load(CODEMOD)], force_version=force_version)
    found = (walk.tags if tags else walk.commits)(
        history, history.span(revs, since), judge.codemods
    )
    return of_history(judge, history, found)


def words(rows: list[Row]) -> list[str]:
    """Return the states of rows."""
    return [row.word for row in rows]


def test_states_along_a_history(story: Repository) -> None:
    rows = rows_of(story.path)
    assert words(rows) == [
        "upstream", "upstream", "ready", "ready", "ready", "drifted", "drifted", "ready", "error",
        "ready", "ready",
    ]  # fmt: skip
    assert [row.kind for row in rows] == ["commit"] * 10 + ["tip"]
    assert rows[-1].label == "HEAD"
    assert rows[2].commit is not None
    assert (rows[2].commit.subject, rows[2].commit.date) == (
        "2: ready",
        "2025-01-05T00:00:00+00:00",
    )
    assert rows[2].label == rows[2].commit.short == story.git("rev-parse", "c2")[:10]


def test_each_row_knows_what_brought_its_state(story: Repository) -> None:
    rows = rows_of(story.path)
    assert [row.since[1].subject[0] for row in rows if row.since and row.since[1]] == list(
        "00222557899"
    )
    assert [row.changed for row in rows] == [
        True, False, True, False, False, True, False, True, True, True, False,
    ]  # fmt: skip
    assert rows[0].before == (State.ABSENT,)
    assert rows[9].before == (None,), "its parent does not parse"


def test_drift_says_what_came_nearest(story: Repository) -> None:
    row = rows_of(story.path)[5]
    assert row.verdict is not None
    assert row.verdict.nearest is not None
    assert row.verdict.nearest.text == "k_buf = self.gathered_rows(layer)"
    assert row.file == f"python/{FILE}"
    assert not row.fine


def test_a_source_that_does_not_parse_is_an_error_of_its_cell(story: Repository) -> None:
    row = rows_of(story.path)[8]
    assert (row.state, row.fine) == (None, False)
    assert "does not parse at line 1" in row.reason


def test_range_has_its_base(story: Repository) -> None:
    rows = rows_of(story.path, "c3..c6")
    assert [(row.label, row.kind, row.word) for row in rows] == [
        ("c3", "base", "ready"),
        (story.git("rev-parse", "c4")[:10], "commit", "ready"),
        (story.git("rev-parse", "c5")[:10], "commit", "drifted"),
        ("c6", "commit", "drifted"),
    ]
    assert rows[1].since is None, "before the range"
    assert not rows[0].asked


def test_the_base_does_not_decide(story: Repository) -> None:
    rows = rows_of(story.path, "c6..c7")
    assert words(rows) == ["drifted", "ready"]
    assert matrix(rows).exit_code == 0
    assert matrix(rows_of(story.path, "c5..c6")).exit_code == 1


def test_range_without_a_touching_commit_is_its_tip(story: Repository) -> None:
    rows = rows_of(story.path, "c9..main")
    assert [(row.label, row.kind, row.word) for row in rows] == [("main", "tip", "ready")]


@pytest.mark.parametrize("revs", ["c9..", "c9..HEAD", "c9..main", "v0.5.2..main"])
def test_ends_of_ranges(revs: str, story: Repository) -> None:
    assert words(rows_of(story.path, revs)) == ["ready"]


def test_since(story: Repository) -> None:
    rows = rows_of(story.path, since="2025-01-09T12:00:00Z")
    assert [row.commit.subject for row in rows if row.commit] == [
        "7: ready", "8: broken", "9: ready", "beside it",
    ]  # fmt: skip
    assert rows[0].before == (State.DRIFTED,), "what was before is known, though left out"


def test_tags_are_judged_by_their_version(story: Repository) -> None:
    rows = rows_of(story.path, tags=True)
    assert [(row.label, row.version, row.word) for row in rows] == [
        ("v0.4.5", "0.4.5", "upstream"),
        ("v0.4.7", "0.4.7", "ready"),
        ("v0.5.0", "0.5.0", "drifted"),
        ("v0.5.2", "0.5.2", "ready"),
    ]
    assert [row.since and row.since[0] for row in rows] == [None, "v0.4.7", "v0.5.0", "v0.5.2"]
    assert [row.label for row in rows_of(story.path, "c2..c6", tags=True)] == ["v0.4.7", "v0.5.0"]
    late = rows_of(story.path, since="2025-01-08", tags=True)
    assert [row.label for row in late] == ["v0.5.0", "v0.5.2"]


def test_versions_out_of_range(tmp_path: Path) -> None:
    made = repository(tmp_path / "repo")
    for version in ("0.4.4", "0.7.0"):
        text = f'__version__ = "{version}"\n'.encode()
        made.commit(version, {FILE: source(note=version), "sglang/version.py": text})
        made.git("tag", f"v{version}")
    assert words(rows_of(made.path, tags=True)) == ["unsupported", "unsupported"]
    assert "outside the supported range" in rows_of(made.path, tags=True)[0].reason
    assert words(rows_of(made.path, tags=True, force_version=True)) == ["ready", "ready"]
    assert words(rows_of(made.path)) == ["ready", "ready"], "commits: by structure alone"


def test_tags_of_other_things_are_left_out(tmp_path: Path) -> None:
    made = repository(tmp_path / "repo")
    made.commit("one", source())
    made.git("tag", "commit")
    made.git("tag", "a-blob", f"HEAD:python/{FILE}")
    made.git("tag", "a-tree", "HEAD:python")
    assert [row.label for row in rows_of(made.path, tags=True)] == ["commit"]


def test_absent_before_it_was_there_and_after_it_is_deleted(tmp_path: Path) -> None:
    made = repository(tmp_path / "repo")
    first = made.git("rev-parse", "HEAD")
    made.commit("add", source())
    made.commit("delete", {FILE: None})
    rows = rows_of(made.path, f"{first}..main")
    assert words(rows) == ["absent", "ready", "absent"]
    assert rows[2].changed
    assert rows[2].fine, "gone is not in the way"


def test_a_moved_file_is_not_fine(tmp_path: Path) -> None:
    made = repository(tmp_path / "repo")
    made.commit("add", source())
    raw = source() + b"# one more line\n"
    moved = made.commit("move", {FILE: None, "sglang/srt/attention/mla.py": raw})
    made.commit("later", {"sglang/other.py": b""})
    rows = rows_of(made.path)
    assert [(row.word, row.fine) for row in rows] == [
        ("ready", True), ("absent", False), ("absent", False),
    ]  # fmt: skip
    assert rows[2].reason == (
        f"the file was moved to python/sglang/srt/attention/mla.py by {moved[:10]}"
    )
    assert matrix(rows).exit_code == 1


def test_a_file_that_comes_back_is_no_longer_moved(tmp_path: Path) -> None:
    made = repository(tmp_path / "repo")
    made.commit("add", source())
    made.commit("move", {FILE: None, "sglang/mla.py": source()})
    made.commit("back", source("upstream"))
    rows = rows_of(made.path)
    assert [(row.word, row.moved is None) for row in rows] == [
        ("ready", True), ("absent", False), ("upstream", True),
    ]  # fmt: skip


def test_package_at_the_top_and_moved_below_python(tmp_path: Path) -> None:
    made = repository(tmp_path / "repo", prefix="")
    made.commit("add", source())
    (made.path / "python").mkdir()
    made.git("mv", "sglang", "python/sglang")
    made.prefix = "python/"
    made.commit("move the package")
    made.commit("edit", source(note="later"))
    rows = rows_of(made.path)
    assert words(rows) == ["ready", "ready", "ready"]
    assert [row.prefix for row in rows] == ["", "python/", "python/"]
    assert not any(row.moved for row in rows)


def test_applied_and_partial_in_a_fork(tmp_path: Path) -> None:
    from rewriter.judge import changes

    made = repository(tmp_path / "repo")
    made.commit("add", source())
    pristine = {FILE: source()}
    patched = {c.path: c.after for c in changes([catalog.load(CODEMOD)], pristine.get)}
    assert set(patched) == {FILE, COMPANION}
    made.commit("half", {FILE: patched[FILE]})
    made.commit("whole", {COMPANION: patched[COMPANION]})
    made.commit("left over", {FILE: source()})
    assert words(rows_of(made.path)) == ["ready", "partial", "applied", "orphaned"]


def test_branches_are_followed_each_on_its_own(tmp_path: Path) -> None:
    made = repository(tmp_path / "repo")
    made.commit("add", source())
    made.git("checkout", "-q", "-b", "side")
    made.commit("break on the side", source("drifted"))
    made.git("checkout", "-q", "main")
    made.commit("edit on main", source(note="a"))
    made.git("merge", "-q", "-s", "ours", "-m", "keep main's", "side")
    made.commit("edit after", source(note="b"))
    assert words(rows_of(made.path)) == ["ready"] * 3, "what a merge threw away never was"
    rows = rows_of(made.path, "side")
    assert words(rows) == ["ready", "drifted"]


def test_a_merge_that_changes_the_file_itself_is_told(tmp_path: Path) -> None:
    made = repository(tmp_path / "repo")
    made.commit("add", source())
    made.git("checkout", "-q", "-b", "side")
    made.commit("side", source(note="side"))
    made.git("checkout", "-q", "main")
    made.commit("main", source(note="main"))
    made.git("merge", "-q", "--no-commit", "-s", "ours", "side")
    made.commit("merge by hand", source("drifted"))
    rows = rows_of(made.path)
    assert sorted(words(rows)) == ["drifted", "ready", "ready", "ready"]
    assert rows[-1].before == (State.READY, State.READY)
    assert rows[-1].changed


def test_subjects_and_paths_of_any_kind(tmp_path: Path) -> None:
    made = repository(tmp_path / "repo")
    subject = 'ünïcode "quotes" <b> | %s \x1b[31m'
    made.commit(subject, source())
    row = rows_of(made.path)[0]
    assert row.commit is not None
    assert row.commit.subject == subject


def test_configuration_of_git_changes_nothing(
    story: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rows_of(story.path)
    config = tmp_path / "config"
    config.write_text(
        "[log]\nshowSignature = true\nshowRoot = false\nfollow = true\ndecorate = full\n"
        "[diff]\nrenames = copies\nnoprefix = true\nexternal = false\n"
        "[color]\nui = always\n[core]\nquotePath = true\nabbrev = 4\n"
        "[i18n]\nlogOutputEncoding = latin1\n[format]\npretty = oneline\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("REWRITER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert rows_of(story.path) == before


def test_bare_and_linked_repositories(story: Repository, tmp_path: Path) -> None:
    expected = rows_of(story.path, "main")
    story.git("clone", "-q", "--bare", str(story.path), str(tmp_path / "bare.git"))
    assert rows_of(tmp_path / "bare.git", "main") == expected
    assert rows_of(story.path / ".git", "main") == expected


def test_nothing_is_written_to_the_repository(
    story: Repository, snapshot: Callable[[Path], Snapshot]
) -> None:
    before = snapshot(story.path)
    rows_of(story.path)
    rows_of(story.path, tags=True)
    assert snapshot(story.path) == before


# --- releases and working trees --------------------------------------------------------------


@pytest.fixture
def cached_release(fake_wheel: Callable[..., Path]) -> Callable[[str, Mapping[str, bytes]], None]:
    """Return a function that puts a wheel where a release is looked for before it is fetched."""

    def put(version: str, files: Mapping[str, bytes]) -> None:
        place = Path(os.environ["REWRITER_CACHE_DIR"]) / "wheels"
        place.mkdir(parents=True, exist_ok=True)
        fake_wheel(installed_files(version, {**FILES, **files}), version, place)

    return put


def targets(*versions: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """Give releases as ``of_releases`` wants them."""
    for version in versions:
        yield version, lambda version=version: resolve(release=version)  # type: ignore[misc]


def test_releases(cached_release: Callable[..., None]) -> None:
    cached_release("0.4.4", {FILE: source("upstream")})
    cached_release("0.5.1", {FILE: source()})
    cached_release("0.5.2", {FILE: source("broken")})
    cached_release("0.6.1", {FILE: source()})
    judge = Judge([catalog.load(CODEMOD)])
    rows = of_releases(judge, targets("0.4.4", "0.5.1", "0.5.2", "0.6.1"))  # type: ignore[arg-type]
    assert words(rows) == ["upstream", "ready", "error", "unsupported"]
    assert [row.series for row in rows] == ["releases"] * 4
    assert rows[1].since == ("0.5.1", None)
    assert judge.judged == 3, "two of the releases have the same source"


def test_a_release_that_cannot_be_had_is_an_error_of_its_row(
    cached_release: Callable[..., None],
) -> None:
    cached_release("0.5.1", {FILE: source()})
    place = Path(os.environ["REWRITER_CACHE_DIR"]) / "wheels"
    judge = Judge([catalog.load(CODEMOD)])

    def gone() -> object:
        return resolve(wheel=place / "sglang-0.5.0-py3-none-any.whl")

    rows = of_releases(judge, [("0.5.0", gone), *targets("0.5.1")])  # type: ignore[list-item]
    assert words(rows) == ["error", "ready"]
    assert "cannot be read" in rows[0].reason
    assert matrix(rows).exit_code == 1


def test_a_release_and_the_commit_behind_it_are_judged_once(
    story: Repository, cached_release: Callable[..., None]
) -> None:
    cached_release("0.5.1", {FILE: source("ready", "n4")})
    history = History(story.path)
    judge = Judge([catalog.load(CODEMOD)])
    of_history(judge, history, walk.commits(history, history.span("c4"), judge.codemods))
    before = judge.judged
    assert words(of_releases(judge, targets("0.5.1"))) == ["ready"]  # type: ignore[arg-type]
    assert judge.judged == before == 5


def test_a_working_tree(story: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(story.path.parent)
    target = resolve(checkout=story.path)
    rows = of_tree(Judge([catalog.load(CODEMOD)]), target, "here")
    assert [(row.series, row.word) for row in rows] == [("trees", "ready")]
    assert rows[0].file == f"repo/python/{FILE}", "a path that can be opened from here"


@pytest.mark.parametrize(("branch", "word"), [("c6", "drifted"), ("c8", "error")])
def test_a_working_tree_that_is_not_fine(
    branch: str, word: str, story: Repository, tmp_path: Path
) -> None:
    story.git("clone", "-q", "--branch", branch, str(story.path), str(tmp_path / "tree"))
    target = resolve(checkout=tmp_path / "tree")
    [row] = of_tree(Judge([catalog.load(CODEMOD)]), target, "tree")
    assert (row.word, row.fine) == (word, False)


def test_several_codemods(story: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    one = catalog.load(CODEMOD)
    other = type(one)()
    other.name, other.target, other.companions = "other", "sglang/other.py", ()
    other.sites = (import_line("import os"),)
    digest = catalog.digest
    monkeypatch.setattr(catalog, "digest", lambda name: digest(CODEMOD) + name)
    history = History(story.path)
    judge = Judge([one, other])
    points = walk.commits(history, history.span("c7..main"), judge.codemods)
    rows = of_history(judge, history, points)
    assert [(row.codemod, row.word) for row in rows] == [
        (CODEMOD, "ready"), (CODEMOD, "error"), (CODEMOD, "ready"), (CODEMOD, "ready"),
        ("other", "absent"), ("other", "absent"), ("other", "absent"), ("other", "drifted"),
    ]  # fmt: skip
    assert rows[-1].since is not None
    assert rows[-1].since[0] == "main"
    assert [e.first.codemod for e in matrix(rows).episodes()].count("other") == 2


def test_blob_ids_are_those_of_git(story: Repository) -> None:
    raw = (story.path / "python" / FILE).read_bytes()
    assert blob_id(raw) == story.git("rev-parse", f"HEAD:python/{FILE}")


def matrix(rows: list[Row]) -> Matrix:
    """Make a matrix of rows."""
    return Matrix(tuple(rows), (catalog.load(CODEMOD),), "here")


def test_episodes(story: Repository) -> None:
    episodes = list(matrix(rows_of(story.path)).episodes())
    assert [(e.first.word, len(e.rows)) for e in episodes] == [
        ("upstream", 2), ("ready", 3), ("drifted", 2), ("ready", 1), ("error", 1), ("ready", 2),
    ]  # fmt: skip


def test_retired(tmp_path: Path) -> None:
    made = repository(tmp_path / "repo")
    made.commit("add", source())
    assert list(matrix(rows_of(made.path)).retired()) == []
    made.commit("no cast any more", source("upstream"))
    [(row, drop_when)] = matrix(rows_of(made.path)).retired()
    assert row.state is State.UPSTREAM
    assert drop_when == catalog.load(CODEMOD).drop_when
