"""What people hand to ``carry`` by mistake: one message each, its exit code, nothing written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Git
from fake_sglang import installed_files
from installing import MIXER, SCALER, Install, codemods, rewriter, sealed_state, tree
from patching import NEWER, OLDER, Team, replaced, team

__all__ = ["codemods", "sealed_state", "team"]

pytestmark = pytest.mark.usefixtures("codemods")

OURS = replaced(OLDER[MIXER], b"return sqrt(y)", b"return sqrt(y) + 1")

HUNK = b"@@ -1 +1 @@\n-a\n+b\n"


def of(path: str, hunk: bytes = HUNK) -> bytes:
    return f"--- a/{path}\n+++ b/{path}\n".encode() + hunk


def headed(line: bytes) -> bytes:
    """Return a change of a file, by git's header alone."""
    return f"diff --git a/{MIXER} b/{MIXER}\n".encode() + line


def linked(place: Path) -> None:
    place.unlink()
    place.symlink_to("scaler.py")


PLAIN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "own.patch: expected a unified diff, found no hunk in it"),
    "text": (b"to do\n", "own.patch: expected a unified diff, found no hunk in it"),
    "not text": (bytes(range(256)), "own.patch: expected a unified diff, found no hunk in it"),
    "UTF-16": (of(MIXER).decode().encode("utf-16"), "make it with git diff --output=FILE"),
    "a context diff": (b"*** a\n--- b\n***************\n*** 1 ****\n! a\n", "make it with diff -u"),
    "a merge's diff": (of(MIXER, b"@@@ -1 -1 +1 @@@\n- a\n"), "make it with git diff A B"),
    "no file header": (HUNK, "own.patch: line 1: a hunk without a file header"),
    "another project": (of("django/x.py"), "own.patch: none of the files is part of the package"),
    "a patch of a patch": (of("fixes/own.patch"), "is the patch for another project?"),
    "climbs": (of("sglang/../../etc/x.py"), "expected a path inside the package, found one with"),
    "only a mode": (
        headed(b"old mode 100644\nnew mode 100755\n"),
        f"changes only the mode of {MIXER}; modes are not carried, and no text changes",
    ),
    "a link": (headed(b"new file mode 120000\n"), f"{MIXER} is a symbolic link; only regular"),
    "a changed link": (headed(b"index 1234567..89abcde 120000\n"), "is a symbolic link"),
    "a submodule": (headed(b"new file mode 160000\n"), f"{MIXER} is a submodule; only regular"),
    "a copy": (headed(b"copy from sglang/x.py\n"), "is made as a copy of sglang/x.py; make the"),
    "a binary file": (headed(b"GIT binary patch\n"), f"a binary change of {MIXER}; binary files"),
    "a file that is not there": (
        of("sglang/srt/gone.py"), "gone.py: not in the release that the patch is for (--from)",
    ),
    "a new file that is there": (
        f"--- /dev/null\n+++ b/{MIXER}\n@@ -0,0 +1 @@\n+x = 1\n".encode(),
        "has it: it is applied already, or the patch is reversed",
    ),
    "other lines": (of(SCALER), f"{SCALER}, hunk 1 (@@ -1 +1 @@): does not apply to the release"),
}  # fmt: skip


def of_git(team: Team, git: Git) -> dict[str, tuple[bytes, str]]:
    """Return what git makes, or what becomes of it on its way."""
    good = team.patch({MIXER: OURS}).read_bytes()
    (team.older / MIXER).write_bytes(OURS)
    backwards = git("diff", "-R", cwd=team.older)
    git("reset", "--hard", cwd=team.older)
    return {
        "reversed": (backwards, "its result is there already: it is applied, or the patch is"),
        "a corrupt line": (
            replaced(good, b"-        return", b"*        return"), "it cannot be repaired",
        ),
        "cut off": (good[:-60], "does not apply to the release that the patch is for (--from)"),
    }  # fmt: skip


@pytest.fixture
def refused(team: Team, tmp_path: Path, write_files: Install) -> Callable[[bytes, str], None]:
    """Return a function that asserts one message, exit code 2, and nothing written."""
    place = write_files(tmp_path / "site-packages", installed_files("0.5.3", NEWER))
    before = tree(place)

    def check(raw: bytes, message: str) -> None:
        patch = team.written(raw, "own.patch")
        output = tmp_path / "output"
        ends = ["--onto", str(place), "--output", str(output), "--patch", str(tmp_path / "new")]
        for more in (["--apply", "--site-packages", str(place)], ends):
            done = rewriter("carry", str(patch), "--from", str(team.older), *more)
            assert done.code == 2, done.out
            assert message in done.err
            assert done.err.count("\n") == 1
            assert done.out == ""
            assert tree(place) == before
            assert not output.exists()
            assert not (tmp_path / "new").exists()
        done = rewriter(
            "matrix", "--patch", str(patch), "--from", str(team.older), "--checkout", str(place)
        )
        assert (done.code, message in done.err) == (2, True)

    return check


@pytest.mark.parametrize("case", PLAIN)
def test_what_is_no_patch_of_ours(case: str, refused: Callable[[bytes, str], None]) -> None:
    refused(*PLAIN[case])


@pytest.mark.parametrize("case", ["reversed", "a corrupt line", "cut off"])
def test_what_became_of_a_patch(
    case: str, team: Team, sealed_git: Git, refused: Callable[[bytes, str], None]
) -> None:
    refused(*of_git(team, sealed_git)[case])


def test_links_and_modes_as_git_writes_them(
    team: Team, sealed_git: Git, refused: Callable[[bytes, str], None]
) -> None:
    for change, message in (
        (linked, f"{MIXER} is a symbolic link"),
        (lambda place: place.chmod(0o755), f"changes only the mode of {MIXER}"),
    ):
        change(team.older / MIXER)
        raw = sealed_git("diff", cwd=team.older)
        sealed_git("reset", "--hard", cwd=team.older)
        refused(raw, message)


def test_a_mode_beside_a_change_is_left_as_it_is(
    team: Team, sealed_git: Git, tmp_path: Path, write_files: Install
) -> None:
    place = write_files(tmp_path / "site-packages", installed_files("0.5.3", NEWER))
    (team.older / MIXER).write_bytes(OURS)
    (team.older / MIXER).chmod(0o755)
    patch = team.written(sealed_git("diff", cwd=team.older))
    sealed_git("reset", "--hard", cwd=team.older)
    assert b"new mode 100755" in patch.read_bytes()
    mode = (place / MIXER).stat().st_mode
    assert rewriter(*team.apply(patch), "--site-packages", place).code == 0
    assert (place / MIXER).stat().st_mode == mode


def test_what_is_no_file(team: Team, tmp_path: Path) -> None:
    for name, message in (("older", "found a directory; name its files"), ("no", "cannot be read")):
        done = rewriter("carry", str(tmp_path / name), "--from", str(team.older), "--onto", "0.5.9")
        assert (done.code, message in done.err) == (2, True)


def test_the_same_patch_twice(team: Team, tmp_path: Path, write_files: Install) -> None:
    place = write_files(tmp_path / "site-packages", installed_files("0.5.3", NEWER))
    patch = team.patch({MIXER: OURS})
    done = rewriter(*team.apply(patch, patch), "--site-packages", place)
    assert (done.code, "the same patch is named twice; name it once" in done.err) == (2, True)


def test_a_file_that_only_its_own_release_has(
    team: Team, tmp_path: Path, write_files: Install
) -> None:
    """A question of the release, not of the patch: the answer is no, and why."""
    files = {path: raw for path, raw in NEWER.items() if path != MIXER}
    place = write_files(tmp_path / "site-packages", installed_files("0.5.3", files))
    before = tree(place)
    done = rewriter(*team.apply(team.patch({MIXER: OURS})), "--site-packages", place)
    assert done.code == 1
    assert "hunk 1: conflict\n    upstream has no such file any more" in done.out
    assert tree(place) == before


@pytest.mark.parametrize("case", ["carriage returns", "wrong counts", "no counts"])
def test_what_can_be_put_right(case: str, team: Team, tmp_path: Path, write_files: Install) -> None:
    place = write_files(tmp_path / "site-packages", installed_files("0.5.3", NEWER))
    good = team.patch({MIXER: OURS}).read_bytes()
    made = {
        "carriage returns": good.replace(b"\n", b"\r\n"),
        "wrong counts": replaced(good, b",7 +13,7 @@", b",9 +13,4 @@"),
        "no counts": replaced(good, b"@@ -13,7 +13,7 @@", b"@@ @@"),
    }[case]
    done = rewriter(*team.apply(team.written(made)), "--site-packages", place)
    assert done.code == 0, done.err
    assert (place / MIXER).read_bytes() == replaced(NEWER[MIXER], b"sqrt(y)\n", b"sqrt(y) + 1\n")
    assert ("repaired: its header" in done.out) == (case != "carriage returns")
