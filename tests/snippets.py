"""What the tests of the engine share: small codemods, and checks that compare bytes."""

from __future__ import annotations

import pytest

from rewriter import engine
from rewriter.codemod import Codemod, Insert, Site, Wrap, import_line
from rewriter.model import State

PATH = "sglang/srt/m.py"


def made(*sites: Site, name: str = "patch") -> Codemod:
    """Return a codemod of the given sites."""

    class Made(Codemod):
        target = PATH
        supports = ">=0"

    codemod = Made()
    codemod.name, codemod.sites = name, sites
    return codemod


def wrapping(find: str, call: str = "_p.q", within: str = "f", **more: object) -> Codemod:
    """Return a codemod that wraps what a template finds."""
    return made(Site(within, "call", find, Wrap(call), **more))  # type: ignore[arg-type]


def state(codemod: Codemod, raw: bytes) -> State:
    return engine.examine(codemod, PATH, raw).state


def check_round_trip(codemod: Codemod, before: bytes, after: bytes) -> None:
    """Apply, compare bytes, apply again, take out again."""
    assert engine.apply(codemod, PATH, before) == after
    again = engine.examine(codemod, PATH, after)
    assert (again.state, again.exact) == (State.APPLIED, True)
    assert again.pristine == before
    assert again.patched == after
    assert engine.apply(codemod, PATH, after) is after


def check_refused(codemod: Codemod, raw: bytes, reason: str) -> engine.Examination:
    """Expect drift: a reason, no edit, the bytes as they were."""
    found = engine.examine(codemod, PATH, raw)
    assert found.state is State.DRIFTED
    assert found.patched is None
    assert found.pristine == raw
    assert reason in found.reason
    with pytest.raises(ValueError, match=r"patch: sglang/srt/m\.py is drifted"):
        engine.apply(codemod, PATH, raw)
    return found


AFTER, BEFORE = Insert("_p.attach(1)"), Insert("_p.attach(1)", before=True)

IMPORT = import_line("from a import b as _p")

TWO = made(
    IMPORT, Site("f", "call", "g(a)", Wrap("_p.q")), Site("h", "line", "g()", AFTER)
)  # fmt: skip
TWO_BEFORE = b"import c\n\ndef f():\n    return g(a)\n\ndef h():\n    g()\n"
TWO_AFTER = (
    b"import c\nfrom a import b as _p\n\ndef f():\n    return _p.q(g(a))\n\ndef h():\n    g()\n"
    b"    _p.attach(1)\n"
)
