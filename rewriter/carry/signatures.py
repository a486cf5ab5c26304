"""Which arguments a definition takes, and whether a call fits."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from rewriter.carry.package import FUNCTIONS, Function, Package, Place

_TRANSPARENT = frozenset(
    {
        "staticmethod", "classmethod", "abstractmethod", "override", "final", "cache", "lru_cache",
        "contextmanager", "asynccontextmanager", "no_grad", "inference_mode", "dataclass",
    }
)  # fmt: skip
"""Decorators that leave the arguments as they are."""


class Signature(NamedTuple):
    """What may and what must be given.

    Attributes:
        positional: the names of what may be given by position, in order.
        keywords: the names that may be given by name.
        required: the names of what must be given.
        rest, named: whether any further positions, or any other names, are taken.
    """

    positional: tuple[str, ...]
    keywords: frozenset[str]
    required: tuple[str, ...]
    rest: bool = False
    named: bool = False


def of(place: Place, package: Package, *, bound: bool) -> Signature | None:
    """Return what a definition takes when it is called; None where that is not known.

    Args:
        bound: it is called on an object or a class, which is its first argument.
    """
    if not _known(place.node):
        return None
    if isinstance(place.node, FUNCTIONS):
        return _function(place.node, bound=bound)
    found, whole = package.ancestry(place)
    for each in found:
        assert isinstance(each.node, ast.ClassDef)
        methods = {n.name: n for n in each.node.body if isinstance(n, FUNCTIONS)}
        if "__new__" in methods or each.node.keywords:
            return None
        if "__init__" in methods:
            return _function(methods["__init__"], bound=True)
        if (options := _dataclass(each.node)) is not None:
            return _fields(found[found.index(each) :], options) if whole else None
    return None


def _known(node: ast.AST) -> bool:
    return all(_name(d) in _TRANSPARENT for d in getattr(node, "decorator_list", []))


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        return _name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _function(node: Function, *, bound: bool) -> Signature | None:
    arguments = node.args
    static = "staticmethod" in {_name(d) for d in node.decorator_list}
    if not _known(node):
        return None
    first = 1 if bound and not static else 0
    only, both = [[a.arg for a in group] for group in (arguments.posonlyargs, arguments.args)]
    positional = [*only, *both]
    needed = positional[: len(positional) - len(arguments.defaults)][first:]
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if default is None:
            needed.append(argument.arg)
    names = frozenset(positional[max(first, len(only)) :]) | {a.arg for a in arguments.kwonlyargs}
    return Signature(
        tuple(positional[first:]), names, tuple(needed),
        arguments.vararg is not None, arguments.kwarg is not None,
    )  # fmt: skip


def _dataclass(node: ast.ClassDef) -> dict[str, bool] | None:
    """Return the options of a dataclass; None where a class is none."""
    for decorator in node.decorator_list:
        if _name(decorator) == "dataclass":
            given = decorator.keywords if isinstance(decorator, ast.Call) else []
            return {k.arg or "": ast.unparse(k.value) == "True" for k in given}
    return None


def _fields(classes: list[Place], options: dict[str, bool]) -> Signature | None:
    """Return what a dataclass takes; None where it does not make its own ``__init__``."""
    if options.get("init") is False:
        return None
    found: dict[str, bool] = {}
    for place in reversed(classes):
        assert isinstance(place.node, ast.ClassDef)
        for name, optional in _annotated(place.node):
            found[name] = optional
    names = tuple(found)
    positional = () if options.get("kw_only") or "_" in names else names
    required = tuple(name for name, optional in found.items() if not optional)
    return Signature(positional, frozenset(names), required)


def _annotated(node: ast.ClassDef) -> Iterator[tuple[str, bool]]:
    """Yield the fields of one class, and whether they may be left out."""
    for statement in node.body:
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        if "ClassVar" in ast.unparse(statement.annotation):
            continue
        value = statement.value
        optional = value is not None
        if isinstance(value, ast.Call) and _name(value) == "field":
            given = {k.arg: ast.unparse(k.value) for k in value.keywords}
            if given.get("init") == "False":
                continue
            optional = "default" in given or "default_factory" in given
        yield statement.target.id, optional


def problems(call: ast.Call, signature: Signature) -> Iterator[str]:
    """Yield what is wrong with the arguments of a call."""
    given = {k.arg for k in call.keywords if k.arg is not None}
    spread = any(k.arg is None for k in call.keywords)
    starred = any(isinstance(a, ast.Starred) for a in call.args)
    if not signature.named:
        yield from (f"has no argument `{name}`" for name in sorted(given - signature.keywords))
    if starred:
        return
    by_place = signature.positional[: len(call.args)]
    if len(call.args) > len(signature.positional) and not signature.rest:
        yield f"takes {len(signature.positional)} positional arguments, not {len(call.args)}"
    if not spread:
        for name in signature.required:
            if name not in given and name not in by_place:
                yield f"requires the argument `{name}`"
