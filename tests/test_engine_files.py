"""Whole files: several codemods, formatters before and after, bytes outside the sites."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

import black
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from snippets import (
    IMPORT,
    PATH,
    TWO,
    TWO_AFTER,
    TWO_BEFORE,
    check_refused,
    check_round_trip,
    made,
)

from rewriter import engine
from rewriter.codemod import Codemod, Insert, Site, Wrap, import_line
from rewriter.model import State

# --- several codemods on one file ---------------------------------------------------------

FIRST = made(
    import_line("from a import first as _first"), Site("f", "call", "g({x})", Wrap("_first.q")),
    Site("f", "line", "y = 1", Insert("_first.attach(y)")), name="first",
)  # fmt: skip
SECOND = made(
    import_line("from a import second as _second"), Site("f", "call", "h({x})", Wrap("_second.q")),
    name="second",
)  # fmt: skip
SHARED = b"import c\n\ndef f():\n    y = 1\n    return g(1) + h(2)\n"


@pytest.mark.parametrize("order", [(FIRST, SECOND), (SECOND, FIRST)], ids=["12", "21"])
def test_codemods_share_a_file_in_either_order(order: tuple[Codemod, Codemod]) -> None:
    raw = SHARED
    for codemod in order:
        raw = engine.apply(codemod, PATH, raw)
    assert b"return _first.q(g(1)) + _second.q(h(2))\n" in raw
    for codemod in order:
        found = engine.examine(codemod, PATH, raw)
        assert (found.state, found.exact) == (State.APPLIED, True)
    for out in (order, order[::-1]):
        left = raw
        for codemod in out:
            left = engine.examine(codemod, PATH, left).pristine
        assert left == SHARED


# --- formatters ---------------------------------------------------------------------------

UGLY = """\
from   c import (d,
   e)
class A( object ):
    def f( self,x ) :
        y = g ( x ) .to( x.dtype ) ; z = {'a':g}
        if y is not None and z is not None and self.some_attribute is not None and x is not None:
            return h(  # why
              y,kv_indices, # rows
              x)
        super( ).__init__( )
"""
SITES = made(
    IMPORT,
    Site("A.f", "cast", "g({x})", Wrap("_p.gather")),
    Site("A.f", "rows", "kv_indices", Wrap("_p.plan_with_a_rather_long_name")),
    Site("A.f", "line", "super().__init__()", Insert("_p.attach(self, x)")),
)


def same_tree(left: bytes, right: bytes) -> bool:
    return ast.dump(ast.parse(left)) == ast.dump(ast.parse(right))


@pytest.mark.parametrize("width", [40, 79, 120])
def test_a_formatter_before_changes_nothing_that_matters(width: int) -> None:
    formatted = black.format_str(UGLY, mode=black.Mode(line_length=width)).encode()
    patched = engine.apply(SITES, PATH, formatted)
    assert same_tree(patched, engine.apply(SITES, PATH, UGLY.encode()))
    check_round_trip(SITES, formatted, patched)


@pytest.mark.parametrize("width", [40, 79, 120])
def test_a_formatter_after_leaves_it_applied_and_the_same_code_underneath(width: int) -> None:
    patched = engine.apply(SITES, PATH, UGLY.encode())
    formatted = black.format_str(patched.decode(), mode=black.Mode(line_length=width)).encode()
    found = engine.examine(SITES, PATH, formatted)
    assert found.state is State.APPLIED
    assert same_tree(found.pristine, UGLY.encode())
    assert b"# why" in found.pristine
    assert b"# rows" in found.pristine
    assert engine.apply(SITES, PATH, formatted) is formatted


def test_layout_of_our_lines_is_told_apart_from_their_bytes() -> None:
    raw = TWO_AFTER.replace(b"_p.q(g(a))", b"_p.q( g(a), )")
    found = engine.examine(TWO, PATH, raw)
    assert (found.state, found.exact) == (State.APPLIED, False)
    assert found.reason == "the layout of our lines was changed since"
    assert found.pristine == TWO_BEFORE


# --- generated files ----------------------------------------------------------------------


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("final", [True, False])
def test_bytes_outside_the_sites_are_identical(bom: bytes, newline: bytes, final: bool) -> None:
    filler = "# é \x0c\nX = '漢'  ;  Y = (1,\n  2)\n\n\tif_ = 3\n".replace("\tif_", "Z").encode()
    raw = bom + (TWO_BEFORE.replace(b"def h", filler + b"def h") + filler).replace(b"\n", newline)
    if not final:
        raw = raw.removesuffix(newline)
    patched = engine.apply(TWO, PATH, raw)
    without = patched
    for inserted in (
        b"from a import b as _p" + newline, b"_p.q(", b")", b"    _p.attach(1)" + newline,
    ):  # fmt: skip
        assert without.count(inserted) >= 1
        without = without.replace(inserted, b"", 1) if inserted != b")" else without
    assert without.replace(b"g(a))", b"g(a)") == raw
    check_round_trip(TWO, raw, patched)


def _site(find: Callable[..., object]) -> Codemod:
    return made(Site("f", "call", find, Wrap("_p.q")))  # type: ignore[arg-type]


def test_a_finder_that_finds_nothing_has_drifted() -> None:
    check_refused(_site(lambda definition: []), b"def f(): pass\n", "found 0 places of kind call")


FILLERS = [
    "x = 1",
    "é = '漢\U0001f600'  # ü",
    "y = (1,",  # continued by the next entry
    "if x: y = 2; z = 3",
    "s = '''a",
    "# \x0c comment \x1c",
    "",
    "   ",
    "z = lambda é: (é)",
    "w = \\",
]
CLOSERS = {"y = (1,": "  2)", "s = '''a": " b'''", "w = \\": "  5"}


@given(
    lines=st.lists(st.sampled_from(FILLERS), max_size=12),
    newlines=st.lists(st.sampled_from(["\n", "\r\n", "\r"]), min_size=1, max_size=5),
    indent=st.sampled_from(["    ", "\t", "  ", "\t  "]),
    bom=st.booleans(),
    final=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_any_file_keeps_every_byte_but_the_insertions(
    lines: list[str], newlines: list[str], indent: str, bom: bool, final: bool
) -> None:
    body = [
        line for name in lines for line in (name, *([CLOSERS[name]] if name in CLOSERS else []))
    ]
    function = ["def f():", *(indent + line if line.strip() else line for line in body),
                indent + "return h(g(a))"]  # fmt: skip
    text = ["import c", *body, *function, *body]
    raw = "".join(line + newlines[i % len(newlines)] for i, line in enumerate(text))
    raw = raw if final else raw.rstrip("\r\n")
    first = re.search(r"\r\n|\r|\n", raw).group()  # type: ignore[union-attr]
    encoded = (b"\xef\xbb\xbf" if bom else b"") + raw.encode()
    codemod = made(IMPORT, Site("f", "call", "g(a)", Wrap("_p.q")))
    patched = engine.apply(codemod, PATH, encoded)
    after_import = patched.replace(b"from a import b as _p", b"", 1)
    assert len(after_import) - len(encoded) == len(b"_p.q()") + len(first)
    assert patched.count(b"h(_p.q(g(a)))") == encoded.count(b"h(g(a))") == 1
    assert patched.endswith(encoded[encoded.index(b"h(g(a))") + len(b"h(g(a))") :])
    check_round_trip(codemod, encoded, patched)
