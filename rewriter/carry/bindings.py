"""What lines of code read that nothing around them binds: attributes of ``self``, and locals."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from rewriter.carry.contracts import Fault, Key
from rewriter.carry.package import DEFINITIONS, FUNCTIONS, Function, Module, Package, Place, stored
from rewriter.carry.scopes import Scope, bound_in, touching

_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def faults(module: Module, lines: frozenset[int], package: Package) -> dict[Key, Fault]:
    """Return what some lines read and nothing binds where they stand."""
    found: dict[Key, Fault] = {}
    for node, scope in touching(module, lines):
        if not isinstance(getattr(node, "ctx", None), ast.Load):
            continue
        if isinstance(node, ast.Name):
            each = _local(node, scope)
        elif isinstance(node, ast.Attribute):
            each = _own(node, scope, package)
        else:
            continue
        for key, reason in each:
            found.setdefault(key, Fault(getattr(node, "lineno", 1), reason))
    return found


def _local(node: ast.Name, scope: Scope) -> Iterator[tuple[Key, str]]:
    """Tell a name that is no local one, or none yet where it is read."""
    name = node.id
    where = [function for function in scope.functions if name in bound_in(function)]
    if not where:
        yield ("global", name), f"the patch reads `{name}`, no local name there"
        return
    first = _first_binding(where[-1], name)
    if where[-1] is scope.functions[-1] and first is not None and first > node.lineno:
        yield ("early", name), f"the patch reads `{name}` before it is bound there"


@lru_cache(maxsize=4096)
def _first_binding(function: Function, name: str) -> int | None:
    """Return the line that binds a name first; None where a loop may have bound it before."""
    found: list[int] = []
    for node in ast.walk(function):
        if isinstance(node, ast.arg) and node.arg == name:
            return None
        binds = isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
        if isinstance(node, DEFINITIONS) and node is not function and node.name == name:
            binds = True
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            binds = any((a.asname or a.name).split(".")[0] == name for a in node.names)
        elif _anytime(node, name):
            return None
        if binds:
            found.append(node.lineno)  # type: ignore[attr-defined]
    return min(found, default=None)


def _anytime(node: ast.AST, name: str) -> bool:
    """Tell whether a node may bind a name before or after what stands above it."""
    if isinstance(node, _LOOPS):
        return _stores(node, name)
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        return name in node.names
    if isinstance(node, ast.comprehension):
        return _stores(node.target, name)
    return isinstance(node, (ast.ExceptHandler, ast.MatchAs)) and node.name == name


def _stores(node: ast.AST, name: str) -> bool:
    return any(
        isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)
        for n in ast.walk(node)
    )


def _own(node: ast.Attribute, scope: Scope, package: Package) -> Iterator[tuple[Key, str]]:
    """Tell an attribute of ``self`` that neither the class nor what it inherits from binds."""
    owner = scope.owner
    if owner is None or not isinstance(node.value, ast.Name) or node.value.id != scope.receiver:
        return
    if not binds(Place(scope.module, owner), node.attr, package):
        text = f"`{ast.unparse(node)}`"
        yield (
            ("self", node.attr),
            f"the patch uses {text}, and `{owner.name}` has no such attribute{_hint(node, scope)}",
        )


def _hint(node: ast.Attribute, scope: Scope) -> str:
    """Return through which attribute upstream reads a name by now, for a report."""
    found = {
        ast.unparse(each)
        for each in ast.walk(scope.module.tree)
        if isinstance(each, ast.Attribute)
        and each.attr == node.attr
        and isinstance(each.value, ast.Attribute)
        and ast.unparse(each.value.value) == scope.receiver
    }
    return f"; upstream reads `{found.pop()}` by now" if len(found) == 1 else ""


def binds(place: Place, name: str, package: Package) -> bool:
    """Tell whether a class, an ancestor, or a class made of it binds an attribute."""
    for each in package.ancestry(place)[0]:
        own = _attributes(each.node)
        if own is None or name in own:
            return True
    # a mixin's attributes are bound by the class that it is mixed into
    store = re.compile(rb"\bself\.%s\b\s*(:[^=\n]+)?=[^=]|\bdef %s\b" % ((name.encode(),) * 2))
    owner = place.node.name.encode()
    for path in package.tree.holding(owner):
        raw = package.read(path) or b""
        if store.search(raw) and re.search(rb"\bclass \w+\([^)]*\b%s\b" % owner, raw):
            return True
    return False


_ANY = frozenset({"__getattr__", "__getattribute__", "__dict__"})
"""What makes a class have attributes that cannot be read off it."""


@lru_cache(maxsize=2048)
def _attributes(node: ast.ClassDef) -> frozenset[str] | None:
    """Return what a class binds: its own names, and what its methods store; None: any name.

    What they store in other objects, and their local names, are none of these.
    """
    found = set(_named(node.body))
    for each in ast.walk(node):
        if isinstance(each, FUNCTIONS):
            found.update(_stored(each, node.name))
        elif isinstance(each, ast.Attribute) and each.attr in _ANY:
            return None
        elif isinstance(each, ast.Call):
            if isinstance(each.func, ast.Name) and each.func.id == "setattr":
                if len(each.args) < 2 or not isinstance(each.args[1], ast.Constant):
                    return None
            # setattr(self, "x", …), self.register_buffer("x", …)
            found.update(a.value for a in each.args[:2] if _is_text(a))  # type: ignore[attr-defined]
    return None if found & _ANY else frozenset(found)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _named(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Yield the names that a class's own statements bind, not those in its methods."""
    for statement in body:
        if isinstance(statement, DEFINITIONS):
            yield statement.name
            continue
        yield from stored(statement)
        for block in ("body", "orelse", "finalbody"):
            yield from _named(getattr(statement, block, []))
        for handler in getattr(statement, "handlers", []):
            yield from _named(handler.body)


def _stored(function: Function, owner: str) -> Iterator[str]:
    """Yield the attributes that a function stores in its object, or in one that it makes."""
    arguments = [*function.args.posonlyargs, *function.args.args]
    objects = {owner, *(a.arg for a in arguments[:1])}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            objects.update(t.id for t in node.targets if isinstance(t, ast.Name))
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            if isinstance(node.value, ast.Name) and node.value.id in objects:
                yield node.attr
