"""Arguments, parameters and elements: what a patch adds to lists of them, and whether it is there.

Upstream may have added others beside it, or have it at another position. So only what a position
says nothing about counts: keyword arguments, parameters that may be left out, elements of a list,
set or dictionary.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator

_Key = tuple[str, ...]


def there(base: ast.stmt | None, ours: ast.stmt | None, theirs: ast.stmt | None) -> bool:
    """Tell whether a patch only adds items to a statement, and another one has them all.

    Of a compound statement the header is looked at alone.
    """
    if base is None or ours is None or theirs is None:
        return False
    one, two, three = (_header(node) for node in (base, ours, theirs))
    before = Counter(_items(one))
    added = Counter(_items(two)) - before
    if not added or added - (Counter(_items(three)) - before):
        return False
    return ast.dump(_without(two, added)) == ast.dump(_without(one, Counter()))


def twice(base: ast.stmt | None, ours: ast.stmt | None, theirs: ast.stmt | None) -> str:
    """Return an argument or element that both sides add to the same list; empty where none is."""
    if base is None or ours is None or theirs is None:
        return ""
    before, one, two = (Counter(_every(_header(node))) for node in (base, ours, theirs))
    both = (one - before).keys() & (two - before).keys()
    return min(both)[-1] if both else ""


def _every(tree: ast.AST) -> Iterator[_Key]:
    """Yield all arguments and elements, those that have a position too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.dump(node.func)
            yield from (("argument", name, ast.unparse(a)) for a in node.args)
            named = ((k.arg or "**", ast.unparse(k.value)) for k in node.keywords)
            yield from (("argument", name, *each) for each in named)
        elif isinstance(node, (ast.List, ast.Set, ast.Tuple)):
            yield from (("item", ast.unparse(e)) for e in node.elts)
        elif isinstance(node, ast.arguments):
            yield from (("parameter", a.arg) for _, a, _ in _parameters(node))


def _header(node: ast.stmt) -> ast.stmt:
    """Return a copy of a statement without its blocks."""
    blocks = ("body", "orelse", "finalbody", "handlers")
    fields = {n: [] if n in blocks else value for n, value in ast.iter_fields(node)}
    return copy.deepcopy(type(node)(**fields))


def _items(tree: ast.AST) -> Iterator[_Key]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.dump(node.func)
            yield from (_argument(name, k) for k in node.keywords)
        elif isinstance(node, (ast.List, ast.Set)):
            yield from (("item", ast.dump(e)) for e in node.elts)
        elif isinstance(node, ast.Dict):
            yield from (_pair(k, v) for k, v in zip(node.keys, node.values, strict=True))
        elif isinstance(node, ast.arguments):
            found = _parameters(node)
            yield from (_parameter(a, d) for _, a, d in found if d is not None)


def _argument(function: str, node: ast.keyword) -> _Key:
    return "argument", function, ast.dump(node)


def _pair(key: ast.expr | None, value: ast.expr) -> _Key:
    return "pair", ast.dump(key) if key is not None else "**", ast.dump(value)


def _parameter(argument: ast.arg, default: ast.expr | None) -> _Key:
    return "parameter", ast.dump(argument), ast.dump(default) if default is not None else ""


def _parameters(node: ast.arguments) -> Iterator[tuple[str, ast.arg, ast.expr | None]]:
    """Yield what kind each parameter is of, and its default."""
    both = [*(("only", a) for a in node.posonlyargs), *(("any", a) for a in node.args)]
    missing: list[ast.expr | None] = [None] * (len(both) - len(node.defaults))
    for (kind, argument), default in zip(both, [*missing, *node.defaults], strict=True):
        yield kind, argument, default
    for argument, default in zip(node.kwonlyargs, node.kw_defaults, strict=True):
        yield "name", argument, default


def _without(tree: ast.stmt, added: Counter[_Key]) -> ast.stmt:
    """Return a copy of a statement without some items."""
    left = Counter(added)

    def keep(key: _Key) -> bool:
        left[key] -= 1
        return left[key] < 0

    copied = copy.deepcopy(tree)
    for node in ast.walk(copied):
        if isinstance(node, ast.Call):
            name = ast.dump(node.func)
            node.keywords = [k for k in node.keywords if keep(_argument(name, k))]
        elif isinstance(node, (ast.List, ast.Set)):
            node.elts = [e for e in node.elts if keep(("item", ast.dump(e)))]
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            kept = [(k, v) for k, v in pairs if keep(_pair(k, v))]
            node.keys, node.values = [k for k, _ in kept], [v for _, v in kept]
        elif isinstance(node, ast.arguments):
            _keep_parameters(node, [p for p in _parameters(node) if keep(_parameter(*p[1:]))])
    return copied


def _keep_parameters(
    node: ast.arguments, kept: list[tuple[str, ast.arg, ast.expr | None]]
) -> None:  # fmt: skip
    node.posonlyargs = [a for kind, a, _ in kept if kind == "only"]
    node.args = [a for kind, a, _ in kept if kind == "any"]
    node.defaults = [d for kind, _, d in kept if kind != "name" and d is not None]
    node.kwonlyargs = [a for kind, a, _ in kept if kind == "name"]
    node.kw_defaults = [d for kind, _, d in kept if kind == "name"]
