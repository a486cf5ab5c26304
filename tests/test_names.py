"""Names: a definition that is bound again, a name that is taken, code that cannot run there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from snippets import IMPORT, PATH, check_refused, check_round_trip, made, state

from rewriter import engine
from rewriter.codemod import Insert, Replace, Site, Wrap
from rewriter.model import State
from rewriter.names import bindings, bound_again
from rewriter.source import Source

CLASS = "class A(B):\n    def f(self, x):\n        return g(x)\n"
PATCH = made(Site("A.f", "call", "g({x})", Wrap("_p.q")))

AGAIN = {
    "assigned in the class": (CLASS + "    f = other\n", 4),
    "annotated in the class": (CLASS + "    f: object = other\n", 4),
    "imported in the class": (CLASS + "    from c import f\n", 4),
    "a loop in the class": (CLASS + "    for f in others: pass\n", 4),
    "a walrus in the class": (CLASS + "    h = (f := other)\n", 4),
    "deleted in the class": (CLASS + "    del f\n", 4),
    "bound by with": (CLASS + "    with other() as f: pass\n", 4),
    "bound by except": (CLASS + "    try: pass\n    except E as f: pass\n", 5),
    "captured by match": (CLASS + "    match g:\n        case [f, *_]: pass\n", 5),
    "stored on the class": (CLASS + "A.f = other\n", 4),
    "stored on an object": (CLASS + "    def __init__(self):\n        self.f = other\n", 5),
    "stored by setattr": (CLASS + "setattr(A, 'f', other)\n", 4),
    "deleted from the class": (CLASS + "del A.f\n", 4),
    "the class is assigned": (CLASS + "A = Other\n", 4),
    "the class is imported": (CLASS + "from c import B as A\n", 4),
    "the class is defined again": (CLASS + "class A:\n    pass\n", 4),
    "the class is global elsewhere": (CLASS + "def h():\n    global A\n    A = 1\n", 5),
}


@pytest.mark.parametrize("name", AGAIN)
def test_what_runs_is_another_definition(name: str) -> None:
    text, line = AGAIN[name]
    check_refused(PATCH, text.encode(), f"line {line} binds it again")


@pytest.mark.parametrize(
    "after",
    [
        "    f = decorated(f)\n",
        "A.f = decorated(A.f)\n",
        "A = registered(A)\n",
        "class C(A):\n    def f(self, x):\n        return 1\n",
        "def f(): pass\n",
        "B.h = 1\n",
        "h = A().f\n",
        "setattr(A, 'h', other)\n",
        "def other():\n    A = 1\n    f = 2\n",
        "[f for f in others]\n",
        "lambda f: f\n",
    ],
)
def test_what_still_runs_the_definition_is_none(after: str) -> None:
    assert bound_again(Source(PATH, (CLASS + after).encode()), "A.f") is None
    assert state(PATCH, (CLASS + after).encode()) is State.READY


TAKEN = (
    "import _p", "import c as _p", "from c import _p", "from c import d as _p", "_p = 1",
    "_p: int = 1", "_p = _q = 1", "_q, (_p, r) = 1, (2, 3)", "def _p(): pass", "class _p: pass",
    "for _p in x: pass", "with x as _p: pass", "try: pass\nexcept E as _p: pass",
    "(_p := 1)", "[(_p := 1) for x in y]", "_p += 1", "del _p",
    "def h():\n    global _p\n    _p = 1", "if x:\n    _p = 1", "match x:\n    case {**_p}: pass",
)  # fmt: skip


@pytest.mark.parametrize("line", TAKEN)
def test_a_name_that_is_taken_is_not_imported(line: str) -> None:
    codemod = made(IMPORT, Site("f", "call", "g(a)", Wrap("_p.q")))
    text = f"import c\n\ndef f(a):\n    return g(a)\n\n{line}\n"
    check_refused(codemod, text.encode(), "the name `_p` is taken: line ")


@pytest.mark.parametrize(
    "function",
    [
        "def f(a, _p):\n    return g(a)\n",
        "def f(a):\n    _p = 1\n    return g(a)\n",
        "def f(a):\n    import _p\n    return g(a)\n",
        "def f(a):\n    return lambda _p: g(a)\n",
        "def f(a):\n    def h(*_p):\n        return g(a)\n    return h\n",
    ],
)
def test_a_local_of_the_imported_name_is_refused(function: str) -> None:
    codemod = made(IMPORT, Site("f", "call", "g(a)", Wrap("_p.q")))
    check_refused(codemod, f"import c\n\n{function}".encode(), "is bound in it to something else")


ATTACH = made(Site("A.f", "line", "g({*x})", Insert("_p.attach(self, runner, int(1))")))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("class A:\n    def f(self, model):\n        g(1)\n", "uses `runner`, which is not bound"),
        ("class A:\n    def f(this, runner):\n        g(1)\n", "uses `self`, which is not bound"),
        ("class A:\n    runner = 1\n    def f(self):\n        g(1)\n", "uses `runner`, which"),
    ],
)
def test_inserted_code_needs_its_names(text: str, reason: str) -> None:
    found = check_refused(ATTACH, text.encode(), reason)
    assert found.nearest is not None
    assert found.nearest.text == "g(1)"


@pytest.mark.parametrize(
    "text",
    [
        "class A:\n    def f(self, runner):\n        g(1)\n",
        "class A:\n    def f(self, *runner):\n        g(1)\n",
        "class A:\n    def f(self):\n        runner = 1\n        g(1)\n",
        "runner = 1\nclass A:\n    def f(self):\n        g(1)\n",
        "from c import *\nclass A:\n    def f(self):\n        g(1)\n",
        "class A:\n    def f(self):\n        h(runner)\n        g(1)\n",
        "class A:\n    def f(self, runner):\n        if 1:\n            g(1)\n",
    ],
)
def test_names_that_are_bound_somehow_are_enough(text: str) -> None:
    assert state(ATTACH, text.encode()) is State.READY


READS = made(Site("A.f", "call", "g({x})", Replace("g({x}, self.limit)")))


def test_an_attribute_that_the_class_does_not_have_is_refused() -> None:
    text = "class A:\n    def f(self, x):\n        return g(x)\n"
    check_refused(READS, text.encode(), "uses `self.limit`, which its class does not have")
    kept = text + "    def __init__(self, limit):\n        self.limit = limit\n"
    check_round_trip(READS, kept.encode(), kept.replace("g(x)", "g(x, self.limit)").encode())


@pytest.mark.parametrize(
    "text",
    [
        "class A(B):\n    def f(self, x):\n        return g(x)\n",
        "@made\nclass A:\n    def f(self, x):\n        return g(x)\n",
        "class A(metaclass=M):\n    def f(self, x):\n        return g(x)\n",
        "class A:\n    @staticmethod\n    def f(self, x):\n        return g(x)\n",
    ],
)
def test_what_may_be_inherited_is_not_asked_for(text: str) -> None:
    assert state(READS, text.encode()) is State.READY


def test_a_patched_file_whose_definition_was_bound_again_is_not_applied() -> None:
    after = engine.apply(PATCH, PATH, CLASS.encode())
    found = engine.examine(PATCH, PATH, after + b"A.f = other\n")
    assert found.state is State.PARTIAL
    assert "line 4 binds it again" in found.reason


def test_without_a_walrus_only_targets_bind() -> None:
    """Looked for in expressions too or not: the same names, in every scope of these files."""
    scopes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    seen = 0
    for file in sorted(Path(ast.__file__).parent.glob("*.py"))[:60]:
        text = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if ":=" not in text else ():
            if isinstance(node, scopes):
                assert sorted(bindings(node, walrus=False)) == sorted(bindings(node)), file
                seen += 1
    assert seen > 500
