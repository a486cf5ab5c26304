"""Data flow inside one definition: where a value came from.

A name's origins are all assignments that can reach a place; ``rewriter.reaching`` says which those
are.
"""

from __future__ import annotations

from collections.abc import Collection

import libcst as cst

from rewriter.definition import Definition
from rewriter.reaching import Origin, Search, anywhere, before, parameters


def origins(definition: Definition, name: cst.Name) -> list[Origin]:
    """Return every assignment to ``name`` that can reach this use of it, nearest first."""
    return bound(definition, name.value, name)


def bound(definition: Definition, name: str, at: cst.CSTNode) -> list[Origin]:
    """Return every assignment to a name that can reach a node, nearest first."""
    found: list[Origin] = []
    search = Search(name, name in definition.walruses)
    node = at
    while (parent := definition.parents[node]) is not None:
        reaching, complete = before(node, parent, search)
        found += [origin for origin in dict.fromkeys(reaching) if origin not in found]
        if complete:
            return found
        node = parent
    return [*found, Origin(at, "free")]


def captured(definition: Definition, name: cst.Name) -> list[Origin]:
    """Return what a name that a nested function does not bind may mean when that is called.

    Every assignment in the next function around that has any, in front of the nested function or
    behind it: it reads the name only when it is called.
    """
    search = Search(name.value, name.value in definition.walruses)
    node: cst.CSTNode = name
    nested = False
    while (parent := definition.parents[node]) is not None:
        if isinstance(parent, (cst.FunctionDef, cst.Lambda)) and node is parent.body:
            bound = [p for p in parameters(parent.params) if p.name.value == search.name]
            found = [Origin(p, "parameter") for p in bound] + anywhere(node, search, skip=[])
            if found:
                return found if nested else []
            nested = True
        node = parent
    return []


def trace(
    definition: Definition, expression: cst.CSTNode, views: Collection[str] = ()
) -> list[Origin]:
    """Follow an expression back to what it shares its elements with.

    Looks through names (those of a function around as well), slices, conditional expressions and
    reshaping calls (``view``, ``reshape``, ``contiguous``, ``unsqueeze``, ``squeeze``,
    ``flatten``), and stops at anything else.

    Args:
        definition: what the expression stands in.
        expression: where to begin.
        views: functions that are looked through as well, to their first argument.
    """
    return _follow(definition, expression, views)[0]


def steps(
    definition: Definition, expression: cst.CSTNode, views: Collection[str] = ()
) -> list[cst.CSTNode]:
    """Return what ``trace`` looks through on its way: names, slices, reshaping calls."""
    return [origin.node for origin in _follow(definition, expression, views)[1]]


def _follow(
    definition: Definition, expression: cst.CSTNode, views: Collection[str]
) -> tuple[list[Origin], list[Origin]]:
    """Return where an expression leads back to, and what is in between."""
    found: list[Origin] = []
    between: list[Origin] = []
    todo = [Origin(expression)]
    while todo:
        origin = todo.pop(0)
        if origin in found or origin in between:
            continue
        step = _step(definition, origin, views)
        if step is None:
            found.append(origin)
        else:
            between.append(origin)
            todo += step
    return found, between


RESHAPES = frozenset({"view", "reshape", "contiguous", "unsqueeze", "squeeze", "flatten"})
"""Methods whose result shares its elements with the object."""


def _step(definition: Definition, origin: Origin, views: Collection[str]) -> list[Origin] | None:
    node = origin.node
    if origin.what != "value":
        return None
    if isinstance(node, cst.Name):
        reached = origins(definition, node)
        if [o.what for o in reached] == ["free"]:
            return captured(definition, node) or None
        return reached
    if isinstance(node, cst.Subscript):
        return [Origin(node.value)]
    if isinstance(node, cst.IfExp):
        return [Origin(node.body), Origin(node.orelse)]
    if isinstance(node, cst.NamedExpr):
        return [Origin(node.value)]
    if isinstance(node, cst.Call) and method(node) in RESHAPES:
        assert isinstance(node.func, cst.Attribute)
        return [Origin(node.func.value)]
    if isinstance(node, cst.Call) and (viewed := viewed_by(node, views)) is not None:
        return [Origin(viewed.value)]
    return None


def viewed_by(call: cst.Call, views: Collection[str]) -> cst.Arg | None:
    """Return the first argument of a call of one of some functions, or None."""
    if not views or called(call) not in views or not call.args:
        return None
    first = call.args[0]
    return None if first.star or first.keyword is not None else first


def method(node: cst.CSTNode) -> str | None:
    """Return the name of the method that a call calls, or None for other nodes."""
    if node.__class__ is cst.Call:  # asked of every node: a check of ABCs takes ten times as long
        func = node.func
        return func.attr.value if isinstance(func, cst.Attribute) else None
    return None


def called(node: cst.CSTNode | None) -> str | None:
    """Return the name of the function or method that a call calls, or None."""
    if node.__class__ is cst.Call:
        func = node.func
        func = func.attr if isinstance(func, cst.Attribute) else func
        return func.value if isinstance(func, cst.Name) else None
    return None


def plain_name(node: cst.CSTNode) -> str | None:
    """Return the text of a dotted name, layout and brackets left out; None of anything else."""
    parts: list[str] = []
    while isinstance(node, cst.Attribute):
        parts.append(node.attr.value)
        node = node.value
    return ".".join([node.value, *reversed(parts)]) if isinstance(node, cst.Name) else None


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
