"""Faults at each system call of a run: a share of what ``fault_outcomes.py`` tries in full."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_outcomes import (
    ERRORS,
    JOURNALS,
    Row,
    Stage,
    Trial,
    repeated,
    rows,
    staged,
    table,
    trial,
)
from fault_scenarios import SCENARIOS, Scenario, few_are_many
from faults import Call

from rewriter.transaction.journal import LEFT_NAME

INSTALLED = SCENARIOS[:2]
OTHERS = SCENARIOS[2:]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("faults")) as made:
        yield made


def of(scenario: Scenario) -> object:
    return pytest.param(scenario, id=scenario.name)


_calls: dict[str, tuple[Call, ...]] = {}


def calls_of(scenario: Scenario, stage: Stage) -> tuple[Call, ...]:
    """Return the calls of an undisturbed run."""
    if scenario.name not in _calls:
        _calls[scenario.name] = trial(scenario, stage).calls
    return _calls[scenario.name]


def check(found: list[Row], points: int) -> None:
    """Print what came of some faults; none may have broken a promise."""
    print("", table(found), sep="\n")
    broken = [line for row in found for line in row.broken]
    assert not broken, "\n".join(broken)
    assert sum(sum(row.outcomes.values()) for row in found) == points > 0


# --- what the calls of an undisturbed run show ---------------------------------------------


@pytest.mark.parametrize("scenario", list(map(of, SCENARIOS)))
def test_nothing_is_changed_outside_a_step(scenario: Scenario, stage: Stage) -> None:
    """And no program is started that could: what is tried at these calls is all there is."""
    calls = calls_of(scenario, stage)
    assert [call for call in calls if call.changes and not call.step] == []
    for call in calls:
        if call.what == "spawn":
            assert re.search(r"'git', .*'(rev-parse|ls-tree|cat-file)'", call.place), call
    assert len({call.step for call in calls if call.changes}) >= 8


@pytest.mark.parametrize("scenario", list(map(of, SCENARIOS)))
def test_all_is_durable_before_it_is_needed(scenario: Scenario, stage: Stage) -> None:
    """Bytes before the name that shows them, and each change before the next one.

    Of many names the changes are durable together, before the journal goes.
    """
    together = scenario.lacks is few_are_many
    unsynced: set[str] = set()
    changed: set[str] = set()
    for call in calls_of(scenario, stage):
        if call.what == "write":
            unsynced.add(call.place)
        elif call.what == "fsync":
            unsynced.discard(call.place)
        elif call.what == "fsync directory":
            changed.discard(call.place)
        elif call.what == "sync all":
            assert together
            unsynced.clear()
            changed.clear()
        elif call.what in ("rename", "link", "swap", "unlink", "mkdir") and _matters(call, stage):
            if not together or call.what != "mkdir":  # directories come with what is staged in them
                assert not unsynced, call
            around = str(Path(call.place).parent)
            if not together or Path(call.place).name in JOURNALS:
                assert changed <= ({around} if call.place.endswith(".pyc") else set()), call
            changed.add(around)
    assert not unsynced
    assert not changed


def _matters(call: Call, stage: Stage) -> bool:
    """Tell whether a call changes a name that others look at, and in the target."""
    temporary = LEFT_NAME.fullmatch(Path(call.place).name) is not None
    return not temporary and call.place.startswith(str(stage.work)) and call.step != "compile"


def test_every_kind_of_fault_has_its_place(stage: Stage) -> None:
    """The list is the run's own; these are the kinds that a list by hand would have forgotten."""
    calls = trial(SCENARIOS[1], stage).calls
    what = {call.what for call in calls}
    assert what >= {"create", "write", "fsync", "fsync directory", "link", "swap", "rename",
                    "unlink", "chmod", "lock", "mkdir", "read", "list"}  # fmt: skip
    places = " ".join(call.place for call in calls if call.changes)
    for name in ("RECORD", "REWRITER.json", "REWRITER.journal", "mixer.py", ".pyc", ".lock"):
        assert name in places


# --- faults --------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", list(map(of, INSTALLED)))
def test_killed_at_every_call(scenario: Scenario, stage: Stage) -> None:
    made = trial(scenario, stage)
    faults = [(kind, at) for kind, at in made.single() if kind not in errno.errorcode.values()]
    found = rows(made, [(kind, at) for kind, at in faults if kind != "ENOSPC half-way"])
    changing = sum(call.changes for call in made.calls)
    writes = sum(call.what in ("write", "fsync") for call in made.calls)
    check(found, changing + writes)


@pytest.mark.parametrize("scenario", list(map(of, INSTALLED)))
def test_an_error_at_every_call(scenario: Scenario, stage: Stage) -> None:
    """One of them at each call, in turn."""
    made = trial(scenario, stage)
    errors = [(kind, at) for kind, at in made.in_turn() if kind in errno.errorcode.values()]
    check(rows(made, errors), sum(call.what != "spawn" for call in made.calls))


@pytest.mark.parametrize("scenario", list(map(of, OTHERS)))
def test_other_trees_and_commands(scenario: Scenario, stage: Stage) -> None:
    made = trial(scenario, stage)
    share = list(made.share(24))
    check(rows(made, share), len(share))


@pytest.mark.parametrize("scenario", list(map(of, INSTALLED)))
def test_faults_while_a_fault_is_put_right(scenario: Scenario, stage: Stage) -> None:
    made = trial(scenario, stage)
    changing = [call.number for call in made.calls if call.changes]
    published = _renames(made)
    found = repeated(made, [made.doubles(published[len(published) // 2])])
    found += repeated(made, [made.relapses(published[-1], ERRORS[0])])
    print("", table(found), sep="\n")
    assert [line for row in found for line in row.broken] == []
    assert sum(row.outcomes["interrupted"] for row in found) > 10
    assert changing


def _renames(made: Trial) -> list[int]:
    return [call.number for call in made.calls if call.what in ("swap", "link", "rename")]


def test_the_page_has_every_scenario_and_nothing_broken() -> None:
    page = (Path(__file__).parent.parent / "docs" / "reliability.md").read_text("utf-8")
    for scenario in SCENARIOS:
        found = re.findall(rf"^\| {re.escape(scenario.name)} \|(.*)$", page, re.MULTILINE)
        assert found, scenario.name
        assert all(cells.endswith("| 0 |") for cells in found), scenario.name
