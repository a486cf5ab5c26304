"""Which assignments to a name can reach a place, statement by statement.

Conservative and small: what is not understood (a loop variable, a name bound by ``with``,
``except`` or ``match``, a name of a comprehension) is an origin of its own and never silently
skipped. Where control can leave a block half-way (loops, ``try``) every assignment in it counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import libcst as cst

from rewriter.definition import children


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


class Search(NamedTuple):
    """The name that is looked for, and whether it is worth looking for a walrus."""

    name: str
    walrus: bool


def before(node: cst.CSTNode, parent: cst.CSTNode, search: Search) -> tuple[list[Origin], bool]:
    """Return the assignments between a parent's start and its child, and whether one is sure."""
    if isinstance(parent, (cst.IndentedBlock, cst.SimpleStatementSuite, cst.SimpleStatementLine)):
        return _in_block(parent.body[: _index(parent.body, node)], search)
    if isinstance(parent, cst.Module):
        return _in_block(parent.body[: _index(parent.body, node)], search)
    if isinstance(parent, (cst.FunctionDef, cst.Lambda)):
        return _at_function(node, parent, search)
    if isinstance(parent, (cst.For, cst.While)):
        return _at_loop(node, parent, search)
    if isinstance(parent, (cst.Try, cst.TryStar)):
        return (
            ([], False) if node is parent.body else (anywhere(parent, search, skip=[node]), False)
        )
    if isinstance(parent, cst.With):
        return _header(parent, search) if node is parent.body else ([], False)
    if isinstance(parent, (cst.ExceptHandler, cst.ExceptStarHandler, cst.MatchCase)):
        return anywhere(parent, search, skip=[parent.body]), False
    if isinstance(parent, cst.If):
        return _walrus(parent, search, skip=[parent.body, *_maybe(parent.orelse)])
    if isinstance(parent, (cst.BaseComp, cst.CompFor)):
        return anywhere(parent, search, skip=[]), False
    if isinstance(parent, cst.NamedExpr):
        return [], False  # what it binds, it binds after its value
    if isinstance(parent, (cst.BaseSmallStatement, cst.BaseExpression)):
        return _walrus(parent, search, skip=[node])[0], False  # beside it in one statement
    return [], False


def _index(body: Sequence[cst.CSTNode], node: cst.CSTNode) -> int:
    return next((i for i, item in enumerate(body) if item is node), 0)


def _maybe(node: cst.CSTNode | None) -> list[cst.CSTNode]:
    return [] if node is None else [node]


def _at_function(
    node: cst.CSTNode, function: cst.FunctionDef | cst.Lambda, search: Search
) -> tuple[list[Origin], bool]:
    """End at a function's head: what is bound outside may be bound again before it is called."""
    if node is not function.body:
        return [], False
    for param in parameters(function.params):
        if param.name.value == search.name:
            return [Origin(param, "parameter")], True
    return [Origin(function, "free")], True


def _at_loop(
    node: cst.CSTNode, loop: cst.For | cst.While, search: Search
) -> tuple[list[Origin], bool]:
    """Count what an earlier turn may have left; a ``for`` binds its target before every turn."""
    if isinstance(loop, cst.For):
        if node is loop.iter:
            return [], False
        bound, complete = _header(loop, search)
        if node is loop.body and complete:
            return bound, True
    return anywhere(loop, search, skip=[]), False


def _in_block(statements: Sequence[cst.CSTNode], search: Search) -> tuple[list[Origin], bool]:
    """Return the assignments that leave a run of statements, and whether one always does."""
    found: list[Origin] = []
    for statement in reversed(statements):
        reaching, complete = _in_statement(statement, search)
        found += reaching
        if complete:
            return found, True
    return found, False


def _in_statement(node: cst.CSTNode, search: Search) -> tuple[list[Origin], bool]:
    if isinstance(node, (cst.SimpleStatementLine, cst.SimpleStatementSuite, cst.IndentedBlock)):
        return _in_block(node.body, search)
    if isinstance(node, (cst.Return, cst.Raise, cst.Continue, cst.Break)):
        return [], True  # nothing reaches what follows; loops and try count all of their blocks
    if isinstance(node, cst.If):
        return _in_if(node, search)
    if isinstance(node, (cst.Try, cst.TryStar)):
        return _in_try(node, search)
    if isinstance(node, cst.With):
        if _suppresses(node):
            return anywhere(node, search, skip=[]), False
        reaching, complete = _in_statement(node.body, search)
        head, bound = ([], False) if complete else _header(node, search)
        return reaching + head, complete or bound
    if isinstance(node, (cst.For, cst.While, cst.Match)):
        return anywhere(node, search, skip=[]), False
    if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
        inner = [n for n in _all(node) if isinstance(n, (cst.Nonlocal, cst.Global))]
        changed = node.name.value == search.name or any(_declares(n, search) for n in inner)
        return ([Origin(node, "opaque")] if changed else []), node.name.value == search.name
    return _in_simple(node, search)


def _in_if(node: cst.If, search: Search) -> tuple[list[Origin], bool]:
    branches: list[cst.CSTNode] = [node.body, *_maybe(node.orelse)]
    test, always = _walrus(node, search, skip=branches)
    results = [_in_statement(b.body if isinstance(b, cst.Else) else b, search) for b in branches]
    found = [origin for reaching, _ in results for origin in reaching]
    if node.orelse is not None and all(complete for _, complete in results):
        return found, True
    return found + test, always


def _in_try(node: cst.Try | cst.TryStar, search: Search) -> tuple[list[Origin], bool]:
    """Count every way out: the body to its end, and each handler after any part of the body."""
    if any(h.name is not None and _is(h.name.name, search) for h in node.handlers):
        return anywhere(node, search, skip=[]), False
    found: list[Origin] = []
    complete = True
    for handler in node.handlers:
        reaching, always = _in_statement(handler.body, search)
        found += reaching if always else reaching + anywhere(node.body, search, skip=[])
        complete = complete and always
    parts = [node.body, *([node.orelse.body] if node.orelse is not None else [])]
    reaching, always = _in_block(parts, search)
    found += reaching
    complete = complete and always
    if node.finalbody is not None:
        last, always = _in_statement(node.finalbody.body, search)
        return (last, True) if always else (last + found, complete)
    return found, complete


def _suppresses(node: cst.With) -> bool:
    """Return whether a ``with`` goes on after an error inside, as far as its name tells."""
    names = (n.value for item in node.items for n in _all(item.item) if isinstance(n, cst.Name))
    return any("suppress" in name or "raises" in name for name in names)


def anywhere(node: cst.CSTNode, search: Search, skip: Sequence[cst.CSTNode]) -> list[Origin]:
    """Return every binding of a name at or below a node, functions and classes within left out."""
    found: list[Origin] = []
    todo = [node]
    while todo:
        current = todo.pop()
        if any(current is s for s in skip):
            continue
        kind = current.__class__  # asked of every node: a check of ABCs takes ten times as long
        if current is not node and kind in (cst.FunctionDef, cst.ClassDef):
            found += _in_statement(current, search)[0]
            continue
        if kind in _BINDING:
            found += _bindings(current, search)
        todo += reversed(children(current))
    return found


_BINDING = frozenset(
    {cst.For, cst.With, cst.NamedExpr, cst.CompFor, cst.MatchAs, cst.MatchStar, cst.AsName,
     cst.MatchMapping, cst.Assign, cst.AnnAssign, cst.AugAssign, cst.Import, cst.ImportFrom,
     cst.Del, cst.Nonlocal, cst.Global}
)  # fmt: skip


def _bindings(node: cst.CSTNode, search: Search) -> list[Origin]:
    """Return what one node binds by itself."""
    if isinstance(node, (cst.For, cst.With)):
        return _header(node, search)[0]
    if isinstance(node, cst.NamedExpr):
        return [Origin(node.value)] if _is(node.target, search) else []
    if isinstance(node, cst.CompFor):
        bound = any(n.value == search.name for n in _names(node.target))
        return [Origin(node, "opaque")] if bound else []
    if isinstance(node, (cst.MatchAs, cst.MatchStar, cst.AsName)):
        return [Origin(node, "opaque")] if _is(node.name, search) else []
    if isinstance(node, cst.MatchMapping):
        return [Origin(node, "opaque")] if _is(node.rest, search) else []
    return _assigned(node, search)


def _is(node: cst.CSTNode | None, search: Search) -> bool:
    return isinstance(node, cst.Name) and node.value == search.name


def _declares(node: cst.Nonlocal | cst.Global, search: Search) -> bool:
    return any(item.name.value == search.name for item in node.names)


def _header(node: cst.For | cst.With, search: Search) -> tuple[list[Origin], bool]:
    targets: list[cst.CSTNode] = []
    if isinstance(node, cst.For):
        targets = [node.target]
    else:
        targets = [item.asname.name for item in node.items if item.asname]
    bound = any(t.value == search.name for target in targets for t in _names(target))
    return ([Origin(node, "opaque")] if bound else []), bound


def _in_simple(node: cst.CSTNode, search: Search) -> tuple[list[Origin], bool]:
    found = _assigned(node, search)
    if found:
        return found, not isinstance(node, (cst.Nonlocal, cst.Global))
    return _walrus(node, search, skip=[])


def _assigned(node: cst.CSTNode, search: Search) -> list[Origin]:
    """Return what a simple statement binds a name to; a walrus inside it left out."""
    pairs: list[tuple[cst.BaseExpression, cst.BaseExpression | None]] = []
    if isinstance(node, cst.Assign):
        pairs = [(target.target, node.value) for target in node.targets]
    elif isinstance(node, cst.AnnAssign):
        pairs = [(node.target, node.value)] if node.value is not None else []
    elif isinstance(node, cst.AugAssign):
        pairs = [(node.target, None)]
    elif isinstance(node, (cst.Import, cst.ImportFrom, cst.Del)):
        if any(_is(n, search) for n in _all(node)):
            return [Origin(node, "opaque")]
    elif isinstance(node, (cst.Nonlocal, cst.Global)) and _declares(node, search):
        return [Origin(node, "opaque")]
    for target, value in pairs:
        bound = _bind(target, value, node, search)
        if bound is not None:
            return [bound]
    return []


def _bind(
    target: cst.BaseExpression, value: cst.BaseExpression | None, node: cst.CSTNode, search: Search
) -> Origin | None:
    if isinstance(target, cst.Name):
        if target.value != search.name:
            return None
        return Origin(node, "opaque") if value is None else Origin(value)
    if not isinstance(target, (cst.Tuple, cst.List)):
        return None  # an attribute or an element: no name is bound
    for index, element in enumerate(target.elements):
        if not any(n.value == search.name for n in _names(element.value)):
            continue
        plain = not any(isinstance(e, cst.StarredElement) for e in target.elements)
        if plain and isinstance(value, (cst.Tuple, cst.List)):
            if len(value.elements) == len(target.elements):
                return _bind(element.value, value.elements[index].value, node, search)
        elif plain and value is not None:
            return Origin(value, "element", index)
        return Origin(node, "opaque")
    return None


def _walrus(
    node: cst.CSTNode, search: Search, skip: Sequence[cst.CSTNode]
) -> tuple[list[Origin], bool]:
    """Return what walruses in an expression or statement bind, and whether one always runs."""
    if not search.walrus:
        return [], False
    found: list[Origin] = []
    always = False
    todo = [(node, True)]
    while todo:
        current, sure = todo.pop(0)
        if any(current is s for s in skip):
            continue
        if isinstance(current, cst.NamedExpr) and _is(current.target, search):
            found.append(Origin(current.value))
            always = always or sure
        maybe = isinstance(current, (cst.BooleanOperation, cst.IfExp, cst.Lambda, cst.BaseComp))
        todo = [(child, sure and not maybe) for child in children(current)] + todo
    return found, always


def _names(target: cst.CSTNode) -> Iterator[cst.Name]:
    """Yield the names that a target binds; those inside subscripts and attributes do not count."""
    if isinstance(target, cst.Name):
        yield target
    elif isinstance(target, (cst.Tuple, cst.List)):
        for element in target.elements:
            yield from _names(element.value)


def _all(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    todo = [node]
    while todo:
        current = todo.pop()
        yield current
        todo.extend(children(current))


def parameters(params: cst.Parameters) -> list[cst.Param]:
    """Return all parameters of a function, of every kind."""
    found = [*params.posonly_params, *params.params, *params.kwonly_params]
    found += [p for p in (params.star_arg, params.star_kwarg) if isinstance(p, cst.Param)]
    return found
