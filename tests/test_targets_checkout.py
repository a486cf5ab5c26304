"""Checkouts: working trees in every shape, with and without git data."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Git, Snapshot
from fake_sglang import FILES, installed_files

from rewriter.errors import TargetError
from rewriter.targets import resolve
from rewriter.targets.checkout import Checkout

Write = Callable[..., Path]


@pytest.fixture
def clone(tmp_path: Path, write_files: Write, sealed_git: Git) -> Path:
    """Return a repository with the package under ``python/`` and one commit."""
    top = tmp_path / "a clöne"
    write_files(top / "python")
    sealed_git("init", "-q", cwd=top)
    sealed_git("add", ".", cwd=top)
    sealed_git("commit", "-qm", "one", cwd=top)
    return top


@pytest.mark.parametrize("given", ["", "python", "python/sglang", "python/../python"])
def test_given_the_top_or_a_folder_of_it(given: str, clone: Path, sealed_git: Git) -> None:
    target = Checkout(clone / given)
    assert (target.kind, target.writable, target.diff_prefix) == ("checkout", True, "python/")
    assert (target.root, target.top) == (clone / "python", clone)
    assert target.location == str(clone)
    assert target.git_dir == clone / ".git"
    assert f"{target.head}\n".encode() == sealed_git("rev-parse", "HEAD", cwd=clone)
    assert {path: target.read(path) for path in target.files()} == FILES


def test_working_directory(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(clone / "python")
    assert resolve(checkout=".").location == str(clone)


def test_package_at_the_top(tmp_path: Path, write_files: Write) -> None:
    write_files(tmp_path)
    for given in (tmp_path, tmp_path / "sglang"):
        target = Checkout(given)
        assert (target.root, target.top, target.diff_prefix) == (tmp_path, tmp_path, "")


def test_repository_called_python(tmp_path: Path, write_files: Write, sealed_git: Git) -> None:
    top = write_files(tmp_path / "python")
    sealed_git("init", "-q", cwd=top)
    target = Checkout(top)
    assert (target.top, target.diff_prefix) == (top, "")
    assert target.git_dir == top / ".git"


def test_repository_around_is_not_its_own(
    tmp_path: Path, write_files: Write, sealed_git: Git
) -> None:
    sealed_git("init", "-q", cwd=tmp_path)
    write_files(tmp_path / "vendored" / "python")
    target = Checkout(tmp_path / "vendored")
    assert (target.git_dir, target.head) == (None, None)


def test_files_as_they_stand(clone: Path) -> None:
    (clone / "python/sglang/version.py").write_bytes(b"changed\r\n")
    (clone / "python/sglang/new.py").write_bytes(b"untracked\n")
    target = Checkout(clone)
    assert target.read("sglang/version.py") == b"changed\r\n"
    assert "sglang/new.py" in list(target.files())


def test_without_git_data(clone: Path) -> None:
    shutil.rmtree(clone / ".git")
    target = Checkout(clone)
    assert (target.git_dir, target.head, target.top) == (None, None, clone)
    assert (target.diff_prefix, target.version) == ("python/", "0.5.2")


def test_detached_head(clone: Path, sealed_git: Git) -> None:
    sealed_git("checkout", "-q", "--detach", cwd=clone)
    assert Checkout(clone).head is not None


def test_before_the_first_commit(tmp_path: Path, write_files: Write, sealed_git: Git) -> None:
    write_files(tmp_path / "python")
    sealed_git("init", "-q", cwd=tmp_path)
    target = Checkout(tmp_path)
    assert target.git_dir == tmp_path / ".git"
    assert target.head is None


def test_linked_worktree(clone: Path, tmp_path: Path, sealed_git: Git) -> None:
    sealed_git("worktree", "add", "-q", str(tmp_path / "linked"), "-b", "other", cwd=clone)
    target = Checkout(tmp_path / "linked")
    assert target.git_dir == clone / ".git" / "worktrees" / "linked"
    assert target.head == Checkout(clone).head


def test_submodule(clone: Path, tmp_path: Path, sealed_git: Git) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    sealed_git("init", "-q", cwd=outer)
    sealed_git("submodule", "--quiet", "add", str(clone), "inner", cwd=outer)
    target = Checkout(outer / "inner")
    assert target.git_dir is not None
    assert target.git_dir.resolve() == outer / ".git" / "modules" / "inner"
    assert target.head == Checkout(clone).head


def test_git_file_that_leads_nowhere(clone: Path) -> None:
    shutil.rmtree(clone / ".git")
    (clone / ".git").write_text("gitdir: /none/such\n")
    target = Checkout(clone)
    assert (target.git_dir, target.head) == (None, None)
    assert target.version == "0.5.2"


def test_tree_of_another_user(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git refuses it; its files can be read all the same."""
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    target = Checkout(clone)
    assert target.head is None
    assert target.git_dir == clone / ".git"
    assert target.read("sglang/version.py") == FILES["sglang/version.py"]


def test_without_git_on_path(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/none")
    target = Checkout(clone)
    assert target.head is None
    assert list(target.files()) == sorted(FILES)


def test_git_variables_of_a_hook_do_not_redirect(
    clone: Path, tmp_path: Path, sealed_git: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    sealed_git("init", "-q", cwd=tmp_path / "other")
    expected = Checkout(clone).head
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    assert expected is not None
    assert Checkout(clone).head == expected


def test_reading_writes_nothing(clone: Path, snapshot: Callable[[Path], Snapshot]) -> None:
    before = snapshot(clone)
    target = Checkout(clone)
    assert target.head
    assert target.version
    assert all(target.read(path) is not None for path in target.files())
    assert snapshot(clone) == before


def refused(path: Path) -> str:
    """Return the message of the TargetError for a directory that is no checkout."""
    with pytest.raises(TargetError) as caught:
        Checkout(path)
    return str(caught.value)


def test_messages(tmp_path: Path, write_files: Write) -> None:
    assert refused(tmp_path / "none") == f"{tmp_path}/none: no such directory"
    assert refused(tmp_path) == (
        f"{tmp_path}: expected python/sglang/__init__.py or sglang/__init__.py, found neither; "
        "give the top of a checkout of sglang"
    )
    site_packages = write_files(tmp_path / "site", installed_files())
    assert refused(site_packages).endswith(".dist-info: `rewriter check --site-packages DIR`")
