"""A release as its own code sees it: which definition a name means, across modules and classes.

What is outside of the package, bound twice, or made at run time is unknown: nothing is concluded
from it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from rewriter.carry.paths import PACKAGE, Tree
from rewriter.carry.texts import parsed
from rewriter.errors import SourceError

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = (*FUNCTIONS, ast.ClassDef)

_DEEP = 12
"""Imports that are followed from module to module before giving up."""


class Answer(Enum):
    """What a name means where it is no definition of the package."""

    UNKNOWN = "unknown"
    MISSING = "missing"


class Place(NamedTuple):
    """A definition, and the module that it stands in."""

    module: Module
    node: Definition


Meaning = Place | Answer


class _Imported(NamedTuple):
    module: str
    name: str | None


_Binding = Definition | _Imported | None
"""None: something else, such as an assignment."""


class Module:
    """One module's own names."""

    def __init__(self, path: str, tree: ast.Module) -> None:
        self.path, self.tree = path, tree
        parts = path.removesuffix(".py").split("/")
        self.is_package = parts[-1] == "__init__"
        self.name = ".".join(parts[:-1] if self.is_package else parts)

    @cached_property
    def names(self) -> dict[str, _Binding]:
        """What the module binds; None where it is no definition and no import, or both."""
        found: dict[str, _Binding] = {}
        for name, binding in self._bindings(self.tree.body):
            found[name] = None if name in found and found[name] != binding else binding
        return found

    @cached_property
    def dynamic(self) -> bool:
        """Whether it may have names that cannot be read off it."""
        return "*" in self.names or "__getattr__" in self.names

    def _bindings(self, body: Sequence[ast.stmt]) -> Iterator[tuple[str, _Binding]]:
        for node in body:
            if isinstance(node, DEFINITIONS):
                yield node.name, node
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                yield from self.imported(node)
            else:
                yield from ((name, None) for name in stored(node))
                for block in ("body", "orelse", "finalbody"):
                    yield from self._bindings(getattr(node, block, []))
                for handler in getattr(node, "handlers", []):
                    yield from self._bindings(handler.body)

    def imported(self, node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, _Imported]]:
        """Yield each name that an import binds, and what it stands for."""
        if isinstance(node, ast.ImportFrom):
            module = self.absolute(node)
            for alias in node.names:
                yield alias.asname or alias.name, _Imported(module, alias.name)
            return
        for alias in node.names:
            first = alias.name.split(".")[0]
            yield alias.asname or first, _Imported(alias.name if alias.asname else first, None)

    def absolute(self, node: ast.ImportFrom) -> str:
        """Return the full name of the module that an import names."""
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        up = node.level - self.is_package
        around = parts[: len(parts) - up]
        return ".".join([*around, node.module] if node.module else around)


def stored(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement itself binds, not those of its blocks."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.stmt, ast.ExceptHandler)):
            continue
        for inner in ast.walk(child):
            if isinstance(inner, ast.Name) and not isinstance(inner.ctx, ast.Load):
                yield inner.id


class Package:
    """One release, with the files that a patch changes as the patch leaves them."""

    def __init__(self, tree: Tree, patched: Mapping[str, bytes | None]) -> None:
        self.tree, self.patched = tree, patched
        self._modules: dict[str, Module | None] = {}

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes, or None."""
        return self.patched[path] if path in self.patched else self.tree.read(path)

    def at(self, path: str) -> Module | None:
        """Return the module of a path; None where there is none that can be parsed."""
        if path not in self._modules:
            raw = self.read(path)
            try:
                self._modules[path] = Module(path, parsed(path, raw).tree) if raw else None
            except SourceError:
                self._modules[path] = None
        return self._modules[path]

    def module(self, name: str) -> Module | Answer:
        """Return the module of a dotted name."""
        if name.split(".")[0] != PACKAGE:
            return Answer.UNKNOWN
        base = name.replace(".", "/")
        for path in (f"{base}.py", f"{base}/__init__.py"):
            if self.read(path) is not None:
                return self.at(path) or Answer.UNKNOWN
        files = (*self.tree.files, *(p for p, raw in self.patched.items() if raw is not None))
        inside = any(path.startswith(f"{base}/") for path in files)
        return Answer.UNKNOWN if inside else Answer.MISSING

    def member(self, module: Module, name: str, deep: int = 0) -> Meaning:
        """Return what a name of a module means."""
        if name not in module.names:
            inside = self.module(f"{module.name}.{name}") if module.is_package else Answer.MISSING
            known = module.dynamic or inside is not Answer.MISSING
            return Answer.UNKNOWN if known else Answer.MISSING
        binding = module.names[name]
        if isinstance(binding, _Imported):
            return self.imported(binding.module, binding.name, deep + 1)
        return Place(module, binding) if binding is not None else Answer.UNKNOWN

    def imported(self, module: str, name: str | None, deep: int = 0) -> Meaning:
        """Return what an import brings."""
        if name is None or deep > _DEEP:
            return Answer.UNKNOWN
        found = self.module(module)
        return self.member(found, name, deep) if isinstance(found, Module) else found

    def bases(self, place: Place) -> list[Place] | None:
        """Return a class and all that it inherits from; None where one is unknown."""
        found, known = self.ancestry(place)
        return found if known else None

    def ancestry(self, place: Place) -> tuple[list[Place], bool]:
        """Return a class and its known ancestors, nearest first, and whether these are all."""
        found, known, todo = [place], True, [place]
        while todo:
            here = todo.pop(0)
            assert isinstance(here.node, ast.ClassDef)
            for base in here.node.bases:
                meaning = self.expression(here.module, base)
                if isinstance(meaning, Place) and isinstance(meaning.node, ast.ClassDef):
                    if meaning not in found:
                        found.append(meaning)
                        todo.append(meaning)
                elif not (isinstance(base, ast.Name) and base.id in _BARE_BASES):
                    known = False
        return found, known

    def expression(self, module: Module, node: ast.expr) -> Meaning:
        """Return what ``name`` or ``module.name`` means in a module."""
        if isinstance(node, ast.Name):
            return self.member(module, node.id) if node.id in module.names else Answer.UNKNOWN
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            binding = module.names.get(node.value.id)
            if isinstance(binding, _Imported):
                whole = binding.module + (f".{binding.name}" if binding.name else "")
                found = self.module(whole)
                if isinstance(found, Module):
                    return self.member(found, node.attr)
        return Answer.UNKNOWN


_BARE_BASES = frozenset({"object", "ABC", "Protocol", "Generic"})
"""Bases that bring nothing that a patch could miss."""
