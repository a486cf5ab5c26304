"""Data flow inside a definition: every assignment that can reach a use, and no other."""

from __future__ import annotations

import libcst as cst
import pytest

from rewriter import flow
from rewriter.definition import Definition
from rewriter.source import Source
from rewriter.uses import is_read, only_looked_at, uses

# The use is the name `x` in `use(x)`; expected is what can reach it, nearest first, as code; a
# name that stands for the function or for nothing bound here is `free`.
REACHING = {
    "assignment": ("x = 1\nuse(x)", ["1"]),
    "the last of two": ("x = 1\nx = 2\nuse(x)", ["2"]),
    "an assignment behind": ("x = 1\nuse(x)\nx = 2", ["1"]),
    "annotated": ("x: int = 1\nuse(x)", ["1"]),
    "a bare annotation": ("x = 1\nx: int\nuse(x)", ["1"]),
    "chained": ("x = y = 1\nuse(x)", ["1"]),
    "semicolons": ("x = 1; x = 2; use(x); x = 3", ["2"]),
    "another name": ("y = 1\nuse(x)", ["free"]),
    "an attribute": ("x = 1\nself.x = 2\nuse(x)", ["1"]),
    "an element": ("x = 1\nx[0] = 2\nx.y = 3\nuse(x)", ["1"]),
    "tuple": ("y, x = 1, 2\nuse(x)", ["2"]),
    "nested tuple": ("(y, (x, z)) = 1, (2, 3)\nuse(x)", ["2"]),
    "tuple of a call": ("y, x = f()\nuse(x)", ["element 1 of f()"]),
    "starred": ("*x, y = f()\nuse(x)", ["opaque"]),
    "starred beside": ("y, *x = 1, 2, 3\nuse(x)", ["opaque"]),
    "augmented": ("x = 1\nx += 2\nuse(x)", ["opaque"]),
    "parameter": ("use(p)", ["parameter"]),
    "parameter bound again": ("p = 2\nuse(p)", ["2"]),
    "keyword parameter": ("use(k)", ["parameter"]),
    "star parameter": ("use(rest)", ["parameter"]),
    "if": ("x = 1\nif c:\n    x = 2\nuse(x)", ["2", "1"]),
    "if, else": ("x = 0\nif c:\n    x = 1\nelse:\n    x = 2\nuse(x)", ["1", "2"]),
    "if, elif": (
        "x = 0\nif c:\n    x = 1\nelif d:\n    x = 2\nuse(x)",
        ["1", "2", "0"],
    ),
    "if, elif, else": (
        "x = 0\nif c:\n    x = 1\nelif d:\n    x = 2\nelse:\n    x = 3\nuse(x)",
        ["1", "2", "3"],
    ),
    "in the branch": ("x = 0\nif c:\n    x = 1\n    use(x)\nelse:\n    x = 2", ["1"]),
    "in the other branch": ("x = 0\nif c:\n    x = 1\nelse:\n    use(x)", ["0"]),
    "a branch that returns": ("x = 1\nif c:\n    x = 2\n    return\nuse(x)", ["1"]),
    "a branch that raises": ("x = 1\nif c:\n    x = 2\n    raise E\nuse(x)", ["1"]),
    "one-line suite": ("x = 1\nif c: x = 2\nuse(x)", ["2", "1"]),
    "for": ("x = 1\nfor y in z:\n    x = 2\nuse(x)", ["2", "1"]),
    "for target": ("x = 1\nfor x in z:\n    use(x)", ["opaque"]),
    "for target after": ("x = 1\nfor x in z:\n    pass\nuse(x)", ["opaque", "1"]),
    "for tuple target": ("for y, (w, x) in z:\n    use(x)", ["opaque"]),
    "for iterable": ("x = 1\nfor x in use(x):\n    pass", ["1"]),
    "next turn": ("x = 1\nfor y in z:\n    use(x)\n    x = 2", ["2", "1"]),
    "next turn, in a branch": (
        "x = 1\nwhile c:\n    if y:\n        use(x)\n    else:\n        x = 2",
        ["2", "1"],
    ),
    "left by a break": (
        "x = 1\nfor y in z:\n    if y:\n        x = 2\n        break\nuse(x)",
        ["2", "1"],
    ),
    "turned by a continue": (
        "x = 0\nfor y in z:\n    use(x)\n    if y:\n        x = 1\n        continue\n    x = 2",
        ["1", "2", "0"],
    ),
    "bound in the turn": ("x = 1\nfor y in z:\n    x = 2\n    use(x)", ["2"]),
    "while, else": ("x = 1\nwhile c:\n    x = 2\nelse:\n    use(x)", ["2", "1"]),
    "with": ("x = 1\nwith c:\n    x = 2\nuse(x)", ["2"]),
    "with as": ("x = 1\nwith c as x:\n    use(x)", ["opaque"]),
    "with as, after": ("x = 1\nwith c as (y, x):\n    pass\nuse(x)", ["opaque"]),
    "with header": ("x = 1\nwith use(x) as x:\n    pass", ["1"]),
    "try": ("x = 1\ntry:\n    x = 2\nexcept E:\n    pass\nuse(x)", ["2", "1"]),
    "try, finally": ("x = 1\ntry:\n    x = 2\nfinally:\n    y = 3\nuse(x)", ["2"]),
    "bound in finally": ("try:\n    x = 2\nfinally:\n    x = 3\nuse(x)", ["3"]),
    "perhaps bound in finally": (
        "try:\n    x = 2\nfinally:\n    if c:\n        x = 3\nuse(x)",
        ["3", "2"],
    ),
    "a handler that raises": ("try:\n    x = 2\nexcept E:\n    raise F\nuse(x)", ["2"]),
    "a handler that binds": ("try:\n    x = 2\nexcept E:\n    x = 3\nuse(x)", ["3", "2"]),
    "one of two handlers": (
        "try:\n    x = 2\nexcept E:\n    raise F\nexcept G:\n    y = 3\nuse(x)",
        ["2", "free"],
    ),
    "bound behind the body": (
        "try:\n    y = 1\nexcept E:\n    raise F\nelse:\n    x = 2\nuse(x)",
        ["2"],
    ),
    "a handler's own name": (
        "x = 1\ntry:\n    x = 2\nexcept E as x:\n    pass\nuse(x)",
        ["2", "opaque", "1"],
    ),
    "suppressed": ("x = 1\nwith suppress(E):\n    x = 2\nuse(x)", ["2", "1"]),
    "suppressed by attribute": (
        "x = 1\nwith contextlib.suppress(E):\n    x = 2\nuse(x)",
        ["2", "1"],
    ),
    "try, killed inside": (
        "x = 0\ntry:\n    x = 1\n    x = 2\nexcept E:\n    pass\nuse(x)",
        ["1", "2", "0"],
    ),
    "in a handler": ("x = 0\ntry:\n    x = 1\nexcept E:\n    use(x)", ["1", "0"]),
    "in finally": (
        "x = 0\ntry:\n    x = 1\nexcept E:\n    x = 2\nfinally:\n    use(x)",
        ["1", "2", "0"],
    ),
    "in try": ("x = 0\ntry:\n    use(x)\nexcept E:\n    x = 2", ["0"]),
    "except as": ("try:\n    pass\nexcept E as x:\n    use(x)", ["opaque", "free"]),
    "match capture": ("match c:\n    case [x, 1]:\n        use(x)", ["opaque", "free"]),
    "match as": ("x = 1\nmatch c:\n    case A() as x:\n        pass\nuse(x)", ["opaque", "1"]),
    "match rest": ("match c:\n    case {'a': 1, **x}:\n        use(x)", ["opaque", "free"]),
    "match star": ("match c:\n    case [1, *x]:\n        use(x)", ["opaque", "free"]),
    "match body": ("x = 1\nmatch c:\n    case 1:\n        x = 2\nuse(x)", ["2", "1"]),
    "walrus before": ("y = (x := 1)\nuse(x)", ["1"]),
    "walrus in a test": ("if (x := 1):\n    use(x)", ["1"]),
    "walrus in a test, after": ("if (x := 1):\n    pass\nuse(x)", ["1"]),
    "walrus that may not run": ("x = 0\nif c and (x := 1):\n    use(x)", ["1", "0"]),
    "walrus in an elif": ("x = 0\nif c:\n    pass\nelif (x := 1):\n    use(x)", ["1"]),
    "walrus beside": ("x = 0\ny = [(x := 1), use(x)]", ["1", "0"]),
    "walrus in itself": ("x = 0\n(x := use(x))", ["0"]),
    "walrus in while": ("x = 0\nwhile (x := f()):\n    use(x)", ["f()", "0"]),
    "walrus in a comprehension": ("x = 0\ny = [(x := z) for z in w]\nuse(x)", ["z", "0"]),
    "comprehension": ("x = 0\ny = [use(x) for x in z]", ["opaque", "0"]),
    "comprehension, beside": ("x = 0\ny = [w for w in use(x)]", ["0"]),
    "comprehension, after": ("x = 0\ny = [x for x in z]\nuse(x)", ["0"]),
    "lambda parameter": ("x = 0\ny = lambda x: use(x)", ["parameter"]),
    "lambda": ("x = 0\ny = lambda: use(x)\nx = 1", ["free"]),
    "nested function": ("x = 0\ndef g():\n    return use(x)", ["free"]),
    "nested function's own": ("x = 0\ndef g(x):\n    return use(x)", ["parameter"]),
    "nested function's default": ("x = 0\ndef g(y=use(x)):\n    pass", ["0"]),
    "function of the name": ("x = 0\ndef x():\n    pass\nuse(x)", ["opaque"]),
    "class of the name": ("x = 0\nclass x:\n    pass\nuse(x)", ["opaque"]),
    "nonlocal in a function": (
        "x = 0\ndef g():\n    nonlocal x\n    x = 1\nuse(x)",
        ["opaque", "0"],
    ),
    "inner assignment": ("x = 0\ndef g():\n    x = 1\nuse(x)", ["0"]),
    "global": ("global x\nuse(x)", ["opaque", "free"]),
    "import": ("import x\nuse(x)", ["opaque"]),
    "import as": ("from y import z as x\nuse(x)", ["opaque"]),
    "deleted": ("x = 0\ndel x\nuse(x)", ["opaque"]),
}


def parsed(body: str) -> tuple[Definition, cst.Name]:
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    text = f"def f(self, p, *rest, k=None):\n{lines}"
    definition = Source("m.py", text.encode()).definitions("f")[0]
    call = next(
        n for n in definition.nodes
        if isinstance(n, cst.Call) and isinstance(n.func, cst.Name) and n.func.value == "use"
    )  # fmt: skip
    name = call.args[0].value
    assert isinstance(name, cst.Name)
    return definition, name


def told(definition: Definition, origin: flow.Origin) -> str:
    if origin.what == "value":
        return definition.code(origin.node)
    if origin.what == "element":
        return f"element {origin.index} of {definition.code(origin.node)}"
    return origin.what


@pytest.mark.parametrize("name", REACHING)
def test_what_reaches_a_use(name: str) -> None:
    body, expected = REACHING[name]
    definition, use = parsed(body)
    assert [told(definition, o) for o in flow.origins(definition, use)] == expected


TRACED = {
    "through names": ("a = pool.get()\nb = a\nx = b\nuse(x)", ["pool.get()"]),
    "through slices": ("x = pool.get()[:, 1:][0]\nuse(x)", ["pool.get()"]),
    "through reshapes": ("x = pool.get().view(-1).reshape(2).contiguous()\nuse(x)", ["pool.get()"]),
    "through squeezes": ("x = a.unsqueeze(1).squeeze().flatten()\nuse(x)", ["a"]),
    "through a conditional": ("x = f() if c else g()\nuse(x)", ["f()", "g()"]),
    "through a walrus": ("y = (x := f())\nz = x\nuse(x)", ["f()"]),
    "through itself": ("x = f()\nx = x.view(1)\nuse(x)", ["f()"]),
    "through a loop": ("x = f()\nfor y in z:\n    x = x.view(1)\nuse(x)", ["f()"]),
    "to both branches": (
        "if c:\n    x = f().view(1)\nelse:\n    x = g()[0]\nuse(x)",
        ["f()", "g()"],
    ),
    "not through other calls": ("x = f(pool.get())\nuse(x)", ["f(pool.get())"]),
    "not through a cast": ("x = pool.get().to(d)\nuse(x)", ["pool.get().to(d)"]),
    "not through operators": ("x = pool.get() * 2\nuse(x)", ["pool.get() * 2"]),
    "not through attributes": ("x = pool.get().T\nuse(x)", ["pool.get().T"]),
    "not through or": ("x = a or b\nuse(x)", ["a or b"]),
    "a parameter": ("x = p[0]\nuse(x)", ["parameter"]),
    "a free name": ("x = y\nuse(x)", ["y"]),
    "one of several targets": ("x, y = f()\nuse(x)", ["element 0 of f()"]),
    "in a nested function": ("x = pool.get()\ndef g():\n    use(x)", ["pool.get()"]),
    "in a nested function, bound twice around": (
        "x = f()\ndef g():\n    use(x)\nx = pool.get()",
        ["f()", "pool.get()"],
    ),
    "in a lambda": ("x = pool.get()\ny = lambda: use(x)", ["pool.get()"]),
    "both targets of one call": (
        "if c:\n    x, y = f()\nelse:\n    y, x = f()\nuse(x)",
        ["element 0 of f()", "element 1 of f()"],
    ),
}


@pytest.mark.parametrize("name", TRACED)
def test_where_elements_come_from(name: str) -> None:
    body, expected = TRACED[name]
    definition, use = parsed(body)
    assert [told(definition, o) for o in flow.trace(definition, use)] == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("pages(pool.get(), 4)", "pool.get()"),
        ("self.pages(pool.get(), 4)[0]", "pool.get()"),
        ("others(pool.get(), 4)", "others(pool.get(), 4)"),
        ("pages(size=4, rows=pool.get())", "pages(size=4, rows=pool.get())"),
        ("pages(*pool.get())", "pages(*pool.get())"),
        ("pages()", "pages()"),
    ],
)
def test_functions_that_are_looked_through(code: str, expected: str) -> None:
    definition, use = parsed(f"x = {code}\nuse(x)")
    assert [told(definition, o) for o in flow.trace(definition, use, ["pages"])] == [expected]
    found = [n for n in definition.nodes if flow.method(n) == "get"]
    taken = [definition.code(node) for node in found for node in uses(definition, node, ["pages"])]
    assert taken == ([] if not found else ["x"] if expected == "pool.get()" else taken[:1])
    assert ("x" in taken) is (expected == "pool.get()")


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        ("x is None", True), ("x is not y", True), ("x == y", False), ("x is None < y", False),
        ("x.dtype", True), ("x.shape[-1]", True), ("x.shape[0]", False), ("x.shape", False),
        ("x.shape[-1, 1]", False), ("x.shape[-1:]", False), ("x.device", False),
        ("y[x.shape]", False), ("f(x)", False), ("x[0].dtype", True), ("x.view(-1).dtype", True),
    ],
)  # fmt: skip
def test_a_look_at_a_value(code: str, seen: bool) -> None:
    definition = Source("m.py", f"def f(x):\n    return {code}\n".encode()).definitions("f")[0]
    name = next(n for n in definition.nodes if is_read(definition, n) and named(n, "x"))
    (taken,) = uses(definition, name)
    assert only_looked_at(definition, taken, ("dtype", "shape[-1]")) is seen


def named(node: cst.CSTNode, name: str) -> bool:
    return isinstance(node, cst.Name) and node.value == name


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("a", "a"), ("a.b.c", "a.b.c"), ("(a).b", "a.b"), ("(\n    a  # one\n    .b\n)", "a.b"),
        ("a . b", "a.b"), ("a().b", None), ("a[0].b", None), ("1", None),
    ],
)  # fmt: skip
def test_a_plain_name_however_it_is_laid_out(code: str, name: str | None) -> None:
    assert flow.plain_name(cst.parse_expression(code)) == name


# What takes the value of `pool.get()` in the end; expected as code, with the node's kind.
TAKEN = {
    "an argument": ("run(q, pool.get())", ["Arg pool.get()"]),
    "a keyword argument": ("run(k=pool.get())", ["Arg k=pool.get()"]),
    "through a name": ("x = pool.get()\nrun(x)", ["Arg x"]),
    "through names and slices": (
        "x = pool.get().view(1)\ny = x[0]\nrun(y[:, 1:])",
        ["Arg y[:, 1:]"],
    ),
    "twice": ("x = pool.get()\nrun(x[0], x[1])", ["Arg x[0]", "Arg x[1]"]),
    "another call as well": ("x = pool.get()\nlog(x)\nrun(x)", ["Arg x", "Arg x"]),
    "an attribute": ("x = pool.get()\nrun(x.shape)", ["Attribute x.shape"]),
    "another method": ("x = pool.get()\nx.to(d)", ["Attribute x.to"]),
    "stored": ("x = pool.get()\nself.x = x", ["Assign self.x = x"]),
    "returned": ("x = pool.get()\nreturn x", ["Return return x"]),
    "compared": (
        "if (x := pool.get()) is None:\n    run(x)",
        ["Comparison (x := pool.get()) is None", "Arg x"],
    ),
    "chosen": ("x = pool.get() if c else y\nrun(x)", ["Arg x"]),
    "as a test": ("x = 1 if pool.get() else y\nrun(x)", ["IfExp 1 if pool.get() else y"]),
    "an index": ("y[pool.get()]", ["Index pool.get()"]),
    "bound again": ("x = pool.get()\nx = 1\nrun(x)", []),
    "in a branch": ("if c:\n    x = pool.get()\nelse:\n    x = z\nrun(x)", ["Arg x"]),
    "in itself": ("x = pool.get()\nx = x.view(1)\nrun(x)", ["Arg x"]),
    "a tuple": ("x, y, *z = pool.get(), 1\nrun(x)", ["Element pool.get(),"]),
    "alone": ("pool.get()", ["Expr pool.get()"]),
    "in a nested function": (
        "x = pool.get()\ndef g(y):\n    return run(x[0], y)\nother(g)",
        ["Arg x[0]"],
    ),
    "in a nested function, bound behind it": (
        "def g(y):\n    return run(x, y)\nx = 1\nx = pool.get()\nother(g)",
        ["Arg x"],
    ),
    "two functions deep": (
        "x = pool.get()\ndef g():\n    return lambda y: run(x, y)\nother(g)",
        ["Arg x"],
    ),
    "a pair": ("x, y = pool.get(), 1\nrun(x)\nother(y)", ["Arg x"]),
    "a pair of parts": ("k = pool.get()\nx, y = k[0], k[1]\nrun(x, y)", ["Arg x", "Arg y"]),
    "a starred pair": ("x, *y = pool.get(), 1\nrun(x)", ["Element pool.get()"]),
    "an element of a list": ("x = [pool.get()]\nrun(x)", ["Element pool.get()"]),
    "a tuple of one name": ("x = pool.get(), 1\nrun(x)", ["Element pool.get()"]),
    "declared global": ("global x\nx = pool.get()", ["Global global x"]),
    "declared nonlocal": (
        "def g():\n    nonlocal y\n    y = pool.get()\n    run(y)",
        ["Nonlocal nonlocal y", "Arg y"],
    ),
    "in a lambda": ("x = pool.get()\nother(lambda y: run(x, y))", ["Arg x"]),
    "a nested function's own": ("x = pool.get()\ndef g(x):\n    return run(x)\nother(g)", []),
    "bound in a nested function": (
        "x = pool.get()\ndef g():\n    x = 1\n    return run(x)\nother(g)",
        [],
    ),
    "bound in the function between": (
        "x = pool.get()\ndef g(x):\n    def h():\n        return run(x)\n    return h",
        [],
    ),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_takes_a_value_in_the_end(name: str) -> None:
    body, expected = TAKEN[name]
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    definition = Source("m.py", f"def f(self):\n{lines}".encode()).definitions("f")[0]
    value = next(n for n in definition.nodes if flow.method(n) == "get")
    taken = [
        f"{type(node).__name__} {cst.Module([]).code_for_node(node).strip()}"
        for node in uses(definition, value)
    ]
    assert sorted(t.rstrip(",") for t in taken) == sorted(e.rstrip(",") for e in expected)


def call(code: str) -> cst.Call:
    expression = cst.parse_expression(code)
    assert isinstance(expression, cst.Call)
    return expression


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("f(1, 2, 3)", "3"),
        ("f(1, 2, c=3)", "3"),
        ("f(c=3)", "3"),
        ("f(1, *a, c=3)", "3"),
        ("f(1, 2, 3, *a)", "3"),
        ("f(1, 2)", None),
        ("f(1, *a, 3)", None),
        ("f(1, b=2)", None),
        ("f(1, b=2, **c)", None),
        ("f()", None),
    ],
)
def test_an_argument_by_keyword_or_position(code: str, value: str | None) -> None:
    arg = flow.argument(call(code), "c", 2)
    assert (arg and cst.Module([]).code_for_node(arg.value)) == value


@pytest.mark.parametrize(
    ("code", "name"), [("a.b(1)", "b"), ("a().b.c()", "c"), ("a(1)", None), ("a[0](1)", None)]
)
def test_the_method_that_is_called(code: str, name: str | None) -> None:
    assert flow.method(call(code)) == name
    assert flow.method(call(code).func) is None
