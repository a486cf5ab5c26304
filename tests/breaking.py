"""Ways to break the places of a codemod in a real source: each must be refused.

A way is a name and a function from a ``Spot``, one place as found in one file, to the broken text.
The text always parses: what is broken is what it means.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable
from functools import cached_property

from rewriter.definition import FIELDS
from rewriter.model import SiteResult, State
from rewriter.source import Source


class Spot:
    """One place of a codemod in one file, with what is needed to break it.

    Attributes:
        text: the file.
        definition: the qualified name of the definition that the place is in.
        line: where the place begins.
    """

    def __init__(self, path: str, raw: bytes, site: SiteResult) -> None:
        self.source = Source(path, raw)
        self.text = self.source.text
        self.definition = site.definition.removesuffix(FIELDS)
        self.line = site.line or 0

    @property
    def name(self) -> str:
        """The definition's own name."""
        return self.definition.rpartition(".")[2]

    @property
    def owner(self) -> str:
        """The class around the definition."""
        return self.definition.rpartition(".")[0]

    @cached_property
    def node(self) -> ast.stmt:
        """The definition."""
        return self.source.nodes[self.definition][0]

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Return a node's offsets."""
        at = self.source.offset
        return (
            at(node.lineno, node.col_offset),  # type: ignore[attr-defined]
            at(node.end_lineno, node.end_col_offset),  # type: ignore[attr-defined]
        )

    def code(self, node: ast.AST) -> str:
        """Return a node's text."""
        return self.text[slice(*self.span(node))]

    def replaced(self, node: ast.AST, code: str) -> str:
        """Return the file with other code in a node's place."""
        start, end = self.span(node)
        return self.text[:start] + code + self.text[end:]

    def call(self, attribute: str) -> ast.Call:
        """Return the call of a method, or of a function, that begins at the place's line."""
        for node in ast.walk(self.node):
            if isinstance(node, ast.Call) and node.lineno == self.line:
                func = node.func
                if attribute in (getattr(func, "attr", None), getattr(func, "id", None)):
                    return node
        raise AssertionError(f"no call of {attribute} at line {self.line} of {self.definition}")

    def call_of(self, *names: str) -> ast.Call:
        """Return the first call of one of some methods or functions in the definition."""
        for node in ast.walk(self.node):
            if isinstance(node, ast.Call):
                func = node.func
                if {getattr(func, "attr", None), getattr(func, "id", None)} & set(names):
                    return node
        raise AssertionError(f"no call of {names} in {self.definition}")

    def around(self, node: ast.AST) -> ast.stmt:
        """Return the simple statement that holds a node."""
        start, end = self.span(node)
        found = [
            s for s in ast.walk(self.node)
            if isinstance(s, ast.stmt) and not hasattr(s, "body")
            and self.span(s)[0] <= start and end <= self.span(s)[1]
        ]  # fmt: skip
        return found[-1]

    def before(self, statement: ast.stmt, code: str) -> str:
        """Return the file with lines in front of a statement."""
        return self._beside(self.source.line_start(statement.lineno), statement, code)

    def after(self, statement: ast.stmt, code: str) -> str:
        """Return the file with lines behind a statement."""
        return self._beside(
            self.source.line_start((statement.end_lineno or statement.lineno) + 1), statement, code
        )

    def _beside(self, at: int, statement: ast.stmt, code: str) -> str:
        lines = textwrap.indent(code, " " * statement.col_offset) + "\n"
        return self.text[:at] + lines + self.text[at:]

    def instead(self, statement: ast.stmt, code: str) -> str:
        """Return the file with other lines in a statement's place; ``{}`` is the statement."""
        start = self.source.line_start(statement.lineno)
        end = self.source.line_start((statement.end_lineno or statement.lineno) + 1)
        old = textwrap.dedent(" " * statement.col_offset + self.code(statement))
        indent = code[: code.index("{}")].rpartition("\n")[2] if "{}" in code else ""
        lines = code.replace(
            indent + "{}", textwrap.indent(old, indent if not indent.strip() else "")
        )
        lines = lines.replace("{}", old)
        return (
            self.text[:start]
            + textwrap.indent(lines, " " * statement.col_offset)
            + "\n"
            + (self.text[end:])
        )

    def in_definition(self, old: str, new: str) -> str:
        """Return the file with a text replaced everywhere in the definition."""
        start = self.source.line_start(self.node.lineno)
        end = self.source.line_start((self.node.end_lineno or 0) + 1)
        body = self.text[start:end]
        assert old in body, f"{self.definition} has no {old!r}"
        return self.text[:start] + body.replace(old, new) + self.text[end:]

    def at_end_of_class(self, code: str) -> str:
        """Return the file with lines at the end of the class around the definition."""
        (owner,) = self.source.nodes[self.owner]
        at = self.source.line_start((owner.end_lineno or 0) + 1)
        return self.text[:at] + "\n" + textwrap.indent(code, "    ") + "\n" + self.text[at:]

    def with_parameter(self, name: str) -> str:
        """Return the file with one more parameter behind ``self``."""
        on_lines = "(\n        self," in self.code(self.node)
        old = "(\n        self," if on_lines else "(self, "
        return self.in_definition(old, f"{old}\n        {name}," if on_lines else f"{old}{name}, ")

    def at_end_of_itself(self, code: str) -> str:
        """Return the file with lines at the end of the definition, which is a class."""
        at = self.source.line_start((self.node.end_lineno or 0) + 1)
        return self.text[:at] + "\n" + textwrap.indent(code, "    ") + "\n" + self.text[at:]

    def at_end(self, code: str) -> str:
        """Return the file with lines at its end."""
        return self.text.rstrip("\n") + f"\n\n\n{code}\n"


Way = Callable[[Spot], str]

_OTHER = "def other(*arguments, **named):\n    return None"

DEFINITION: dict[str, Way] = {
    "the method renamed": lambda s: s.in_definition(f"def {s.name}(", f"def {s.name}_rows("),
    "the method defined twice": lambda s: s.at_end_of_class(
        f"def {s.name}(self, *arguments, **named):\n    return None"),
    "bound again in the class": lambda s: s.at_end_of_class(f"{_OTHER}\n\n{s.name} = other"),
    "deleted in the class": lambda s: s.at_end_of_class(f"kept = {s.name}\ndel {s.name}"),
    "imported over it": lambda s: s.at_end_of_class(f"from elsewhere import {s.name}"),
    "replaced from outside": lambda s: s.at_end(f"{_OTHER}\n\n\n{s.owner}.{s.name} = other"),
    "replaced by setattr": lambda s: s.at_end(f'setattr({s.owner}, "{s.name}", print)'),
    "replaced on the object": lambda s: s.at_end_of_class(
        f"def use(self):\n    self.{s.name} = self.other"),
    "the class renamed": lambda s: s.text.replace(f"class {s.owner}", f"class {s.owner}Old"),
    "the class defined again": lambda s: s.at_end(f"class {s.owner}:\n    pass"),
    "the class replaced": lambda s: s.at_end(f"from elsewhere import Other as {s.owner}"),
}  # fmt: skip
"""What can become of any definition."""

OUR_NAME: dict[str, Way] = {
    "a local of our name": lambda s: s.before(s.node.body[0], "_kv_gather = None"),  # type: ignore[attr-defined]
    "a parameter of our name": lambda s: s.with_parameter("_kv_gather"),
}  # fmt: skip


def _cast(change: str) -> Way:
    """Return the way that puts other code in a cast's place."""

    def way(spot: Spot) -> str:
        call = spot.call("to")
        assert isinstance(call.func, ast.Attribute)
        code = change.replace("{call}", spot.code(call))
        code = code.replace("{pool}", spot.code(call.func.value))
        code = code.replace("{dtype}", spot.code(call.args[0]))
        return spot.replaced(call, code)

    return way


def _keys(spot: Spot) -> tuple[ast.stmt, str]:
    """Return the statement of a cast, and the name that it is bound to."""
    statement = spot.around(spot.call("to"))
    assert isinstance(statement, ast.Assign)
    return statement, spot.code(statement.targets[0])


def _behind_cast(code: str) -> Way:
    def way(spot: Spot) -> str:
        statement, name = _keys(spot)
        call = spot.code(spot.call("to"))
        return spot.after(statement, code.replace("{keys}", name).replace("{call}", call))

    return way


def _nested_cast(spot: Spot) -> str:
    statement, name = _keys(spot)
    call = spot.code(spot.call("to"))
    return spot.instead(statement, f"def keys():\n    return ({call})\n\n{name} = keys()")


def _caught_cast(spot: Spot) -> str:
    statement, name = _keys(spot)
    return spot.instead(statement, f"{name} = None\ntry:\n    {{}}\nexcept RuntimeError:\n    pass")


CAST: dict[str, Way] = {
    "a helper": _cast("keys_of({pool}, {dtype})"),
    "bfloat16()": _cast("{pool}.bfloat16()"),
    "type()": _cast("{pool}.type({dtype})"),
    "a copy asked for": _cast("{pool}.to({dtype}, copy=True)"),
    "like a tensor": _cast("{pool}.to(q)"),
    "a dtype of a call": _cast("{pool}.to(self.dtype_of(q))"),
    "a cast behind it": _cast("{call}.to(torch.float32)"),
    "a cast in front": _cast("{pool}.to(torch.float32).to({dtype})"),
    "as a function": _cast("torch.Tensor.to({pool}, {dtype})"),
    "rows of the pool": _cast("{pool}[self.rows].to({dtype})"),
    "a part of the width": _cast("{pool}[..., :512].to({dtype})"),
    "another shape": _cast("{pool}.flatten().to({dtype})"),
    "scaled": _cast("({call} * self.k_scale)"),
    "gathered by another patch": _cast("gather_rows({pool}, self.rows)"),
    "the method by its name": _cast(
        'getattr(self.token_to_kv_pool, "get_key_buffer")(layer.layer_id).to({dtype})'),
    "the pool's own list": _cast("self.token_to_kv_pool.kv_buffer[layer.layer_id].to({dtype})"),
    "another accessor": _cast("self.token_to_kv_pool.get_value_buffer(layer.layer_id).to({dtype})"),
    "a comprehension": _cast("[pool.to({dtype}) for pool in ({pool},)][0]"),
    "a lambda": _cast("(lambda pool: pool.to({dtype}))({pool})"),
    "as it is, sometimes": _cast("({pool} if layer.layer_id else {call})"),
    "a nested function": _nested_cast,
    "an error passed over": _caught_cast,
    "converted again": _behind_cast("self.seen = ({call}).sum()"),
    "kept": _behind_cast("self.keys = {keys}"),
    "kept in a global": _behind_cast("global seen\nseen = {keys}"),
    "given to another function": _behind_cast("other_kernel(q, {keys}, self.rows)"),
    "read by a function inside": _behind_cast(
        "def told():\n    return other(q, {keys})\nself.told = told"),
    "counted": _behind_cast("self.rows_seen = {keys}.shape[0]"),
    "changed in place": _behind_cast("{keys}.mul_(2)"),
    "stored into": _behind_cast("{keys}[0] = 0"),
    "bound again in a loop": _behind_cast("for part in self.parts:\n    {keys} = part"),
    "added to": _behind_cast("{keys} += 0"),
}  # fmt: skip


def _run(change: Callable[[str, list[str]], tuple[str, str]]) -> Way:
    """Return the way that puts other code in the place of ``wrapper.run(…)``, and lines before."""

    def way(spot: Spot) -> str:
        run = spot.call_of("run")
        assert isinstance(run.func, ast.Attribute)
        wrapper = spot.code(run.func.value)
        lines, code = change(wrapper, [spot.code(a) for a in (*run.args, *run.keywords)])
        statement = spot.around(run)
        text = spot.replaced(run, code)
        at = spot.source.line_start(statement.lineno)
        return text[:at] + textwrap.indent(lines, " " * statement.col_offset) + text[at:]

    return way


def _others(parts: list[str]) -> str:
    return ", ".join(parts)


RUN: dict[str, Way] = {
    "run under another name": _run(lambda w, a: (f"run = {w}.run\n", f"run({_others(a)})")),
    "run by its name": _run(lambda w, a: ("", f'getattr({w}, "run")({_others(a)})')),
    "run handed on": _run(lambda w, a: ("", f"self.timed({w}.run, {_others(a)})")),
    "run of a partial": _run(
        lambda w, a: ("", f"partial({w}.run, {_others(a[:2])})({_others(a[2:])})")),
    "run in a helper": _run(lambda w, a: ("", f"attend({w}, {_others(a)})")),
    "run of the class": _run(lambda w, a: ("", f"type({w}).run({w}, {_others(a)})")),
    "starred keys": _run(lambda w, a: (
        f"parts = ({_others(a[2:4])})\n", f"{w}.run({_others(a[:2])}, *parts)")),
    "more by a dictionary": _run(lambda w, a: ("", f"{w}.run({_others(a)}, **self.more)")),
    "rows of a page table": _run(lambda w, a: ("", f"{w}.run({_others(a)}, page_table=self.rows)")),
    "another wrapper as well": _run(lambda w, a: (
        f"self.other.run({_others(a)})\n", f"{w}.run({_others(a)})")),
    "another wrapper by now": _run(lambda w, a: (
        f"{w} = self.other\n", f"{w}.run({_others(a)})")),
    "one of two wrappers": _run(lambda w, a: (
        f"if layer.layer_id:\n    {w} = self.other\n", f"{w}.run({_others(a)})")),
    "the wrapper of a call": _run(lambda w, a: ("", f"self.of(layer).run({_others(a)})")),
    "keys cut by rows": _run(lambda w, a: (
        "", f"{w}.run({_others(a[:2])}, {a[2]}[: len(q)], {_others(a[3:])})")),
    "pool as it is in another run": _run(lambda w, a: (
        "raw = self.token_to_kv_pool.get_key_buffer(layer.layer_id)\n"
        f"{w}.run({_others(a[:2])}, raw, raw)\n", f"{w}.run({_others(a)})")),
}  # fmt: skip


def _plan(change: Callable[[str, str, list[str], str], tuple[str, str]]) -> Way:
    """Return the way that changes the plan call at a place, and puts lines before it."""

    def way(spot: Spot) -> str:
        call = min(
            (n for n in ast.walk(spot.node)
             if isinstance(n, ast.Call)
             and any(isinstance(a, ast.Name) and a.lineno == spot.line for a in _values(n))
             and _is_plan(n)),
            key=lambda n: n.lineno,
        )  # fmt: skip
        at = next(
            i for i, a in enumerate(_values(call))
            if isinstance(a, ast.Name) and a.lineno == spot.line
        )  # fmt: skip
        parts = [spot.code(a) for a in (*call.args, *call.keywords)]
        func = spot.code(call.func)
        wrapper = spot.code(call.func.value) if isinstance(call.func, ast.Attribute) else parts[0]
        index = spot.code(_values(call)[at])
        lines, code = change(func, wrapper, parts, index)
        statement = spot.around(call)
        text = spot.replaced(call, code)
        start = spot.source.line_start(statement.lineno)
        return text[:start] + textwrap.indent(lines, " " * statement.col_offset) + text[start:]

    return way


def _values(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(k.value for k in call.keywords)]


def _is_plan(call: ast.Call) -> bool:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr == "plan"
    return isinstance(call.func, ast.Name) and call.func.id.startswith("fast_mla_")


def _with_index(parts: list[str], index: str, code: str) -> str:
    at = next(i for i, part in enumerate(parts) if part.split("=")[-1] == index)
    keyword, equals, _ = parts[at].rpartition("=")
    changed = f"{keyword}{equals}{code}"
    return _others([*parts[:at], changed, *parts[at + 1 :]])


def _paged(parts: list[str], code: str) -> str:
    changed = [code if p == "1" else f"page_size={code}" if p.startswith("page_size") else p
               for p in parts]  # fmt: skip
    return _others([code if p == "self.page_size" else p for p in changed])


def _unpaged(parts: list[str]) -> list[str]:
    return [part for part in parts if part.split("=")[-1] not in ("1", "self.page_size")]


def _starting(parts: list[str]) -> list[str]:
    """Return arguments in which the row pointers have another name."""
    named = {"kv_indptr": "starts", "kv_indptr=kv_indptr": "kv_indptr=starts"}
    return [named.get(part, part) for part in parts]


PLAN: dict[str, Way] = {
    "indices converted": _plan(lambda f, w, a, i: (
        "", f"{f}({_with_index(a, i, f'{i}.to(torch.int32)')})")),
    "indices cut": _plan(lambda f, w, a, i: ("", f"{f}({_with_index(a, i, f'{i}[:n]')})")),
    "indices of a call": _plan(lambda f, w, a, i: (
        "", f"{f}({_with_index(a, i, f'self.rows_of({i})')})")),
    "sequential indices": _plan(lambda f, w, a, i: (
        f"self.rows, {i} = {i}, torch.arange(len({i}))\n", f"{f}({_others(a)})")),
    "another buffer's indices": _plan(lambda f, w, a, i: (
        f"{i} = self.other_rows\n", f"{f}({_others(a)})")),
    "two other buffers' indices": _plan(lambda f, w, a, i: (
        f"if n:\n    {i} = one.dcp_kv_indices\nelse:\n    {i} = two.dcp_kv_indices\n",
        f"{f}({_others(a)})")),
    "starred": _plan(lambda f, w, a, i: (f"more = ({_others(a)},)\n", f"{f}(*more)")
                     if not any("=" in p for p in a)
                     else (f"more = dict({_others(a)})\n", f"{f}(**more)")),
    "a dictionary": _plan(lambda f, w, a, i: ("", f"{f}(**self.arguments({_others(a)}))")),
    "plan under another name": _plan(lambda f, w, a, i: (f"go = {f}\n", f"go({_others(a)})")),
    "plan handed on": _plan(lambda f, w, a, i: ("", f"self.timed({f}, {w}, {_others(a)})")),
    "plan by its name": _plan(lambda f, w, a, i: (
        "", f'getattr({w}, "plan")({_others(a)})')),
    "plan of a partial": _plan(lambda f, w, a, i: (
        "", f"partial({f}, {_others(a)})()")),
    "plan by its other name": _plan(lambda f, w, a, i: (
        "", f"{w}.begin_forward({_others(a)})")),
    "planned once more by the other name": _plan(lambda f, w, a, i: (
        f"{w}.begin_forward({_others(a)})\n", f"{f}({_others(a)})")),
    "a helper": _plan(lambda f, w, a, i: ("", f"planned({w}, {_others(a)})")),
    "a helper as well": _plan(lambda f, w, a, i: (
        f"self.planned({w}, {i})\n", f"{f}({_others(a)})")),
    "the wrapper of a call": _plan(lambda f, w, a, i: (
        "", f"self.of({w}).plan({_others(a)})")),
    "pages of a call": _plan(lambda f, w, a, i: ("", f"{f}({_paged(a, 'self.pages()')})")),
    "no pages": _plan(lambda f, w, a, i: (
        "", f"{f}({_others(_unpaged(a)[:6])})")),
    "row pointers bound again": _plan(lambda f, w, a, i: (
        "starts, kv_indptr = kv_indptr, self.lengths\n",
        f"{f}({_others(_starting(a))})")),
    "row pointers of another sum": lambda s: s.in_definition("torch.cumsum(", "self.sums("),
    "the backend is not kept": lambda s: s.text.replace("attn_backend", "owner"),
    "another method plans as well": lambda s: s.at_end_of_class(
        "def replan(self, wrapper, kv_indices):\n    wrapper.plan(None, None, kv_indices)"),
    "a lambda": _plan(lambda f, w, a, i: ("", f"(lambda: {f}({_others(a)}))()")),
}  # fmt: skip


def _super(code: str) -> Way:
    def way(spot: Spot) -> str:
        return spot.instead(spot.around(spot.call("__init__")), code)

    return way


CONSTRUCTOR: dict[str, Way] = {
    "with arguments": _super("super().__init__(model_runner)"),
    "by the class's name": lambda s: _super(f"super({s.owner}, self).__init__()")(s),
    "of the base class": _super("AttentionBackend.__init__(self)"),
    "left out": _super("pass"),
    "twice": _super("{}\n{}"),
    "in an if": _super("if model_runner is not None:\n    {}"),
    "in a with": _super("with self.timed():\n    {}"),
    "in a try": _super("try:\n    {}\nexcept TypeError:\n    pass"),
    "in a finally": _super("try:\n    self.first = 1\nfinally:\n    {}"),
    "in a loop": _super("for _ in range(1):\n    {}"),
    "in a function": _super("def start():\n    {}\n\nstart()"),
    "in a lambda": _super("(lambda: super().__init__())()"),
    "its result kept": _super("done = super().__init__()"),
    "two on a line": _super("super().__init__(); self.first = 1"),
    "in a condition": _super("model_runner and super().__init__()"),
    "a return before": _super("if model_runner is None:\n    return\n{}"),
    "the runner bound again": _super("model_runner = wrapped(model_runner)\n{}"),
    "the runner deleted": _super("runner = model_runner\ndel model_runner\n{}"),
    "the runner in a loop": _super("for model_runner in runners:\n    pass\n{}"),
    "the runner renamed": lambda s: s.in_definition("model_runner", "runner"),
    "self renamed": lambda s: s.in_definition("self", "this"),
}  # fmt: skip


def _write(change: Callable[[str, list[str]], tuple[str, str]]) -> Way:
    def way(spot: Spot) -> str:
        call = spot.call("set_mla_kv_buffer")
        parts = [spot.code(a) for a in (*call.args, *call.keywords)]
        lines, code = change(spot.code(call.func), parts)
        statement = spot.around(call)
        text = spot.replaced(call, code)
        at = spot.source.line_start(statement.lineno)
        return text[:at] + textwrap.indent(lines, " " * statement.col_offset) + text[at:]

    return way


_PARTS = ("layer", "loc", "cache_k_nope", "cache_k_rope")

WRITE: dict[str, Way] = {
    "by keyword": _write(lambda f, a: (
        "", f"{f}({_others([f'{n}={p}' for n, p in zip(_PARTS, a, strict=False)])})")),
    "the keys by keyword": _write(lambda f, a: (
        "", f"{f}({_others(a[:2])}, cache_k_nope={a[2]}, cache_k_rope={a[3]})")),
    "starred": _write(lambda f, a: (
        f"parts = ({_others(a[2:])})\n", f"{f}({_others(a[:2])}, *parts)")),
    "a dictionary": _write(lambda f, a: ("", f"{f}({_others(a[:2])}, **self.parts(k, k_rope))")),
    "one part": _write(lambda f, a: ("", f"{f}({_others(a[:3])})")),
    "under another name": _write(lambda f, a: (f"write = {f}\n", f"write({_others(a)})")),
    "by its name": _write(lambda f, a: (
        "", f'getattr({f.rpartition(".")[0]}, "set_mla_kv_buffer")({_others(a)})')),
    "handed on": _write(lambda f, a: ("", f"self.timed({f}, {_others(a)})")),
    "of a partial": _write(lambda f, a: ("", f"partial({f}, {_others(a[:2])})({_others(a[2:])})")),
    "another method as well": lambda s: s.at_end_of_class(
        "def again(self, *parts):\n    self.token_to_kv_pool.set_mla_kv_buffer(*parts)"),
    "self renamed": lambda s: s.in_definition("self", "this"),
}  # fmt: skip

TAKEN: dict[str, str] = {
    "import": "import _kv_gather",
    "import as": "import os as _kv_gather",
    "from": "from elsewhere import _kv_gather",
    "from, as": "from elsewhere import rows as _kv_gather",
    "assigned": "_kv_gather = None",
    "annotated": "_kv_gather: object = None",
    "one of two targets": "_kv_gather = other = None",
    "in a tuple": "one, (_kv_gather, two) = 1, (2, 3)",
    "starred": "one, *_kv_gather = 1, 2",
    "a function": "def _kv_gather():\n    pass",
    "a class": "class _kv_gather:\n    pass",
    "a loop": "for _kv_gather in ():\n    pass",
    "with": "with open('x') as _kv_gather:\n    pass",
    "except": "try:\n    pass\nexcept OSError as _kv_gather:\n    pass",
    "walrus": "if (_kv_gather := None):\n    pass",
    "walrus in a comprehension": "rows = [(_kv_gather := row) for row in ()]",
    "added to": "_kv_gather += 1",
    "deleted": "del _kv_gather",
    "global in a function": "def change():\n    global _kv_gather\n    _kv_gather = None",
    "in an if": "if True:\n    _kv_gather = None",
    "matched": "match 1:\n    case _kv_gather:\n        pass",
    "a matched rest": "match {}:\n    case {**_kv_gather}:\n        pass",
}

IMPORT: dict[str, Way] = {
    f"the name is taken: {name}": (lambda s, line=line: s.at_end(line))  # type: ignore[misc]
    for name, line in TAKEN.items()
}


def _template(old: str, new: str) -> Way:
    return lambda s: s.in_definition(old, new)


DEFAULT: dict[str, Way] = {
    "another bound": _template("1 << 30", "1 << 31"),
    "a bound by name": _template("1 << 30", "NO_LIMIT"),
    "another spelling of the bound": _template("1 << 30", "2**30"),
    "compared by value": _template("is not None", "!= None"),
    "asked the other way": _template("is not None", "is None"),
    "asked for truth": _template("is not None", "> 0"),
    "one more condition": _template("is not None", "is not None and self.limited"),
    "a longer bound": _template("1 << 30", "(1 << 30) + 1"),
    "in a call": _template("1 << 30", "int(1 << 30)"),
    "already with a default": _template("1 << 30", "self.default or 1 << 30"),
    "self renamed": lambda s: s.in_definition("self", "this"),
    "twice": lambda s: s.after(
        s.node.body[0],  # type: ignore[attr-defined]
        "other = limit if limit is not None else 1 << 30"),
}  # fmt: skip


def _field(code: str) -> Way:
    """Return the way that puts other lines in the place of the field that is looked for."""

    def way(spot: Spot) -> str:
        body: list[ast.stmt] = spot.node.body  # type: ignore[attr-defined]
        (field,) = (
            s for s in body
            if isinstance(s, ast.AnnAssign) and ast.unparse(s.target) == "max_queued_requests"
        )  # fmt: skip
        return spot.instead(field, code.replace("{value}", ast.unparse(field.annotation)))

    return way


FIELD: dict[str, Way] = {
    "renamed": _field("max_waiting_requests: {value} = None"),
    "in capitals": _field("MAX_QUEUED_REQUESTS: {value} = None"),
    "singular": _field("max_queued_request: {value} = None"),
    "no default": _field("max_queued_requests: {value}"),
    "no annotation": _field("max_queued_requests = None"),
    "left out": _field("pass"),
    "a comment": _field("# max_queued_requests: int = None\npass"),
    "a string": _field("'max_queued_requests: int = None'"),
    "twice": _field("{}\n{}"),
    "two on a line": _field("max_queued_requests: int = 1; other: int = 2"),
    "in a class inside": _field("class Inner:\n    {}"),
    "in a function": _field("def fields():\n    {}"),
    "in a lambda": _field("max_queued = lambda max_queued_requests=None: 1"),
    "in a tuple": _field("(max_queued_requests, other) = (None, None)"),
    "added to": _field("max_queued_requests = 1\nmax_queued_requests += 1"),
    "imported": _field("from elsewhere import max_queued_requests"),
    "a loop": _field("for max_queued_requests in (None,): pass"),
    "a method of the name": _field("def max_queued_requests(self):\n    return None"),
    "behind the first method": lambda s: Spot(
        s.source.path, _field("pass")(s).encode(), SiteResult(s.definition, "", 1, State.READY)
    ).at_end_of_itself(
        "def first(self):\n    return None\n\nmax_queued_requests: int = None"),
    "the class renamed": lambda s: s.text.replace(f"class {s.name}", f"class {s.name}Old"),
    "the class defined again": lambda s: s.at_end(f"class {s.name}:\n    pass"),
    "the class replaced": lambda s: s.at_end(f"from elsewhere import Other as {s.name}"),
}  # fmt: skip


def _option(change: Callable[[str, list[str]], str]) -> Way:
    """Return the way that puts other code in the place of the option, or of what adds them all."""

    def way(spot: Spot) -> str:
        call = next(
            node for node in ast.walk(spot.node)
            if isinstance(node, ast.Call) and node.lineno == spot.line
        )  # fmt: skip
        parts = [spot.code(a) for a in (*call.args, *call.keywords)]
        return spot.replaced(call, change(spot.code(call.func), parts))

    return way


OPTION: dict[str, Way] = {
    "another name": _option(lambda f, a: f"{f}({_others(['other', *a[1:]])})"),
    "nothing of it": _option(lambda f, a: f"{f}()"),
    "starred": _option(lambda f, a: f"{f}(*[{a[0]}], {_others(a[1:])})"),
    "a dictionary": _option(lambda f, a: f"{f}(**dict(parser={a[0]}))"),
    "by keyword": _option(lambda f, a: f"{f}(name={a[0]})"),
    "another function": _option(lambda f, a: f"{f}_to({_others(a)})"),
    "another object's": _option(lambda f, a: f"other.{f}({_others(a)})"),
    "handed on": _option(lambda f, a: f"timed({f}, {_others(a)})"),
    "a partial": _option(lambda f, a: f"partial({f}, {_others(a)})()"),
    "by its name": _option(lambda f, a: f'getattr(parser, "{f}")({_others(a)})'),
    "left out": _option(lambda f, a: "None"),
    "twice": lambda s: s.instead(s.around(_first_call(s)), "{}\n{}"),
    "two on a line": lambda s: s.replaced(
        s.around(_first_call(s)), s.code(s.around(_first_call(s))) + "; done = 1"),
    "a string": _option(lambda f, a: repr(f"{f}({_others(a)})")),
    "the parser renamed": lambda s: s.in_definition("parser", "options"),
    **{name: way for name, way in DEFINITION.items() if name != "the method renamed"},
}  # fmt: skip


def _first_call(spot: Spot) -> ast.Call:
    return next(
        node for node in ast.walk(spot.node)
        if isinstance(node, ast.Call) and node.lineno == spot.line
    )  # fmt: skip


WAYS: dict[str, dict[str, Way]] = {
    "import": IMPORT,
    "constructor": {**CONSTRUCTOR, **DEFINITION, **OUR_NAME},
    "plan": {**PLAN, **DEFINITION, **OUR_NAME},
    "cast": {**CAST, **DEFINITION, **OUR_NAME},
    "write": {**WRITE, **DEFINITION, **OUR_NAME},
    "default": {**DEFAULT, **DEFINITION},
    "field": FIELD,
    "option": OPTION,
}
"""Ways to break a place, by its kind."""

MORE: dict[tuple[str, str], dict[str, Way]] = {("mla_kv_gather", "cast"): RUN}
"""Ways that only one codemod's places of a kind can be broken in."""

HARMLESS: dict[tuple[str, str], frozenset[str]] = {
    ("fa3_kv_gather", "cast"): frozenset({"counted"}),  # its buffer has as many rows as the pool
}
"""Ways that break nothing there."""


def ways(codemod: str, kind: str) -> dict[str, Way]:
    """Return the ways to break the places of a kind that a codemod has."""
    every = {**WAYS[kind], **MORE.get((codemod, kind), {})}
    return {n: w for n, w in every.items() if n not in HARMLESS.get((codemod, kind), ())}
