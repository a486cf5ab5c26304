"""Revisions: commits read from the object database of every kind of repository."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Git, Snapshot
from fake_sglang import FILES

from rewriter.errors import TargetError, UsageError
from rewriter.targets import resolve
from rewriter.targets.revision import Revision

Write = Callable[..., Path]


@pytest.fixture
def repository(tmp_path: Path, write_files: Write, sealed_git: Git) -> Path:
    """Return a repository with three commits, a light and an annotated tag, and a branch."""
    top = tmp_path / "repo"
    write_files(top / "python")
    (top / "README.md").write_bytes(b"not the package\n")
    sealed_git("init", "-q", cwd=top)
    for number in (1, 2, 3):
        (top / "python/sglang/number.py").write_bytes(b"n = %d\n" % number)
        sealed_git("add", ".", cwd=top)
        sealed_git("commit", "-qm", f"commit {number}", cwd=top)
        sealed_git("tag", f"light-{number}", cwd=top)
    sealed_git("tag", "-am", "annotated", "v0.5.2", "HEAD~1", cwd=top)
    sealed_git("branch", "topic", "HEAD~2", cwd=top)
    return top


def number_at(repository: Path, rev: str) -> bytes | None:
    """Return the file that differs from commit to commit."""
    target = Revision(repository, rev)
    try:
        return target.read("sglang/number.py")
    finally:
        target.close()


def test_reads_a_commit(repository: Path, sealed_git: Git) -> None:
    target = Revision(repository, "v0.5.2")
    assert (target.kind, target.writable, target.diff_prefix) == ("revision", False, "python/")
    assert f"{target.commit}\n".encode() == sealed_git("rev-parse", "HEAD~1", cwd=repository)
    assert target.location == f"v0.5.2 ({target.commit[:7]}) of {repository}"
    assert target.version == "0.5.2"
    files = {path: target.read(path) for path in target.files()}
    assert files == {**FILES, "sglang/number.py": b"n = 2\n"}
    assert list(files) == sorted(files)
    assert list(target.files("sglang/srt/layers")) == ["sglang/srt/layers/norm.py"]
    assert target.read("sglang/none.py") is None
    assert target.read("sglang/srt") is None
    blob = sealed_git("rev-parse", "HEAD~1:python/sglang/number.py", cwd=repository)
    assert f"{target.blob_id('sglang/number.py')}\n".encode() == blob
    assert target.blob_id("sglang/none.py") is None


@pytest.mark.parametrize(
    ("rev", "number"),
    [("HEAD", 3), ("HEAD~2", 1), ("topic", 1), ("light-2", 2), ("v0.5.2", 2), ("main^", 2)],
)
def test_names_of_commits(rev: str, number: int, repository: Path) -> None:
    assert number_at(repository, rev) == b"n = %d\n" % number


def test_abbreviated_id(repository: Path) -> None:
    commit = Revision(repository, "light-1").commit
    assert number_at(repository, commit[:8]) == b"n = 1\n"


def test_working_tree_is_not_looked_at(repository: Path) -> None:
    shutil.rmtree(repository / "python")
    assert number_at(repository, "HEAD") == b"n = 3\n"


def test_bare(repository: Path, tmp_path: Path, sealed_git: Git) -> None:
    sealed_git("clone", "-q", "--bare", str(repository), "bare.git", cwd=tmp_path)
    assert number_at(tmp_path / "bare.git", "topic") == b"n = 1\n"


def test_git_directory_and_linked_worktree(
    repository: Path, tmp_path: Path, sealed_git: Git
) -> None:
    assert number_at(repository / ".git", "HEAD") == b"n = 3\n"
    sealed_git("worktree", "add", "-q", str(tmp_path / "linked"), "topic", cwd=repository)
    assert number_at(tmp_path / "linked", "HEAD") == b"n = 1\n"


def test_sha256_repository(tmp_path: Path, write_files: Write, sealed_git: Git) -> None:
    top = write_files(tmp_path / "repo")
    sealed_git("init", "-q", "--object-format=sha256", cwd=top)
    sealed_git("add", ".", cwd=top)
    sealed_git("commit", "-qm", "one", cwd=top)
    target = Revision(top, "HEAD")
    assert len(target.commit) == 64
    assert target.read("sglang/crlf.py") is None
    assert target.read("sglang/srt/crlf.py") == FILES["sglang/srt/crlf.py"]


def test_package_at_the_top_and_moved_later(
    tmp_path: Path, write_files: Write, sealed_git: Git
) -> None:
    top = write_files(tmp_path / "repo")
    sealed_git("init", "-q", cwd=top)
    sealed_git("add", ".", cwd=top)
    sealed_git("commit", "-qm", "top", cwd=top)
    (top / "python").mkdir()
    sealed_git("mv", "sglang", "python/sglang", cwd=top)
    sealed_git("commit", "-qm", "moved", cwd=top)
    for rev, prefix in (("HEAD~1", ""), ("HEAD", "python/")):
        target = Revision(top, rev)
        assert target.diff_prefix == prefix
        assert {path: target.read(path) for path in target.files()} == FILES


def test_version_from_pyproject(repository: Path, write_files: Write, sealed_git: Git) -> None:
    pyproject = b'[project]\nname = "sglang"\nversion = "0.5.3.post1"\n'
    write_files(repository / "python", {"pyproject.toml": pyproject})
    sealed_git("add", ".", cwd=repository)
    sealed_git("commit", "-qm", "version", cwd=repository)
    target = Revision(repository, "HEAD")
    assert target.version == "0.5.3.post1"
    assert "pyproject.toml" not in list(target.files())


def test_links_are_followed_inside_the_package(repository: Path, sealed_git: Git) -> None:
    package = repository / "python" / "sglang"
    (package / "srt" / "link.py").symlink_to("../number.py")
    (package / "out.py").symlink_to("../../README.md")
    (package / "circle.py").symlink_to("circle.py")
    (package / "folder").symlink_to("srt")
    (package / "dangling.py").symlink_to("none.py")
    sealed_git("add", ".", cwd=repository)
    sealed_git("commit", "-qm", "links", cwd=repository)
    target = Revision(repository, "HEAD")
    assert target.read("sglang/srt/link.py") == b"n = 3\n"
    assert target.read("sglang/folder") is None
    with pytest.raises(TargetError, match=r"leaves the package for README\.md"):
        target.read("sglang/out.py")
    with pytest.raises(TargetError, match="leads round in a circle"):
        target.read("sglang/circle.py")
    with pytest.raises(TargetError, match=r"a link to python/sglang/none\.py, which"):
        target.read("sglang/dangling.py")
    assert list(target.files()) == sorted(
        [*FILES, "sglang/number.py", "sglang/out.py", "sglang/srt/link.py"]
    )


def test_shallow(repository: Path, tmp_path: Path, sealed_git: Git) -> None:
    sealed_git("clone", "-q", "--depth=1", repository.as_uri(), "shallow", cwd=tmp_path)
    assert number_at(tmp_path / "shallow", "HEAD") == b"n = 3\n"
    message = refused(tmp_path / "shallow", "HEAD~1")
    assert "no commit 'HEAD~1' there; it is shallow: git fetch --unshallow" in message


@pytest.fixture
def partial(repository: Path, tmp_path: Path, sealed_git: Git) -> Path:
    """Return a clone without blobs."""
    sealed_git("config", "uploadpack.allowFilter", "true", cwd=repository)
    sealed_git("config", "uploadpack.allowAnySHA1InWant", "true", cwd=repository)
    sealed_git(
        "clone", "-q", "--bare", "--filter=blob:none", repository.as_uri(), "partial", cwd=tmp_path
    )
    return tmp_path / "partial"


def test_partial_clone_fetches_what_it_lacks(partial: Path) -> None:
    assert number_at(partial, "v0.5.2") == b"n = 2\n"


def test_partial_clone_without_network(partial: Path, repository: Path) -> None:
    repository.rename(repository.with_name("gone"))
    target = Revision(partial, "v0.5.2")
    assert sorted(target.files()) == sorted([*FILES, "sglang/number.py"])
    for _ in range(2):
        with pytest.raises(TargetError, match="not in the object database") as caught:
            target.read("sglang/number.py")
        assert "a shallow or partial clone lacks objects" in str(caught.value)


def test_missing_objects(repository: Path) -> None:
    target = Revision(repository, "HEAD")
    blob = target.blob_id("sglang/number.py")
    assert blob is not None
    (repository / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(TargetError, match=f"object {blob} is not in the object database"):
        target.read("sglang/number.py")
    assert target.read("sglang/version.py") == FILES["sglang/version.py"], "the process goes on"


def test_missing_tree(repository: Path, sealed_git: Git) -> None:
    tree = sealed_git("rev-parse", "HEAD:python/sglang", cwd=repository).decode().rstrip("\n")
    (repository / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    assert "is not in the object database" in refused(repository, "HEAD")


def test_reading_writes_nothing(repository: Path, snapshot: Callable[[Path], Snapshot]) -> None:
    before = snapshot(repository)
    target = Revision(repository, "topic")
    assert target.version
    assert all(target.read(path) is not None for path in target.files())
    target.close()
    assert snapshot(repository) == before


def test_git_variables_of_a_hook_do_not_redirect(
    repository: Path, tmp_path: Path, sealed_git: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    sealed_git("init", "-q", cwd=tmp_path / "other")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(tmp_path / "other" / ".git" / "objects"))
    assert number_at(repository, "topic") == b"n = 1\n"


def refused(repository: Path, rev: str) -> str:
    """Return the message of the TargetError for a revision that cannot be read."""
    with pytest.raises(TargetError) as caught:
        Revision(repository, rev)
    return str(caught.value)


def test_unknown_revisions(repository: Path) -> None:
    message = f"{repository}: no commit 'nope' there; git fetch --tags"
    assert refused(repository, "nope") == message
    assert "no commit '0123abc'" in refused(repository, "0123abc")
    assert "no commit 'HEAD:README.md'" in refused(repository, "HEAD:README.md")


@pytest.mark.parametrize("rev", ["", "--upload-pack=x"])
def test_revision_that_is_an_option(rev: str, repository: Path) -> None:
    with pytest.raises(UsageError, match="expected a commit, a tag or a branch"):
        resolve(repo=repository, rev=rev)


def test_not_a_repository(repository: Path, tmp_path: Path) -> None:
    assert refused(tmp_path / "none", "HEAD").endswith("git repository; it does not exist")
    assert refused(repository / "README.md", "HEAD").endswith("it is not a directory")
    for place in (tmp_path, repository / "python"):
        assert "expected a git repository, found none; give its top" in refused(place, "HEAD")


def test_repository_of_another_project(tmp_path: Path, sealed_git: Git) -> None:
    sealed_git("init", "-q", cwd=tmp_path)
    sealed_git("commit", "-q", "--allow-empty", "-m", "one", cwd=tmp_path)
    assert "found neither; is it a repository of sglang?" in refused(tmp_path, "HEAD")


def test_repository_of_another_user(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    assert refused(repository, "HEAD") == (
        f"{repository}: git refuses it because another user owns it; if you trust it: "
        f"git config --global --add safe.directory {repository}"
    )


def test_without_git_on_path(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/none")
    assert "git: not found on PATH" in refused(repository, "HEAD")


def test_git_process_that_dies_is_replaced(repository: Path) -> None:
    target = Revision(repository, "HEAD")
    assert target.read("sglang/number.py") == b"n = 3\n"
    batch = target._objects._batch
    assert batch is not None
    batch.proc.kill()
    batch.proc.wait()
    with pytest.raises(TargetError, match="no reason given"):
        target.read("sglang/number.py")
    assert target.read("sglang/number.py") == b"n = 3\n"
