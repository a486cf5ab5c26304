"""Wraps and replacements: bytes before, bytes after, and what is refused."""

from __future__ import annotations

import pytest
from snippets import (
    AFTER,
    IMPORT,
    PATH,
    check_refused,
    check_round_trip,
    made,
    wrapping,
)

from rewriter import engine
from rewriter.codemod import Edit, Match, Replace, Site, Wrap
from rewriter.model import State

# --- wraps --------------------------------------------------------------------------------

WRAPS = {
    "plain": (b"def f():\n    g(a)\n", b"def f():\n    _p.q(g(a))\n"),
    "in an expression": (
        b"def f():\n    x = 1 + g(a)[0].b\n",
        b"def f():\n    x = 1 + _p.q(g(a))[0].b\n",
    ),
    "spacing is kept": (
        b"def f ( ) :\n    x  =  g( a )  +  1   # why\n",
        b"def f ( ) :\n    x  =  _p.q(g( a ))  +  1   # why\n",
    ),
    "brackets stay outside": (
        b"def f():\n    x = ((g(a)))\n",
        b"def f():\n    x = ((_p.q(g(a))))\n",
    ),
    "a comment inside": (
        b"def f():\n    x = (\n        g(  # why\n            a\n        )\n    )\n",
        b"def f():\n    x = (\n        _p.q(\n            g(  # why\n            a\n        ),\n"
        b"        )\n    )\n",
    ),
    "the first line of several": (
        b"def f():\n    x = g(a).b(\n        c\n    )\n",
        b"def f():\n    x = _p.q(g(a)).b(\n        c\n    )\n",
    ),
    "one line of several": (
        b"def f():\n    h(\n        g(a),  # why\n        b,\n    )\n",
        b"def f():\n    h(\n        _p.q(g(a)),  # why\n        b,\n    )\n",
    ),
    "one-line suite": (b"def f(): return g(a)\n", b"def f(): return _p.q(g(a))\n"),
    "one-line branch": (
        b"def f():\n    if x: y = g(a); z = 2\n",
        b"def f():\n    if x: y = _p.q(g(a)); z = 2\n",
    ),
    "semicolons": (
        b"def f():\n    x = 1; y = g(a); z = 2;\n",
        b"def f():\n    x = 1; y = _p.q(g(a)); z = 2;\n",
    ),
    "a header": (
        b"def f():\n    while g(a): pass\n",
        b"def f():\n    while _p.q(g(a)): pass\n",
    ),
    "a walrus": (
        b"def f():\n    if (x := g(a)) is None: pass\n",
        b"def f():\n    if (x := _p.q(g(a))) is None: pass\n",
    ),
    "a default": (b"def f(x=g(a)):\n    pass\n", b"def f(x=_p.q(g(a))):\n    pass\n"),
    "a decorator": (b"@g(a)\ndef f():\n    pass\n", b"@_p.q(g(a))\ndef f():\n    pass\n"),
    "a nested function": (
        b"def f():\n    def h():\n        return g(a)\n    return h\n",
        b"def f():\n    def h():\n        return _p.q(g(a))\n    return h\n",
    ),
    "a lambda": (b"def f():\n    x = lambda: g(a)\n", b"def f():\n    x = lambda: _p.q(g(a))\n"),
    "async": (
        b"async def f():\n    async with g(a) as x: await y\n",
        b"async def f():\n    async with _p.q(g(a)) as x: await y\n",
    ),
    "backslash": (
        b"def f():\n    x = g(a) \\\n        .b\n",
        b"def f():\n    x = _p.q(g(a)) \\\n        .b\n",
    ),
    "tabs": (b"def f():\n\tif x:\n\t\ty = g(a)\n", b"def f():\n\tif x:\n\t\ty = _p.q(g(a))\n"),
    "mixed tabs and spaces": (
        b"def f():\n\tif x:\n\t    y = g(a)\n",
        b"def f():\n\tif x:\n\t    y = _p.q(g(a))\n",
    ),
    "form feed": (
        b"x = 1\n\x0c\ndef f():\n    \x0c\n    y = g(a)\n",
        b"x = 1\n\x0c\ndef f():\n    \x0c\n    y = _p.q(g(a))\n",
    ),
    "carriage returns": (
        b"def f():\r\n    x = g(a)\r\n    y = '''\r\n'''\r\n",
        b"def f():\r\n    x = _p.q(g(a))\r\n    y = '''\r\n'''\r\n",
    ),
    "mixed newlines": (
        b"# 1\r\n# 2\n# 3\r\ndef f():\n    x = 1\r\n    y = g(a)\n    z = 3\r\n",
        b"# 1\r\n# 2\n# 3\r\ndef f():\n    x = 1\r\n    y = _p.q(g(a))\n    z = 3\r\n",
    ),
    "a lone carriage return outside": (
        b"x = 1\ry = 2\r\ndef f():\n    y = g(a)\n",
        b"x = 1\ry = 2\r\ndef f():\n    y = _p.q(g(a))\n",
    ),
    "a lone carriage return in the definition": (
        b"def f():\n    x = 1\r    y = g(a)\n    z = 2 # c\r    w = 3\n",
        b"def f():\n    x = 1\r    y = _p.q(g(a))\n    z = 2 # c\r    w = 3\n",
    ),
    "BOM": (
        b"\xef\xbb\xbfdef f():\n    y = g(a)\n",
        b"\xef\xbb\xbfdef f():\n    y = _p.q(g(a))\n",
    ),
    "BOM and first line": (
        b"\xef\xbb\xbfdef f(): return g(a)\n",
        b"\xef\xbb\xbfdef f(): return _p.q(g(a))\n",
    ),
    "latin-1": (
        b"# coding: latin-1\ndef f():\n    x = '\xe9\xff', g(a), '\xe8'\n",
        b"# coding: latin-1\ndef f():\n    x = '\xe9\xff', _p.q(g(a)), '\xe8'\n",
    ),
    "no final newline": (b"def f():\n    y = g(a)", b"def f():\n    y = _p.q(g(a))"),
    "non-ASCII before": (
        "def f():\n    é, ß = '漢\U0001f600', g(a)\n".encode(),
        "def f():\n    é, ß = '漢\U0001f600', _p.q(g(a))\n".encode(),
    ),
    "non-ASCII inside": (
        "def f(): return h('é', g(a))\n".encode(),
        "def f(): return h('é', _p.q(g(a)))\n".encode(),
    ),
    "trailing white space": (
        b"def f():  \n    y = g(a)  \n\n\n   \n",
        b"def f():  \n    y = _p.q(g(a))  \n\n\n   \n",
    ),
    "odd layout around": (
        b"import   os;x=1\nclass  A :\n  def f( self ) : pass\ndef f():\n  y=g(a)\ndef h( ): 1",
        b"import   os;x=1\nclass  A :\n  def f( self ) : pass\ndef f():\n  y=_p.q(g(a))\n"
        b"def h( ): 1",
    ),
    "an f-string beside": (
        b"def f():\n    y = f'{g(b)}' f\"{x!r:>{w}}\" + g(a)\n",
        b"def f():\n    y = f'{g(b)}' f\"{x!r:>{w}}\" + _p.q(g(a))\n",
    ),
}


@pytest.mark.parametrize("name", WRAPS)
def test_wraps(name: str) -> None:
    before, after = WRAPS[name]
    check_round_trip(wrapping("g(a)"), before, after)


LONG = "g(" + ", ".join(f"argument_{i}" for i in range(6)) + ")"


@pytest.mark.parametrize(
    ("indent", "newline"), [("    ", "\n"), ("    ", "\r\n"), ("\t", "\n"), ("  ", "\n")]
)
def test_a_long_wrap_is_laid_out_over_lines(indent: str, newline: str) -> None:
    deeper = indent + ("\t" if "\t" in indent else "    ")
    before = f"def f(w, a):\n{indent}some_name = {LONG}.b\n"
    after = (
        f"def f(w, a):\n{indent}some_name = _p.q(\n{deeper}w,\n{deeper}{LONG},\n{deeper}a.b,\n"
        f"{indent}).b\n"
    )

    def find(definition):  # type: ignore[no-untyped-def]
        from rewriter.patterns import compiled

        (hit,) = compiled("g({*more})").search(definition)
        return [Match(hit.node, ("w", "a.b"))]

    codemod = made(Site("f", "call", find, Wrap("_p.q", keeps=1)))
    check_round_trip(
        codemod, before.replace("\n", newline).encode(), after.replace("\n", newline).encode()
    )


def test_every_match_is_wrapped_where_the_count_says_so() -> None:
    raw = b"def f():\n    x = g(a); y = g(a)\n    return g(a)\n"
    after = b"def f():\n    x = _p.q(g(a)); y = _p.q(g(a))\n    return _p.q(g(a))\n"
    check_round_trip(wrapping("g(a)", count=3), raw, after)
    check_round_trip(wrapping("g(a)", count=None), raw, after)
    check_refused(wrapping("g(a)", count=2), raw, "found 3: lines 2, 2, 3")


@pytest.mark.parametrize("code", ["(a, b)", "(yield)", "(x for x in y)"])
def test_what_is_nothing_without_its_brackets_is_not_wrapped(code: str) -> None:
    check_refused(wrapping(code), f"def f():\n    z = {code}\n".encode(), "cannot be an argument")


@pytest.mark.parametrize(
    "code", ["(a if b else c)", "(lambda: a)", "(a := b)", "(not a)", "[a, b]"]
)
def test_what_is_an_argument_without_its_brackets_is(code: str) -> None:
    before = f"def f():\n    z = {code}\n"
    inner = code.strip("()")
    check_round_trip(
        wrapping(code), before.encode(), before.replace(inner, f"_p.q({inner})").encode()
    )


def test_places_inside_one_another_are_refused() -> None:
    check_refused(wrapping("g({x})", count=2), b"def f():\n    g(g(1))\n", "overlap")


# --- replacements -------------------------------------------------------------------------

SQUARE = "v = {x}.pow(2).mean(dim=-1)"
REPLACES = {
    "plain": (
        b"class N:\n    def f(self):\n        v = h.pow(2).mean(dim=-1)  # why\n",
        b"class N:\n    def f(self):\n        v = h.square().mean(dim=-1)  # why\n",
    ),
    "brackets of a hole": (
        b"class N:\n    def f(self):\n        v = (h + r).pow(2).mean(dim=-1)\n",
        b"class N:\n    def f(self):\n        v = (h + r).square().mean(dim=-1)\n",
    ),
}


@pytest.mark.parametrize("name", REPLACES)
def test_replaces(name: str) -> None:
    before, after = REPLACES[name]
    edit = Replace("v = {x}.square().mean(dim=-1)")
    check_round_trip(made(Site("N.f", "square", SQUARE, edit)), before, after)


def test_a_replacement_that_stands_beside_what_it_replaces_is_refused_not_guessed() -> None:
    raw = b"def f():\n    v = g(a)\n    w = h(a)\n"
    codemod = made(Site("f", "call", "g({x})", Replace("h({x})")))
    found = engine.examine(codemod, PATH, raw)
    assert found.state is State.PARTIAL
    assert found.patched is None


@pytest.mark.parametrize(
    ("edit", "only"), [(Wrap("_p.q"), True), (AFTER, True), (Replace("h()"), False)]
)
def test_only_insertions_promise_a_revert_without_a_record(edit: Edit, only: bool) -> None:
    assert engine.only_inserts(made(IMPORT, Site("f", "x", "g()", edit))) is only
