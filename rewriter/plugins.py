"""Codemods of other packages, by the entry point group ``rewriter.codemods``.

Finding one runs nothing of it: names and places come from the packages' metadata. A codemod is
imported when the command line, the configuration or a target's record names it, never before.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import NamedTuple

from rewriter.errors import CatalogError

GROUP = "rewriter.codemods"


class Plugin(NamedTuple):
    """A codemod that an installed package offers.

    Attributes:
        name: the codemod's name: that of the entry point.
        module: the module that defines it.
        package: name and version of the distribution, for messages.
    """

    name: str
    module: str
    package: str


@cache
def installed() -> dict[str, Plugin]:
    """Return the codemods that other packages offer, by name.

    Raises:
        CatalogError: two packages offer one of the same name, or an entry point is malformed.
    """
    from importlib.metadata import distributions

    found: dict[str, Plugin] = {}
    for distribution in distributions():
        for point in distribution.entry_points:
            if point.group != GROUP:
                continue
            package = f"{distribution.metadata['Name']} {distribution.version}"
            plugin = Plugin(point.name, point.value.strip(), package)
            if not (point.name.isidentifier() and _is_module(plugin.module)):
                raise CatalogError(
                    f"{package}: the entry point `{point.name} = {point.value}` of {GROUP} is "
                    "malformed: expected `name = package.module`"
                )
            known = found.setdefault(point.name, plugin)
            if known.module != plugin.module:
                raise CatalogError(
                    f"{known.package} and {package} both offer a codemod {point.name!r}; "
                    "uninstall one of them"
                )
    return found


def _is_module(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


@cache
def place(plugin: Plugin) -> Path:
    """Return the file of a plug-in's codemod; neither it nor a package around it is imported.

    Raises:
        CatalogError: there is no such module.
    """
    spec: ModuleSpec | None = None
    path: Sequence[str] | None = None
    parts = plugin.module.split(".")
    for depth in range(len(parts)):
        name = ".".join(parts[: depth + 1])
        finders = (getattr(finder, "find_spec", None) for finder in sys.meta_path)
        specs = (find(name, path) for find in finders if find is not None)
        spec = next((found for found in specs if found is not None), None)
        path = spec.submodule_search_locations if spec is not None else None
        if spec is None or (path is None and depth < len(parts) - 1):
            spec = None
            break
    if spec is None or spec.origin is None or not spec.has_location:
        raise CatalogError(f"{plugin.package}: there is no module {plugin.module}")
    return Path(spec.origin)


def deciding(plugin: Plugin) -> list[Path]:
    """Return the files that decide what a plug-in does: those of its package, companions too."""
    file = place(plugin)
    if "." not in plugin.module:
        return [file]
    return sorted(p for p in file.parent.rglob("*.py") if p.is_file())
