"""Hunks that need what another hunk brings: where that one has no place, they have none either."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rewriter.carry.package import DEFINITIONS, Module
from rewriter.carry.paths import Tree
from rewriter.carry.scopes import Scope, touching


class Word(NamedTuple):
    """A name that a patch binds or uses.

    Attributes:
        within: file and function of a local name; empty for what can be used elsewhere.
    """

    name: str
    within: str = ""


@dataclass(frozen=True)
class Part:
    """One hunk: what it brings, and what it uses with the line.

    Attributes:
        label: what a report calls it.
    """

    label: str
    brings: frozenset[Word]
    uses: dict[Word, int]


def part(label: str, module: Module | None, lines: frozenset[int]) -> Part:
    """Return what some patched lines of a module bring and use."""
    if module is None:
        return Part(label, frozenset(), {})
    brings: set[Word] = set()
    uses: dict[Word, int] = {}
    for node, scope in touching(module, lines):
        line = getattr(node, "end_lineno", None) or getattr(node, "lineno", 0)
        if isinstance(node, DEFINITIONS):
            if node.lineno in lines:
                brings.add(Word(node.name))
        elif line in lines:
            brings.update(_bound(node, scope))
            for name in _used(node, scope):
                uses.setdefault(name, line)
    return Part(label, frozenset(brings), uses)


def _bound(node: ast.AST, scope: Scope) -> Iterator[Word]:
    if isinstance(node, ast.arg):
        yield Word(node.arg)
        yield _local(node.arg, scope)
    elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
        yield Word(node.attr)
    elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield _local(node.id, scope) if scope.functions else Word(node.id)
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            yield _local((alias.asname or alias.name).split(".")[0], scope)


def _used(node: ast.AST, scope: Scope) -> Iterator[Word]:
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        yield Word(node.attr)
    elif isinstance(node, ast.keyword) and node.arg is not None:
        yield Word(node.arg)
    elif isinstance(node, ast.ImportFrom):
        yield from (Word(alias.name) for alias in node.names)
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield _local(node.id, scope)
        if not scope.local(node.id):
            yield Word(node.id)


def _local(name: str, scope: Scope) -> Word:
    return Word(name, f"{scope.module.path}:{scope.name}")


def held(
    parts: Sequence[Part], dropped: set[int], trees: tuple[Tree, Tree]
) -> dict[int, tuple[int, str]]:
    """Return the parts that need one that is dropped: the line that shows it, and why.

    Only names that the patch invents count: neither release has them.
    """
    found: dict[int, tuple[int, str]] = {}
    out = set(dropped)
    grown = True
    while grown:
        kept = {word for n, each in enumerate(parts) if n not in out for word in each.brings}
        gone = [parts[n] for n in sorted(out, reverse=True)]
        lost = {word: each.label for each in gone for word in each.brings - kept}
        grown = False
        for number, each in enumerate(parts):
            if number in out:
                continue
            for word in sorted(lost.keys() & each.uses.keys()):
                if _invented(word, trees):
                    reason = f"it needs `{word.name}`, which {lost[word]} brings"
                    found[number] = each.uses[word], reason
                    out.add(number)
                    grown = True
                    break
    return found


def _invented(word: Word, trees: tuple[Tree, Tree]) -> bool:
    path = word.within.split(":")[0]
    if path:
        return not any(tree.names(path, word.name) for tree in trees)
    return not any(tree.name_anywhere(word.name) for tree in trees)
