"""Source: bytes, text, lines, offsets and definitions of one file, and what is refused."""

from __future__ import annotations

import ast
import sys

import libcst as cst
import pytest

from rewriter.definition import IMPORTS, children
from rewriter.errors import SourceError
from rewriter.source import LARGEST, Source

DEFINITIONS = """\
import os
import sys


@decorated(
    1,
)
class A:
    x = 1

    @property
    # between
    def f(self):
        def inner():
            pass
        return inner

    async def g(self): return 1; pass

    class B:
        def f(self):
            pass

if sys.platform:
    def h():
        pass
else:
    def h():
        return 2

try:
    def t(): pass
except ImportError:
    def t(): pass
finally:
    class Z: pass
"""


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("A", [(5, 21)]),
        ("A.f", [(11, 16)]),
        ("A.g", [(18, 18)]),
        ("A.B.f", [(21, 22)]),
        ("h", [(25, 26), (28, 29)]),
        ("t", [(32, 32), (34, 34)]),
        ("Z", [(36, 36)]),
        ("inner", []),
        ("A.f.inner", []),
        ("B.f", []),
    ],
)
def test_definitions_by_qualified_name(name: str, lines: list[tuple[int, int]]) -> None:
    found = Source("m.py", DEFINITIONS.encode()).definitions(name)
    expected = [(first, last) for first, last in lines]
    if name == "A":
        expected = [(5, 22)]
    assert [(d.first, d.last) for d in found] == expected


def test_a_definition_is_its_own_lines() -> None:
    (found,) = Source("m.py", DEFINITIONS.encode()).definitions("A.f")
    assert found.text == (
        "    @property\n    # between\n    def f(self):\n        def inner():\n"
        "            pass\n        return inner\n"
    )


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("import a\nfrom b import c\nx = 1\nimport d\n", (1, 2)),
        ('"""Doc."""\n\nimport a\n"""Another string."""\nimport b\n\nx = 1\n', (3, 5)),
        ("from __future__ import annotations\n\n'''Doc.'''\nfrom a import (\n    b,\n)\n", (1, 6)),
        ("import a; import b\nx = 1\n", (1, 1)),
        ("x = 1\nimport a\n", None),
        ("", None),
    ],
)
def test_imports_are_the_leading_block(text: str, lines: tuple[int, int] | None) -> None:
    found = Source("m.py", text.encode()).definitions(IMPORTS)
    assert [(d.first, d.last) for d in found] == ([lines] if lines else [])


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_lines_and_newlines(newline: str) -> None:
    text = f"a = 1{newline}b = 2{newline}"
    source = Source("m.py", text.encode())
    assert source.text == text
    assert source.line_start(2) == len("a = 1" + newline)
    assert source.line_start(3) == source.line_start(9) == len(text)
    assert [source.line_at(i) for i in (0, 4, source.line_start(2))] == [1, 1, 2]
    assert source.newline(0) == newline
    assert source.line_text(2) == "b = 2"
    assert [node.lineno for node in source.tree.body] == [1, 2]


def test_only_pythons_newlines_end_a_line() -> None:
    text = "a = 'x\x0bx\x1cx\x85x\u2028x'\n\x0cb = 2\n"
    source = Source("m.py", text.encode())
    assert source.line_start(2) == text.index("\x0c")
    assert source.line_at(len(text) - 2) == 2


def test_a_newline_of_a_file_without_one() -> None:
    assert Source("m.py", b"x = 1").newline(0) == "\n"
    assert Source("m.py", b"x = 1\r\ny = 2").newline(9) == "\r\n"


@pytest.mark.parametrize(
    "text", ["x = 'é', f(1)\n", "x = '漢字', f(1)\n", "ß = '\U0001f600', f(1)\n", "x = '', f(1)\n"]
)
def test_columns_are_counted_in_bytes_by_ast_and_in_characters_here(text: str) -> None:
    source = Source("m.py", text.encode())
    call = next(n for n in ast.walk(source.tree) if isinstance(n, ast.Call))
    assert source.offset(call.lineno, call.col_offset) == text.index("f(1)")


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\xef\xbb\xbfx = 1\n", "x = 1\n"),
        (b"# -*- coding: latin-1 -*-\nx = '\xe9'\n", "# -*- coding: latin-1 -*-\nx = 'é'\n"),
        (b"\xef\xbb\xbf# coding: utf-8\nx = '\xc3\xa9'\n", "# coding: utf-8\nx = 'é'\n"),
        (b"# coding: cp1252\nx = '\x80'\n", "# coding: cp1252\nx = '€'\n"),
    ],
)
def test_encoding_and_bom_are_kept(raw: bytes, text: str) -> None:
    source = Source("m.py", raw)
    assert source.text == text
    assert source.encode(source.text) == raw
    assert source.tree.body


BRACKETS = b"x = " + b"(" * 20_000 + b")" * 20_000 + b"\n"

REFUSED = {
    "python 2": (b"print 'x'\n", "m.py: does not parse at line 1"),
    "merge conflict": (
        b"x = 1\n<<<<<<< HEAD\ny = 1\n=======\ny = 2\n>>>>>>> b\n",
        "m.py: does not parse at line 2",
    ),
    "truncated": (b"def f(\n    a,\n", "m.py: does not parse at line 1"),
    "truncated string": (b'"""Doc\n', "m.py: does not parse at line 1"),
    "NUL": (b"x = 1\n\x00\n", "m.py: does not parse"),
    "20,000 brackets": (BRACKETS, "m.py: does not parse"),
    "bad byte in a comment": (b"# \xff\nx = 1\n", "m.py: cannot be decoded: "),
    "bad byte in a string": (b"x = '\xff'\n", "m.py: cannot be decoded: "),
    "UTF-16": ("x = 1\n".encode("utf-16"), "m.py: cannot be decoded: "),
    "unknown coding": (b"# coding: no-such\nx = 1\n", "m.py: cannot be decoded: "),
    "no text encoding": (b"# coding: rot13\nk = 1\n", "m.py: cannot be decoded: "),
    "BOM and another coding": (b"\xef\xbb\xbf# coding: latin-1\n", "m.py: cannot be decoded: "),
    "mixed indentation": (b"if 1:\n        x = 1\n\ty = 2\n", "m.py: does not parse at line 3"),
    "no colon": (b"if 1\n    x = 1\n", "m.py: does not parse at line 1"),
    "binary": (bytes(range(256)) * 8, "m.py: cannot be decoded: "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_one_clear_message(name: str) -> None:
    raw, message = REFUSED[name]
    with pytest.raises(SourceError) as caught:
        _ = Source("m.py", raw).tree
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("chain", ["-" * 20_000 + "1", "not " * 20_000 + "x", "x" + ".a" * 20_000])
def test_deep_nesting_without_brackets_is_refused_or_parsed_never_a_crash(chain: str) -> None:
    source = Source("m.py", f"y = {chain}\n".encode())
    assert told(source).startswith(("[<ast.Assign object", "m.py: does not parse"))


def told(source: Source) -> str:
    try:
        return str(source.tree.body)
    except SourceError as error:
        return str(error)


def test_too_large_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(SourceError, match=r"m\.py: 52428800 bytes, more than the 8388608"):
        Source("m.py", bytes(50 * 2**20))
    assert LARGEST == 8 * 2**20


def test_a_warning_of_the_parser_is_not_ours_to_tell() -> None:
    assert Source("m.py", b"x = '\\d'\nassert (1, 'x')\nx is 1\n").tree.body


# --- definitions as LibCST sees them -------------------------------------------------------

SPANS = {
    "plain": "def f():\n    x = a.b(1)\n    return x\n",
    "method": "class A:\n    def f(self):\n        x = a.b(1)\n        return x\n",
    "tabs": "class A:\n\tdef f(self):\n\t\tif 1:\n\t\t\tx = a.b(1)\n",
    "two spaces": "class A:\n  def f(self):\n    if 1:\n     x = a.b(1)\n",
    "one-line suite": "class A:\n    def f(self): x = a.b(1); y = 2\n",
    "semicolons": "def f():\n    y = 1; x = a.b(1); z = 'é'\n",
    "non-ASCII before": "def f():\n    é = '漢'; x = '\U0001f600' + a.b(1)\n",
    "non-ASCII in the file": "# é漢\U0001f600\ndef f():\n    x = a.b(1)\n",
    "brackets": "def f():\n    x = (\n        # why\n        a.b(1)  # and\n    )\n",
    "backslash": "def f():\n    x = \\\n        a.b(1)\n",
    "form feed": "x = 1\n\x0c\ndef f():\n    x = a.b(1)\n",
    "no final newline": "def f():\n    x = a.b(1)",
    "header": "def f():\n    if a.b(1):\n        pass\n    while x: x = 2\n",
    "decorator": "class A:\n    @a.b(1)\n    def f(self):\n        x = 2\n",
    "nested": "def f():\n    def g(): return 3\n    class C:\n        y = a.b(1)\n",
    "lambda and strings": "def f():\n    x = lambda: a.b(1), '''\n  é'''\n",
    "match": "def f(x):\n    match x:\n        case 1:\n            y = 'é'; x = a.b(1)\n",
    "with, try": (
        "def f():\n    try:\n        with x as y, z:\n            pass\n    except E: q = 1\n"
        "    else:\n        pass\n    finally:\n        x = a.b(1)\n"
    ),
    "global and del": "def f():\n    global q\n    del q\n    assert q, 'é'\n    x = a.b(1)\n",
}


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("name", SPANS)
def test_a_nodes_span_is_its_own_text(name: str, newline: str) -> None:
    text = SPANS[name].replace("\n", newline)
    source = Source("m.py", text.encode())
    definition = source.definitions("A.f" if "class A" in text else "f")[0]
    calls = [n for n in definition.nodes if isinstance(n, cst.Call)]
    assert [definition.code(n) for n in calls] == ["a.b(1)"]
    assert definition.span(calls[0])[0] == text.index("a.b(1)")
    assert definition.line(calls[0]) == text[: text.index("a.b(1)")].count(newline) + 1


@pytest.mark.skipif(sys.version_info < (3, 12), reason="new in Python 3.12")
def test_a_type_alias_is_a_statement_to_both_parsers() -> None:
    source = Source("m.py", b"def f():\n    type X = int\n    x = a.b(1)\n")
    definition = source.definitions("f")[0]
    assert [definition.code(n) for n in definition.nodes if isinstance(n, cst.Call)] == ["a.b(1)"]


def test_nodes_come_outer_before_inner_and_in_the_order_of_the_text() -> None:
    text = "def f(a, b=1):\n    if a: b = 2\n    elif b: a = 3\n    else: pass\n    return a + b\n"
    definition = Source("m.py", text.encode()).definitions("f")[0]
    statements = [
        definition.code(n) for n in definition.nodes if isinstance(n, cst.BaseSmallStatement)
    ]
    assert statements == ["b = 2", "a = 3", "pass", "return a + b"]
    parents = definition.parents
    assert all(parents[n] is None or parents[n] in parents for n in definition.nodes)


def test_children_leave_layout_out_and_nothing_else() -> None:
    node = cst.parse_statement("x = f((a), *b, c=[d])  # e\n")
    seen: list[cst.CSTNode] = [node]
    for each in seen:
        seen += children(each)
    names = [n.value for n in seen if isinstance(n, cst.Name)]
    assert sorted(names) == ["a", "b", "c", "d", "f", "x"]
    assert not any(isinstance(n, (cst.BaseParenthesizableWhitespace, cst.Comment)) for n in seen)


def test_a_lone_carriage_return_moves_no_offset() -> None:
    source = Source("m.py", b"def f():\n    x = 1  # c\r    y = a.b(1)\n    z = (1,\r 2)\n")
    definition = source.definitions("f")[0]
    assert [definition.code(n) for n in definition.nodes if isinstance(n, cst.Call)] == ["a.b(1)"]


def test_what_libcst_cannot_parse_is_refused_with_the_definition() -> None:
    source = Source("m.py", b"def f():\n    x = () if 0 else(lambda:())\n")
    definition = source.definitions("f")[0]
    with pytest.raises(SourceError, match=r"m\.py: LibCST cannot parse f \(lines 1 to 2\): "):
        _ = definition.module
