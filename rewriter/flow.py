"""Data flow inside one definition: where a value came from.

Conservative and small: a name's origins are all assignments that can reach a place. What is not
understood (a loop variable, a name bound by ``with``, ``except`` or ``match``, a name of a
comprehension) is an origin of its own and never silently skipped. Where control can leave a block
half-way (loops, ``try``) every assignment in it counts.
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
    while (parent := definition.parents[node]) is not None:
        reaching, complete = _before(node, parent, name.value)
        found += [origin for origin in reaching if origin not in found]
        if complete:
            return found
        node = parent
    return [*found, Origin(name, "free")]


def trace(definition: Definition, expression: cst.CSTNode) -> list[Origin]:
    """Follow an expression back to what it shares its elements with.

    Looks through names, slices, conditional expressions and reshaping calls (``view``,
    ``reshape``, ``contiguous``, ``unsqueeze``, ``squeeze``, ``flatten``), and stops at anything
    else.
    """
    found: list[Origin] = []
    seen: set[Origin] = set()
    todo = [Origin(expression)]
    while todo:
        origin = todo.pop(0)
        if origin in seen:
            continue
        seen.add(origin)
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


def _before(node: cst.CSTNode, parent: cst.CSTNode, name: str) -> tuple[list[Origin], bool]:
    """Return the assignments between a parent's start and its child, and whether one is sure."""
    if isinstance(parent, (cst.IndentedBlock, cst.SimpleStatementSuite, cst.SimpleStatementLine)):
        return _in_block(parent.body[: _index(parent.body, node)], name)
    if isinstance(parent, cst.Module):
        return _in_block(parent.body[: _index(parent.body, node)], name)
    if isinstance(parent, (cst.FunctionDef, cst.Lambda)):
        return _at_function(node, parent, name)
    if isinstance(parent, (cst.For, cst.While)):
        return _at_loop(node, parent, name)
    if isinstance(parent, (cst.Try, cst.TryStar)):
        return ([], False) if node is parent.body else (_any(parent, name, skip=[node]), False)
    if isinstance(parent, cst.With):
        return _header(parent, name) if node is parent.body else ([], False)
    if isinstance(parent, (cst.ExceptHandler, cst.ExceptStarHandler, cst.MatchCase)):
        return _any(parent, name, skip=[parent.body]), False
    if isinstance(parent, cst.If):
        return _walrus(parent, name, skip=[parent.body, *_maybe(parent.orelse)])
    if isinstance(parent, (cst.BaseComp, cst.CompFor)):
        return _any(parent, name, skip=[]), False
    if isinstance(parent, cst.NamedExpr):
        return [], False  # what it binds, it binds after its value
    if isinstance(parent, (cst.BaseSmallStatement, cst.BaseExpression)):
        return _walrus(parent, name, skip=[node])[0], False  # beside it in one statement
    return [], False


def _index(body: Sequence[cst.CSTNode], node: cst.CSTNode) -> int:
    return next((i for i, item in enumerate(body) if item is node), 0)


def _maybe(node: cst.CSTNode | None) -> list[cst.CSTNode]:
    return [] if node is None else [node]


def _at_function(
    node: cst.CSTNode, function: cst.FunctionDef | cst.Lambda, name: str
) -> tuple[list[Origin], bool]:
    """End at a function's head: what is bound outside may be bound again before it is called."""
    if node is not function.body:
        return [], False
    for param in _parameters(function.params):
        if param.name.value == name:
            return [Origin(param, "parameter")], True
    return [Origin(function, "free")], True


def _at_loop(node: cst.CSTNode, loop: cst.For | cst.While, name: str) -> tuple[list[Origin], bool]:
    """Count what an earlier turn may have left; a ``for`` binds its target before every turn."""
    if isinstance(loop, cst.For):
        if node is loop.iter:
            return [], False
        bound, complete = _header(loop, name)
        if node is loop.body and complete:
            return bound, True
    return _any(loop, name, skip=[]), False


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
        return [], True  # nothing reaches what follows; loops and try count all of their blocks
    if isinstance(node, cst.If):
        return _in_if(node, name)
    if isinstance(node, cst.With):
        reaching, complete = _in_statement(node.body, name)
        head, bound = ([], False) if complete else _header(node, name)
        return reaching + head, complete or bound
    if isinstance(node, (cst.For, cst.While, cst.Try, cst.TryStar, cst.Match)):
        return _any(node, name, skip=[]), False
    if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
        inner = [n for n in _all(node) if isinstance(n, (cst.Nonlocal, cst.Global))]
        changed = node.name.value == name or any(_declares(n, name) for n in inner)
        return ([Origin(node, "opaque")] if changed else []), node.name.value == name
    return _in_simple(node, name)


def _in_if(node: cst.If, name: str) -> tuple[list[Origin], bool]:
    branches: list[cst.CSTNode] = [node.body, *_maybe(node.orelse)]
    test, always = _walrus(node, name, skip=branches)
    results = [_in_statement(b.body if isinstance(b, cst.Else) else b, name) for b in branches]
    found = [origin for reaching, _ in results for origin in reaching]
    if node.orelse is not None and all(complete for _, complete in results):
        return found, True
    return found + test, always


def _any(node: cst.CSTNode, name: str, skip: Sequence[cst.CSTNode]) -> list[Origin]:
    """Return every binding of a name at or below a node, functions and classes within left out."""
    found: list[Origin] = []
    todo = [node]
    while todo:
        current = todo.pop(0)
        if any(current is s for s in skip):
            continue
        if current is not node and isinstance(current, (cst.FunctionDef, cst.ClassDef)):
            found += _in_statement(current, name)[0]
            continue
        found += _bindings(current, name)
        todo = children(current) + todo
    return found


def _bindings(node: cst.CSTNode, name: str) -> list[Origin]:
    """Return what one node binds by itself."""
    if isinstance(node, (cst.For, cst.With)):
        return _header(node, name)[0]
    if isinstance(node, cst.NamedExpr):
        return [Origin(node.value)] if _is(node.target, name) else []
    if isinstance(node, cst.CompFor):
        bound = any(n.value == name for n in _names(node.target))
        return [Origin(node, "opaque")] if bound else []
    if isinstance(node, (cst.MatchAs, cst.MatchStar, cst.AsName)):
        return [Origin(node, "opaque")] if _is(node.name, name) else []
    if isinstance(node, cst.MatchMapping):
        return [Origin(node, "opaque")] if _is(node.rest, name) else []
    return _assigned(node, name)


def _is(node: cst.CSTNode | None, name: str) -> bool:
    return isinstance(node, cst.Name) and node.value == name


def _declares(node: cst.Nonlocal | cst.Global, name: str) -> bool:
    return any(item.name.value == name for item in node.names)


def _header(node: cst.For | cst.With, name: str) -> tuple[list[Origin], bool]:
    targets: list[cst.CSTNode] = []
    if isinstance(node, cst.For):
        targets = [node.target]
    else:
        targets = [item.asname.name for item in node.items if item.asname]
    bound = any(t.value == name for target in targets for t in _names(target))
    return ([Origin(node, "opaque")] if bound else []), bound


def _in_simple(node: cst.CSTNode, name: str) -> tuple[list[Origin], bool]:
    found = _assigned(node, name)
    if found:
        return found, not isinstance(node, (cst.Nonlocal, cst.Global))
    return _walrus(node, name, skip=[])


def _assigned(node: cst.CSTNode, name: str) -> list[Origin]:
    """Return what a simple statement binds a name to; a walrus inside it left out."""
    pairs: list[tuple[cst.BaseExpression, cst.BaseExpression | None]] = []
    if isinstance(node, cst.Assign):
        pairs = [(target.target, node.value) for target in node.targets]
    elif isinstance(node, cst.AnnAssign):
        pairs = [(node.target, node.value)] if node.value is not None else []
    elif isinstance(node, cst.AugAssign):
        pairs = [(node.target, None)]
    elif isinstance(node, (cst.Import, cst.ImportFrom, cst.Del)):
        if any(_is(n, name) for n in _all(node)):
            return [Origin(node, "opaque")]
    elif isinstance(node, (cst.Nonlocal, cst.Global)) and _declares(node, name):
        return [Origin(node, "opaque")]
    for target, value in pairs:
        bound = _bind(target, value, node, name)
        if bound is not None:
            return [bound]
    return []


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


def _walrus(node: cst.CSTNode, name: str, skip: Sequence[cst.CSTNode]) -> tuple[list[Origin], bool]:
    """Return what walruses in an expression or statement bind, and whether one always runs."""
    found: list[Origin] = []
    always = False
    todo = [(node, True)]
    while todo:
        current, sure = todo.pop(0)
        if any(current is s for s in skip):
            continue
        if isinstance(current, cst.NamedExpr) and _is(current.target, name):
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


def _parameters(params: cst.Parameters) -> list[cst.Param]:
    found = [*params.posonly_params, *params.params, *params.kwonly_params]
    found += [p for p in (params.star_arg, params.star_kwarg) if isinstance(p, cst.Param)]
    return found
