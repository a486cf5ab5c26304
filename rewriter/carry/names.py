"""What statements bind and read; what a module uses without having it."""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Iterable

from rewriter.carry.units import Unit


def independent(one: Iterable[Unit], two: Iterable[Unit]) -> bool:
    """Tell whether neither group binds what the other reads or binds."""
    first, second = list(one), list(two)
    bound_one, bound_two = bound(first), bound(second)
    return not (bound_one & (bound_two | read(second)) or bound_two & read(first))


def bound(units: Iterable[Unit]) -> set[str]:
    """Return the names, and dotted names such as ``self.x``, that statements bind."""
    found: set[str] = set()
    for node in _nodes(units):
        if isinstance(node, (ast.Name, ast.Attribute)) and not isinstance(node.ctx, ast.Load):
            found.add(ast.unparse(node))
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            found.add(ast.unparse(node.value))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).split(".")[0])
    return found


def read(units: Iterable[Unit]) -> set[str]:
    """Return the names and dotted names that statements read."""
    return {
        ast.unparse(node)
        for node in _nodes(units)
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load)
    }


def _nodes(units: Iterable[Unit]) -> Iterable[ast.AST]:
    for unit in units:
        for node in unit.nodes:
            yield from ast.walk(node)


def defined(units: Iterable[Unit]) -> set[str]:
    """Return the names that statements bind where they stand, not inside of definitions."""
    found: set[str] = set()
    for unit in units:
        for node in unit.nodes:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found.add(node.name)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                found |= {(a.asname or a.name).split(".")[0] for a in node.names}
            elif isinstance(node, ast.Assign):
                found |= {ast.unparse(t) for t in node.targets}
            elif isinstance(node, ast.AnnAssign):
                found.add(ast.unparse(node.target))
    return found


def unresolved(text: str, path: str) -> set[str]:
    """Return the global names that a module reads and never binds."""
    top = symtable.symtable(text, path, "exec")
    known = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()}
    known |= {s.get_name() for s in top.get_symbols() if s.is_namespace()}
    known |= set(dir(builtins)) | {"__file__", "__name__", "__path__", "__builtins__"}
    missing: set[str] = set()
    todo = [top]
    while todo:
        table = todo.pop()
        todo += table.get_children()
        for symbol in table.get_symbols():
            free = symbol.is_global() or table is top
            if symbol.is_declared_global() and symbol.is_assigned():
                known.add(symbol.get_name())
            if free and symbol.is_referenced():
                missing.add(symbol.get_name())
    return missing - known


def attributes(tree: ast.AST) -> set[str]:
    """Return the attributes of ``self`` that a module reads or binds, and its methods' names."""
    found = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    return found | {
        node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    }
