"""Names that the patch uses of things whose class is not known, and that upstream has no more."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rewriter.carry.contracts import Fault
from rewriter.carry.package import DEFINITIONS, Module
from rewriter.carry.paths import Tree
from rewriter.carry.scopes import touching


def faults(
    module: Module, lines: frozenset[int], path: str, trees: tuple[Tree, Tree], own: set[str]
) -> Iterator[Fault]:
    """Yield the attributes and keywords that the patch's release has and the other one nowhere.

    Args:
        path: of the file in the other release.
        trees: the patch's release and the other one.
        own: what the patch itself defines; never told.
    """
    older, newer = trees
    told: set[str] = set()
    for name, line in _used(module, lines):
        if name in own or name in told or newer.names(path, name):
            continue
        told.add(name)
        if not newer.name_anywhere(name) and older.name_anywhere(name):
            yield Fault(line, f"the patch uses `{name}`, a name that upstream has nowhere any more")


def defined(module: Module, lines: frozenset[int]) -> Iterator[str]:
    """Yield the names and attributes that some lines bind."""
    for node, _ in touching(module, lines):
        if isinstance(node, DEFINITIONS):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            yield node.attr
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id


def _used(module: Module, lines: frozenset[int]) -> Iterator[tuple[str, int]]:
    for node, _ in touching(module, lines):
        if isinstance(node, ast.Attribute) and (node.end_lineno or node.lineno) in lines:
            yield node.attr, node.end_lineno or node.lineno
        elif isinstance(node, ast.keyword) and node.arg is not None and node.lineno in lines:
            yield node.arg, node.lineno
