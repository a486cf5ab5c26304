"""Code that is written a second time: it means the same there, or it is refused."""

from __future__ import annotations

import libcst as cst
import pytest

from rewriter.codemod import Drift
from rewriter.definition import Definition
from rewriter.flow import called
from rewriter.repeated import repeated
from rewriter.source import Source

# `here()` is the place, and what `use(…)` is given is what is asked for there.
SAME = {
    "a parameter": "here()\nuse(p)",
    "bound in front": "x = p\nhere()\nuse(x)",
    "bound in both arms": "if p:\n    x = 1\nelse:\n    x = p\nhere()\nuse(x)",
    "one of several": "x, y = f()\nhere()\nuse(x)",
    "dotted": "here()\nuse(p.a.b)",
    "of torch": "here()\nuse(torch.float)",
    "in a loop, bound in front": "x = p\nfor _ in q:\n    here()\n    use(x)",
    "another is bound behind": "x = p\nhere()\ny = 1\nuse(x)",
    "another attribute is stored": "here()\np.c = 1\nuse(p.a)",
    "changed in front": "x = p.a\nx[0] = 1\nx.add_(1)\nf(x)\nhere()\nuse(x)",
    "looked at behind": "x = p.a\nhere()\nassert x is not None and x.shape[0] > 1\nuse(x)",
    "used twice": "x = p.a\nhere()\nuse(x)\nuse(x[0])",
}

OTHER = {
    "a call": ("here()\nuse(f())", "is no plain name"),
    "an element": ("here()\nuse(p[0])", "is no plain name"),
    "not bound": ("here()\nuse(x)", "comes from cannot be told"),
    "of a loop": ("for x in p:\n    pass\nhere()\nuse(x)", "comes from cannot be told"),
    "of a with": ("with p as x:\n    here()\n    use(x)", "comes from cannot be told"),
    "in a function inside": ("here()\ndef g():\n    use(p)", "comes from cannot be told"),
    "bound behind": ("x = p\nhere()\nx = 1\nuse(x)", "is bound behind the place"),
    "bound behind at times": ("x = p\nhere()\nif p:\n    x = 1\nuse(x)", "is bound behind"),
    "bound behind alone": ("here()\nx = p\nuse(x)", "is bound behind"),
    "its owner is bound behind": ("x = p\nhere()\nx = 1\nuse(x.a)", "is bound behind"),
    "another in the next turn": (
        "x = p\nfor y in p:\n    here()\n    if y:\n        x = y\n    use(x)", "is bound behind",
    ),
    "another in the next turn of a loop around": (
        "x = p\nwhile p:\n    for y in p:\n        here()\n    use(x)\n    x = 1",
        "is bound behind",
    ),
    "stored": ("here()\np.a = 1\nuse(p.a.b)", "is changed in the method"),
    "stored in front": ("p.a = 1\nhere()\nuse(p.a)", "is changed in the method"),
    "stored as one of two": ("here()\np.a, y = 1, 2\nuse(p.a)", "is changed in the method"),
    "stored by a loop": ("here()\nfor p.a in q:\n    use(p.a)", "is changed in the method"),
    "stored by a with": ("here()\nwith q as p.a:\n    use(p.a)", "is changed in the method"),
    "stored by another name": ("y = p\nhere()\ny.a = 1\nuse(p.a)", "is changed in the method"),
    "stored by its name": ("here()\nsetattr(p, 'a', 1)\nuse(p.a)", "is changed in the method"),
    "added to": ("here()\np.a += 1\nuse(p.a)", "is changed in the method"),
    "deleted": ("here()\ndel p.a\nuse(p.a)", "comes from cannot be told"),
    "an element is stored": ("x = p\nhere()\nx[0] = 1\nuse(x)", "may be changed"),
    "an element is added to": ("x = p\nhere()\nx[0] += 1\nuse(x)", "may be changed"),
    "an element's element": ("x = p\nhere()\nx[0][1] = 1\nuse(x)", "may be changed"),
    "an element of a view": ("x = p\nhere()\nx.view(1)[0] = 1\nuse(x)", "may be changed"),
    "a method": ("x = p\nhere()\nx.add_(1)\nuse(x)", "may be changed"),
    "handed on": ("x = p\nhere()\nf(x)\nuse(x)", "may be changed"),
    "an output": ("x = p\nhere()\nf(out=x)\nuse(x)", "may be changed"),
    "by another name": ("x = p\ny = x\nhere()\ny[0] = 1\nuse(x)", "may be changed"),
    "by what it came from": ("x = p.a\nhere()\nq.a[0] = 1\nuse(x)", "may be changed"),
    "in a function in front": (
        "x = p\ndef g():\n    x[0] = 1\nhere()\ng()\nuse(x)", "may be changed",
    ),
    "in an earlier line of a loop": (
        "x = p\nfor y in p:\n    x[0] = y\n    here()\n    use(x)", "may be changed",
    ),
    "kept in a list": ("x = p\ny = [x]\nhere()\nuse(x)", "may be changed"),
    "kept in a dictionary": ("x = p\ny = {1: x}\nhere()\nuse(x)", "may be changed"),
    "kept in an attribute": ("x = p\nq.x = x\nhere()\nuse(x)", "may be changed"),
}  # fmt: skip


def asked(body: str) -> str:
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    (definition,) = Source("m.py", f"def f(p, q):\n{lines}".encode()).definitions("f")
    calls = [node for node in definition.nodes if called(node) == "use"]
    return repeated(definition, given(calls[0]), place(definition), "what is used", calls)


def given(call: cst.CSTNode) -> cst.BaseExpression:
    assert isinstance(call, cst.Call)
    return call.args[0].value


def place(definition: Definition) -> cst.CSTNode:
    return next(node for node in definition.nodes if called(node) == "here")


@pytest.mark.parametrize("name", SAME)
def test_what_means_the_same(name: str) -> None:
    assert f"use({asked(SAME[name])})" in SAME[name]


@pytest.mark.parametrize("name", OTHER)
def test_what_may_be_another_thing(name: str) -> None:
    body, reason = OTHER[name]
    with pytest.raises(Drift, match=reason) as caught:
        asked(body)
    assert str(caught.value).startswith(("what is used", "where what is used"))
    assert caught.value.node is not None


def test_what_nobody_can_change_may_be_handed_on() -> None:
    body = b"def f(p):\n    here()\n    g(p)\n    use(p)\n"
    (definition,) = Source("m.py", body).definitions("f")
    use = next(node for node in definition.nodes if called(node) == "use")
    assert repeated(definition, given(use), place(definition), "it") == "p"
    with pytest.raises(Drift, match="may be changed"):
        repeated(definition, given(use), place(definition), "it", [use])
