"""carry, for programs and edits made at random: what must hold of every one of them."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from carrying import PATH, Tree, reasons, text
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rewriter.carry.carrying import carry
from rewriter.carry.steps import Fate
from rewriter.model import Change
from rewriter.report.diff import unified

NAMES = ("alpha", "beta", "gamma", "delta")
LOCALS = ("left", "right", "total")

Function = tuple[str, tuple[str, ...]]
Program = tuple[Function, ...]

values = st.sampled_from([*LOCALS, "2", "3", "5"])
assigned = st.builds(
    "{} = {} {} {}".format, st.sampled_from(LOCALS), values, st.sampled_from("+-*"), values
)
guarded = st.builds("if {} > {}:\n        {}".format, values, values, assigned)
looped = st.builds("for _ in range(2):\n        {}".format, assigned)
statements = st.one_of(assigned, guarded, looped)
bodies = st.lists(statements, min_size=1, max_size=6).map(tuple)
programs = st.lists(bodies, min_size=2, max_size=4).map(
    lambda found: tuple(zip(NAMES, found, strict=False))
)


def source(program: Program) -> str:
    """Return the module; the last statement of a function tells all of its locals."""
    parts = ["import os\n"]
    for name, body in program:
        lines = [f"def {name}(left, right):", "    total = 0"]
        lines += [f"    {statement}" for statement in body]
        parts.append("\n".join([*lines, "    return left, right, total", ""]))
    return "\n\n".join(parts)


def lines_of(program: Program) -> Counter[str]:
    """Return how often each line stands in the functions' bodies, without its indentation."""
    every = (statement for _, body in program for statement in body)
    return Counter(line.strip() for statement in every for line in statement.splitlines())


@st.composite
def edits(draw: st.DrawFn, body: tuple[str, ...]) -> tuple[str, ...]:
    """Insert, replace or remove up to two statements."""
    found = list(body)
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(found)))
        kind = draw(st.sampled_from(["insert", "replace", "remove"]))
        if kind == "insert" or at == len(found):
            found.insert(at, draw(statements))
        elif kind == "replace":
            found[at] = draw(statements)
        else:
            del found[at]
    return tuple(found)


@st.composite
def patched(draw: st.DrawFn) -> tuple[Program, Program, int]:
    """Return a program, what a patch makes of it, and which function it changes."""
    program = draw(programs)
    number = draw(st.integers(0, len(program) - 1))
    name, body = program[number]
    changed = (name, draw(edits(body)))
    return program, (*program[:number], changed, *program[number + 1 :]), number


def diff(before: str, after: str) -> bytes:
    return unified([Change(PATH, before.encode(), after.encode())], "python/")


def result(before: str, after: str, onto: str) -> Any:
    return carry([("p", diff(before, after))], Tree({PATH: before}), Tree({PATH: onto}))


slow = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@slow
@given(patched())
def test_onto_its_own_release_it_is_what_git_applies(
    tmp_path: Path, made: tuple[Program, Program, int]
) -> None:
    before, after = (source(program) for program in made[:2])
    if before == after:
        return
    place = tmp_path / "python" / PATH
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(before)
    patch = diff(before, after)
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=patch, check=True)
    found = carry([("p", patch)], Tree({PATH: before}), Tree({PATH: before}))
    assert text(found) == place.read_text()
    assert {step.fate for hunk in found.results for step in hunk.steps} == {Fate.EXACTLY}


@slow
@given(patched(), st.data())
def test_edits_of_other_functions_come_together(
    made: tuple[Program, Program, int], data: st.DataObject
) -> None:
    program, ours, number = made
    if ours == program:
        return
    theirs, both = list(program), list(ours)
    for other in range(len(program)):
        if other != number:
            name, body = program[other]
            theirs[other] = both[other] = (name, data.draw(edits(body)))
    if data.draw(st.booleans()):
        new = ("omega", data.draw(bodies))
        at = data.draw(st.integers(0, len(program)))
        theirs.insert(at, new)
        both.insert(at, new)
    found = result(source(program), source(ours), source(tuple(theirs)))
    if any(hunk.fate is Fate.REVIEW for hunk in found.results):
        # Said, not guessed: upstream's functions have a statement once more that the patch changes.
        changed = lines_of(program[number : number + 1]) - lines_of(ours[number : number + 1])
        more = lines_of(tuple(theirs)) - lines_of(program)
        assert changed & more, reasons(found)
        return
    assert not found.conflicts, reasons(found)
    assert text(found) == source(tuple(both))


@slow
@given(patched())
def test_carried_onto_what_has_it_nothing_is_left_to_do(
    made: tuple[Program, Program, int],
) -> None:
    before, after = (source(program) for program in made[:2])
    if before == after:
        return
    found = result(before, after, after)
    assert not found.conflicts, reasons(found)
    assert found.changes == ()
    assert {hunk.fate for hunk in found.results} == {Fate.UPSTREAM}


TWICE = (("alpha", ("left = left + total",)), ("beta", ("left = left + total",)))


@slow
@given(patched(), st.tuples(st.integers(-9, 9), st.integers(-9, 9)))
@example(made=(TWICE, (("alpha", ()), TWICE[1]), 0), arguments=(0, 0))
def test_renamed_locals_compute_the_same(
    made: tuple[Program, Program, int], arguments: tuple[int, int]
) -> None:
    """Upstream gave a local another name; the patch is for the old one."""
    program, ours, number = made
    before, after = source(program), source(ours)
    renamed = re.sub(r"\btotal\b", "amount", before)
    if before == after:
        return
    found = result(before, after, renamed)
    if any(hunk.fate is Fate.REVIEW for hunk in found.results):
        # Said, not guessed: another function has a renamed statement that the patch changes too.
        changed = lines_of(program[number : number + 1]) - lines_of(ours[number : number + 1])
        elsewhere = lines_of((*program[:number], *program[number + 1 :]))
        assert any("total" in line for line in changed & elsewhere), reasons(found)
        return
    assert not found.conflicts, reasons(found)
    name = program[number][0]
    spaces: list[dict[str, Any]] = [{}, {}]
    exec(after, spaces[0])
    exec(text(found), spaces[1])
    assert spaces[0][name](*arguments) == spaces[1][name](*arguments)
    others = {other for other, _ in program} - {name}
    for other in others:
        assert spaces[0][other](*arguments) == spaces[1][other](*arguments)


@slow
@given(programs, st.data())
def test_two_patches_of_one_function_are_composed_or_refused(
    program: Program, data: st.DataObject
) -> None:
    """Whatever both change: a result compiles, and touches no other function."""
    name, body = program[0]
    ours = ((name, data.draw(edits(body))), *program[1:])
    theirs = ((name, data.draw(edits(body))), *program[1:])
    if source(ours) == source(program):
        return
    found = result(source(program), source(ours), source(theirs))
    assert not (found.conflicts and found.changes)
    for change in found.changes:
        made = (change.after or b"").decode()
        compile(made, PATH, "exec")
        untouched = source((("x", ()), *program[1:])).split("\n\n\n", 2)[-1]
        assert made.endswith(untouched)
