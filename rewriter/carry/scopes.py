"""The expressions of some lines of a module, each with the classes and functions around it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from rewriter.carry.package import DEFINITIONS, FUNCTIONS, Function, Module


class Scope(NamedTuple):
    """Where an expression stands.

    Attributes:
        owner: the class whose method is around it; None elsewhere.
        functions: the functions around it, outermost first.
    """

    module: Module
    owner: ast.ClassDef | None
    functions: tuple[Function, ...]

    @property
    def name(self) -> str:
        """The qualified name of what is around it; empty in a module's own lines."""
        names = [self.owner.name] if self.owner is not None else []
        return ".".join([*names, *(f.name for f in self.functions)])

    @property
    def receiver(self) -> str | None:
        """What a method calls its object or class, such as ``self``."""
        if self.owner is None or not self.functions:
            return None
        method = self.functions[0]
        marks = {d.id for d in method.decorator_list if isinstance(d, ast.Name)}
        arguments = [*method.args.posonlyargs, *method.args.args]
        return arguments[0].arg if arguments and "staticmethod" not in marks else None

    def local(self, name: str) -> bool:
        """Tell whether a function around it binds a name."""
        return any(name in bound_in(function) for function in self.functions)


def touching(module: Module, lines: frozenset[int]) -> Iterator[tuple[ast.AST, Scope]]:
    """Yield the nodes that have one of the lines, outer before inner."""
    yield from _walk(module.tree, Scope(module, None, ()), lines)


def _walk(
    node: ast.AST, scope: Scope, lines: frozenset[int]
) -> Iterator[tuple[ast.AST, Scope]]:  # fmt: skip
    for child in ast.iter_child_nodes(node):
        first = getattr(child, "lineno", None)
        if first is not None:
            last = getattr(child, "end_lineno", None) or first
            decorators = getattr(child, "decorator_list", [])
            first = min([first, *(d.lineno for d in decorators)])
            if lines.isdisjoint(range(first, last + 1)):
                continue
            yield child, scope
        yield from _walk(child, _inside(child, scope), lines)


def _inside(node: ast.AST, scope: Scope) -> Scope:
    if isinstance(node, ast.ClassDef) and not scope.functions:
        return scope._replace(owner=node)
    if isinstance(node, FUNCTIONS):
        return scope._replace(functions=(*scope.functions, node))
    return scope


@lru_cache(maxsize=512)
def bound_in(function: Function) -> frozenset[str]:
    """Return the names that a function binds: arguments, assignments, imports, definitions."""
    return frozenset(_bindings(function))


def _bindings(function: Function) -> Iterator[str]:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
    yield from (a.arg for a in every)
    todo: list[ast.AST] = list(function.body)
    while todo:
        node = todo.pop()
        if isinstance(node, DEFINITIONS):
            yield node.name
            continue
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from ((a.asname or a.name).split(".")[0] for a in node.names)
        elif isinstance(node, ast.arg):  # of a lambda
            yield node.arg
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            yield node.name
        todo += ast.iter_child_nodes(node)
