"""What names mean in a module: where a definition is bound again, and what inserted code stands on.

A patch changes one definition and calls into names beside it. Neither is what it seems where
something else is bound to the definition's name, or where a name that the inserted code uses means
nothing there. ``ast`` alone; no LibCST.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from rewriter.codemod import Insert, Match, Site, Wrap
from rewriter.definition import FIELDS, IMPORTS, Definition
from rewriter.source import Source

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_ALWAYS = frozenset(dir(builtins)) | {"__name__", "__file__", "__class__", "__spec__"}


class Binding(NamedTuple):
    """A name, and a line that binds it.

    Attributes:
        derived: whether it is assigned a value that is made of what the name stood for before,
            as a decorator does.
    """

    name: str
    line: int
    derived: bool = False


def bound_again(source: Source, name: str) -> int | None:
    """Return a line that puts something else in a definition's place, or None.

    Looks for other bindings of the definition's name, or of a class around it, where it is
    defined; and anywhere for a store to an attribute of a method's name.
    """
    parts = name.removesuffix(FIELDS).split(".")
    for depth, part in enumerate(parts):
        whole, owner = ".".join(parts[: depth + 1]), ".".join(parts[:depth])
        scopes: list[ast.AST] = [*source.nodes.get(owner, [])] if owner else [source.tree]
        every = [b for scope in scopes for b in _bound_in(source, scope) if b.name == part]
        defined = [node.lineno for node in source.nodes.get(whole, [])]
        lines = [b.line for b in every if not b.derived and b.line not in defined[:1]]
        lines += _stored_as_attribute(source, part) if owner else _declared_global(source, part)
        if lines:
            return min(lines)
    return None


def _bound_in(source: Source, scope: ast.AST) -> tuple[Binding, ...]:
    return _kept(scope, ":=" in source.text)


@lru_cache(maxsize=32)
def _kept(scope: ast.AST, walrus: bool) -> tuple[Binding, ...]:
    return tuple(bindings(scope, walrus))


def _declared_global(source: Source, name: str) -> list[int]:
    # A pattern that begins with letters is looked for ten times as fast as one with ``\b``.
    if not re.search(rf"global\b.*\b{name}\b", source.text):
        return []
    every = ast.walk(source.tree)
    return [n.lineno for n in every if isinstance(n, ast.Global) and name in n.names]


def _stored_as_attribute(source: Source, name: str) -> list[int]:
    """Return the lines that store to an attribute of a name, by assignment or ``setattr``."""
    if not _named_beside_calls(source.text, name):
        return []  # only ever called: nothing need be walked
    found: list[int] = []
    for node in ast.walk(source.tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and not _mentions(node.value, name):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found += [node.lineno for target in targets if _mentions(target, name, store=True)]
        elif isinstance(node, ast.Delete):
            found += [node.lineno for target in node.targets if _mentions(target, name, store=True)]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            words = [a.value for a in node.args if isinstance(a, ast.Constant)]
            if node.func.id in ("setattr", "delattr") and name in words:
                found.append(node.lineno)
    return found


def _named_beside_calls(text: str, name: str) -> bool:
    """Return whether a text holds ``.name`` that is not called, or the name in quotes.

    Looked for from the name, not from every dot and quote: ten times as fast.
    """
    for found in re.finditer(rf"{name}\b", text):
        start, end = found.span()
        if text[start - 1 : start] in ("'", '"') and text[end : end + 1] in ("'", '"'):
            return True
        if text[:start].rstrip()[-1:] == "." and text[end : end + 99].lstrip()[:1] != "(":
            return True
    return False


def _mentions(node: ast.AST | None, name: str, *, store: bool = False) -> bool:
    """Return whether a name, or an attribute of that name, is read (or stored) in an expression."""
    for inner in ast.walk(node) if node is not None else ():
        known = inner.id if isinstance(inner, ast.Name) else getattr(inner, "attr", None)
        if known == name and isinstance(getattr(inner, "ctx", None), ast.Load) != store:
            return not store or isinstance(inner, ast.Attribute)
    return False


def bindings(scope: ast.AST, walrus: bool = True) -> Iterator[Binding]:
    """Yield what the statements of one scope bind; what scopes inside it bind is left out.

    Args:
        scope: a module, class, function or expression.
        walrus: whether there may be a ``:=``; without one no expression but a target binds.
    """
    if isinstance(scope, _FUNCTIONS):
        arguments = scope.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        every += [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
        yield from (Binding(a.arg, a.lineno) for a in every)
    todo: list[ast.AST] = _body(scope)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for bound in bindings(ast.Expression(target), walrus):
                    yield bound._replace(derived=_mentions(node.value, bound.name))
            todo.append(node.value)
            continue
        if not walrus and isinstance(node, ast.expr):
            if not isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
                continue
        yield from _bound_by(node)
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            todo += _evaluated_outside(node)
        elif isinstance(node, _COMPREHENSIONS):
            todo += [n for n in ast.walk(node) if isinstance(n, ast.NamedExpr)]
        else:
            todo += ast.iter_child_nodes(node)


def _body(scope: ast.AST) -> list[ast.AST]:
    body = getattr(scope, "body", [])
    return list(body) if isinstance(body, list) else [body]


def _evaluated_outside(node: ast.AST) -> list[ast.AST]:
    """Return what of a function or class is evaluated where it is defined."""
    found: list[ast.AST] = [*getattr(node, "decorator_list", [])]
    found += [*getattr(node, "bases", []), *getattr(node, "keywords", [])]
    arguments = getattr(node, "args", None)
    if isinstance(arguments, ast.arguments):
        found += [d for d in (*arguments.defaults, *arguments.kw_defaults) if d is not None]
    return found


def _bound_by(node: ast.AST) -> list[Binding]:
    line = getattr(node, "lineno", 0)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [Binding(node.name, line)]
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        return [Binding(node.id, line)]
    if isinstance(node, ast.alias):
        return [Binding((node.asname or node.name).split(".")[0], line)]
    if isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
        return [Binding(node.name, line)] if node.name else []
    if isinstance(node, ast.MatchMapping):
        return [Binding(node.rest, line)] if node.rest else []
    return []


class Needs(NamedTuple):
    """What inserted code reads.

    Attributes:
        names: names that it does not bind itself.
        called: those of them that are modules or objects of which it calls something: where
            they come from is their author's to say.
        attributes: attributes that it reads of a name: pairs of name and attribute.
    """

    names: frozenset[str]
    called: frozenset[str]
    attributes: frozenset[tuple[str, str]]


def needs(site: Site, match: Match) -> Needs:
    """Return what the code reads that a site's edit puts in at a match."""
    edit = site.edit
    if isinstance(edit, Wrap):
        return _needs(f"{edit.call}({', '.join(match.arguments)})")
    return _needs(_HOLE.sub(_filled, edit.code))


_HOLE = re.compile(r"\{(\*?)([A-Za-z_]\w*)\}")


def _filled(found: re.Match[str]) -> str:
    return f"{found.group(1)}__hole_{found.group(2)}__"


@lru_cache(maxsize=256)
def _needs(code: str) -> Needs:
    tree = ast.parse(code)
    nodes = list(ast.walk(tree))
    names = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    bound = {b.name for b in bindings(tree)}
    called = {
        n.func.value.id
        for n in nodes
        if isinstance(n, ast.Call)
        and isinstance(n.func, ast.Attribute)
        and isinstance(n.func.value, ast.Name)
    }
    attributes = {
        (n.value.id, n.attr)
        for n in nodes
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)
    }
    holes = {name for name in names if name.startswith("__hole_")}
    return Needs(frozenset(names - bound - holes), frozenset(called), frozenset(attributes))


def imported(sites: Iterable[Site]) -> frozenset[str]:
    """Return the names that the import sites of a codemod bind."""
    codes = [s.edit.code for s in sites if s.within == IMPORTS and isinstance(s.edit, Insert)]
    return frozenset(b.name for code in codes for b in bindings(ast.parse(code)))


def taken(source: Source, names: frozenset[str]) -> Binding | None:
    """Return what binds one of these names at the module's level, or None."""
    if not any(name in source.text for name in names):
        return None
    found = [b for b in _bound_in(source, source.tree) if b.name in names]
    found += [Binding(n, line) for n in names for line in _declared_global(source, n)]
    return min(found, key=lambda b: b.line, default=None)


def amiss(site: Site, match: Match, definition: Definition, ours: frozenset[str]) -> str:
    """Say why the code that a site inserts cannot run where it is put; empty where it can.

    Args:
        site: the site.
        match: what it found.
        definition: where.
        ours: names that the codemod imports itself.
    """
    needed = needs(site, match)
    chain = _scopes(definition, definition.span(match.node)[0])
    inner = frozenset(b.name for scope in chain for b in _bound_in(definition.source, scope))
    shadowed = ours & needed.names & inner
    if shadowed:
        return f"`{min(shadowed)}`, which the inserted code calls, is bound in it to something else"
    outer = frozenset(b.name for b in _bound_in(definition.source, definition.source.tree))
    unknown = needed.names - (inner | ours | outer | _ALWAYS | needed.called)
    if unknown and "*" not in outer and (unknown := unknown - _read_by(chain[0])):
        return f"the inserted code uses `{min(unknown)}`, which is not bound there"
    for name, attribute in sorted(needed.attributes):
        if _lacks(definition, name, attribute):
            return f"the inserted code uses `{name}.{attribute}`, which its class does not have"
    return ""


_FUNCTION = re.compile(r"\b(?:def|lambda)\b")


@lru_cache(maxsize=32)
def _read_by(node: ast.AST) -> frozenset[str]:
    """Return the names that a definition reads itself: it could not run without them either."""
    every = ast.walk(node)
    return frozenset(n.id for n in every if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))


def _scopes(definition: Definition, offset: int) -> list[ast.AST]:
    """Return the scopes whose names can be read at an offset of a definition, outermost first."""
    name = definition.name.removesuffix(FIELDS)
    node: ast.AST = definition.source.nodes[name][0]
    found: list[ast.AST] = [node]
    if len(_FUNCTION.findall(definition.text)) < 2:
        return found  # no function inside; a walk takes as long as all the rest
    while True:
        inner = [
            child
            for child in ast.walk(node)
            if child is not node
            and isinstance(child, _FUNCTIONS)
            and _holds(definition.source, child, offset)
        ]
        if not inner:
            return found
        node = inner[0]  # walked from the outside
        found.append(node)


def _holds(source: Source, node: ast.AST, offset: int) -> bool:
    lines = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
    columns = getattr(node, "col_offset", 0), getattr(node, "end_col_offset", 0)
    return source.offset(lines[0], columns[0]) <= offset < source.offset(lines[1], columns[1])


def _lacks(definition: Definition, name: str, attribute: str) -> bool:
    """Return whether ``self.attribute`` occurs nowhere in a class that inherits nothing."""
    owner, _, _ = definition.name.removesuffix(FIELDS).rpartition(".")
    method = definition.source.nodes[definition.name.removesuffix(FIELDS)][0]
    around = definition.source.nodes.get(owner, [])
    if first_parameter(method) != name or getattr(method, "decorator_list", []) or not around:
        return False  # no method of an object, or a decorator says what it is
    kind = around[0]
    if not isinstance(kind, ast.ClassDef) or kind.bases or kind.keywords or kind.decorator_list:
        return False
    return not any(isinstance(n, ast.Attribute) and n.attr == attribute for n in ast.walk(kind))


def first_parameter(function: ast.AST) -> str:
    """Return the name of a function's first parameter; empty where it has none."""
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return ""
    every = [*function.args.posonlyargs, *function.args.args]
    return every[0].arg if every else ""
