"""Data flow forward, inside one definition: what takes a value in the end."""

from __future__ import annotations

from collections.abc import Collection

import libcst as cst

from rewriter.definition import Definition
from rewriter.flow import RESHAPES, captured, method, origins, viewed_by


def uses(
    definition: Definition, expression: cst.CSTNode, views: Collection[str] = ()
) -> list[cst.CSTNode]:
    """Follow an expression forward: return what takes its value in the end, in no order.

    The other way round to ``trace``: looks through the same steps and the names that they are
    bound to. What takes it is a call's argument (the ``Arg``), an attribute that is no reshaping
    method, a statement, or any other node around it. ``views`` are those of ``trace``.
    """
    found: list[cst.CSTNode] = []
    seen: set[cst.CSTNode] = set()
    todo = [expression]
    while todo:
        node = todo.pop(0)
        if node in seen:
            continue
        seen.add(node)
        onward, names = _onward(definition, node, views)
        for name in names:
            found += _declared(definition, name.value)
            todo += [
                use for use in definition.nodes
                if use.__class__ is cst.Name and use.value == name.value
                and is_read(definition, use)
                and _may_be(definition, use, node)
            ]  # fmt: skip
        if onward is None and not names:
            parent = definition.parents[node]
            found += [parent] if parent is not None else []
        elif onward is not None:
            todo.append(onward)
    return found


def _onward(
    definition: Definition, node: cst.CSTNode, views: Collection[str]
) -> tuple[cst.CSTNode | None, list[cst.Name]]:
    """Return the larger expression that still is this value, and the names it is bound to."""
    parent = definition.parents[node]
    if isinstance(parent, cst.Attribute) and parent.value is node:
        call = definition.parents[parent]
        if isinstance(call, cst.Call) and call.func is parent and method(call) in RESHAPES:
            return call, []
    if isinstance(parent, cst.Subscript) and parent.value is node:
        return parent, []
    if isinstance(parent, cst.Arg) and views:
        call = definition.parents[parent]
        if isinstance(call, cst.Call) and viewed_by(call, views) is parent:
            return call, []
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


def is_read(definition: Definition, name: cst.CSTNode) -> bool:
    """Return whether a name is read where it stands, and not bound or a part of another name."""
    parent = definition.parents[name]
    if isinstance(parent, (cst.Attribute, cst.Arg)):
        return parent.value is name
    if isinstance(parent, cst.AugAssign):
        return True
    return not isinstance(parent, cst.Param) and not is_target(definition, name)


def is_target(definition: Definition, node: cst.CSTNode) -> bool:
    """Return whether an expression is one that is bound, stored to or deleted where it stands."""
    parent = definition.parents[node]
    while isinstance(parent, (cst.Element, cst.StarredElement, cst.Tuple, cst.List)):
        node, parent = parent, definition.parents[parent]
    if isinstance(parent, (cst.AnnAssign, cst.AugAssign, cst.NamedExpr, cst.For, cst.CompFor)):
        return parent.target is node
    return isinstance(parent, (cst.AssignTarget, cst.AsName, cst.Del))


def only_looked_at(definition: Definition, taken: cst.CSTNode, parts: Collection[str]) -> bool:
    """Return whether what takes a value looks at one of some parts of it, or whether it is there.

    Args:
        definition: what all of it stands in.
        taken: one of what ``uses`` returns.
        parts: attributes, such as ``dtype``, and elements of them, such as ``shape[-1]``.
    """
    if isinstance(taken, cst.Comparison):
        return all(isinstance(c.operator, (cst.Is, cst.IsNot)) for c in taken.comparisons)
    if not isinstance(taken, cst.Attribute):
        return False
    if taken.attr.value in parts:
        return True
    around = definition.parents[taken]
    if not isinstance(around, cst.Subscript) or around.value is not taken:
        return False
    index = definition.code(around.slice[0].slice)
    return len(around.slice) == 1 and f"{taken.attr.value}[{index}]" in parts
