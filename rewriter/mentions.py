"""Every mention of a method accounted for: what calls it under another name, or elsewhere.

A finder that knows the calls of a method knows nothing of the method kept in a local, handed on, or
called from a method beside. These find what it would have missed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection

import libcst as cst

from rewriter.codemod import Drift
from rewriter.definition import Definition


def only_called(definition: Definition, names: Collection[str]) -> None:
    """Refuse methods that are kept, handed on or named in a string.

    Raises:
        Drift: one is.
    """
    node = aliased(definition, names)
    if node is not None:
        raise Drift("a method is not called where it is named: what calls it is not known", node)


def only_in(definition: Definition, known: Collection[str], names: Collection[str]) -> None:
    """Refuse attributes that other methods of the definition's class mention.

    Raises:
        Drift: one does.
    """
    line = beside(definition, names, known)
    if line is not None:
        raise Drift(f"another method of the class does the same: line {line}")


def aliased(definition: Definition, names: Collection[str]) -> cst.CSTNode | None:
    """Return a mention of a method that is not a call of it: kept, handed on, or in a string."""
    for node in definition.nodes:
        kind = node.__class__  # asked of every node: a check of ABCs takes ten times as long
        if kind is cst.Attribute and node.attr.value in names:  # type: ignore[attr-defined]
            parent = definition.parents[node]
            if not (isinstance(parent, cst.Call) and parent.func is node):
                return node
        elif kind is cst.SimpleString and spells(node.value, names):  # type: ignore[attr-defined]
            return node  # as ``getattr`` takes it
    return None


def spells(literal: str, names: Collection[str]) -> bool:
    """Return whether a string literal is one of some names."""
    return any(name in literal for name in names) and ast.literal_eval(literal) in names


def beside(definition: Definition, names: Collection[str], known: Collection[str]) -> int | None:
    """Return a line of the definition's class that mentions an attribute, or None.

    Args:
        definition: a method.
        names: the attributes.
        known: names of the methods that may mention them; nothing is said where one is missing.
    """
    owner = definition.name.rpartition(".")[0]
    if not all(f"{owner}.{name}" in definition.source.nodes for name in known):
        return None
    word = re.compile(rf"\.\s*(?:{'|'.join(map(re.escape, sorted(names)))})\b")
    for kind in definition.source.nodes.get(owner, []):
        for statement in getattr(kind, "body", []):
            if getattr(statement, "name", None) in known:
                continue
            if word.search(_lines(definition, statement)) is None:
                continue  # a walk takes as long as all the rest
            for node in ast.walk(statement):
                if isinstance(node, ast.Attribute) and node.attr in names:
                    return node.lineno
    return None


def _lines(definition: Definition, statement: ast.stmt) -> str:
    source = definition.source
    start = source.line_start(statement.lineno)
    return source.text[start : source.line_start((statement.end_lineno or 0) + 1)]


def calls_with(
    definition: Definition, one: Collection[str], other: Collection[str]
) -> list[cst.Call]:
    """Return the calls that are given one of some expressions and one of others, by their code.

    What a call is given is what stands in its arguments or in front of its method.
    """
    given: dict[cst.Call, set[str]] = {}
    wanted = {*one, *other}
    tails = {code.rpartition(".")[2] for code in wanted}
    for node in definition.nodes:
        if isinstance(node, cst.Attribute):
            tail = node.attr.value
        elif isinstance(node, cst.Name):
            tail = node.value
        else:
            continue
        if tail not in tails or definition.code(node) not in wanted:  # a look before measuring
            continue
        around = definition.parents[node]
        while around is not None and not isinstance(around, cst.BaseStatement):
            if isinstance(around, cst.Call):
                given.setdefault(around, set()).add(definition.code(node))
            around = definition.parents[around]
    return [call for call, codes in given.items() if codes & set(one) and codes & set(other)]
