"""Replace touches only what differs; the fields of a class are a definition of their own."""

from __future__ import annotations

import pytest
from snippets import PATH, check_refused, check_round_trip, made, state

from rewriter import engine
from rewriter.codemod import Codemod, Insert, Replace, Site
from rewriter.model import State


def replacing(find: str | tuple[str, ...], code: str, within: str = "f") -> Codemod:
    return made(Site(within, "value", find, Replace(code)))


DEFAULT = replacing(
    "{x} if {x} is not None else 1 << 30", "{x} if {x} is not None else s.most or 1 << 30"
)

LAID_OUT = b"""\
def f(x, s):
    return min(
        (
            x.most  # the request's
            if x.most is not None
            else %s  # without end
        ),
        7,
    )
"""


def test_only_the_expression_that_differs_is_touched() -> None:
    check_round_trip(DEFAULT, LAID_OUT % b"1 << 30", LAID_OUT % b"s.most or 1 << 30")


def test_in_one_line() -> None:
    before = b"def f(x, s):\n    y = x if x is not None else 1 << 30\n"
    check_round_trip(DEFAULT, before, before.replace(b"1 <<", b"s.most or 1 <<"))


@pytest.mark.parametrize(
    ("find", "code", "before", "after"),
    [
        ("g({x}, 1)", "g({x}, 2)", b"g( a , 1 )", b"g( a , 2 )"),
        ("g({x}, {y}, 1)", "g({y}, {x}, 2)", b"g(a,  b , 1)", b"g(b,  a , 2)"),
        ("g({x})", "len({x}, 1)", b"g(a)", b"len(a, 1)"),
        ("g({x})", "len({x})", b"g(  a)", b"len(  a)"),
        ("{x} * 2", "{x} + 2", b"a * 2", b"a + 2"),
        ("g({x}, k=1)", "g({x}, k={x})", b"g(a, k= 1)", b"g(a, k= a)"),
        ("g({x})", "g({x} * 2)", b"g(a + b)", b"g((a + b) * 2)"),
        ("[{x}] * w", "({x},) * w", b"[a] * w", b"(a,) * w"),
        ("{x} and 1", "{x} and (1 or 2)", b"a and 1", b"a and (1 or 2)"),
    ],
)
def test_what_a_replacement_makes_of_it(find: str, code: str, before: bytes, after: bytes) -> None:
    frame = b"def f(a, b):\n    y = %s  # c\n"
    check_round_trip(replacing(find, code), frame % before, frame % after)


def test_brackets_where_the_part_would_mean_something_else() -> None:
    before = b"def f(a):\n    y = 2 * 1\n"
    codemod = replacing("2 * 1", "2 * (a or 1)")
    check_round_trip(codemod, before, b"def f(a):\n    y = 2 * (a or 1)\n")


def test_of_several_forms_the_one_that_is_there_is_replaced() -> None:
    codemod = replacing(("g({x}, 1)", "g({x}, one)"), "g({x}, 2)")
    raw = b"def f(a):\n    y = g(\n        a,\n        one)\n"
    assert engine.apply(codemod, PATH, raw) == raw.replace(b"one", b"2")


# --- the fields of a class ------------------------------------------------------------------

FIELD = made(
    Site("A.<fields>", "field", "first: {kind} = {value}", Insert("second: int | None = None"))
)
CLASS = b'''\
class A:
    """What.

    More."""

    # one
    first: Annotated[
        int, "one"
    ] = 1
%s    third: int = 3

    def f(self):
        first: int = 2

    first_of_all: int = 4

class B:
    first: int = 1
'''


def test_a_field_is_found_whatever_its_type() -> None:
    check_round_trip(FIELD, CLASS % b"", CLASS % b"    second: int | None = None\n")


@pytest.mark.parametrize(
    "raw",
    [
        b"class A:\n    def f(self): pass\n    first: int = 1\n",
        b"class A: first: int = 1\n",
        b"def A(): pass\n",
        b"class B:\n    first: int = 1\n",
    ],
)
def test_a_class_without_fields_has_drifted(raw: bytes) -> None:
    check_refused(FIELD, raw, "`A.<fields>` is not defined")


def test_another_fields_block_is_left_alone() -> None:
    found = check_refused(
        FIELD, b"class A:\n    other: int = 1\n    firsts: int = 2\n", "has no `first: {kind}"
    )
    assert found.nearest is not None
    assert found.nearest.line in (2, 3)


def test_a_field_beside_nothing_of_the_class() -> None:
    assert state(FIELD, b"class A:\n    first: int = 1") is State.READY
