"""The public reports of what went wrong: each has a test by its number, in this file or another."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from carrying import text
from equivalence_sources import COMPANION, Releases, sources
from installing import (
    MIXER,
    FakeCodemods,
    codemods,
    rewriter,
    sealed_state,
    site_packages,
    states,
)
from test_carry_diffs import HEADERS, HUNK, OURS, carried

from rewriter.errors import UsageError

__all__ = ["codemods", "sealed_state", "site_packages"]

TESTS = Path(__file__).parent

REPORTS = {
    1: "a site-packages inside somebody's repository",
    2: "unrelated context",
    3: "one of a set is there already",
    4: "layouts, versions, fuzz",
    5: "a gate before the server starts",
    6: "files left by an upgrade",
    7: "a hunk header edited by hand",
    8: "applied twice, and by half",
    9: "a helper that moved: one patch, no version `if`",
    10: "hard links into a cache",
    11: "state guessed after an upgrade",
    12: "graphs, context parallelism, translated pools",
    13: "said to be applied, and unchanged",
    14: "fuzz edits the neighbour",
    15: "old byte code goes on running",
    16: "bytes outside the sites",
    17: "RECORD",
    18: "a patch that stood on a retired one",
}


@pytest.mark.parametrize("number", REPORTS, ids=lambda n: f"case {n}")
def test_every_report_has_a_test(number: int) -> None:
    name = re.compile(rf"^def (test_case_{number:02}_\w+)", re.MULTILINE)
    found = [n for path in TESTS.glob("test_*.py") for n in name.findall(path.read_text("utf-8"))]
    assert found, f"case {number}: {REPORTS[number]}"


def test_the_page_names_every_report() -> None:
    page = (TESTS.parent / "docs" / "reliability.md").read_text("utf-8")
    named = [int(number) for number in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)]
    assert named == list(REPORTS)
    every = "\n".join(path.read_text("utf-8") for path in TESTS.glob("test_*.py"))
    for name in re.findall(r"test_case_\d\d_\w+", page):
        assert f"def {name}(" in every, name


# --- 7: a malformed diff -------------------------------------------------------------------


def test_case_07_a_header_edited_by_hand_is_repaired_and_said() -> None:
    found = carried(HEADERS["git"] + HUNK.replace("-1,7 +1,8", "-1,9 +1,4"))
    assert text(found) == "z = 0\n" + OURS
    assert found.results[0].said == "its header counts 9 and 4 lines, its body has 7 and 8"


def test_case_07_a_body_that_cannot_be_counted_is_refused_with_file_and_hunk() -> None:
    with pytest.raises(UsageError, match="cannot be repaired") as caught:
        carried(HEADERS["git"] + HUNK.replace(" e = 5", "e = 5"))
    assert re.search(r"1\.patch.*mod\.py.*hunk 1", str(caught.value))


# --- 9: several accepted forms -------------------------------------------------------------


def test_case_09_one_codemod_for_both_forms_whatever_the_version_says(
    site_packages: Path, codemods: FakeCodemods
) -> None:
    """The source decides: the form of the next release under the number of this one, and back."""
    codemods.edit(
        "alpha.py",
        '"y = {x} * SCALE", Insert',
        '("y = {x} * SCALE", "y = scaled({x}, SCALE)"), Insert',
    )
    at = ("alpha", "--site-packages", site_packages)
    place = site_packages / MIXER
    first = place.read_bytes()
    moved = first.replace(b"y = x * SCALE", b"y = scaled(x, SCALE)").replace(
        b"class Mixer", b"def scaled(x, by):\n    return x * by\n\n\nclass Mixer"
    )
    for raw in (first, moved):
        place.write_bytes(raw)
        assert states(*at) == {"alpha": "ready"}
        assert rewriter("apply", *at, "--accept-unproven").code == 0
        assert b"y = _tools.note(y)" in place.read_bytes()
        assert rewriter("revert", *at).code == 0
        assert place.read_bytes() == raw
    place.write_bytes(first.replace(b"y = x * SCALE", b"y = SCALE * x"))
    assert states(*at) == {"alpha": "drifted"}


# --- 12: modes that need an exception ------------------------------------------------------

EXCEPTIONS = {
    "target verify, CUDA graphs": "equal",
    "DFLASH verify, CUDA graphs": "equal",
    "translated indices": "equal",
    "context parallel decode": "equal",
    "context parallel prefill": "untouched",
}
"""Mode → the same bits of fewer converted rows, or left to the original."""


@pytest.mark.wheels
@pytest.mark.parametrize("version", ["0.5.17", "0.5.22"])
def test_case_12_modes_are_right_or_left_as_they_were(version: str, release: Releases) -> None:
    pytest.importorskip("torch")
    from rewriter.probes.equivalence.modes import SCENARIOS
    from rewriter.probes.equivalence.verifying import verify

    both = sources(release, version)
    wanted = [scenario for scenario in SCENARIOS if scenario.name in EXCEPTIONS]
    assert len(wanted) == len(EXCEPTIONS)
    there = 0
    for row in verify(both.original, both.patched, COMPANION, wanted):
        if row.state == "not in this release":
            continue
        there += 1
        assert row.state == EXCEPTIONS[row.mode], row
        assert (row.after < row.before) == (row.state == "equal"), row
    assert there >= 4
