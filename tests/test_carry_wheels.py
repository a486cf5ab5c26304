"""Real releases: a patch of ours for one, into others, by pip and by uv, and as git applies it.

What must come out is made by putting the same text into the other release by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Git
from installing import record_faults, rewriter, sealed_state, states, tree
from test_apply_wheels import Environment, interpreter

from rewriter.targets.release import Release

__all__ = ["sealed_state"]

pytestmark = pytest.mark.wheels

FOR = "0.5.9"
ONTO = ("0.5.10.post1", "0.5.13", "0.5.17", "0.5.23")

BACKEND = "sglang/srt/layers/attention/flashinfer_mla_backend.py"
SAMPLER = "sglang/srt/layers/sampler.py"
GONE = "sglang/srt/utils/gauge_histogram.py"
OLD, NEW = "sglang/srt/utils/slow_rank_detector.py", "sglang/srt/utils/slow_ranks.py"
FRESH = {
    "sglang/srt/team/__init__.py": b"",
    "sglang/srt/team/inner/counts.py": b'"""Counts."""\n\nplans = 0',
    "sglang/srt/team/dos.py": b"A = 1\r\nB = 2\r\n",
    "sglang/srt/team/notes.txt": b"for people\n",
}

Releases = Callable[[str], Release]


def edited(read: Callable[[str], bytes | None]) -> dict[str, bytes | None]:
    """Return what the team makes of a release: lines put in, files that come, go and move."""
    made: dict[str, bytes | None] = {GONE: None, OLD: None, **FRESH}
    made[NEW] = (read(OLD) or b"") + b"\n\nTEAM = True\n"
    before = b"    def forward(\n"
    sampler = read(SAMPLER) or b""
    assert sampler.count(before) == 1
    note = b"    def note(self, text):\n        self.noted = text\n\n"
    made[SAMPLER] = sampler.replace(before, note + before)
    backend = read(BACKEND) or b""
    head, found, rest = backend.partition(b"class FlashInferMLAAttnBackend(")
    first, name, body = rest.partition(b"    def init_forward_metadata(")
    line, end, body = body.partition(b"\n")
    count = b"        self.team_plans = getattr(self, 'team_plans', 0) + 1\n"
    made[BACKEND] = b"".join([head, found, first, name, line, end, count, body])
    return made


@pytest.fixture
def patch(release: Releases, tmp_path: Path, sealed_git: Git) -> Path:
    """Return a patch that git made for the release."""
    root = tmp_path / "for"
    target = release(FOR)
    for path in (GONE, OLD, SAMPLER, BACKEND):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(target.read(path) or b"")
    sealed_git("init", cwd=root)
    sealed_git("add", "-A", cwd=root)
    sealed_git("commit", "-m", "x", cwd=root)
    for path, raw in edited(target.read).items():
        if raw is None:
            (root / path).unlink()
        else:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(raw)
    sealed_git("add", "-A", cwd=root)
    made = tmp_path / "team.patch"
    made.write_bytes(sealed_git("diff", "--cached", "-M", "HEAD", cwd=root))
    assert b"rename from" in made.read_bytes()
    assert b"No newline at end of file" in made.read_bytes()
    return made


@pytest.mark.parametrize("version", ONTO)
def test_git_applies_the_new_patch(
    version: str, patch: Path, release: Releases, tmp_path: Path, sealed_git: Git
) -> None:
    older, newer = release(FOR), release(version)
    out, made = tmp_path / "out", tmp_path / "new.patch"
    done = rewriter(
        "carry", patch, "--from", older.path, "--onto", newer.path, "--patch", made,
        "--output", out,
    )  # fmt: skip
    assert done.code == 0, done.out
    wanted = edited(newer.read)
    root = tmp_path / "onto"
    for path in (GONE, OLD, SAMPLER, BACKEND):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(newer.read(path) or b"")
    sealed_git("init", cwd=root)
    sealed_git("apply", made, cwd=root)
    for path, raw in wanted.items():
        for place in (root / path, out / path):
            assert (place.read_bytes() if place.exists() else None) == raw, place


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_into_an_install_and_out_again(
    installer: str, patch: Path, release: Releases, tmp_path: Path
) -> None:
    older, wheel = release(FOR), release("0.5.10.post1").path
    place = Environment(tmp_path, interpreter(wheel), installer)
    empty = tree(place.site_packages)
    place.install(wheel)
    before, cached = tree(place.site_packages), tree(place.cache) if installer == "uv" else {}
    target = ("--python", place.python)
    arguments = ("carry", patch, "--from", older.path, "--apply", *target)
    for first, second in ((arguments, ("apply", "mla_kv_gather", *target)),) * 2:
        assert rewriter(*first).code == 0
        assert rewriter(*second).code == 0
        assert record_faults(place.site_packages) == []
        told = states(*target)
        assert [name.partition("@")[0] for name, state in told.items() if state == "applied"] == [
            "team.patch", "mla_kv_gather",
        ]  # fmt: skip
        done = rewriter("revert", *target)
        assert done.code == 0, done.err
        assert done.out.count("is as shipped: sglang-0.5.10.post1.dist-info/RECORD") == 4
        assert tree(place.site_packages) == before
    assert rewriter(*arguments).code == 0
    assert (tree(place.cache) if installer == "uv" else {}) == cached
    place.uninstall()
    assert tree(place.site_packages) == empty


def test_upgrade_while_it_is_in(patch: Path, release: Releases, tmp_path: Path) -> None:
    older, newer = release(FOR).path, release("0.5.10.post1").path
    place = Environment(tmp_path, interpreter(older), "pip")
    place.install(newer)
    clean = tree(place.site_packages)
    place.uninstall()
    place.install(older)
    target = ("--python", place.python)
    assert rewriter("carry", patch, "--from", older, "--apply", *target).code == 0
    place.install(newer)
    assert tree(place.site_packages) == clean
    assert rewriter("carry", patch, "--from", older, "--apply", *target).code == 0
    assert "applied" in states("team.patch", *target).values()
