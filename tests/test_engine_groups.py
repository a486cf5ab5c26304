"""Of a group of sites one is found, in whichever definition or file a release keeps it."""

from __future__ import annotations

import pytest
from snippets import PATH, made

from rewriter.codemod import Insert, Site
from rewriter.judge import changes, judge
from rewriter.model import State

OTHER, THIRD = "sglang/srt/fields.py", "sglang/srt/always.py"

CODEMOD = made(
    Site("A.<fields>", "field", "x: {t} = 1", Insert("y: int = 2"), one_of="field"),
    Site("B.<fields>", "field", "x: {t} = 1", Insert("y: int = 2"), file=OTHER, one_of="field"),
    Site("f", "line", "g()", Insert("print()"), file=THIRD),
)
F = b"def f():\n    g()\n"
A, B = b"class A:\n    x: int = 1\n", b"class B:\n    x: str = 1\n"
NEITHER = b"class C:\n    x: int = 1\n"


@pytest.mark.parametrize(
    "files", [{PATH: A}, {OTHER: B}, {PATH: A, OTHER: NEITHER}, {PATH: NEITHER, OTHER: B}]
)
def test_one_is_found_wherever_it_is(files: dict[str, bytes]) -> None:
    before = {**files, THIRD: F}
    assert judge(CODEMOD, before.get, "1").state is State.READY
    after = {**before, **{c.path: c.after or b"" for c in changes([CODEMOD], before.get)}}
    assert after[THIRD] == F + b"    print()\n"
    assert sum(raw.count(b"    y: int = 2\n") for raw in after.values()) == 1
    assert NEITHER not in before.values() or NEITHER in after.values()
    assert judge(CODEMOD, after.get, "1").state is State.APPLIED
    assert changes([CODEMOD], after.get) == []


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({PATH: A, OTHER: B}, "expected one field in `A.<fields>` or `B.<fields>`, found 2"),
        ({PATH: NEITHER}, "expected one field in `A.<fields>` or `B.<fields>`, found 0"),
        ({}, "expected one field in `A.<fields>` or `B.<fields>`, found 0"),
        ({PATH: A + b"    x: int = 1\n"}, "expected 1 of"),
    ],
)
def test_none_or_two_is_drift(files: dict[str, bytes], reason: str) -> None:
    verdict = judge(CODEMOD, {**files, THIRD: F}.get, "1")
    assert verdict.state is State.DRIFTED
    assert reason in verdict.reason


def test_files_without_groups_are_still_needed() -> None:
    verdict = judge(CODEMOD, {PATH: A}.get, "1")
    assert verdict.state is State.DRIFTED
    assert f"no {THIRD}" in verdict.reason


def test_half_of_it_is_partial() -> None:
    before = {PATH: A, THIRD: F}
    after = {**before, **{c.path: c.after or b"" for c in changes([CODEMOD], before.get)}}
    assert judge(CODEMOD, {**after, PATH: A}.get, "1").state is State.PARTIAL
    assert judge(CODEMOD, {**after, THIRD: F}.get, "1").state is State.PARTIAL
