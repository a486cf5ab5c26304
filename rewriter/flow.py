"""Data flow inside one definition: where a value came from.

Conservative and small: a name's origins are all assignments that can reach a place. What is not
understood (a loop variable, a name bound by ``with`` or ``except``) is an origin of its own and
never silently skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from rewriter.source import Definition, children


@dataclass(frozen=True)
class Origin:
    """Where a value came from.

    Attributes:
        node: the expression, or the statement where no single expression gives the value.
        what: ``value`` (``node`` is the expression), ``element`` (one of several targets that
            share the expression ``node``), ``parameter``, ``free`` (bound outside), ``opaque``.
        index: for ``element``, which target.
    """

    node: cst.CSTNode
    what: str = "value"
    index: int = 0


def origins(definition: Definition, name: cst.Name) -> list[Origin]:
    """Return every assignment to ``name`` that can reach this use of it, nearest first."""
    found: list[Origin] = []
    node: cst.CSTNode = name
    parents = definition.parents
    while (parent := parents[node]) is not None:
        body = _body(parent)
        if body is not None and node in body:
            before = body[: body.index(node)]
            if isinstance(parent, cst.IndentedBlock) and isinstance(
                parents.get(parent), (cst.For, cst.While)
            ):
                found += _in_block(body[body.index(node) :], name.value)[0]  # next turn of a loop
            reaching, complete = _in_block(before, name.value)
            found += reaching
            if complete:
                return found
        if isinstance(parent, (cst.For, cst.With)) and node is parent.body:
            reaching, complete = _header(parent, name.value)
            found += reaching
            if complete:
                return found
        if isinstance(parent, (cst.FunctionDef, cst.Lambda)):
            for param in _parameters(parent.params):
                if param.name.value == name.value:
                    return [*found, Origin(param, "parameter")]
        node = parent
    return [*found, Origin(name, "free")]


def trace(definition: Definition, expression: cst.CSTNode) -> list[Origin]:
    """Follow an expression back to what it shares its elements with.

    Looks through names, slices, conditional expressions and reshaping calls (``view``,
    ``reshape``, ``contiguous``, ``unsqueeze``, ``squeeze``, ``flatten``), and stops at anything
    else.
    """
    found: list[Origin] = []
    seen: set[cst.CSTNode] = set()
    todo = [Origin(expression)]
    while todo:
        origin = todo.pop(0)
        if origin.node in seen:
            continue
        seen.add(origin.node)
        step = _step(definition, origin)
        if step is None:
            found.append(origin)
        else:
            todo += step
    return found


_RESHAPES = frozenset({"view", "reshape", "contiguous", "unsqueeze", "squeeze", "flatten"})


def _step(definition: Definition, origin: Origin) -> list[Origin] | None:
    node = origin.node
    if origin.what != "value":
        return None
    if isinstance(node, cst.Name):
        reached = origins(definition, node)
        return None if [o.what for o in reached] == ["free"] else reached
    if isinstance(node, cst.Subscript):
        return [Origin(node.value)]
    if isinstance(node, cst.IfExp):
        return [Origin(node.body), Origin(node.orelse)]
    if isinstance(node, cst.NamedExpr):
        return [Origin(node.value)]
    if isinstance(node, cst.Call) and method(node) in _RESHAPES:
        assert isinstance(node.func, cst.Attribute)
        return [Origin(node.func.value)]
    return None


def method(node: cst.CSTNode) -> str | None:
    """Return the name of the method that a call calls, or None for other nodes."""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        return node.func.attr.value
    return None


def argument(call: cst.Call, keyword: str, position: int) -> cst.Arg | None:
    """Return an argument by keyword or by position, or None.

    A star argument before the position makes the position unknown: None.
    """
    for arg in call.args:
        if arg.keyword is not None and arg.keyword.value == keyword:
            return arg
    head = call.args[: position + 1]
    if len(head) > position and not any(a.star or a.keyword for a in head):
        return head[position]
    return None


def _body(node: cst.CSTNode) -> Sequence[cst.CSTNode] | None:
    if isinstance(node, (cst.IndentedBlock, cst.SimpleStatementSuite, cst.SimpleStatementLine)):
        return node.body
    return node.body if isinstance(node, cst.Module) else None


def _in_block(statements: Sequence[cst.CSTNode], name: str) -> tuple[list[Origin], bool]:
    """Return the assignments that leave a run of statements, and whether one always does."""
    found: list[Origin] = []
    for statement in reversed(statements):
        reaching, complete = _in_statement(statement, name)
        found += reaching
        if complete:
            return found, True
    return found, False


def _in_statement(node: cst.CSTNode, name: str) -> tuple[list[Origin], bool]:
    if isinstance(node, (cst.SimpleStatementLine, cst.SimpleStatementSuite, cst.IndentedBlock)):
        return _in_block(node.body, name)
    if isinstance(node, (cst.Return, cst.Raise, cst.Continue, cst.Break)):
        return [], True  # nothing leaves this way
    if isinstance(node, (cst.If, cst.For, cst.While, cst.Try, cst.TryStar, cst.With, cst.Match)):
        return _in_compound(node, name)
    if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
        return ([Origin(node, "opaque")], True) if node.name.value == name else ([], False)
    return _in_simple(node, name)


def _in_compound(node: cst.CSTNode, name: str) -> tuple[list[Origin], bool]:
    if isinstance(node, cst.With):
        reaching, complete = _in_statement(node.body, name)
        head, bound = ([], False) if complete else _header(node, name)
        return reaching + head, complete or bound
    branches: list[cst.CSTNode] = []
    closed = False  # whether one of the branches always runs
    if isinstance(node, cst.If):
        branches, closed = [node.body], node.orelse is not None
        if node.orelse is not None:
            branches.append(node.orelse.body if isinstance(node.orelse, cst.Else) else node.orelse)
    elif isinstance(node, (cst.For, cst.While)):
        branches = [node.body, *([node.orelse.body] if node.orelse else [])]
    elif isinstance(node, (cst.Try, cst.TryStar)):
        branches = [node.body, *(h.body for h in node.handlers)]
        branches += [b.body for b in (node.orelse, node.finalbody) if b]
    elif isinstance(node, cst.Match):
        branches = [case.body for case in node.cases]
    results = [_in_statement(branch, name) for branch in branches]
    found = [origin for reaching, _ in results for origin in reaching]
    if isinstance(node, cst.For):
        found += _header(node, name)[0]
    walrus = _walrus(node, name, skip=branches)
    return found + walrus, closed and all(complete for _, complete in results)


def _header(node: cst.For | cst.With, name: str) -> tuple[list[Origin], bool]:
    targets: list[cst.CSTNode] = []
    if isinstance(node, cst.For):
        targets = [node.target]
    else:
        targets = [item.asname.name for item in node.items if item.asname]
    bound = any(t.value == name for target in targets for t in _names(target))
    return ([Origin(node, "opaque")] if bound else []), bound


def _in_simple(node: cst.CSTNode, name: str) -> tuple[list[Origin], bool]:
    pairs: list[tuple[cst.BaseExpression, cst.BaseExpression | None]] = []
    if isinstance(node, cst.Assign):
        pairs = [(target.target, node.value) for target in node.targets]
    elif isinstance(node, cst.AnnAssign):
        pairs = [(node.target, node.value)] if node.value is not None else []
    elif isinstance(node, cst.AugAssign):
        pairs = [(node.target, None)]
    elif isinstance(node, (cst.Import, cst.ImportFrom, cst.Del)) and any(
        isinstance(n, cst.Name) and n.value == name for n in _all(node)
    ):
        return [Origin(node, "opaque")], True
    for target, value in pairs:
        bound = _bind(target, value, node, name)
        if bound is not None:
            return [bound], True
    return _walrus(node, name, skip=[]), False


def _bind(
    target: cst.BaseExpression, value: cst.BaseExpression | None, node: cst.CSTNode, name: str
) -> Origin | None:
    if isinstance(target, cst.Name):
        if target.value != name:
            return None
        return Origin(node, "opaque") if value is None else Origin(value)
    if not isinstance(target, (cst.Tuple, cst.List)):
        return None  # an attribute or an element: no name is bound
    for index, element in enumerate(target.elements):
        if not any(n.value == name for n in _names(element.value)):
            continue
        plain = not any(isinstance(e, cst.StarredElement) for e in target.elements)
        if plain and isinstance(value, (cst.Tuple, cst.List)):
            if len(value.elements) == len(target.elements):
                return _bind(element.value, value.elements[index].value, node, name)
        elif plain and value is not None:
            return Origin(value, "element", index)
        return Origin(node, "opaque")
    return None


def _walrus(node: cst.CSTNode, name: str, skip: Sequence[cst.CSTNode]) -> list[Origin]:
    return [
        Origin(n.value)
        for n in _all(node, skip)
        if isinstance(n, cst.NamedExpr)
        and isinstance(n.target, cst.Name)
        and n.target.value == name
    ]


def _names(target: cst.CSTNode) -> Iterator[cst.Name]:
    """Yield the names that a target binds; those inside subscripts and attributes do not count."""
    if isinstance(target, cst.Name):
        yield target
    elif isinstance(target, (cst.Tuple, cst.List)):
        for element in target.elements:
            yield from _names(element.value)


def _all(node: cst.CSTNode, skip: Sequence[cst.CSTNode] = ()) -> Iterator[cst.CSTNode]:
    todo = [node]
    while todo:
        current = todo.pop()
        if current in skip:
            continue
        yield current
        todo.extend(children(current))


def _parameters(params: cst.Parameters) -> list[cst.Param]:
    found = [*params.posonly_params, *params.params, *params.kwonly_params]
    found += [p for p in (params.star_arg, params.star_kwarg) if isinstance(p, cst.Param)]
    return found
