"""Look-alikes, half-patched and edited files: what is told, and that nothing is edited."""

from __future__ import annotations

import pytest
from snippets import (
    PATH,
    TWO,
    TWO_AFTER,
    TWO_BEFORE,
    check_refused,
    check_round_trip,
    made,
    state,
    wrapping,
)

from rewriter import engine
from rewriter.codemod import Codemod, Site, Wrap
from rewriter.errors import SourceError
from rewriter.model import State

# --- look-alikes --------------------------------------------------------------------------

LEFT_ALONE = {
    "no definition": (b"x = g(a)\n", "`A.f` is not defined"),
    "another class (case 14)": (
        b"class B:\n    def f(self):\n        return g(a)\n\nclass A:\n    def f(self):\n"
        b"        return g(a, b)\n",
        "`A.f` has no `g(a)`",
    ),
    "another method": (
        b"class A:\n    def f(self):\n        pass\n    def h(self):\n        return g(a)\n",
        "`A.f` has no `g(a)`",
    ),
    "a function of the name": (b"def f(self):\n    return g(a)\n", "`A.f` is not defined"),
    "a nested function of the name": (
        b"class A:\n    def h(self):\n        def f(): return g(a)\n",
        "`A.f` is not defined",
    ),
    "a class in a function": (
        b"def h():\n    class A:\n        def f(self): return g(a)\n",
        "`A.f` is not defined",
    ),
    "a class in another class": (
        b"class B:\n    class A:\n        def f(self): return g(a)\n",
        "`A.f` is not defined",
    ),
    "a string": (b"class A:\n    def f(self):\n        return 'g(a)'\n", "`A.f` has no `g(a)`"),
    "a comment": (b"class A:\n    def f(self):\n        pass  # g(a)\n", "`A.f` has no `g(a)`"),
    "an f-string's text": (
        b"class A:\n    def f(self):\n        return f'g(a)'\n",
        "`A.f` has no `g(a)`",
    ),
    "a docstring": (b"class A:\n    def f(self):\n        'g(a)'\n", "`A.f` has no `g(a)`"),
    "another argument": (
        b"class A:\n    def f(self):\n        return g(b)\n",
        "`A.f` has no `g(a)`",
    ),
    "a method of the name": (
        b"class A:\n    def f(self):\n        return self.g(a)\n",
        "`A.f` has no `g(a)`",
    ),
    "a keyword": (b"class A:\n    def f(self):\n        return g(a=a)\n", "`A.f` has no `g(a)`"),
    "twice in one definition": (
        b"class A:\n    def f(self):\n        return g(a) + g(a)\n",
        "found 2: lines 3, 3",
    ),
    "defined twice": (
        b"class A:\n    def f(self): return g(a)\n    def f(self): return g(a)\n",
        "`A.f` is defined 2 times: lines 2, 3",
    ),
    "defined by condition": (
        b"class A:\n    if x:\n        def f(self): return g(a)\n    else:\n"
        b"        def f(self): return g(a)\n",
        "`A.f` is defined 2 times: lines 3, 5",
    ),
    "overloaded": (
        b"class A:\n    @overload\n    def f(self): ...\n    def f(self): return g(a)\n",
        "`A.f` is defined 2 times: lines 2, 4",
    ),
    "an attribute": (b"class A:\n    f = lambda self: g(a)\n", "`A.f` is not defined"),
    "an empty file": (b"", "`A.f` is not defined"),
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_look_alikes_are_left_alone(name: str) -> None:
    raw, reason = LEFT_ALONE[name]
    check_refused(wrapping("g(a)", within="A.f"), raw, reason)


@pytest.mark.parametrize(
    ("raw", "nearest"),
    [
        (b"class B:\n    def f(self): pass\n", (2, "def f(self): pass", "it is called `B.f`")),
        (b"class A:\n    def fg(self): pass\n", (2, "def fg(self): pass", "it is called `A.fg`")),
        (
            b"class A:\n    def f(self):\n        h(1)\n        return g(b)\n",
            (4, "return g(b)", "expected `a`, found `b`"),
        ),
    ],
)
def test_a_drift_tells_the_nearest_thing_seen(raw: bytes, nearest: tuple[int, str, str]) -> None:
    found = engine.examine(wrapping("g(a)", within="A.f"), PATH, raw).nearest
    assert found is not None
    assert (found.line, found.text, found.differs) == nearest


def test_a_conditional_definition_is_found_where_there_is_one() -> None:
    check_round_trip(
        wrapping("g(a)"),
        b"try:\n    import x\nexcept ImportError:\n    def f(): return g(a)\n",
        b"try:\n    import x\nexcept ImportError:\n    def f(): return _p.q(g(a))\n",
    )


# --- several forms, several sites ---------------------------------------------------------


def test_one_codemod_takes_several_forms_and_the_source_decides() -> None:
    """Case 9: no version is asked for."""
    codemod = made(Site("f", "call", ("{x}.norm(p=2)", "norm({x}, p=2)"), Wrap("_p.q")))
    old, new = (
        b"def f():\n    y = h.norm(p=2)\n",
        b"def f():\n    prologue()\n    y = norm(h, p=2)\n",
    )
    check_round_trip(codemod, old, b"def f():\n    y = _p.q(h.norm(p=2))\n")
    check_round_trip(codemod, new, b"def f():\n    prologue()\n    y = _p.q(norm(h, p=2))\n")
    both = b"def f():\n    y = h.norm(p=2) + norm(h, p=2)\n"
    check_refused(codemod, both, "found 2: lines 2, 2")
    check_refused(
        codemod, b"def f():\n    y = 1\n", "`f` has no `{x}.norm(p=2)` or `norm({x}, p=2)`"
    )


def test_changed_context_does_not_matter() -> None:
    """Case 2: what stands around a site is not part of it."""
    before = b"class N:\n    x = 1\n\n    def f(self, a):\n        y = 1\n        return g(a)\n"
    moved = (
        b"class M: ...\n\n\nclass N:\n    x = 2\n    z = 3\n\n    @new\n"
        b"    def f(self, a, b=None):\n        if b: raise E(b)\n        return g( a )\n"
    )
    codemod = wrapping("g(a)", within="N.f")
    check_round_trip(codemod, before, before.replace(b"g(a)", b"_p.q(g(a))"))
    check_round_trip(codemod, moved, moved.replace(b"g( a )", b"_p.q(g( a ))"))


def test_all_sites_are_found_before_any_is_edited() -> None:
    check_round_trip(TWO, TWO_BEFORE, TWO_AFTER)
    found = check_refused(TWO, TWO_BEFORE.replace(b"    g()\n", b"    k()\n"), "`h` has no `g()`")
    assert [(s.kind, s.line, s.state) for s in found.sites] == [
        ("import", 1, State.READY), ("call", 4, State.READY), ("line", None, State.DRIFTED),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "missing"),
    [
        (b"from a import b as _p\n", b"", "import"),
        (b"_p.q(g(a))", b"g(a)", "call"),
        (b"    _p.attach(1)\n", b"", "line"),
        (b"    g()\n    _p.attach(1)\n", b"    k()\n    _p.attach(1)\n", "line"),
        (b"_p.q(g(a))", b"_p.q(g(b))", "call"),
    ],
)
def test_a_half_patched_file_is_partial_site_by_site(old: bytes, new: bytes, missing: str) -> None:
    """Case 8."""
    raw = TWO_AFTER.replace(old, new)
    assert raw != TWO_AFTER
    found = engine.examine(TWO, PATH, raw)
    assert found.state is State.PARTIAL
    assert found.patched is None
    assert missing in found.reason
    states = {(s.kind, s.state) for s in found.sites}
    assert {(k, State.APPLIED) for k in {"import", "call", "line"} - {missing}} < states
    with pytest.raises(ValueError, match="is partial"):
        engine.apply(TWO, PATH, raw)


TAMPERED = {
    "another argument": (b"_p.attach(1)", b"_p.attach(1) # ours", 9),
    "moved": (b"    g()\n    _p.attach(1)\n", b"    _p.attach(1)\n    g()\n", 8),
    "a further argument": (b"_p.q(g(a))", b"_p.q(g(a), True)", 5),
    "on a shared line": (b"    _p.attach(1)\n", b"    y = 1; _p.attach(1)\n", 9),
    "under a condition": (b"    _p.attach(1)\n", b"    if y:\n        _p.attach(1)\n", 10),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_edited_insertions_are_told_with_their_line(name: str) -> None:
    old, new, line = TAMPERED[name]
    raw = TWO_AFTER.replace(old, new)
    found = engine.examine(TWO, PATH, raw)
    assert found.state in (State.TAMPERED, State.PARTIAL)
    assert found.patched is None
    assert not found.exact
    if found.state is State.TAMPERED:
        assert found.nearest is not None
        assert found.nearest.line == line
    with pytest.raises(ValueError, match=f"is {found.state}"):
        engine.apply(TWO, PATH, raw)


def test_an_insertion_that_stands_twice_is_partial() -> None:
    raw = TWO_AFTER + b"    _p.attach(1)\n"
    found = engine.examine(TWO, PATH, raw)
    assert found.state is State.PARTIAL
    assert "one of our insertions stands where none belongs" in found.reason


@pytest.mark.parametrize("call", ["_p.q()", "_p.q(*a)", "_p.q(x=g(a))", "_p.q", "p.q(g(a))"])
def test_a_call_of_ours_that_no_wrap_wrote_is_no_mark(call: str) -> None:
    codemod = wrapping("g(a)")
    raw = f"def f():\n    x = {call}\n    return g(a)\n".encode()
    found = engine.examine(codemod, PATH, raw)
    if found.state is State.READY:
        assert found.patched == raw.replace(b"return g(a)", b"return _p.q(g(a))")
    else:
        assert found.patched is None


def test_the_users_own_edits_elsewhere_stay() -> None:
    raw = TWO_AFTER.replace(b"import c\n", b"import c  # mine\n") + b"\n\ndef mine(): pass\n"
    found = engine.examine(TWO, PATH, raw)
    assert (found.state, found.exact) == (State.APPLIED, True)
    assert (
        found.pristine == TWO_BEFORE.replace(b"c\n", b"c  # mine\n", 1) + b"\n\ndef mine(): pass\n"
    )


@pytest.mark.parametrize(
    "imports",
    [
        b"from a import b as _p\nimport c\n",
        b"import c\nfrom a import b as _p\nimport d\n",
        b"import c\n\nfrom a import b as _p\n",
    ],
)
def test_an_import_may_be_sorted_into_its_block(imports: bytes) -> None:
    raw = TWO_AFTER.replace(b"import c\nfrom a import b as _p\n", imports)
    found = engine.examine(TWO, PATH, raw)
    assert (found.state, found.exact) == (State.APPLIED, True)
    assert found.pristine == TWO_BEFORE.replace(
        b"import c\n", imports.replace(b"from a import b as _p\n", b"")
    )


# --- refusals -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        b"def f():\n    print 'x'\n",
        b"def f():\n<<<<<<< a\n    g(a)\n=======\n>>>>>>> b\n",
        b"def f():\n    g(a",
        b"def f():\n    g(a)\n\x00",
        b"def f():\n    x = " + b"[" * 20_000 + b"]" * 20_000,
        b"# \xff\ndef f():\n    g(a)\n",
        b"def f():\n    x = () if 0 else(lambda:g(a))\n",
    ],
)
def test_what_is_no_python_is_refused_before_anything(raw: bytes) -> None:
    """Case 16."""
    with pytest.raises(SourceError):
        engine.examine(wrapping("g(a)"), PATH, raw)


def test_deep_expressions_are_refused_not_a_crash() -> None:
    raw = b"def f():\n    x = " + b" + ".join([b"g(a)"] * 700) + b"\n"
    assert told(wrapping("g(a)"), raw) in (
        "drifted",
        "sglang/srt/m.py: an expression in it is nested too deeply",
    )


def told(codemod: Codemod, raw: bytes) -> str:
    """Return the state, or what is said instead."""
    try:
        return str(state(codemod, raw))
    except SourceError as error:
        return str(error)
