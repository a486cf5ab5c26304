"""What lines of code demand of the rest of the package, and which of it is not there.

Faults are judged by comparison: what is wrong in the patch's own release too is not for carrying
to tell.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from rewriter.carry import signatures
from rewriter.carry.package import FUNCTIONS, Answer, Module, Package, Place
from rewriter.carry.scopes import Scope, touching


class Fault(NamedTuple):
    """One demand that is not met.

    Attributes:
        line: of the module that was looked at.
        reason: complete, for a report.
    """

    line: int
    reason: str


class Demand(NamedTuple):
    """What a call gives by position, by the names that its definition has for it."""

    line: int
    names: tuple[str, ...]
    all: tuple[str, ...]


Key = tuple[str, ...]


def faults(module: Module, lines: frozenset[int], package: Package) -> dict[Key, Fault]:
    """Return what some lines of a module use and the package has not, by what it is."""
    found: dict[Key, Fault] = {}
    for node, scope in touching(module, lines):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            each: Iterator[tuple[Key, str]] = _imports(node, module, package)
        elif isinstance(node, ast.Call):
            each = _call(node, scope, package)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            each = _attribute(node, scope, package)
        elif isinstance(node, (ast.Expr, ast.Await)):
            each = _awaited(node, scope, package)
        else:
            continue
        for key, reason in each:
            found.setdefault(key, Fault(node.lineno, reason))
    return found


def importers(name: str, module: Module, package: Package) -> set[str]:
    """Return the paths of the modules that import a name of a module from it."""
    found: set[str] = set()
    last = module.name.rsplit(".", 1)[-1].encode()
    line = re.compile(rb"\bfrom\s+[\w.]*\b%s\s+import\b" % re.escape(last))
    for path in package.tree.holding(name.encode()):
        asks = path != module.path and line.search(package.read(path) or b"")
        other = package.at(path) if asks else None
        nodes = ast.walk(other.tree) if other is not None else ()
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and any(a.name == name for a in node.names):
                if other is not None and other.absolute(node) == module.name:
                    found.add(path)
    return found


def shifted(one: dict[Key, Demand], two: dict[Key, Demand]) -> Iterator[Fault]:
    """Yield the calls whose positional arguments mean something else than they did.

    One that merely has another name by now is the same; one whose name is at another place is not.
    """
    for key in sorted(one.keys() & two.keys()):
        before, now = one[key], two[key]
        for old, new in zip(before.names, now.names, strict=False):
            if old != new and old in now.all:
                reason = f"`{key[0]}` takes `{new}` where the patch gives `{old}`"
                yield Fault(now.line, f"upstream changed the order of arguments: {reason}")
                break


def demands(module: Module, lines: frozenset[int], package: Package) -> dict[Key, Demand]:
    """Return what the calls of some lines give by position."""
    found: dict[Key, Demand] = {}
    for node, scope in touching(module, lines):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        signature = _signature(node, scope, package)
        if signature is not None and not any(isinstance(a, ast.Starred) for a in node.args):
            names = signature.positional[: len(node.args)]
            key = (ast.unparse(node.func), *map(ast.unparse, node.args))
            found.setdefault(key, Demand(node.lineno, names, signature.positional))
    return found


def _imports(
    node: ast.Import | ast.ImportFrom, module: Module, package: Package
) -> Iterator[tuple[Key, str]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            if package.module(alias.name) is Answer.MISSING:
                yield ("module", alias.name), _no_module(alias.name)
        return
    name = module.absolute(node)
    if package.module(name) is Answer.MISSING:
        yield ("module", name), _no_module(name)
        return
    for alias in node.names:
        if alias.name != "*" and package.imported(name, alias.name) is Answer.MISSING:
            reason = f"the patch imports `{alias.name}` from {name}, which has no such name"
            yield ("name", name, alias.name), reason + _elsewhere(alias.name, package)


def _no_module(name: str) -> str:
    return f"the patch imports {name}, and upstream has no such module"


def _elsewhere(name: str, package: Package) -> str:
    """Return where a definition is by now, for a report."""
    for word in (f"def {name}(", f"class {name}(", f"class {name}:"):
        paths = package.tree.holding(word.encode())
        if len(paths) == 1:
            return f"; {paths[0]} has it"
    return ""


def _attribute(node: ast.Attribute, scope: Scope, package: Package) -> Iterator[tuple[Key, str]]:
    """Tell a name that a module of the package has not."""
    head = node.value
    if not isinstance(head, ast.Name) or scope.local(head.id):
        return
    if head.id in scope.module.names and package.expression(scope.module, node) is Answer.MISSING:
        reason = f"the patch uses `{ast.unparse(node)}`, which that module has not"
        yield ("attribute", ast.unparse(node)), reason + _elsewhere(node.attr, package)


def _call(node: ast.Call, scope: Scope, package: Package) -> Iterator[tuple[Key, str]]:
    signature = _signature(node, scope, package)
    if signature is not None:
        name = ast.unparse(node.func)
        for problem in signatures.problems(node, signature):
            yield ("call", name, problem), f"`{name}` {problem}"


def _awaited(
    node: ast.Expr | ast.Await, scope: Scope, package: Package
) -> Iterator[tuple[Key, str]]:  # fmt: skip
    """Tell a coroutine that nothing awaits, and what is awaited and returns nothing."""
    call = node.value
    place = _callee(call.func, scope, package)[0] if isinstance(call, ast.Call) else None
    if place is None or not isinstance(call, ast.Call) or place.node.decorator_list:
        return
    name, function = ast.unparse(call.func), place.node
    if isinstance(node, ast.Expr) and isinstance(function, ast.AsyncFunctionDef):
        yield ("await", name), f"the patch calls `{name}` without `await`; it is a coroutine by now"
    elif isinstance(node, ast.Await) and isinstance(function, ast.FunctionDef):
        if not any(isinstance(n, (ast.Return, ast.Raise, ast.Yield)) for n in ast.walk(function)):
            reason = f"the patch awaits `{name}`, which is no coroutine by now and returns nothing"
            yield ("await", name), reason


def _signature(
    node: ast.Call, scope: Scope, package: Package
) -> signatures.Signature | None:  # fmt: skip
    place, bound = _callee(node.func, scope, package)
    return signatures.of(place, package, bound=bound) if place is not None else None


def _callee(node: ast.expr, scope: Scope, package: Package) -> tuple[Place | None, bool]:
    """Return what is called, and whether on an object or class."""
    if isinstance(node, ast.Name):
        if scope.local(node.id):
            return _local_import(node.id, scope, package), False
        return _place(package.expression(scope.module, node)), False
    if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
        return None, False
    head = node.value.id
    if head == scope.receiver and scope.owner is not None:
        return method(scope, node.attr, package), True
    if scope.local(head):
        return None, False
    return _place(package.expression(scope.module, node)), False


def _place(meaning: Place | Answer) -> Place | None:
    return meaning if isinstance(meaning, Place) else None


def _local_import(name: str, scope: Scope, package: Package) -> Place | None:
    """Return what a function's own import of a name brings, if that alone binds it."""
    for function in reversed(scope.functions):
        for node in ast.walk(function):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        module = scope.module.absolute(node)
                        return _place(package.imported(module, alias.name))
    return None


def method(scope: Scope, name: str, package: Package) -> Place | None:
    """Return the method of the class around, or of what it inherits from."""
    assert scope.owner is not None
    for place in package.ancestry(Place(scope.module, scope.owner))[0]:
        assert isinstance(place.node, ast.ClassDef)
        found = [n for n in place.node.body if getattr(n, "name", None) == name]
        if found:
            last = found[-1]
            alone = len(found) == 1
            return Place(place.module, last) if isinstance(last, FUNCTIONS) and alone else None
    return None
