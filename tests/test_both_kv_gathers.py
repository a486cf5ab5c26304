"""mla_kv_gather and fa3_kv_gather on one install: in either order, out in either order."""

from __future__ import annotations

import zipfile
from itertools import permutations
from pathlib import Path

import pytest
from installing import record_faults, rewriter, sealed_state, states, tree

from rewriter.targets.release import Release

__all__ = ["sealed_state"]

pytestmark = pytest.mark.wheels

NAMES = ("mla_kv_gather", "fa3_kv_gather")
ATTENTION = "sglang/srt/layers/attention"
COMPANION = f"{ATTENTION}/_rewriter_kv_gather.py"


@pytest.fixture
def install(release, tmp_path: Path) -> Path:  # type: ignore[no-untyped-def]
    """Return a directory with a release's attention backends and its dist-info."""
    found: Release = release("0.5.9")
    place = tmp_path / "site-packages"
    with zipfile.ZipFile(found.path) as wheel:
        wheel.extractall(place, [
            name for name in wheel.namelist()
            if name.startswith(f"{ATTENTION}/") or ".dist-info/" in name
            or name in ("sglang/__init__.py", "sglang/version.py", "sglang/_version.py")
        ])  # fmt: skip
    return place


@pytest.mark.parametrize("into", list(permutations(NAMES)), ids=" ".join)
@pytest.mark.parametrize("out", list(permutations(NAMES)), ids=" ".join)
def test_one_by_one(install: Path, into: tuple[str, ...], out: tuple[str, ...]) -> None:
    at = ("--site-packages", install)
    before, faults = tree(install), record_faults(install)
    applied: list[str] = []
    for name in into:
        assert rewriter("apply", name, *at).code == 0
        applied.append(name)
        found = states(*at)
        assert {n: found[n] for n in NAMES} == {
            n: "applied" if n in applied else "ready" for n in NAMES
        }
        assert (install / COMPANION).is_file()
        assert record_faults(install) == faults
    for name in out:
        assert rewriter("revert", name, *at).code == 0
        applied.remove(name)
        found = states(*at)
        assert {n: found[n] for n in NAMES} == {
            n: "applied" if n in applied else "ready" for n in NAMES
        }
        assert (install / COMPANION).is_file() is bool(applied)
    assert tree(install) == before


def test_together_is_one_by_one(install: Path) -> None:
    at = ("--site-packages", install)
    before = tree(install)
    assert rewriter("apply", *NAMES, *at).code == 0
    together = tree(install)
    assert rewriter("revert", *at).code == 0
    assert tree(install) == before
    for name in reversed(NAMES):
        assert rewriter("apply", name, *at).code == 0
    assert {path: raw for path, raw in tree(install).items() if path.endswith(".py")} == {
        path: raw for path, raw in together.items() if path.endswith(".py")
    }
