"""Calls that upstream has by now of a definition that the patch makes take other arguments."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from rewriter.carry import contracts, signatures
from rewriter.carry.contracts import Fault, Key
from rewriter.carry.package import DEFINITIONS, FUNCTIONS, Definition, Module, Package, Place
from rewriter.carry.signatures import Signature


def faults(
    own: tuple[Module, Package, Module, Package], there: tuple[Module, Package, Module, Package]
) -> Iterator[tuple[str, Fault]]:
    """Yield the path and the fault of each call that fits without the patch alone.

    Where the patch's own release has one too, that is the patch's own matter.

    Args:
        own: a module and all others of the patch's release, without the patch and with it.
        there: the same of the other release.
    """
    narrowed = set(_narrowed(*own))
    if not narrowed:
        return
    # calls that do not fit in the patch's own release: another patch, not given, changes them
    narrowed -= {_last(key) for _, key, _ in _broken(own, narrowed)}
    for path, _, fault in _broken(there, narrowed):
        yield path, fault


def _broken(
    side: tuple[Module, Package, Module, Package], names: set[str]
) -> Iterator[tuple[str, Key, Fault]]:
    """Yield the calls in a release that fit without the patch and do not fit with it."""
    _, without, module, patched = side
    paths = {module.path}
    for name in names & module.names.keys():
        paths |= _calling(name, module, patched)
    for path in sorted(paths):
        ends = [(package.at(path), package) for package in (without, patched)]
        before, after = (_calls(m, p, names) if m is not None else {} for m, p in ends)
        for key in sorted(after.keys() - before.keys()):
            yield path, key, after[key]


def _last(key: Key) -> str:
    return key[1].rpartition(".")[2]


def _calling(name: str, module: Module, package: Package) -> set[str]:
    """Return the modules that may call a name of another one: as text, to parse no others."""
    last = re.escape(module.name.rsplit(".", 1)[-1]).encode()
    call = re.compile(rb"(?<!def )(?<!class )\b%s\(" % re.escape(name).encode())
    imported = re.compile(rb"\bimport\b.*\b%s\b|\bfrom\s+[\w.]*\b%s\s+import\b" % (last, last))
    texts = ((path, package.read(path) or b"") for path in package.tree.holding(name.encode()))
    return {path for path, raw in texts if call.search(raw) and imported.search(raw)}


def _calls(module: Module, package: Package, names: set[str]) -> dict[Key, Fault]:
    """Return the calls of some names in a module that do not fit."""
    lines = frozenset(
        line
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in names
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    )
    found = contracts.faults(module, lines, package) if lines else {}
    return {key: fault for key, fault in found.items() if key[0] == "call" and _last(key) in names}


def _narrowed(
    before: Module, without: Package, after: Module, patched: Package
) -> Iterator[str]:  # fmt: skip
    """Yield what the patch makes take less, or demand more, than it did."""
    old, new = (dict(_definitions(module.tree.body, "")) for module in (before, after))
    for name in sorted(old.keys() & new.keys()):
        if _arguments(old[name]) == _arguments(new[name]):
            continue
        one = _signature(Place(before, old[name]), without, name)
        two = _signature(Place(after, new[name]), patched, name)
        if one is None or two is None or one == two:
            continue
        lost = not two.named and one.keywords - two.keywords
        fewer = not two.rest and len(two.positional) < len(one.positional)
        if lost or fewer or set(two.required) - set(one.required):
            yield name.rpartition(".")[2]


def _arguments(node: Definition) -> list[str]:
    """Return what decides which arguments a definition takes, to be compared."""
    if not isinstance(node, ast.ClassDef):
        return [ast.dump(node.args)]
    made = [each for each in node.body if getattr(each, "name", None) == "__init__"]
    fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
    return [
        *(ast.dump(each.args) for each in made if isinstance(each, FUNCTIONS)),
        *(f"{ast.unparse(each.target)} {ast.dump(each.value or each.target)}" for each in fields),
    ]


def _signature(place: Place, package: Package, name: str) -> Signature | None:
    return signatures.of(place, package, bound="." in name)


def _definitions(body: list[ast.stmt], above: str) -> Iterator[tuple[str, Definition]]:
    """Yield functions, classes and methods by their qualified names."""
    for node in body:
        if isinstance(node, DEFINITIONS):
            yield above + node.name, node
            if isinstance(node, ast.ClassDef) and not above:
                yield from _definitions(node.body, f"{node.name}.")
