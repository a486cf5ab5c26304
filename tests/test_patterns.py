"""Templates with holes: what they match, what they leave alone, how a hole is filled again."""

from __future__ import annotations

import pytest

from rewriter.definition import Definition
from rewriter.patterns import Pattern, compiled
from rewriter.source import Source


def definition(statement: str) -> Definition:
    body = "".join(f"    {line}\n" for line in statement.split("\n"))
    return Source("m.py", f"def f():\n{body}".encode()).definitions("f")[0]


def found(template: str, statement: str) -> list[dict[str, str]]:
    where = definition(statement)
    return [
        {name: where.code(node) for name, node in hit.holes.items()}
        for hit in compiled(template).search(where)
    ]


MATCHES = [
    ("x = 1", "x = 1", [{}]),
    ("x = 1", "x=1  # why", [{}]),
    ("x = 1", "x = (1)", [{}]),
    ("x = 1", "x = 1; y = 2", []),
    ("{x}.pow(2)", "y = (a + b).pow(2)", [{"x": "a + b"}]),
    ("{x}.pow(2)", "y = a.pow(2).pow(2)", [{"x": "a.pow(2)"}, {"x": "a"}]),
    ("{x}.pow(2).mean(dim=-1)", "y = z.pow(\n    2,\n).mean( dim = -1, )", [{"x": "z"}]),
    ("v = {x}.pow(2)", "v = h[0].pow(2)", [{"x": "h[0]"}]),
    ("f({a}, {b})", "y = f(1, *c)", []),
    ("f({a}, {*more})", "y = f(1, 2, k=3)", [{"a": "1"}]),
    ("f({a}, {*more})", "y = f(1)", [{"a": "1"}]),
    ("f({*more})", "y = f()", [{}]),
    ("{x} + {x}", "y = a.b + a .b", [{"x": "a.b"}]),
    ("f('a')", 'y = f("a")', [{}]),
    ("f({x})[0]", "y = f(  # one\n    g,\n)[0]", [{"x": "g"}]),
    ("if {c}:\n    return {x}", "if a and b:\n    return 2  # two", [{"c": "a and b", "x": "2"}]),
    ("super().__init__()", "super().__init__()", [{}]),
    ("{f}(1)", "y = (lambda: g)(1)", [{"f": "lambda: g"}]),
    ("x: int = {v}", "x: int = 3", [{"v": "3"}]),
    ("a and b", "y = (a and\n     b)", [{}]),
]

LOOK_ALIKES = [
    ("x = 1", "x: int = 1"),
    ("x = 1", "x = 1.0"),
    ("x = 1", "x = y = 1"),
    ("x = 1", "x += 1"),
    ("{x}.pow(2)", "y = a.pow(3)"),
    ("{x}.pow(2)", "y = pow(a, 2)"),
    ("{x}.pow(2)", "y = a.pow(2, out=b)"),
    ("{x}.pow(2)", "y = a.pow(exponent=2)"),
    ("{x}.pow(2)", "y = a.powe(2)"),
    ("{x}.pow(2)", "y = 'a.pow(2)'"),
    ("{x}.pow(2)", "pass  # a.pow(2)"),
    ("v = {x}.pow(2)", "w = a.pow(2)"),
    ("v = {x}.pow(2)", "self.v = a.pow(2)"),
    ("f({a}, {b})", "y = f(1)"),
    ("f({a}, {b})", "y = f(1, 2, 3)"),
    ("f({a}, {b})", "y = f(1, b=2)"),
    ("f({a}, {b})", "y = g.f(1, 2)"),
    ("f({a}, {*more})", "y = f()"),
    ("{x} + {x}", "y = a + b"),
    ("{x} + {x}", "y = a - a"),
    ("f('a')", "y = f(b'a')"),
    ("f('a')", "y = f(f'a')"),
    ("a.b[0]", "y = a.b[1]"),
    ("a.b[0]", "y = a.b[0:1]"),
    ("a and b", "y = a or b"),
    ("a and b", "y = b and a"),
    ("not a", "y = a"),
    ("a < b", "y = a <= b"),
    ("await f()", "y = f()"),
    ("super().__init__()", "super().__init__(x)"),
    ("if {c}:\n    return {x}", "if a:\n    return 2\nelse:\n    pass"),
    ("return {x}", "yield 1"),
    ("lambda: {x}", "y = lambda a: a"),
]


@pytest.mark.parametrize(("template", "statement", "holes"), MATCHES)
def test_matches(template: str, statement: str, holes: list[dict[str, str]]) -> None:
    assert found(template, statement) == holes


@pytest.mark.parametrize(("template", "statement"), LOOK_ALIKES)
def test_leaves_look_alikes_alone(template: str, statement: str) -> None:
    assert found(template, statement) == []


def test_at_least_as_many_look_alikes_as_matches() -> None:
    assert len(LOOK_ALIKES) >= len(MATCHES)


@pytest.mark.parametrize("template", ["", "x = 1\ny = 2", "x = 1; ; y"])
def test_a_template_is_one_statement(template: str) -> None:
    with pytest.raises(Exception, match=r"one statement|Syntax"):
        Pattern(template)


FILLS = [
    ("{x}.pow(2)", "{x}.square()", "y = a.pow(2)", "a.square()"),
    ("{x}.pow(2)", "{x}.square()", "y = (a + b).pow(2)", "(a + b).square()"),
    ("{x}.pow(2)", "{x}.square()", "y = a[0](1).pow(2)", "a[0](1).square()"),
    ("{x}.pow(2)", "{x}.square()", "y = (-a).pow(2)", "(-a).square()"),
    ("{x}.pow(2)", "square({x})", "y = (a + b).pow(2)", "square(a + b)"),
    ("{x}.pow(2)", "square({x})", "y = (a, b).pow(2)", "square((a, b))"),
    ("{x} + {y}", "{y} * {x}", "z = a + b", "b * a"),
    ("{x} + {y}", "{y} * {x}", "z = a * c + b", "(b) * (a * c)"),
    ("{x} + 1", "f({x})", "z = (\n    a\n    + b\n) + 1", "f(a\n        + b)"),
    ("g({x})", "{x}", "z = g(é)", "é"),
    ("g({x})", "not {x}", "z = g(a and b)", "not (a and b)"),
    ("g({x})", "h(lambda: {x})", "z = g(a)", "h(lambda: a)"),
]


@pytest.mark.parametrize(("find", "template", "statement", "filled"), FILLS)
def test_filled_holes_keep_their_meaning(
    find: str, template: str, statement: str, filled: str
) -> None:
    where = definition(statement)
    (hit,) = compiled(find).search(where)
    assert compiled(template).fill(where, hit.holes) == filled


NEAREST = [
    ("x = {a}.pow(2)", "x = a.pow(3)", 2, "expected `2`, found `3`"),
    ("x = {a}.pow(2)", "y = 1\nx = a.pow(2, b)", 3, "expected `nothing`, found `, b`"),
    ("f({a}, 1)", "y = f(b, 2)", 2, "expected `1`, found `2`"),
]


@pytest.mark.parametrize(("template", "statement", "line", "differs"), NEAREST)
def test_nearest_says_where_and_what_differs(
    template: str, statement: str, line: int, differs: str
) -> None:
    nearest = compiled(template).nearest(definition(statement))
    assert nearest is not None
    assert (nearest.line, nearest.differs) == (line, differs)
    assert nearest.text == statement.split("\n")[line - 2]


@pytest.mark.parametrize("statement", ["pass", "return None", "import os"])
def test_nothing_is_near_where_nothing_is_of_the_kind(statement: str) -> None:
    assert compiled("{x}.pow(2).mean(dim=-1, keepdim=True)").nearest(definition(statement)) is None
