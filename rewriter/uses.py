"""Data flow forward, inside one definition: what takes a value in the end."""

from __future__ import annotations

import libcst as cst

from rewriter.definition import Definition
from rewriter.flow import RESHAPES, captured, method, origins


def uses(definition: Definition, expression: cst.CSTNode) -> list[cst.CSTNode]:
    """Follow an expression forward: return what takes its value in the end, in no order.

    The other way round to ``trace``: looks through the same steps and the names that they are
    bound to. What takes it is a call's argument (the ``Arg``), an attribute that is no reshaping
    method, a statement, or any other node around it.
    """
    found: list[cst.CSTNode] = []
    seen: set[cst.CSTNode] = set()
    todo = [expression]
    while todo:
        node = todo.pop(0)
        if node in seen:
            continue
        seen.add(node)
        onward, names = _onward(definition, node)
        for name in names:
            found += _declared(definition, name.value)
            todo += [
                use for use in definition.nodes
                if use.__class__ is cst.Name and use.value == name.value
                and _is_read(definition, use)
                and _may_be(definition, use, node)
            ]  # fmt: skip
        if onward is None and not names:
            parent = definition.parents[node]
            found += [parent] if parent is not None else []
        elif onward is not None:
            todo.append(onward)
    return found


def _onward(definition: Definition, node: cst.CSTNode) -> tuple[cst.CSTNode | None, list[cst.Name]]:
    """Return the larger expression that still is this value, and the names it is bound to."""
    parent = definition.parents[node]
    if isinstance(parent, cst.Attribute) and parent.value is node:
        call = definition.parents[parent]
        if isinstance(call, cst.Call) and call.func is parent and method(call) in RESHAPES:
            return call, []
    if isinstance(parent, cst.Subscript) and parent.value is node:
        return parent, []
    if isinstance(parent, cst.IfExp) and parent.test is not node:
        return parent, []
    if isinstance(parent, cst.NamedExpr):
        return parent, [parent.target] if isinstance(parent.target, cst.Name) else []
    if isinstance(parent, cst.Assign):
        targets = [target.target for target in parent.targets]
        if all(isinstance(target, cst.Name) for target in targets):
            return None, [target for target in targets if isinstance(target, cst.Name)]
    if isinstance(parent, cst.Element):
        return None, _paired(definition, parent)
    if isinstance(parent, cst.AnnAssign) and isinstance(parent.target, cst.Name):
        return None, [parent.target]
    return None, []


def _paired(definition: Definition, element: cst.Element) -> list[cst.Name]:
    """Return the name that an element of ``a, b = c, d`` is bound to; none where that is not it."""
    values = definition.parents[element]
    assign = definition.parents[values] if isinstance(values, cst.Tuple) else None
    if not isinstance(assign, cst.Assign) or len(assign.targets) != 1:
        return []
    assert isinstance(values, cst.Tuple)
    targets = assign.targets[0].target
    if not isinstance(targets, cst.Tuple) or len(targets.elements) != len(values.elements):
        return []
    if not all(isinstance(e, cst.Element) for e in (*targets.elements, *values.elements)):
        return []  # starred: which is which is not told by position
    target = targets.elements[values.elements.index(element)].value
    return [target] if isinstance(target, cst.Name) else []


def _declared(definition: Definition, name: str) -> list[cst.CSTNode]:
    """Return what says that a name is bound outside, where anything may read it."""
    return [
        node for node in definition.nodes
        if node.__class__ in (cst.Global, cst.Nonlocal)
        and any(item.name.value == name for item in node.names)
    ]  # fmt: skip


def _may_be(definition: Definition, use: cst.Name, value: cst.CSTNode) -> bool:
    """Return whether a name can mean this value where it is read, in a nested function too."""
    found = origins(definition, use)
    if any(isinstance(o.node, (cst.FunctionDef, cst.Lambda)) for o in found if o.what == "free"):
        found += captured(definition, use)
    return any(o.node is value for o in found)


def _is_read(definition: Definition, name: cst.Name) -> bool:
    """Return whether a name is read where it stands, and not bound or a part of another name."""
    node: cst.CSTNode = name
    parent = definition.parents[node]
    while isinstance(parent, (cst.Element, cst.StarredElement, cst.Tuple, cst.List)):
        node, parent = parent, definition.parents[parent]
    if isinstance(parent, cst.Attribute):
        return parent.value is node
    if isinstance(parent, (cst.AnnAssign, cst.NamedExpr, cst.For, cst.CompFor)):
        return parent.target is not node
    if isinstance(parent, cst.Arg):
        return parent.value is node
    return not isinstance(parent, (cst.AssignTarget, cst.Param, cst.AsName, cst.Del))
