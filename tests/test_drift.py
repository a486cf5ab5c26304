"""A patched package goes on: ``status`` is true, and ``revert`` keeps what is the user's."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Git
from drifting import DRIFTS, HEAD, Drift, Place, Played, play, row
from fake_sglang import installed_files
from installing import PACKAGE, Install, codemods, sealed_state

__all__ = ["codemods", "sealed_state"]

pytestmark = pytest.mark.usefixtures("codemods")


@pytest.fixture
def installed(tmp_path: Path, write_files: Install) -> Place:
    site = write_files(tmp_path / "site-packages", installed_files("0.5.2", PACKAGE))
    return Place(site, site, ("--site-packages", str(site)))


@pytest.fixture
def clone(tmp_path: Path, write_files: Install, sealed_git: Git) -> Place:
    top = tmp_path / "clone"
    write_files(top / "python", PACKAGE)
    (top / ".gitignore").write_text("__pycache__/\n")
    sealed_git("init", "-q", cwd=top)
    sealed_git("add", ".", cwd=top)
    sealed_git("commit", "-qm", "one", cwd=top)
    return Place(top / "python", top, ("--checkout", str(top)))


@pytest.mark.parametrize("drift", [pytest.param(drift, id=drift.name) for drift in DRIFTS])
def test_drift(drift: Drift, installed: Place, clone: Place) -> None:
    place = clone if drift.clone else installed
    played = play(drift, place)
    print("", HEAD, row(drift, played), sep="\n")
    found = (played.status, played.apply, played.revert)
    assert found == (drift.status, drift.apply, drift.revert), played.said
    assert played.kept, played.said
    assert played.left == [], played.said


def test_the_page_shows_these_rows() -> None:
    page = (Path(__file__).parent.parent / "docs" / "reliability.md").read_text("utf-8")
    for drift in DRIFTS:
        promised = Played(drift.status, drift.apply, drift.revert, True, [], "")
        assert f"\n{row(drift, promised)}\n" in page, drift.name
