"""A run that puts a patch in, or takes it out, stopped at its steps: all of it or nothing."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from fake_sglang import installed_files
from installing import Install, codemods, record_faults, rewriter, sealed_state, tree
from patching import NEWER, Team, team
from test_transaction import Fault, killed_at, steps_of

from rewriter.transaction import steps

__all__ = ["codemods", "sealed_state", "team"]

pytestmark = pytest.mark.usefixtures("codemods")


@pytest.fixture
def place(tmp_path: Path, write_files: Install) -> Path:
    """Return the newer package as pip leaves it."""
    return write_files(tmp_path / "site-packages", installed_files("0.5.2", NEWER))


@pytest.fixture(params=["apply", "revert"])
def commands(
    request: pytest.FixtureRequest, team: Team, place: Path
) -> tuple[list[str], list[str]]:
    """Return a command that has something to do, and the one that undoes it."""
    at, patch = ["--site-packages", str(place)], team.patch()
    listed = f'patches = ["{patch}"]\nfrom = "{team.older}"\ncodemods = ["alpha"]\n'
    Path("rewriter.toml").write_text(listed)  # what `revert` is about once the record is gone
    both = [*team.apply(patch), *at], ["revert", *at]
    if request.param == "apply":
        return both
    assert rewriter(*both[0]).code == 0
    return both[1], both[0]


def test_a_step_that_fails_undoes_all(commands: tuple[list[str], list[str]], place: Path) -> None:
    """Directories that were made go again, deleted files are back, each with its mode."""
    before, number, seen = tree(place), 0, set[str]()
    while True:
        fault = Fault(number, errno.ENOSPC)
        with steps.observed(fault):
            done = rewriter(*commands[0])
        if fault.hit is None:
            break
        seen.add(fault.hit.name)
        what = f"{fault.hit.name} {fault.hit.place}"
        assert done.code in (1, 2), what
        assert fault.hit.place in done.err
        if done.code == 1:  # all was read back; what is left are temporary files
            assert "all files are written and right" in done.err
            assert rewriter(*commands[0]).code == 0, what
            assert rewriter(*commands[1]).code == 0, what
        assert tree(place) == before, what
        assert record_faults(place) == [], what
        number += 1
    assert number > 60
    made = "make directory" if "carry" in commands[0] else "remove directory"
    assert {made, "unlink", "rename", "verify"} <= seen


@pytest.mark.parametrize("first", range(3))
def test_killed(first: int, commands: tuple[list[str], list[str]], place: Path) -> None:
    old = tree(place)
    count = len(steps_of(*commands[0]))
    new = tree(place)
    assert rewriter(*commands[1]).code == 0
    assert tree(place) == old
    for number in range(first, count, 9):
        assert killed_at(number, *commands[0])
        between = tree(place)
        assert rewriter("check", "team.patch", "--site-packages", place).code in (0, 1, 2)
        assert tree(place) == between
        done = rewriter(*commands[0])
        assert done.code == 0, (number, done.err)
        assert tree(place) == new, number
        assert record_faults(place) == []
        assert rewriter(*commands[1]).code == 0
        assert tree(place) == old, number
