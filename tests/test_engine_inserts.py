"""Inserted lines and imports: bytes before, bytes after, and what is refused."""

from __future__ import annotations

import pytest
from snippets import (
    AFTER,
    BEFORE,
    IMPORT,
    check_refused,
    check_round_trip,
    made,
)

from rewriter.codemod import Insert, Site

# --- lines --------------------------------------------------------------------------------

INSERTS = {
    "after": (
        AFTER,
        b"def f():\n    g()\n    h()\n",
        b"def f():\n    g()\n    _p.attach(1)\n    h()\n",
    ),
    "before": (
        BEFORE,
        b"def f():\n    g()\n    h()\n",
        b"def f():\n    _p.attach(1)\n    g()\n    h()\n",
    ),
    "a comment behind": (
        AFTER,
        b"def f():\n    g()  # why\n\n\nx = 1\n",
        b"def f():\n    g()  # why\n    _p.attach(1)\n\n\nx = 1\n",
    ),
    "tabs": (
        AFTER,
        b"def f():\n\tif 1:\n\t\tg()\n",
        b"def f():\n\tif 1:\n\t\tg()\n\t\t_p.attach(1)\n",
    ),
    "carriage returns": (
        AFTER,
        b"def f():\r\n  g()\r\n",
        b"def f():\r\n  g()\r\n  _p.attach(1)\r\n",
    ),
    "mixed newlines": (
        AFTER,
        b"x = 1\r\ndef f():\r\n    g()\n    h()\r\n",
        b"x = 1\r\ndef f():\r\n    g()\n    _p.attach(1)\n    h()\r\n",
    ),
    "over several lines": (
        AFTER,
        b"def f():\n    g(\n    )\n    h()\n",
        b"def f():\n    g(\n    )\n    _p.attach(1)\n    h()\n",
    ),
    "the last line": (AFTER, b"def f():\n    g()", b"def f():\n    g()\n    _p.attach(1)"),
    "the last line, before": (BEFORE, b"def f():\n    g()", b"def f():\n    _p.attach(1)\n    g()"),
    "the last line, carriage returns": (
        AFTER,
        b"def f():\r\n    g()",
        b"def f():\r\n    g()\r\n    _p.attach(1)",
    ),
    "several lines": (
        Insert("if __debug__:\n    print()"),
        b"def f():\r\n\tg()\r\n",
        b"def f():\r\n\tg()\r\n\tif __debug__:\r\n\t    print()\r\n",
    ),
    "brackets": (AFTER, b"def f():\n    (g())\n", b"def f():\n    (g())\n    _p.attach(1)\n"),
}


@pytest.mark.parametrize("name", INSERTS)
def test_inserts(name: str) -> None:
    edit, before, after = INSERTS[name]
    check_round_trip(made(Site("f", "line", "g()", edit)), before, after)


NO_LINE_OF_ITS_OWN = {
    "semicolon behind": b"def f():\n    g(); h()\n",
    "semicolon before": b"def f():\n    h(); g()\n",
    "one-line suite": b"def f(): g()\n",
    "one-line branch": b"def f():\n    if x: g()\n",
    "part of an assignment": b"def f():\n    x = g()\n",
    "an element": b"def f():\n    x = [\n        g(),\n    ]\n",
    "a test": b"def f():\n    if g():\n        pass\n",
    "a default": b"def f(x=g()):\n    pass\n",
}


@pytest.mark.parametrize("name", NO_LINE_OF_ITS_OWN)
def test_no_line_is_inserted_beside_part_of_a_line(name: str) -> None:
    codemod = made(Site("f", "line", "g()", AFTER))
    check_refused(codemod, NO_LINE_OF_ITS_OWN[name], "line in `f`: ")


IMPORTS = {
    "after the last": (
        b"import os\nimport sys\n\nx = 1\n",
        b"import os\nimport sys\nfrom a import b as _p\n\nx = 1\n",
    ),
    "after a long one": (
        b"from c import (\n    d,\n)\nx = 1\n",
        b"from c import (\n    d,\n)\nfrom a import b as _p\nx = 1\n",
    ),
    "a string between": (
        b"from __future__ import annotations\n\n'''Doc.'''\n\nimport c\n\n",
        b"from __future__ import annotations\n\n'''Doc.'''\n\nimport c\nfrom a import b as _p\n\n",
    ),
    "a string behind": (
        b"from __future__ import annotations\n'''Doc.'''\n",
        b"from __future__ import annotations\nfrom a import b as _p\n'''Doc.'''\n",
    ),
    "two on a line": (b"import c; import d\n", b"import c; import d\nfrom a import b as _p\n"),
    "carriage returns": (
        b"import c\r\nx = 1\r\n",
        b"import c\r\nfrom a import b as _p\r\nx = 1\r\n",
    ),
    "a docstring and BOM": (
        b"\xef\xbb\xbf'''Doc.'''\nimport c\n",
        b"\xef\xbb\xbf'''Doc.'''\nimport c\nfrom a import b as _p\n",
    ),
    "not those further down": (
        b"import c\n\nx = 1\nimport d\n",
        b"import c\nfrom a import b as _p\n\nx = 1\nimport d\n",
    ),
    "not those in a try": (
        b"import c\ntry:\n    import d\nexcept ImportError:\n    pass\n",
        b"import c\nfrom a import b as _p\ntry:\n    import d\nexcept ImportError:\n    pass\n",
    ),
    "nothing else": (b"import c", b"import c\nfrom a import b as _p"),
}


@pytest.mark.parametrize("name", IMPORTS)
def test_imports(name: str) -> None:
    before, after = IMPORTS[name]
    check_round_trip(made(IMPORT), before, after)


def test_an_import_that_shares_its_line_is_refused() -> None:
    check_refused(made(IMPORT), b"import c; x = 1\n", "shares its line with another statement")


def test_a_module_without_imports_is_refused() -> None:
    check_refused(made(IMPORT), b"x = 1\nimport c\n", "no import at the top of the module")
