"""``diff``: what git makes of it, its paths and bytes, and what is told beside it."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Git
from installing import rewriter
from sources import EPOCHS, PATH, backend
from targets import COMPANION, checkout, companion, files, installed, patched, written

from rewriter.model import Change
from rewriter.report.diff import unified
from rewriter.report.text import colourful, diff_lines
from rewriter.targets.release import Release

VARIANTS = {
    "as it is": backend(),
    "carriage returns": backend().replace("\n", "\r\n"),
    "no final newline": backend().removesuffix("\n"),
    "BOM": "\ufeff" + backend(),
    "tabs": backend().replace("    ", "\t"),
    "a late release": backend(**EPOCHS["E10"]),
}


def difference(*arguments: str | Path) -> bytes:
    """Run as a process: the diff is bytes, not text."""
    command = [sys.executable, "-m", "rewriter", "diff", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0
    assert done.stderr == b""
    return done.stdout


@pytest.mark.parametrize("name", VARIANTS)
def test_git_applies_it_to_the_package(tmp_path: Path, sealed_git: Git, name: str) -> None:
    """Case 1: paths are the package's, whatever repository lies around it."""
    text = VARIANTS[name]
    place = installed(tmp_path / "site-packages", text)
    diff = tmp_path / "a.diff"
    diff.write_bytes(difference("--site-packages", place))
    sealed_git("init", "-q", cwd=place)
    sealed_git("apply", "--check", str(diff), cwd=place)
    sealed_git("apply", str(diff), cwd=place)
    assert (place / PATH).read_bytes() == patched(text).encode()
    assert (place / COMPANION).read_bytes() == companion()
    sealed_git("apply", "-R", str(diff), cwd=place)
    assert (place / PATH).read_bytes() == text.encode()
    assert not (place / COMPANION).exists()


def test_another_encoding_goes_through_as_bytes(tmp_path: Path, sealed_git: Git) -> None:
    raw = b"# coding: latin-1\n# \xe9\xff\n" + backend().encode().replace(
        b"        super().__init__()\n", b"        super().__init__()\n        # \xe8\n"
    )
    place = installed(tmp_path / "site-packages", raw)
    diff = difference("--site-packages", place)
    assert b"\n         # \xe8\n" in diff
    (tmp_path / "a.diff").write_bytes(diff)
    sealed_git("init", "-q", cwd=place)
    sealed_git("apply", str(tmp_path / "a.diff"), cwd=place)
    assert b"_kv_gather.attach(self, model_runner)\n        # \xe8\n" in (place / PATH).read_bytes()


def test_the_paths_of_a_checkout_and_of_a_commit(tmp_path: Path, sealed_git: Git) -> None:
    tree = checkout(tmp_path / "tree")
    sealed_git("init", "-q", cwd=tree)
    sealed_git("add", ".", cwd=tree)
    sealed_git("commit", "-qm", "one", cwd=tree)
    of_tree = difference("--checkout", tree)
    assert of_tree.startswith(f"diff --git a/python/{PATH} b/python/{PATH}\n".encode())
    assert f"--- /dev/null\n+++ b/python/{COMPANION}\n".encode() in of_tree
    assert difference("--repo", tree, "--rev", "HEAD") == of_tree
    (tmp_path / "a.diff").write_bytes(of_tree)
    sealed_git("apply", "--check", str(tmp_path / "a.diff"), cwd=tree)
    assert sealed_git("status", "--porcelain", cwd=tree) == b"", "nothing was written"


@pytest.mark.wheels
@pytest.mark.parametrize("version", ["0.4.6.post5", "0.5.1", "0.5.9", "0.5.23"])
def test_git_applies_it_to_an_unpacked_release(
    tmp_path: Path, sealed_git: Git, release: Callable[[str], Release], version: str
) -> None:
    wheel = release(version)
    raw = wheel.read(PATH)
    assert raw is not None
    written(tmp_path / "unpacked", {PATH: raw})
    done = rewriter("diff", "--wheel", wheel.path)
    assert done.code == 0
    (tmp_path / "a.diff").write_text(done.out, newline="")
    sealed_git("init", "-q", cwd=tmp_path / "unpacked")
    sealed_git("apply", "--check", str(tmp_path / "a.diff"), cwd=tmp_path / "unpacked")


def test_what_is_not_ready_is_told_on_standard_error(tmp_path: Path) -> None:
    place = installed(tmp_path, backend(decode="helper method"))
    done = rewriter("diff", "--site-packages", place)
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith("mla_kv_gather: drifted\n")
    assert "nearest: line 47" in done.err
    quiet = rewriter("diff", "--site-packages", place, "-q")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")


def test_an_applied_package_has_no_difference(tmp_path: Path) -> None:
    place = installed(tmp_path, patched())
    (place / COMPANION).write_bytes(companion())
    done = rewriter("diff", "--site-packages", place)
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith("mla_kv_gather: applied\n")


def test_json(tmp_path: Path) -> None:
    place = installed(tmp_path)
    plain = rewriter("diff", "--site-packages", place)
    document = rewriter("diff", "--site-packages", place, "--json").json
    assert document["command"] == "diff"
    assert document["exit"] == 0
    assert document["diff"] == plain.out
    assert document["results"][0]["state"] == "ready"
    assert document["written"] == []


# --- the format ----------------------------------------------------------------------------

CHANGES = {
    "lines": (b"a\nb\n", b"a\nc\n", b"@@ -1,2 +1,2 @@\n a\n-b\n+c\n"),
    "a final newline taken": (
        b"a\n", b"a", b"@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n",
    ),
    "a final newline given": (
        b"a", b"a\n", b"@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n",
    ),
    "both without": (
        b"a\nb", b"c\nb",
        b"@@ -1,2 +1,2 @@\n-a\n+c\n b\n\\ No newline at end of file\n",
    ),
    "a lone carriage return": (b"a\rb\n", b"a\rc\n", b"@@ -1 +1 @@\n-a\rb\n+a\rc\n"),
    "a form feed": (b"\x0c\nb\n", b"\x0c\nc\n", b"@@ -1,2 +1,2 @@\n \x0c\n-b\n+c\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_file(name: str, tmp_path: Path, sealed_git: Git) -> None:
    before, after, hunk = CHANGES[name]
    diff = unified([Change("x.py", before, after)], "p/")
    assert diff == b"diff --git a/p/x.py b/p/x.py\n--- a/p/x.py\n+++ b/p/x.py\n" + hunk
    written(tmp_path, {"p/x.py": before, "a.diff": diff})
    sealed_git("init", "-q", cwd=tmp_path)
    sealed_git("apply", "a.diff", cwd=tmp_path)
    assert (tmp_path / "p/x.py").read_bytes() == after


@pytest.mark.parametrize("raw", [b"", b"a\n", b"a"])
def test_a_new_file_and_its_removal(raw: bytes, tmp_path: Path, sealed_git: Git) -> None:
    made = unified([Change("x.py", None, raw)], "")
    assert made.startswith(b"diff --git a/x.py b/x.py\nnew file mode 100644\n")
    written(tmp_path, {"made.diff": made, "gone.diff": unified([Change("x.py", raw, None)], "")})
    sealed_git("init", "-q", cwd=tmp_path)
    sealed_git("apply", "made.diff", cwd=tmp_path)
    assert (tmp_path / "x.py").read_bytes() == raw
    sealed_git("apply", "gone.diff", cwd=tmp_path)
    assert not (tmp_path / "x.py").exists()


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


def test_colour_is_for_terminals_and_not_against_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert colourful(Terminal())
    assert not colourful(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colourful(Terminal())
    monkeypatch.setenv("NO_COLOR", "")
    assert colourful(Terminal()), "an empty NO_COLOR says nothing"


def test_a_coloured_diff_is_the_diff_with_colours() -> None:
    diff = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n a\x0cb\n-c\r\n+d\n"
    coloured = diff_lines(diff, colour=True)
    assert coloured == (
        "\x1b[1mdiff --git a/x b/x\x1b[0m\n\x1b[1m--- a/x\x1b[0m\n\x1b[1m+++ b/x\x1b[0m\n"
        "\x1b[36m@@ -1 +1,2 @@\x1b[0m\n a\x0cb\n\x1b[31m-c\r\x1b[0m\n\x1b[32m+d\x1b[0m\n"
    )
    assert diff_lines(diff, colour=False) == diff


def test_a_package_without_the_file_has_no_difference(tmp_path: Path) -> None:
    place = written(tmp_path, {k: v for k, v in files().items() if k != PATH})
    done = rewriter("diff", "--site-packages", place)
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith("mla_kv_gather: absent\n")
