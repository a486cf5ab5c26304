"""What a matrix cannot be made of: the message says what, where, and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import Git
from matrix_history import CODEMOD, FILE, Repository, repository, source, storied
from test_matrix import rows_of

from rewriter import cli
from rewriter.commands import matrix as command
from rewriter.errors import RewriterError, TargetError, UsageError


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Return a repository that no test changes."""
    return storied(tmp_path_factory.mktemp("story") / "repo")


def refused(path: Path, revs: str = "HEAD", **options: Any) -> str:
    """Return the message of the error that a range ends in; it exits with 2."""
    with pytest.raises(RewriterError) as caught:
        rows_of(path, revs, **options)
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize("revs", ["c6..c5", "c5..c5", "main..v0.4.7"])
def test_empty_range(revs: str, story: Repository) -> None:
    base, tip = revs.split("..")
    assert refused(story.path, revs) == (
        f"{story.path}: the range is empty: all that leads to {tip} leads to {base} as well; "
        "are its ends the right way round?"
    )


def test_nothing_since(story: Repository) -> None:
    message = refused(story.path, "main", since="2025-03-01T00:00:00Z")
    assert f"{story.path}: the range is empty: no commit up to main (" in message
    assert "since 2025-0" in message


@pytest.mark.parametrize("since", ["no date at all", "now", ""])
def test_since_that_is_no_date(since: str, story: Repository) -> None:
    assert "git reads no date in the past from that" in refused(story.path, since=since)


@pytest.mark.parametrize("revs", ["v9.9.9", "v9.9.9..main", "main..v9.9.9"])
def test_unknown_tag(revs: str, story: Repository) -> None:
    assert refused(story.path, revs) == (
        f"{story.path}: no commit 'v9.9.9' there; git fetch --tags"
    )


@pytest.mark.parametrize("revs", ["", "  ", "--all", "main...c5", "main..--all", "a..b..c"])
def test_what_is_no_range(revs: str, story: Repository) -> None:
    message = refused(story.path, revs)
    assert "expected A..B" in message


def test_no_tags(tmp_path: Path) -> None:
    made = repository(tmp_path / "repo")
    assert refused(made.path, "main", tags=True) == (
        f"{made.path}: no tags of commits up to main; git fetch --tags"
    )
    made.git("tag", "v1")
    made.commit("later")
    message = refused(made.path, "v1..main", tags=True)
    assert message == f"{made.path}: no tags of commits up to main in that range; git fetch --tags"


def test_no_repository(tmp_path: Path, story: Repository) -> None:
    assert refused(tmp_path / "none").endswith("expected a git repository; it does not exist")
    assert "it is not a directory" in refused(story.path / "python/sglang/__init__.py")
    assert "expected a git repository, found none" in refused(tmp_path)
    assert "give its top directory" in refused(story.path / "python")


def test_repository_without_a_commit(tmp_path: Path, sealed_git: Git) -> None:
    sealed_git("init", "-q", cwd=tmp_path)
    assert "no commit 'HEAD' there" in refused(tmp_path)


def test_repository_of_another_project(tmp_path: Path, sealed_git: Git) -> None:
    sealed_git("init", "-q", cwd=tmp_path)
    (tmp_path / "README").write_bytes(b"another one\n")
    sealed_git("add", ".", cwd=tmp_path)
    sealed_git("commit", "-q", "-m", "one", cwd=tmp_path)
    assert refused(tmp_path).endswith("found neither; is it a repository of sglang?")


def test_without_git(story: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/none")
    assert "git: not found on PATH" in refused(story.path)


def test_repository_of_another_user(story: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    assert "git config --global --add safe.directory" in refused(story.path)


def test_shallow_clone_without_the_base(story: Repository, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    story.git("clone", "-q", "--depth=3", story.path.as_uri(), str(clone))
    base = story.git("rev-parse", "c2")
    message = refused(clone, f"{base}..HEAD")
    assert f"no commit '{base}' there" in message
    assert "it is shallow: git fetch --unshallow" in message


@pytest.fixture
def without_blobs(story: Repository, tmp_path: Path) -> Path:
    """Return a shallow clone that has no blobs, and whose origin is gone."""
    origin, clone = tmp_path / "origin.git", tmp_path / "clone.git"
    story.git("clone", "-q", "--bare", str(story.path), str(origin))
    story.git("config", "uploadpack.allowFilter", "true", cwd=origin)
    story.git("config", "uploadpack.allowAnySHA1InWant", "true", cwd=origin)
    filtered = ("--bare", "--depth=4", "--filter=blob:none")
    story.git("clone", "-q", *filtered, origin.as_uri(), str(clone))
    origin.rename(tmp_path / "gone")
    return clone


def test_shallow_clone_without_the_blobs(without_blobs: Path) -> None:
    message = refused(without_blobs)
    assert "is not in the object database" in message
    assert "git fetch --refetch, or name a full clone" in message


def test_blobs_that_come_later_are_found(without_blobs: Path) -> None:
    refused(without_blobs)
    (without_blobs.parent / "gone").rename(without_blobs.parent / "origin.git")
    assert [row.word for row in rows_of(without_blobs)] == ["ready", "error", "ready", "ready"]


def test_missing_tree_is_not_taken_for_an_absent_file(tmp_path: Path) -> None:
    made = repository(tmp_path / "repo")
    made.commit("one", source())
    made.git("tag", "v1")
    folder = made.git("rev-parse", "HEAD:python/sglang/srt/layers")
    (made.path / ".git/objects" / folder[:2] / folder[2:]).unlink()
    assert "is not in the object database" in refused(made.path, tags=True)
    with pytest.raises(TargetError):
        rows_of(made.path)


def test_a_link_is_not_followed_and_not_judged(tmp_path: Path) -> None:
    made = repository(tmp_path / "repo")
    place = made.path / "python" / FILE
    place.parent.mkdir(parents=True)
    (place.parent / "real.py").write_bytes(source())
    place.symlink_to("real.py")
    made.commit("a link")
    assert "is a link in" in refused(made.path)
    assert "rewriter check --repo DIR --rev" in refused(made.path)


def invoke(*arguments: str) -> int:
    """Run the command in this process and return its exit code."""
    code = cli.build(("matrix",))(list(arguments), standalone_mode=False)
    assert isinstance(code, int)
    return code


def test_exit_codes(story: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke("matrix", "--repo", str(story.path), "--revs", "c2..c4") == 0
    assert "fine at 2 revisions" in capsys.readouterr().out
    assert invoke("matrix", CODEMOD, "--repo", str(story.path)) == 1
    assert "not fine at 3 of 11 revisions: drifted, error (not now; last: " in (
        capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name the revisions: --repo DIR with --revs A..B, --tags or --since"),
        (["--revs", "a..b"], "--revs needs --repo DIR: of which repository?"),
        (["--tags"], "--tags needs --repo DIR"),
        (["--since", "2025-01-01", "--releases", ">=0.5"], "--since needs --repo DIR"),
        (["--repo", ".", "--json", "--markdown"], "--json prints one JSON object"),
        (["--repo", ".", "--json", "--github"], "--json prints one JSON object"),
    ],
)
def test_options_that_do_not_go_together(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        invoke("matrix", *arguments)


def test_unknown_codemod(story: Repository) -> None:
    with pytest.raises(RewriterError, match="no codemod is called 'nope'"):
        invoke("matrix", "nope", "--repo", str(story.path))


@pytest.mark.parametrize(
    ("wanted", "found"),
    [(">=0.5.9", ["0.5.9", "0.5.10"]), ("<0.5", ["0.4.6.post5"]), ("==0.5.9", ["0.5.9"])],
)
def test_releases_by_specifier(
    wanted: str, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = ["0.4.6.post5", "0.5.9", "0.5.10"]
    monkeypatch.setattr("rewriter.targets.available_releases", lambda: known)
    assert command.matching(wanted) == found
    with pytest.raises(UsageError, match=r"no release is; the newest is 0\.5\.10"):
        command.matching(">=2")
    with pytest.raises(UsageError, match=r"expected e\.g\. '>=0\.5\.9,<0\.6'"):
        command.matching("newest")


@pytest.mark.parametrize("option", ["--sarif", "--junit", "--html"])
def test_report_that_cannot_be_written(option: str, story: Repository, tmp_path: Path) -> None:
    place = tmp_path / "none" / "report"
    with pytest.raises(UsageError, match="the report cannot be written: No such file"):
        invoke("matrix", "--repo", str(story.path), "--revs", "c2..c4", option, str(place))
