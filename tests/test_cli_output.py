"""``apply --output``: a patched tree in a directory of its own, whatever the target is."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Git
from installing import rewriter, tree
from sources import EPOCHS, PATH, backend
from targets import COMPANION, checkout, companion, files, installed, patched

from rewriter import pins
from rewriter.output import MANIFEST
from rewriter.targets.release import Release


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return installed(tmp_path / "site-packages")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def test_the_changed_and_the_new_file_and_a_record(place: Path, out: Path) -> None:
    before = tree(place)
    done = rewriter("apply", "--site-packages", place, "--output", out)
    assert (done.code, done.err) == (0, "")
    assert sorted(p for p, (_, raw) in tree(out).items() if raw) == sorted(
        [MANIFEST, COMPANION, PATH]
    )
    assert (out / PATH).read_bytes() == patched().encode()
    assert (out / COMPANION).read_bytes() == companion()
    assert tree(place) == before, "the target is never touched"
    assert done.out.splitlines()[-2:] == [
        f"wrote {out / PATH} (+15 lines)",
        f"wrote {out / COMPANION} (new file)",
    ]


def test_the_record_tells_where_it_came_from_and_the_hashes(place: Path, out: Path) -> None:
    rewriter("apply", "--site-packages", place, "--output", out)
    text = (out / MANIFEST).read_text()
    assert str(place) not in text, "relative paths only"
    for raw in (backend().encode(), patched().encode(), companion()):
        assert pins.sha256(raw) in text
    assert json.loads(text)["package"] == {"name": "sglang", "version": "0.5.9"}


def test_the_output_is_itself_a_target(place: Path, out: Path) -> None:
    rewriter("apply", "--site-packages", place, "--output", out, "--full")
    assert rewriter("check", "--site-packages", out, "--require", "applied").code == 0


def test_full_writes_the_whole_package(place: Path, out: Path) -> None:
    done = rewriter("apply", "--site-packages", place, "--output", out, "--full")
    assert done.code == 0
    for path, raw in files().items():
        assert (out / path).read_bytes() == (patched().encode() if path == PATH else raw)
    assert not (out / "sglang-0.5.9.dist-info").exists()
    assert f"wrote {len(files()) - 1} unchanged files of the package beside them" in done.out


def test_twice_gives_the_same_and_leaves_nothing_of_the_first(place: Path, out: Path) -> None:
    rewriter("apply", "--site-packages", place, "--output", out, "--full")
    first = tree(out)
    (out / "sglang" / "stale.py").write_text("x = 1\n")
    assert rewriter("apply", "--site-packages", place, "--output", out, "--full").code == 0
    assert tree(out) == first
    assert rewriter("apply", "--site-packages", place, "--output", out).code == 0
    assert set(tree(out)) < set(first)


@pytest.mark.parametrize("kind", ["a file in it", "a file", "below a file"])
def test_a_directory_that_is_not_ours_is_refused(place: Path, out: Path, kind: str) -> None:
    if kind == "a file in it":
        out.mkdir()
        (out / "mine.txt").write_text("mine")
        message = "is not empty and no output of rewriter; give an empty directory"
    else:
        out.write_text("mine")
        message = "is no directory" if kind == "a file" else "cannot be made"
    before = tree(out.parent)
    target = out / "below" if kind == "below a file" else out
    done = rewriter("apply", "--site-packages", place, "--output", target)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert tree(out.parent) == before


def test_the_package_itself_is_no_place_for_it(place: Path) -> None:
    before = tree(place)
    done = rewriter("apply", "--site-packages", place, "--output", place)
    assert (done.code, done.out) == (2, "")
    assert tree(place) == before


def test_a_full_disk_is_told_and_no_record_claims_success(
    place: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, raw: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    done = rewriter("apply", "--site-packages", place, "--output", out)
    assert (done.code, done.out) == (2, "")
    assert "No space left on device; nothing was written" in done.err
    assert tree(out) == {}


def test_an_empty_directory_will_do(place: Path, out: Path) -> None:
    out.mkdir()
    assert rewriter("apply", "--site-packages", place, "--output", out).code == 0


def test_a_dry_run_writes_nothing(place: Path, out: Path) -> None:
    done = rewriter("apply", "--site-packages", place, "--output", out, "--dry-run")
    assert done.code == 0
    assert f"would write {out / PATH} (+15 lines)\n" in done.out
    assert not out.exists()


@pytest.mark.parametrize(
    ("text", "state"), [(backend(**EPOCHS["E1"]), "upstream"), (None, "absent")]
)
def test_nothing_to_apply_exits_1(tmp_path: Path, out: Path, text: str | None, state: str) -> None:
    place = installed(tmp_path / "site-packages", text)
    if text is None:
        (place / PATH).unlink()
    done = rewriter("apply", "--site-packages", place, "--output", out)
    assert done.code == 1
    assert f"mla_kv_gather: {state}\n" in done.out
    assert not out.exists()


def test_json(place: Path, out: Path) -> None:
    done = rewriter("apply", "--site-packages", place, "--output", out, "--json")
    assert done.json["command"] == "apply"
    assert done.json["exit"] == done.code == 0
    assert done.json["written"] == sorted([COMPANION, PATH])
    assert done.json["results"][0]["state"] == "ready"


def test_full_without_output_is_misuse(place: Path) -> None:
    before = tree(place)
    done = rewriter("apply", "--site-packages", place, "--full")
    assert (done.code, done.out) == (2, "")
    assert "--full goes with --output DIR" in done.err
    assert tree(place) == before


def test_of_a_checkout_and_of_a_commit(tmp_path: Path, sealed_git: Git) -> None:
    """Paths are the package's, not the repository's."""
    place = checkout(tmp_path / "tree")
    sealed_git("init", "-q", cwd=place)
    sealed_git("add", ".", cwd=place)
    sealed_git("commit", "-qm", "one", cwd=place)
    for name, target in {
        "tree": ["--checkout", place], "commit": ["--repo", place, "--rev", "HEAD"],
    }.items():  # fmt: skip
        out = tmp_path / f"out of {name}"
        assert rewriter("apply", *target, "--output", out).code == 0
        assert (out / PATH).read_bytes() == patched().encode()
    assert sealed_git("status", "--porcelain", cwd=place) == b""


@pytest.mark.parametrize("kind", ["carriage returns", "BOM", "latin-1"])
def test_bytes_are_kept(tmp_path: Path, out: Path, kind: str) -> None:
    text = {
        "carriage returns": backend().replace("\n", "\r\n").encode(),
        "BOM": b"\xef\xbb\xbf" + backend().encode(),
        "latin-1": b"# coding: latin-1\n# \xe9\n" + backend().encode(),
    }[kind]
    place = installed(tmp_path / "site-packages", text)
    assert rewriter("apply", "--site-packages", place, "--output", out).code == 0
    after = (out / PATH).read_bytes()
    assert after.startswith(text[:24])
    newline = b"\r\n" if kind == "carriage returns" else b"\n"
    assert b"_kv_gather.attach(self, model_runner)" + newline in after
    assert after.count(b"\r") == (after.count(b"\n") if kind == "carriage returns" else 0)


@pytest.mark.wheels
def test_a_release(release: Callable[[str], Release], out: Path) -> None:
    """What the README shows first."""
    wheel = release("0.5.23")
    done = rewriter("apply", "--wheel", wheel.path, "--output", out)
    assert done.code == 0
    raw = wheel.read(PATH)
    assert raw is not None
    pin = pins.lookup("mla_kv_gather", PATH, raw)
    assert pin is not None
    assert pins.sha256((out / PATH).read_bytes()) == pin.patched
