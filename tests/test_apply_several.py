"""Several codemods, and several versions of one: one transition from list to list."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest
from installing import (
    MIXER,
    SCALER,
    TOOLS,
    FakeCodemods,
    codemods,
    record_faults,
    result_of,
    rewriter,
    sealed_state,
    site_packages,
    states,
    tree,
)

__all__ = ["codemods", "sealed_state", "site_packages"]

pytestmark = pytest.mark.usefixtures("codemods")

NAMES = ("alpha", "beta", "gamma", "delta")


def applied(site_packages: Path) -> set[str]:
    """Return the names of the applied codemods."""
    found = states("--site-packages", site_packages)
    return {name for name, state in found.items() if state == "applied"}


def test_all_at_once_and_back(site_packages: Path) -> None:
    before = tree(site_packages)
    done = rewriter("apply", *NAMES, "--site-packages", site_packages)
    assert done.code == 0, done.err
    assert applied(site_packages) == set(NAMES)
    assert record_faults(site_packages) == []
    assert result_of(site_packages, "Mixer(2).mix(8), Mixer(2).spread(1)") == "4.0 (1, 1)"
    done = rewriter("revert", "--site-packages", site_packages)
    assert done.code == 0, done.err
    assert tree(site_packages) == before


@pytest.mark.parametrize("order", list(permutations(("alpha", "gamma", "delta"))))
def test_one_by_one_and_back_in_any_order(order: tuple[str, ...], site_packages: Path) -> None:
    stages = [tree(site_packages)]
    for name in order:
        assert rewriter("apply", name, "--site-packages", site_packages).code == 0
        assert record_faults(site_packages) == []
        stages.append(tree(site_packages))
    done: set[str] = set(order)
    for name in order:  # not the order in which a stack would come down
        assert applied(site_packages) == done
        assert rewriter("revert", name, "--site-packages", site_packages).code == 0
        assert record_faults(site_packages) == []
        done.discard(name)
    assert tree(site_packages) == stages[0]


def test_what_stands_is_a_function_of_the_list(site_packages: Path) -> None:
    """Applied together or one after the other, with another in between: the same bytes."""
    at = ("--site-packages", site_packages)
    assert rewriter("apply", "alpha", "delta", *at).code == 0
    together = tree(site_packages)
    assert rewriter("revert", *at).code == 0
    for verb, name in (
        ("apply", "alpha"),
        ("apply", "gamma"),
        ("apply", "delta"),
        ("revert", "gamma"),
    ):
        assert rewriter(verb, name, *at).code == 0
    assert tree(site_packages) == together


def test_companion_goes_with_its_last_user(site_packages: Path) -> None:
    at = ("--site-packages", site_packages)
    rewriter("apply", "alpha", "delta", *at)
    assert rewriter("revert", "alpha", *at).code == 0
    assert (site_packages / TOOLS).is_file()
    assert states(*at)["alpha"] == "ready", "a companion of another codemod makes no orphan"
    assert rewriter("revert", "delta", *at).code == 0
    assert not (site_packages / TOOLS).exists()


def test_newer_version_over_an_older_one_is_one_transition(
    site_packages: Path, codemods: FakeCodemods
) -> None:
    before = tree(site_packages)
    at = ("--site-packages", site_packages)
    rewriter("apply", "alpha", *at)
    old = tree(site_packages)
    codemods.edit("runtime/tools.py", 'VERSION = "1"', 'VERSION = "2"')
    codemods.edit("alpha.py", "_tools.note(y)", "_tools.keep(y)")

    told = rewriter("status", "alpha", *at)
    assert "alpha: applied" in told.out
    assert "as rewriter 0.1.0 wrote it (tools 1); `rewriter apply` brings it up" in told.out
    assert rewriter("check", "alpha", *at, "--require", "applied").code == 0

    done = rewriter("apply", "alpha", *at)
    assert done.code == 0, done.err
    assert f"wrote {TOOLS}" in done.out
    assert b"_tools.keep(y)" in (site_packages / MIXER).read_bytes()
    assert b"_tools.note(y)" not in (site_packages / MIXER).read_bytes()
    assert record_faults(site_packages) == []
    assert result_of(site_packages, "Mixer(2).mix(9)") == "3.0"
    assert rewriter("apply", "alpha", *at).out.count("wrote") == 0
    assert tree(site_packages) != old
    assert rewriter("revert", "alpha", *at).code == 0
    assert tree(site_packages) == before


def test_newer_companion_without_the_record(site_packages: Path, codemods: FakeCodemods) -> None:
    at = ("--site-packages", site_packages)
    rewriter("apply", "alpha", *at)
    (site_packages / "sglang-0.5.2.dist-info/REWRITER.json").unlink()
    codemods.edit("runtime/tools.py", 'VERSION = "1"', 'VERSION = "2"')
    assert states("alpha", *at) == {"alpha": "partial"}
    done = rewriter("apply", "alpha", *at, "--accept-unproven")
    assert done.code == 0, done.err
    assert b'VERSION = "2"' in (site_packages / TOOLS).read_bytes()
    assert states("alpha", *at) == {"alpha": "applied"}
    assert record_faults(site_packages) == []


def test_older_version_is_reverted_by_the_newer_tool(
    site_packages: Path, codemods: FakeCodemods
) -> None:
    before = tree(site_packages)
    at = ("--site-packages", site_packages)
    rewriter("apply", "alpha", "gamma", *at)
    codemods.edit("alpha.py", "_tools.note(y)", "_tools.keep(y)")
    assert rewriter("revert", "alpha", *at).code == 0
    assert applied(site_packages) == {"gamma"}
    assert rewriter("revert", "gamma", *at).code == 0
    assert tree(site_packages) == before


def test_retired_codemod_is_told_and_reverted(site_packages: Path, codemods: FakeCodemods) -> None:
    """The record alone gives the bytes back; the code that wrote them is gone."""
    before = tree(site_packages)
    at = ("--site-packages", site_packages)
    rewriter("apply", "gamma", "delta", *at)
    codemods.use({"gamma.py": None})
    told = rewriter("status", *at)
    assert "gamma: applied" in told.out
    assert "this version does not have it any more" in told.out
    refused = rewriter("apply", "alpha", *at)
    assert refused.code == 2
    assert "first: rewriter revert gamma" in refused.err
    done = rewriter("revert", "gamma", *at)
    assert done.code == 0, done.err
    assert applied(site_packages) == {"delta"}
    assert rewriter("revert", *at).code == 0
    assert tree(site_packages) == before


# --- codemods that stand upon others -------------------------------------------------------


def test_required_one_is_applied_first_whatever_the_order(site_packages: Path) -> None:
    done = rewriter("apply", "beta", "alpha", "--site-packages", site_packages)
    assert done.code == 0, done.err
    assert result_of(site_packages, "Mixer(2).mix(8)") == "4.0"


def test_requirement_that_is_not_named(site_packages: Path) -> None:
    before = tree(site_packages)
    done = rewriter("apply", "beta", "--site-packages", site_packages)
    assert done.code == 2
    assert "beta is drifted" in done.err
    assert tree(site_packages) == before
    rewriter("apply", "alpha", "--site-packages", site_packages)
    assert states("beta", "--site-packages", site_packages) == {"beta": "ready"}
    assert rewriter("apply", "beta", "--site-packages", site_packages).code == 0
    assert applied(site_packages) == {"alpha", "beta"}


def test_case_18_reverting_what_another_stands_upon_is_refused(site_packages: Path) -> None:
    at = ("--site-packages", site_packages)
    rewriter("apply", "alpha", "beta", *at)
    before = tree(site_packages)
    done = rewriter("revert", "alpha", *at)
    assert done.code == 2
    assert (
        "beta, which is applied, requires alpha; revert both: rewriter revert alpha beta"
        in done.err
    )
    assert tree(site_packages) == before
    assert rewriter("revert", "beta", *at).code == 0
    assert applied(site_packages) == {"alpha"}


def test_case_18_retired_requirement_fails_the_gate(
    site_packages: Path, codemods: FakeCodemods
) -> None:
    at = ("--site-packages", site_packages)
    rewriter("apply", "alpha", "beta", *at)
    assert rewriter("check", "beta", *at, "--require", "applied").code == 0
    codemods.use({"alpha.py": None})
    gate = rewriter("check", "beta", *at, "--require", "applied")
    assert gate.code == 1
    assert "requires alpha, which this version of the tool does not have" in gate.out


def test_requirement_taken_out_by_hand_fails_the_gate(site_packages: Path) -> None:
    at = ("--site-packages", site_packages)
    rewriter("apply", "alpha", "beta", *at)
    path = site_packages / MIXER
    path.write_bytes(path.read_bytes().replace(b"        y = _tools.note(y)\n", b""))
    gate = rewriter("check", "alpha", "beta", *at, "--require", "applied")
    assert gate.code == 1
    assert states("alpha", "beta", *at)["alpha"] != "applied"


def test_requirements_in_a_circle(site_packages: Path, codemods: FakeCodemods) -> None:
    codemods.edit("alpha.py", "    companions", '    requires = ("beta",)\n    companions')
    done = rewriter("apply", "alpha", "beta", "--site-packages", site_packages)
    assert done.code == 2
    assert "codemods require each other: alpha → beta → alpha" in done.err


def test_another_codemod_in_the_way(site_packages: Path) -> None:
    """One that nobody named is never changed along the way."""
    at = ("--site-packages", site_packages)
    rewriter("apply", "alpha", *at)
    path = site_packages / MIXER
    path.write_bytes(path.read_bytes().replace(b"_tools.note(y)", b"_tools.note(y, 1)"))
    before = tree(site_packages)
    done = rewriter("apply", "delta", *at)
    assert done.code == 2
    assert "first: rewriter revert alpha" in done.err
    assert tree(site_packages) == before
    assert (site_packages / SCALER).read_bytes() == before[SCALER][1]
