"""Wherever a package may lie: links, hard links, modes, odd paths, editable installs, copies."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Git
from fake_sglang import installed_files
from installing import (
    MIXER,
    MIXER_SOURCE,
    PACKAGE,
    TOOLS,
    codemods,
    record_faults,
    result_of,
    rewriter,
    sealed_state,
    site_packages,
    states,
    tree,
)
from test_targets_editable import install_finder, install_pth

__all__ = ["codemods", "sealed_state", "site_packages"]

pytestmark = pytest.mark.usefixtures("codemods")

Write = Callable[..., Path]

RECORD = "sglang-0.5.2.dist-info/RECORD"


def apply(*at: str | Path) -> None:
    done = rewriter("apply", "alpha", *at)
    assert done.code == 0, done.err


def revert(*at: str | Path) -> None:
    done = rewriter("revert", "alpha", *at)
    assert done.code == 0, done.err


# --- links and hard links ------------------------------------------------------------------


def test_case_10_hard_linked_cache_stays_as_it_is(site_packages: Path, tmp_path: Path) -> None:
    """uv and pnpm link every environment's files from one cache."""
    cache, other = tmp_path / "cache", tmp_path / "other"
    shutil.copytree(site_packages, cache, copy_function=os.link)
    shutil.copytree(site_packages, other, copy_function=os.link)
    before = tree(cache)
    inode = (cache / MIXER).stat().st_ino
    assert (site_packages / MIXER).stat().st_ino == inode
    apply("--site-packages", site_packages)
    assert (site_packages / MIXER).stat().st_ino != inode
    assert tree(cache) == tree(other) == before
    assert (cache / MIXER).stat().st_ino == (other / MIXER).stat().st_ino == inode
    assert (cache / MIXER).stat().st_nlink == 2
    revert("--site-packages", site_packages)
    assert tree(cache) == tree(other) == tree(site_packages) == before


def test_failed_run_gives_the_very_inode_back(site_packages: Path) -> None:
    from rewriter.transaction import steps

    def fail(step: steps.Step) -> None:
        if step.name == "verify":
            raise OSError(errno.EIO, "Input/output error")

    before = {p: p.stat() for p in site_packages.rglob("*.py")}
    with steps.observed(fail):
        assert rewriter("apply", "alpha", "--site-packages", site_packages).code == 2
    after = {p: p.stat() for p in site_packages.rglob("*.py")}
    assert {p: (s.st_ino, s.st_mtime_ns, s.st_nlink) for p, s in after.items()} == {
        p: (s.st_ino, s.st_mtime_ns, s.st_nlink) for p, s in before.items()
    }


def test_linked_module_is_replaced_and_its_target_is_not(
    site_packages: Path, tmp_path: Path
) -> None:
    """`uv --link-mode symlink`: what the link leads to belongs to all environments."""
    kept = tmp_path / "cache" / "mixer.py"
    kept.parent.mkdir()
    kept.write_bytes(MIXER_SOURCE)
    (site_packages / MIXER).unlink()
    (site_packages / MIXER).symlink_to(kept)
    before = tree(site_packages)
    done = rewriter("apply", "alpha", "--site-packages", site_packages)
    assert done.code == 0, done.err
    assert f"a file in the place of the link to {kept}, which stays as it is" in done.out
    assert not (site_packages / MIXER).is_symlink()
    assert kept.read_bytes() == MIXER_SOURCE
    assert record_faults(site_packages) == []
    assert result_of(site_packages, "Mixer(2).mix(9)") == "3.0"
    revert("--site-packages", site_packages)
    assert tree(site_packages) == before
    assert (site_packages / MIXER).is_symlink()


def test_link_whose_target_changed_becomes_a_file(site_packages: Path, tmp_path: Path) -> None:
    kept = tmp_path / "mixer.py"
    kept.write_bytes(MIXER_SOURCE)
    (site_packages / MIXER).unlink()
    (site_packages / MIXER).symlink_to(kept)
    apply("--site-packages", site_packages)
    kept.write_bytes(b"another release\n")
    revert("--site-packages", site_packages)
    assert (site_packages / MIXER).read_bytes() == MIXER_SOURCE
    assert kept.read_bytes() == b"another release\n"


def test_linked_directory_inside_the_package_is_refused(
    site_packages: Path, tmp_path: Path
) -> None:
    layers = site_packages / "sglang" / "srt" / "layers"
    layers.rename(tmp_path / "layers")
    layers.symlink_to(tmp_path / "layers")
    before = tree(tmp_path / "layers")
    done = rewriter("apply", "alpha", "--site-packages", site_packages)
    assert done.code == 2
    assert f"{layers}: a linked directory, which others may share" in done.err
    assert tree(tmp_path / "layers") == before


def test_package_linked_in_beside_its_dist_info_is_refused(
    site_packages: Path, tmp_path: Path
) -> None:
    (site_packages / "sglang").rename(tmp_path / "store")
    (site_packages / "sglang").symlink_to(tmp_path / "store")
    done = rewriter("apply", "alpha", "--site-packages", site_packages)
    assert done.code == 2
    assert "which other environments may share" in done.err
    assert (tmp_path / "store" / "srt" / "layers" / "mixer.py").read_bytes() == MIXER_SOURCE


def test_linked_package_without_dist_info_is_written_where_it_lies(
    tmp_path: Path, write_files: Write
) -> None:
    write_files(tmp_path / "real", PACKAGE)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sglang").symlink_to(tmp_path / "real" / "sglang")
    at = ("--site-packages", tmp_path / "site")
    assert rewriter("apply", "alpha", *at, "--accept-unproven").code == 0
    assert (tmp_path / "real" / TOOLS).is_file()
    assert states("alpha", *at) == {"alpha": "applied"}
    revert(*at)
    assert (tmp_path / "real" / MIXER).read_bytes() == MIXER_SOURCE
    assert sorted(p.name for p in (tmp_path / "site").iterdir()) == ["sglang"]


# --- what a file keeps ---------------------------------------------------------------------


def test_mode_is_kept_and_the_companion_is_as_readable(site_packages: Path) -> None:
    (site_packages / MIXER).chmod(0o750)
    (site_packages / RECORD).chmod(0o640)
    old = os.umask(0o077)
    try:
        apply("--site-packages", site_packages)
    finally:
        os.umask(old)

    def mode(path: str) -> int:
        return stat.S_IMODE((site_packages / path).stat().st_mode)

    assert (mode(MIXER), mode(TOOLS)) == (0o750, 0o640)
    assert (mode(RECORD), mode("sglang-0.5.2.dist-info/REWRITER.json")) == (0o640, 0o640)
    revert("--site-packages", site_packages)
    assert (mode(MIXER), mode(RECORD)) == (0o750, 0o640)


def test_extended_attributes_are_kept(site_packages: Path) -> None:
    try:
        os.setxattr(site_packages / MIXER, "user.note", b"kept")
    except (OSError, AttributeError):
        pytest.skip("no extended attributes here")
    apply("--site-packages", site_packages)
    assert os.getxattr(site_packages / MIXER, "user.note") == b"kept"
    assert os.listxattr(site_packages / TOOLS) == []
    revert("--site-packages", site_packages)
    assert os.getxattr(site_packages / MIXER, "user.note") == b"kept"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_owner_is_kept(site_packages: Path) -> None:
    for path in (MIXER, RECORD):
        os.chown(site_packages / path, 1234, 5678)
    os.chown(site_packages / RECORD.rpartition("/")[0], 1234, 5678)
    apply("--site-packages", site_packages)
    for path in (MIXER, TOOLS, RECORD, "sglang-0.5.2.dist-info/REWRITER.json"):
        found = (site_packages / path).stat()
        assert (found.st_uid, found.st_gid) == (1234, 5678), path
    revert("--site-packages", site_packages)
    assert (site_packages / MIXER).stat().st_uid == 1234


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_record_in_another_users_tree_belongs_to_that_user(clone: Path) -> None:
    """Root applies; the user must be able to revert."""
    for path in (clone, *clone.rglob("*")):
        os.chown(path, 1234, 5678)
    apply("--checkout", clone)
    made = [clone / ".git" / "rewriter", clone / ".git" / "rewriter" / "manifest.json"]
    for path in (*made, clone / "python" / TOOLS, clone / "python" / MIXER):
        found = path.stat()
        assert (found.st_uid, found.st_gid) == (1234, 5678), path


def test_foreign_owner_is_refused_before_any_write(
    site_packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(site_packages)
    owner = (site_packages / MIXER).stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    done = rewriter("apply", "alpha", "--site-packages", site_packages)
    assert done.code == 2
    assert (
        f"belongs to user {owner}; this is user 54321, so its owner could not be kept" in done.err
    )
    assert "Run rewriter as that user, or as root" in done.err
    assert tree(site_packages) == before


@pytest.mark.parametrize("folder", ["sglang/srt/layers", "sglang-0.5.2.dist-info"])
def test_read_only_folder_is_refused_before_any_write(
    folder: str, site_packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(site_packages)
    real = os.access

    def access(path: os.PathLike[str], mode: int, **more: bool) -> bool:
        return Path(path) != site_packages / folder and real(path, mode, **more)

    monkeypatch.setattr(os, "access", access)
    done = rewriter("apply", "alpha", "--site-packages", site_packages)
    assert done.code == 2
    assert f"{site_packages / folder}" in done.err
    assert "nothing was written. Run rewriter as a user who can, or leave the package" in done.err
    assert "`rewriter apply --overlay DIR`" in done.err
    assert tree(site_packages) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_tree(site_packages: Path) -> None:
    folders = [p for p in site_packages.rglob("*") if p.is_dir()]
    for folder in folders:
        folder.chmod(0o555)
    done = rewriter("apply", "alpha", "--site-packages", site_packages)
    for folder in folders:
        folder.chmod(0o755)
    assert done.code == 2
    assert "cannot be written by this user" in done.err or "cannot write there" in done.err


def test_read_only_file_system(site_packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: type("Status", (), {"f_flag": os.ST_RDONLY})())
    done = rewriter("apply", "alpha", "--site-packages", site_packages)
    assert done.code == 2
    assert "is on a read-only file system; nothing was written. Run rewriter as" in done.err


def test_file_system_without_hard_links(
    site_packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(site_packages)

    def link(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    apply("--site-packages", site_packages)
    assert states("alpha", "--site-packages", site_packages) == {"alpha": "applied"}
    revert("--site-packages", site_packages)
    assert tree(site_packages) == before


# --- where it lies -------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["a b", "sgläng-源", 'it\'s $HOME; "x"', "-dash"])
def test_odd_paths(folder: str, tmp_path: Path, write_files: Write) -> None:
    site = write_files(tmp_path / folder, installed_files("0.5.2", PACKAGE))
    before = tree(site)
    apply("--site-packages", site)
    assert record_faults(site) == []
    assert result_of(site, "Mixer(2).mix(9)") == "3.0"
    revert("--site-packages", site)
    assert tree(site) == before


def test_bare_tree_keeps_its_record_beside_the_package(tmp_path: Path, write_files: Write) -> None:
    site = write_files(tmp_path / "bare", PACKAGE)
    before = tree(site)
    done = rewriter("apply", "alpha", "--site-packages", site)
    assert done.code == 2
    assert "there is no RECORD and no commit to compare it with, and no pin knows it" in done.err
    assert tree(site) == before
    apply("--site-packages", site, "--accept-unproven")
    assert (site / ".rewriter" / "manifest.json").is_file()
    done = rewriter("revert", "alpha", "--site-packages", site)
    assert done.code == 0
    assert "is as it was found, which nothing had proved" in done.out
    assert tree(site) == before


def test_stripped_record_needs_to_be_accepted(site_packages: Path) -> None:
    (site_packages / RECORD).unlink()
    before = tree(site_packages)
    done = rewriter("apply", "alpha", "--site-packages", site_packages)
    assert done.code == 2
    assert "--accept-unproven: a revert then gives these bytes back" in done.err
    apply("--site-packages", site_packages, "--accept-unproven")
    assert not (site_packages / RECORD).exists()
    revert("--site-packages", site_packages)
    assert tree(site_packages) == before


def test_installed_file_that_is_not_what_record_says(site_packages: Path) -> None:
    (site_packages / MIXER).write_bytes(MIXER_SOURCE + b"# mine\n")
    before = tree(site_packages)
    done = rewriter("apply", "alpha", "--site-packages", site_packages)
    assert done.code == 2
    assert f"{MIXER} is not known to be as shipped: {RECORD} says sha256=" in done.err
    assert tree(site_packages) == before
    done = rewriter("apply", "alpha", "--site-packages", site_packages, "--accept-unproven")
    assert done.code == 0
    assert "unproven: mixer.py was accepted as it is" in done.out
    assert record_faults(site_packages) == []
    revert("--site-packages", site_packages)
    assert tree(site_packages) == before


def test_container_layer_copied_with_its_manifest(site_packages: Path, tmp_path: Path) -> None:
    before = tree(site_packages)
    apply("--site-packages", site_packages)
    copy = tmp_path / "rootfs" / "opt" / "site-packages"
    shutil.copytree(site_packages, copy)
    shutil.rmtree(site_packages)
    told = rewriter("status", "alpha", "--site-packages", copy)
    assert "every file has the hash that the record holds" in told.out
    assert str(site_packages) not in (copy / "sglang-0.5.2.dist-info/REWRITER.json").read_text()
    revert("--site-packages", copy)
    assert tree(copy) == before


def test_interrupted_layer_is_recovered_where_it_was_copied_to(
    site_packages: Path, tmp_path: Path
) -> None:
    from test_transaction import leave_half

    before = tree(site_packages)
    leave_half(site_packages)
    copy = tmp_path / "copy"
    shutil.copytree(site_packages, copy)
    assert states("alpha", "--site-packages", copy) == {"alpha": "interrupted"}
    revert("--site-packages", copy)
    assert tree(copy) == before


# --- source trees --------------------------------------------------------------------------


@pytest.fixture
def clone(tmp_path: Path, write_files: Write, sealed_git: Git) -> Path:
    """Return a repository with the package under ``python/``, committed."""
    top = tmp_path / "a clöne"
    write_files(top / "python", PACKAGE)
    (top / ".gitignore").write_text("__pycache__/\n")
    sealed_git("init", "-q", cwd=top)
    sealed_git("add", ".", cwd=top)
    sealed_git("commit", "-qm", "one", cwd=top)
    return top


def status_of(git: Git, top: Path) -> list[str]:
    return git("status", "--short", cwd=top).decode().splitlines()


def test_checkout(clone: Path, sealed_git: Git) -> None:
    before = tree(clone)
    done = rewriter("apply", "alpha", "--checkout", clone)
    assert done.code == 0, done.err
    head = sealed_git("rev-parse", "HEAD", cwd=clone).decode()[:10]
    assert f"proof: mixer.py was as shipped: HEAD {head} (blob " in done.out
    assert "git lists the module as changed and _rewriter_tools.py as untracked" in done.out
    assert status_of(sealed_git, clone) == [f" M python/{MIXER}", f"?? python/{TOOLS}"]
    assert (clone / ".git" / "rewriter" / "manifest.json").is_file()
    done = rewriter("revert", "alpha", "--checkout", clone)
    assert done.code == 0, done.err
    assert f"proof: mixer.py is as shipped: HEAD {head}" in done.out
    assert status_of(sealed_git, clone) == []
    after = tree(clone)
    assert {p: s for p, s in after.items() if p != ".git/index"} == {
        p: s for p, s in before.items() if p != ".git/index"
    }


def test_what_apply_writes_is_what_diff_shows(clone: Path, sealed_git: Git, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(clone, other)
    (tmp_path / "it.diff").write_text(rewriter("diff", "alpha", "--checkout", clone).out)
    sealed_git("apply", str(tmp_path / "it.diff"), cwd=other)
    apply("--checkout", clone)
    assert tree(other / "python") == tree(clone / "python")
    assert states("alpha", "--checkout", other) == {"alpha": "applied"}


def test_dirty_checkout_says_which_lines_and_wants_to_be_accepted(clone: Path) -> None:
    mine = MIXER_SOURCE.replace(b"self.width = width", b"self.width = width  # mine")
    (clone / "python" / MIXER).write_bytes(mine)
    done = rewriter("apply", "alpha", "--checkout", clone)
    assert done.code == 2
    assert "it differs from HEAD" in done.err
    assert " in line 11; nothing was written" in done.err
    apply("--checkout", clone, "--accept-unproven")
    revert("--checkout", clone)
    assert (clone / "python" / MIXER).read_bytes() == mine


@pytest.mark.parametrize("shape", ["detached", "foreign", "linked worktree", "carriage returns"])
def test_checkouts_in_other_shapes(
    shape: str, clone: Path, sealed_git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shape == "detached":
        sealed_git("checkout", "-q", "--detach", cwd=clone)
    elif shape == "foreign":
        monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    elif shape == "linked worktree":
        sealed_git("worktree", "add", "-q", str(tmp_path / "linked"), cwd=clone)
        clone = tmp_path / "linked"
    else:
        path = clone / "python" / MIXER
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    before = tree(clone / "python")
    done = rewriter("apply", "alpha", "--checkout", clone)
    assert done.code == 0, done.err
    assert "was as shipped: HEAD" in done.out
    assert states("alpha", "--checkout", clone) == {"alpha": "applied"}
    revert("--checkout", clone)
    assert tree(clone / "python") == before


def test_checkout_without_git_data(clone: Path) -> None:
    shutil.rmtree(clone / ".git")
    before = tree(clone)
    assert rewriter("apply", "alpha", "--checkout", clone).code == 2
    apply("--checkout", clone, "--accept-unproven")
    assert (clone / "python" / ".rewriter" / "manifest.json").is_file()
    revert("--checkout", clone)
    assert tree(clone) == before


@pytest.mark.parametrize("install", [install_pth, install_finder])
def test_editable_install_of_a_clone(
    install: Callable[[Path, Path], Path],
    clone: Path,
    virtual_environment: tuple[Path, Path],
    sealed_git: Git,
) -> None:
    python, place = virtual_environment
    install(place, clone / "python")
    before = tree(place)
    done = rewriter("apply", "alpha", "--python", python)
    assert done.code == 0, done.err
    assert "was as shipped: HEAD" in done.out
    assert states("alpha", "--checkout", clone) == {"alpha": "applied"}
    assert tree(place) == before, "the environment itself is not touched"
    ran = subprocess.run(
        [python, "-c", "from sglang.srt.layers import mixer; print(mixer._tools.VERSION)"],
        capture_output=True, check=True, cwd=clone.parent,
    )  # fmt: skip
    assert ran.stdout == b"1\n"
    revert("--checkout", clone)
    assert states("alpha", "--python", python) == {"alpha": "ready"}
    assert status_of(sealed_git, clone) == []


def test_strict_editable_install(
    clone: Path, virtual_environment: tuple[Path, Path], write_files: Write
) -> None:
    """A tree of links to the sources: the links are replaced, the sources are not touched."""
    from test_targets_editable import editable_dist_info

    _, place = virtual_environment
    source = clone / "python"
    links = source / "build" / "__editable__.sglang-0.5.1-py3-none-any"
    for path in PACKAGE:
        (links / path).parent.mkdir(parents=True, exist_ok=True)
        (links / path).symlink_to(source / path)
    editable_dist_info(place, source)
    (place / "__editable__.sglang-0.5.1.pth").write_text(f"{links}\n")
    before = tree(clone)
    apply("--site-packages", place, "--accept-unproven")
    assert (source / MIXER).read_bytes() == MIXER_SOURCE
    assert states("alpha", "--site-packages", place) == {"alpha": "applied"}
    revert("--site-packages", place)
    assert tree(clone) == before


def test_stash_and_pop(clone: Path, sealed_git: Git) -> None:
    apply("--checkout", clone)
    sealed_git("stash", "-q", cwd=clone)
    assert states("alpha", "--checkout", clone) == {"alpha": "orphaned"}
    sealed_git("stash", "pop", "-q", cwd=clone)
    assert states("alpha", "--checkout", clone) == {"alpha": "applied"}
    revert("--checkout", clone)
    assert status_of(sealed_git, clone) == []


def test_branch_switch_over_an_applied_codemod(clone: Path, sealed_git: Git) -> None:
    apply("--checkout", clone)
    sealed_git("stash", "-q", cwd=clone)
    sealed_git("checkout", "-qb", "other", cwd=clone)
    path = clone / "python" / MIXER
    path.write_bytes(MIXER_SOURCE.replace(b'"1"', b'"2"'))
    sealed_git("commit", "-qam", "two", cwd=clone)
    told = rewriter("status", "alpha", "--checkout", clone)
    assert "alpha: orphaned" in told.out
    revert("--checkout", clone)
    assert states("alpha", "--checkout", clone) == {"alpha": "ready"}
    assert status_of(sealed_git, clone) == []
    apply("--checkout", clone)
    assert states("alpha", "--checkout", clone) == {"alpha": "applied"}


def test_commit_with_the_codemod_in_it(clone: Path, sealed_git: Git) -> None:
    """Then HEAD holds our lines; the frozen witness still knows the original."""
    apply("--checkout", clone)
    sealed_git("add", ".", cwd=clone)
    sealed_git("commit", "-qm", "patched", cwd=clone)
    assert states("alpha", "--checkout", clone) == {"alpha": "applied"}
    revert("--checkout", clone)
    assert (clone / "python" / MIXER).read_bytes() == MIXER_SOURCE


def test_pull_under_an_applied_codemod(clone: Path, sealed_git: Git) -> None:
    """Upstream moves on elsewhere in the file and our edits go along: HEAD is the proof then."""
    apply("--checkout", clone)
    patched = (clone / "python" / MIXER).read_bytes()
    newer = MIXER_SOURCE.replace(b"# spread", b"# spreads")
    (clone / "python" / MIXER).write_bytes(newer)
    sealed_git("commit", "-qam", "two", cwd=clone)
    (clone / "python" / MIXER).write_bytes(patched.replace(b"# spread", b"# spreads"))
    assert states("alpha", "--checkout", clone) == {"alpha": "applied"}
    done = rewriter("revert", "alpha", "--checkout", clone)
    assert done.code == 0, done.err
    head = sealed_git("rev-parse", "HEAD", cwd=clone).decode()[:10]
    assert f"proof: mixer.py is as shipped: HEAD {head}" in done.out
    assert "taken before the first write" not in done.out
    assert status_of(sealed_git, clone) == []
