"""Every fault at every call of every scenario, what came of it, and a table of that.

``python tests/fault_outcomes.py`` tries all kinds at all calls; ``test_faults.py`` a share.
"""

from __future__ import annotations

import argparse
import errno
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from fault_scenarios import OUT, OVERLAY, SCENARIOS, Scenario, Stage, byte_code, compile_all
from faults import CUT, FULL, HALF, KILL, Call, Ended, Faults, watched
from installing import FakeCodemods, fake_codemods, record_faults, rewriter, tree

from rewriter.transaction.journal import LEFT_NAME

ERRORS = (errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO)

CODEMODS = ("alpha", "beta", "gamma", "delta")

JOURNALS = ("REWRITER.journal", "journal.json")

Tree = dict[str, tuple[int, str | bytes]]
States = dict[str, str]


class Broken(AssertionError):
    """A promise that was not kept."""


class Trial(NamedTuple):
    """A scenario that can be played again and again.

    Attributes:
        calls: of the undisturbed command.
        old, new: the tree before and after it.
        told: what ``status`` says of each; None where there is no package yet.
        code: with which the undisturbed command ends.
    """

    scenario: Scenario
    stage: Stage
    kept: Path
    calls: tuple[Call, ...]
    old: Tree
    new: Tree
    told: tuple[States | None, States | None]
    code: int

    # --- one fault -------------------------------------------------------------------------

    def play(self, faults: Faults) -> str:
        """Run the command with faults, then what a user would do, and return what came of it.

        Raises:
            Broken: a promise was not kept.
        """
        self.reset()
        ended = self.run(self.scenario.command, faults)
        outcome = self.judge(ended)
        self.mend(sum(faults) % 2 == 0)
        return outcome

    def reset(self) -> None:
        """Put the tree back to what it was before the command."""
        _copy(self.kept, self.stage.work)
        shutil.rmtree(self.stage.state, ignore_errors=True)

    def run(self, command: str, faults: Faults | None = None) -> Ended:
        places = [self.stage.work, self.stage.state]
        return watched(places, self.stage.words(command), faults, self.scenario.lacks)

    def judge(self, ended: Ended) -> str:
        """Return what state a disturbed run left, and check that it is told."""
        now, told = _tree(self.stage), _states(self.stage, self.scenario)
        if _tree(self.stage) != now:
            raise Broken("status changed something")
        if _journals(self.stage.work):
            outcome = "interrupted"
            if told is not None and set(told.values()) != {"interrupted"}:
                raise Broken(f"a journal is there and status says {told}")
        elif _without_unfinished(now) == _without_unfinished(self.old):
            outcome = "old"
        elif _without_unfinished(now) == _without_unfinished(self.new):
            outcome = "new"
        else:
            raise Broken(f"a mixed tree without a journal: {_difference(now, self.old)}")
        if outcome != "interrupted" and told != self.told[outcome == "new"]:
            raise Broken(f"the tree is the {outcome} one and status says {told}")
        if ended.done is not None:
            self._check_words(ended, outcome, now)
        return outcome

    def _check_words(self, ended: Ended, outcome: str, now: Tree) -> None:
        """Check that a run that lived on said what is so."""
        done = ended.done
        assert done is not None
        if done.code == self.code == 0 and now != self.new:
            raise Broken(f"said it was done, and the tree is {outcome}")
        if done.code == 2 and outcome != "old":
            raise Broken(f"refused, and the tree is {outcome}: {done.err}")
        if done.code == 2 and now != self.old and "a temporary file is left" not in done.err:
            raise Broken(f"refused, and left {_difference(now, self.old)}: {done.err}")
        if done.code == 1 and not any(
            words in done.err for words in ("between two states", "all files are written and right")
        ):
            raise Broken(f"exit 1: {done.err}")
        if done.code > 2 or done.code < 0:
            raise Broken(f"exit {done.code}: {done.err}")

    def mend(self, forward: bool) -> None:
        """Run the command again, or the one that undoes it, and check that all is whole then."""
        forward = forward or not self.scenario.back
        command = self.scenario.command if forward else self.scenario.back
        done = rewriter(*self.stage.words(command))
        nothing_left = self.scenario.done and self.scenario.done in done.err
        if done.code != (self.code if forward else 0) and not nothing_left:
            raise Broken(f"the next `{command}` ends with {done.code}: {done.err}")
        wanted, now = (self.new if forward else self.old), _tree(self.stage)
        if now != wanted:
            raise Broken(f"after the next `{command}`: {_difference(now, wanted)}")
        if found := _record_faults(self.stage.work):
            raise Broken(f"after the next `{command}` RECORD is not true: {found}")
        _check_byte_code(self.stage.work)

    def doubles(self, first: int) -> Iterator[tuple[str, str]]:
        """Kill the command at one call, then each run that puts that right at each of its calls.

        Yields:
            The kind of fault, and what came of it.

        Raises:
            Broken: a promise was not kept.
        """
        self.reset()
        self.run(self.scenario.command, {first: KILL})
        if not _journals(self.stage.work):
            return
        forward = first % 2 == 0 or not self.scenario.back
        command = self.scenario.command if forward else self.scenario.back
        half = self.stage.work.with_name("half")
        _copy(self.stage.work, half)
        for call in _until_closed(self.run(command).calls):
            _copy(half, self.stage.work)
            ended = self.run(command, {call.number: KILL})
            yield "SIGKILL, then SIGKILL while that is put right", self.judge(ended)
            self.mend(call.number % 2 == 0)

    def relapses(self, first: int, number: int) -> Iterator[tuple[str, str]]:
        """Let one call fail, and each call by which that is undone as well.

        Yields:
            The kind of fault, and what came of it.

        Raises:
            Broken: a promise was not kept.
        """
        name = errno.errorcode[number]
        self.reset()
        for call in self.run(self.scenario.command, {first: number}).calls[first + 1 :]:
            self.reset()
            ended = self.run(self.scenario.command, {first: number, call.number: number})
            yield f"{name}, then {name} while that is undone", self.judge(ended)
            self.mend((first + call.number) % 2 == 0)

    # --- many ------------------------------------------------------------------------------

    def single(self) -> Iterator[tuple[str, Faults]]:
        """Yield every fault that one call can meet, with its kind."""
        for call in self.calls:
            if call.what == "spawn":
                continue  # git, which only reads here
            if not call.changes:
                for number in (errno.EACCES, errno.EIO):
                    yield errno.errorcode[number], {call.number: number}
                continue
            yield "SIGKILL", {call.number: KILL}
            if call.what == "write":
                yield "SIGKILL half-way", {call.number: HALF}
                yield "ENOSPC half-way", {call.number: FULL}
            if call.what in ("fsync", "sync all"):
                yield "power cut", {call.number: CUT}
            for number in ERRORS:
                yield errno.errorcode[number], {call.number: number}

    def in_turn(self, every: int = 1) -> Iterator[tuple[str, Faults]]:
        """Yield every fault but the errors, and of these one at each ``every``-th call, in turn."""
        for kind, faults in self.single():
            number = next(iter(faults))
            turn = ERRORS if self.calls[number].changes else (errno.EACCES, errno.EIO)
            its_turn = kind == errno.errorcode[turn[number // every % len(turn)]]
            if (its_turn and number % every == 0) or kind not in errno.errorcode.values():
                yield kind, faults

    def share(self, every: int) -> Iterator[tuple[str, Faults]]:
        """Yield one fault for each ``every``-th call, the kinds in turn."""
        turns: dict[int, list[tuple[str, Faults]]] = {}
        for kind, faults in self.single():
            turns.setdefault(next(iter(faults)), []).append((kind, faults))
        for number, kinds in sorted(turns.items()):
            if number % every == 0:
                yield kinds[number // every % len(kinds)]


def _tree(stage: Stage) -> Tree:
    """Return all there is, but for the directories that the command line names: they may stay."""
    return {path: seen for path, seen in tree(stage.work).items() if path not in (OVERLAY, OUT)}


def _journals(work: Path) -> list[Path]:
    return [path for path in work.rglob("*") if path.name in JOURNALS]


def _until_closed(calls: Sequence[Call]) -> Iterator[Call]:
    """Yield the changing calls up to the one that removes the journal of the run that died."""
    for call in calls:
        if call.changes:
            yield call
        if call.what == "unlink" and Path(call.place).name in JOURNALS:
            return


def _states(stage: Stage, scenario: Scenario) -> States | None:
    names = [name for name in CODEMODS if f" {name} " in scenario.command]
    done = rewriter("status", *names, *stage.words(scenario.at), "--json")
    if done.code == 2:
        return None
    if done.code != 0:
        raise Broken(f"status ends with {done.code}: {done.err}")
    return {row["codemod"]: row["state"] for row in done.json["results"]}


def _without_unfinished(now: Tree) -> Tree:
    """Return a tree without a journal that was never finished, and directories with nothing."""
    kept = {p: seen for p, seen in now.items() if not _is_unfinished(Path(p).name)}
    filled = {str(above) for path in kept if kept[path][1] != "" for above in Path(path).parents}
    empty = {p for p in kept if kept[p][1] == "" and kept[p][0] & 0o40000 and p not in filled}
    return {path: seen for path, seen in kept.items() if path not in empty}


def _is_unfinished(name: str) -> bool:
    left = LEFT_NAME.fullmatch(name)
    return left is not None and left["name"] in JOURNALS


def _difference(one: Tree, other: Tree) -> str:
    paths = sorted(p for p in one.keys() | other.keys() if one.get(p) != other.get(p))
    return ", ".join(
        f"{p} ({'new' if p not in other else 'gone' if p not in one else 'other'})" for p in paths
    )


def _record_faults(work: Path) -> list[str]:
    """Return what RECORD says that is not so, where there is one that lists the package."""
    site = work / "site-packages"
    return record_faults(site) if list(site.glob("*.dist-info/RECORD")) else []


def _check_byte_code(work: Path) -> None:
    for cached in work.rglob("*.pyc"):
        raw = cached.read_bytes()
        source = cached.parent.parent / f"{cached.name.partition('.')[0]}.py"
        if raw.startswith(b"of ") and raw != byte_code(source.read_bytes()):
            raise Broken(f"{cached}: byte code of another source")


def _copy(place: Path, to: Path) -> None:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(place, to, symlinks=True)


def trial(scenario: Scenario, stage: Stage) -> Trial:
    """Make a scenario's tree and see what the undisturbed command does."""
    stage.codemods.directory = FakeCodemods.OURS
    stage.codemods.use({})
    shutil.rmtree(stage.work, ignore_errors=True)
    stage.work.mkdir()
    (stage.state.parent / "rewriter.toml").unlink(missing_ok=True)
    scenario.prepare(stage)
    compile_all(stage.work)
    kept = stage.work.with_name("kept")
    _copy(stage.work, kept)
    made = Trial(scenario, stage, kept, (), {}, {}, (None, None), 0)
    made.reset()
    old, told_old = _tree(stage), _states(stage, scenario)
    ended = made.run(scenario.command)
    assert ended.done is not None
    assert ended.done.code == 0, ended.done.err
    new, told_new = _tree(stage), _states(stage, scenario)
    assert old != new
    return Trial(scenario, stage, kept, ended.calls, old, new, (told_old, told_new), 0)


class Row(NamedTuple):
    """What became of one kind of fault in one scenario."""

    scenario: str
    fault: str
    outcomes: Counter[str]
    broken: list[str]


def rows(made: Trial, faults: Iterable[tuple[str, Faults]]) -> list[Row]:
    """Play faults and return what came of them, by kind."""
    found: dict[str, Row] = {}
    for kind, which in faults:
        row = found.setdefault(kind, Row(made.scenario.name, kind, Counter(), []))
        try:
            row.outcomes[made.play(which)] += 1
        except Broken as error:
            calls = ", ".join(str(made.calls[n]) for n in which if n < len(made.calls))
            row.broken.append(f"{made.scenario.name}: {kind} at {calls}: {error}")
            row.outcomes["broken"] += 1
    return list(found.values())


def repeated(made: Trial, pairs: Iterable[Iterator[tuple[str, str]]]) -> list[Row]:
    """Play faults on top of faults and return what came of them, by kind."""
    found: dict[str, Row] = {}
    for points in pairs:
        try:
            for kind, outcome in points:
                found.setdefault(kind, Row(made.scenario.name, kind, Counter(), []))
                found[kind].outcomes[outcome] += 1
        except Broken as error:
            row = found.setdefault("double", Row(made.scenario.name, "double", Counter(), []))
            row.broken.append(f"{made.scenario.name}: {error}")
            row.outcomes["broken"] += 1
    return list(found.values())


def grouped(found: Iterable[Row]) -> list[Row]:
    """Return rows of one scenario with all kinds of dying taken together, and all errors."""
    made: dict[str, Row] = {}
    for row in found:
        once = ", then " not in row.fault
        dying = row.fault.startswith(("SIGKILL", "power"))
        kind = ("killed" if dying else "an error") + ("" if once else ", twice")
        into = made.setdefault(kind, Row(row.scenario, kind, Counter(), []))
        into.outcomes.update(row.outcomes)
        into.broken.extend(row.broken)
    return list(made.values())


def table(found: Sequence[Row]) -> str:
    """Return a table in Markdown."""
    return "\n".join([HEAD, *map(line, found)])


HEAD = "| scenario | fault | points | old | new | interrupted | broken |\n" + "| --- " * 7 + "|"


def line(row: Row) -> str:
    """Return a row of the table."""
    counts = [row.outcomes[name] for name in ("old", "new", "interrupted", "broken")]
    cells = (row.scenario, row.fault, sum(counts), *counts)
    return "| " + " | ".join(map(str, cells)) + " |"


@contextmanager
def staged(place: Path, *, sync: bool = False) -> Iterator[Stage]:
    """Yield a stage in a directory, sealed from the user's own files.

    Args:
        sync: let ``fsync`` and waiting take their time. A killed process's bytes are the system's
            already, and that each is synced is looked at in the list of calls.
    """
    for name in ("state", "codemods", "home"):
        (place / name).mkdir()
    with fake_codemods(place / "codemods") as codemods, pytest.MonkeyPatch.context() as patch:
        patch.setenv("REWRITER_STATE_DIR", str(place / "state"))
        patch.setenv("REWRITER_CACHE_DIR", str(place / "home" / "cache"))
        patch.setenv("HOME", str(place / "home"))
        patch.chdir(place)
        if not sync:
            patch.setattr(os, "fsync", lambda descriptor: None)
            patch.setattr("rewriter.transaction.folder.sync_all", lambda descriptor: None)
            patch.setattr("rewriter.transaction.run.GRACE", 0.0)
        yield Stage(place / "work", place / "state", codemods)


def _pairs(made: Trial, every: int) -> Iterator[Iterator[tuple[str, str]]]:
    changing = [call for call in made.calls if call.changes]
    for call in changing[::every]:
        yield made.doubles(call.number)
        yield made.relapses(call.number, ERRORS[call.number % len(ERRORS)])


def main(options: argparse.Namespace) -> int:
    """Try faults, print the table as it comes, and return how many promises were not kept."""
    broken: list[str] = []
    print(HEAD)
    with tempfile.TemporaryDirectory() as place, staged(Path(place).resolve()) as stage:
        for scenario in SCENARIOS:
            if not any(name in scenario.name for name in options.scenarios or [""]):
                continue
            made = trial(scenario, stage)
            if options.twice:
                found = repeated(made, _pairs(made, options.twice))
            else:
                found = rows(made, _faults(made, options))
            shown = found if options.kinds else grouped(found)
            print(*map(line, shown), sep="\n", flush=True)
            broken += [each for row in found for each in row.broken]
    print(*broken, sep="\n", file=sys.stderr)
    return len(broken)


def _faults(made: Trial, options: argparse.Namespace) -> Iterator[tuple[str, Faults]]:
    return made.single() if options.every_error else made.in_turn(options.errors)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*", help="parts of their names; all if there are none")
    parser.add_argument("--every-error", action="store_true", help="all four at each call")
    parser.add_argument("--kinds", action="store_true", help="a row for each kind of fault")
    parser.add_argument("--errors", type=int, default=1, metavar="N", help="at each Nth call")
    parser.add_argument("--twice", type=int, metavar="N", help="at each Nth call, and once more")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(min(main(_options()), 1))
