"""Discovery of codemods. A malformed one is an error that names file and line, never a warning."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import re
from functools import cache
from pathlib import Path

from rewriter import declared, plugins
from rewriter.codemod import Codemod, Companion
from rewriter.errors import CatalogError

PACKAGE = "codemods"

DEFAULT = "mla_kv_gather"
"""What a command works on where neither it nor the configuration names a codemod."""


@cache
def directory() -> Path:
    """Return the directory of our own codemods, without importing any of them."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise CatalogError(f"the package `{PACKAGE}` is not installed beside rewriter")
    return Path(next(iter(spec.submodule_search_locations)))


def names() -> list[str]:
    """Return the names of our codemods, sorted, and of the plug-ins' that were asked for by name.

    A plug-in that nobody names is not imported, so it is none of them.
    """
    return [*_ours(), *sorted(_asked)]


def _ours() -> list[str]:
    return sorted(p.stem for p in directory().glob("*.py") if not p.stem.startswith("_"))


_asked: set[str] = set()


def knows(name: str) -> bool:
    """Return whether a codemod of this name is here, ours or a plug-in's."""
    return name in names() or name in plugins.installed()


def plugin(name: str) -> plugins.Plugin | None:
    """Return the plug-in that a loaded codemod came with; None for our own."""
    return plugins.installed().get(name) if name in _asked else None


@cache
def load(name: str) -> Codemod:
    """Import a codemod and check what it declares.

    Raises:
        CatalogError: there is none of this name, or it is malformed; the message says where.
    """
    if name in _ours():
        path = directory() / f"{name}.py"
        return _loaded(name, f"{PACKAGE}.{name}", path, directory() / "runtime")
    plugin = plugins.installed().get(name)
    if plugin is None:
        from difflib import get_close_matches

        known = [*_ours(), *sorted(plugins.installed())]
        near = get_close_matches(name.replace("-", "_"), known, n=1)
        meant = f". Did you mean {near[0]!r}?" if near else ""
        raise CatalogError(f"no codemod is called {name!r}; known: {', '.join(known)}{meant}")
    from rewriter.rehearsal import rehearse

    rehearse(plugin)
    path = plugins.place(plugin)
    codemod = _loaded(name, plugin.module, path, path.parent)
    beside = str(path.parent)
    codemod.companions = tuple(c._replace(beside=beside) for c in codemod.companions)
    _asked.add(name)
    return codemod


def _loaded(name: str, module_name: str, path: Path, companions: Path) -> Codemod:
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a codemod is anybody's code, and runs as it is imported
        raise declared.not_imported(path, error) from error
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Codemod)
        and value.__module__ == module.__name__
    ]
    if len(found) != 1:
        last = found[-1].__name__ if found else ""
        raise declared.malformed(path, f"defines {len(found)} codemods, expected one", last)
    codemod = found[0]()
    codemod.name = name
    declared.check(codemod, path, companions)
    return codemod


@cache
def companion_bytes(companion: Companion) -> bytes:
    """Return a companion as it is installed: a line that says whose it is, then the module.

    The line carries name, version and the SHA-256 of what follows, so that an installed one is
    known for ours, and known for unedited, without any record beside it.
    """
    source = declared.companion_file(companion, directory() / "runtime")
    body = source.read_bytes()
    found = re.search(rb'^VERSION = "([^"]+)"', body, re.MULTILINE)
    if found is None:
        raise CatalogError(f'companion {source.name} has no line `VERSION = "…"`')
    return companion_header(source.stem, found.group(1).decode(), body) + body


def companion_header(name: str, version: str, body: bytes) -> bytes:
    """Return the first line of an installed companion."""
    digest = hashlib.sha256(body).hexdigest()
    return f"# rewriter companion {name} {version} sha256:{digest} (do not edit)\n".encode()


_HEADER = re.compile(
    rb"# rewriter companion (?P<name>\S+) (?P<version>\S+) sha256:(?P<digest>[0-9a-f]{64}) "
)


def companion_version(raw: bytes) -> tuple[str, str, bool] | None:
    """Return name, version and whether it is unedited, or None where a file is not ours."""
    found = _HEADER.match(raw)
    if found is None:
        return None
    body = raw[raw.index(b"\n") + 1 :] if b"\n" in raw else b""
    intact = hashlib.sha256(body).hexdigest() == found["digest"].decode()
    return found["name"].decode(), found["version"].decode(), intact


_DECIDING = (
    "catalog", "codemod", "declared", "definition", "edits", "engine", "flow", "judge", "marks",
    "mentions", "model", "names", "patterns", "plugins", "reaching", "repeated", "sites", "source",
    "uses", "visible",
)  # fmt: skip
"""Modules of ours that decide what a codemod finds and writes; a test keeps the list whole."""


def digest(name: str) -> str:
    """Return a hash over everything of ours that decides what a codemod finds and writes.

    Reads files and imports none, so that a cached verdict costs no import of LibCST.
    """
    if not knows(name):
        load(name)  # tells the error
    if name in _ours():
        beside = [*directory().glob("_*.py"), *(directory() / "runtime").glob("*.py")]
        own = [directory() / f"{name}.py", *sorted(beside)]
    else:
        own = plugins.deciding(plugins.installed()[name])
    total = hashlib.sha256()
    here = Path(__file__).parent
    for path in [*own, *(here / f"{module}.py" for module in _DECIDING)]:
        raw = path.read_bytes()
        total.update(f"{path.name} {len(raw)}\n".encode() + raw)
    return total.hexdigest()
