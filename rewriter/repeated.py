"""Code that a patch writes a second time elsewhere: it must mean the same there.

A call that is put around one expression, and is given what another one further on gets, is right
only where both get the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import libcst as cst

from rewriter.codemod import Drift
from rewriter.definition import Definition
from rewriter.flow import bound, plain_name, steps, trace
from rewriter.mentions import spells
from rewriter.uses import is_read, is_target, only_looked_at, uses

_KEEPS = (cst.BaseElement, cst.BaseDictElement, cst.Assign, cst.AnnAssign)

_LOOKS = ("shape", "dtype", "device", "ndim", "is_cuda")


def repeated(
    definition: Definition,
    node: cst.BaseExpression,
    at: cst.CSTNode,
    what: str,
    calls: Collection[cst.CSTNode] | None = None,
) -> str:
    """Return a dotted name's code, if it means at another place what it means where it stands.

    Args:
        definition: what both places are in.
        node: the dotted name.
        at: the place in front of it where its code is to be written.
        what: what it is, for messages.
        calls: the only calls that may be given it behind that place, because others could change
            it. None where it is something that nobody can change.

    Raises:
        Drift: it is no dotted name, or it may be another thing there.
    """
    code = plain_name(node)
    if code is None:
        raise Drift(f"{what} is no plain name", node)
    name, _, attributes = code.partition(".")
    if name == "torch" and attributes:
        return code
    here = bound(definition, name, node)
    if any(origin.what in ("opaque", "free") for origin in here):
        raise Drift(f"where {what}, `{code}`, comes from cannot be told", node)
    turns = _turns(definition, at)
    again = any(origin.node in turns for origin in here)
    if again or set(here) != set(bound(definition, name, at)):
        raise Drift(f"{what}, `{code}`, is bound behind the place where it is asked for", node)
    for change in _stores(definition, set(attributes.split("."))):
        raise Drift(f"{what}, `{code}`, is changed in the method", change)
    if calls is not None:
        for change in _changes(definition, node, _behind(definition, at) | turns, calls):
            raise Drift(f"{what}, `{code}`, may be changed in the method", change)
    return code


def _turns(definition: Definition, at: cst.CSTNode) -> set[cst.CSTNode]:
    """Return what may run again behind a place: all that is in the outermost loop around it."""
    loop = None
    node: cst.CSTNode | None = at
    while node is not None:
        if isinstance(node, (cst.For, cst.While, cst.BaseComp)):
            loop = node
        node = definition.parents[node]
    return set(_within(definition, loop)) if loop is not None else set()


def _behind(definition: Definition, at: cst.CSTNode) -> set[cst.CSTNode]:
    """Return what may run behind a place: what follows it, and the functions inside."""
    nodes = definition.nodes
    found = set(nodes[nodes.index(at) :])
    functions = [n for n in nodes if isinstance(n, (cst.FunctionDef, cst.Lambda))]
    for function in functions[1:]:
        found.update(_within(definition, function))
    return found


def _within(definition: Definition, around: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield a node and all nodes below it: in order, they come right behind it."""
    nodes = definition.nodes
    inside = {around}
    yield around
    for node in nodes[nodes.index(around) + 1 :]:
        if definition.parents[node] not in inside:
            return
        inside.add(node)
        yield node


def _stores(definition: Definition, attributes: Collection[str]) -> Iterator[cst.CSTNode]:
    """Yield what may store to an attribute of one of these names, whatever it is one of."""
    for node in definition.nodes:
        if isinstance(node, cst.Attribute):
            if node.attr.value in attributes and is_target(definition, node):
                yield node
        elif isinstance(node, cst.SimpleString) and spells(node.value, attributes):
            yield node  # as ``setattr`` takes it


def _changes(
    definition: Definition,
    value: cst.CSTNode,
    behind: Collection[cst.CSTNode],
    calls: Collection[cst.CSTNode],
) -> Iterator[cst.CSTNode]:
    """Yield what may change a value behind a place: all that takes it and is not known.

    So may what keeps it in front of the place. Every mention counts of a name that the value is
    known by, and of an attribute so called, whatever it is an attribute of.
    """
    roots = [origin.node for origin in trace(definition, value)]
    known_by = {_known_by(node) for node in [*steps(definition, value), *roots]} - {None}
    for node in definition.nodes:
        if _known_by(node) in known_by and is_read(definition, node):
            parent = definition.parents[node]
            if isinstance(parent, cst.Assign) and all(
                _known_by(target.target) in known_by for target in parent.targets
            ):
                continue  # the names that it is bound to are mentions as well
            for taken in uses(definition, node):
                call = definition.parents[taken]
                given = isinstance(taken, cst.Arg) or getattr(call, "func", None) is taken
                known = (given and call in calls) or only_looked_at(definition, taken, _LOOKS)
                if not known and (taken in behind or isinstance(taken, _KEEPS)):
                    yield taken


def _known_by(node: cst.CSTNode) -> tuple[type, str] | None:
    """Return how a name, or an attribute of anything, is known again elsewhere."""
    if isinstance(node, cst.Attribute):
        return cst.Attribute, node.attr.value
    return (cst.Name, node.value) if isinstance(node, cst.Name) else None
