"""Discovery of codemods. A malformed one is an error that names its file, never a warning."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import re
from functools import cache
from pathlib import Path

from rewriter.codemod import Codemod, Companion, Site, Wrap
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
    """Return the names of our codemods, sorted: one module each."""
    return sorted(p.stem for p in directory().glob("*.py") if not p.stem.startswith("_"))


@cache
def load(name: str) -> Codemod:
    """Import a codemod and check what it declares.

    Raises:
        CatalogError: there is none of this name, or it is malformed; the message says where.
    """
    if name not in names():
        known = ", ".join(names())
        raise CatalogError(f"no codemod is called {name!r}; known: {known}")
    path = directory() / f"{name}.py"
    try:
        module = importlib.import_module(f"{PACKAGE}.{name}")
    except Exception as error:  # a codemod is anybody's code, and runs as it is imported
        reason = f"{type(error).__name__}: {error}"
        raise CatalogError(f"{path}: cannot be imported: {reason}") from error
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Codemod)
        and value.__module__ == module.__name__
    ]
    if len(found) != 1:
        raise CatalogError(f"{path}: defines {len(found)} codemods, expected one")
    codemod = found[0]()
    codemod.name = name
    _check(codemod, path)
    return codemod


def _check(codemod: Codemod, path: Path) -> None:
    for attribute in ("target", "supports"):
        if not getattr(codemod, attribute):
            raise CatalogError(f"{path}: {type(codemod).__name__} has no `{attribute}`")
    if not codemod.sites:
        raise CatalogError(f"{path}: {type(codemod).__name__} has no sites")
    for site in codemod.sites:
        _check_site(site, path)
    paths = [*codemod.files(), *(c.path for c in codemod.companions)]
    for inside in paths:
        if not inside.startswith("sglang/") or ".." in inside.split("/") or "\\" in inside:
            raise CatalogError(f"{path}: `{inside}` is no path inside the package sglang")
    for companion in codemod.companions:
        source = directory() / "runtime" / f"{companion.source}.py"
        if not source.is_file():
            raise CatalogError(f"{path}: its companion {source} does not exist")


def _check_site(site: Site, path: Path) -> None:
    if callable(site.find):
        return
    templates = (site.find,) if isinstance(site.find, str) else site.find
    if not templates or not all(isinstance(t, str) and t.strip() for t in templates):
        raise CatalogError(f"{path}: the {site.kind} site in {site.within} looks for nothing")
    if isinstance(site.edit, Wrap):
        return
    known = set.intersection(*(set(_HOLE.findall(template)) for template in templates))
    unknown = sorted(set(_HOLE.findall(site.edit.code)) - known)
    if unknown:
        raise CatalogError(
            f"{path}: the {site.kind} site in {site.within} uses {{{unknown[0]}}}, which what it "
            "looks for does not have"
        )


_HOLE = re.compile(r"\{([A-Za-z_]\w*)\}")


@cache
def companion_bytes(companion: Companion) -> bytes:
    """Return a companion as it is installed: a line that says whose it is, then the module.

    The line carries name, version and the SHA-256 of what follows, so that an installed one is
    known for ours, and known for unedited, without any record beside it.
    """
    body = (directory() / "runtime" / f"{companion.source}.py").read_bytes()
    found = re.search(rb'^VERSION = "([^"]+)"', body, re.MULTILINE)
    if found is None:
        raise CatalogError(f'companion {companion.source}.py has no line `VERSION = "…"`')
    return companion_header(companion.source, found.group(1).decode(), body) + body


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
    "catalog", "codemod", "edits", "engine", "flow", "judge", "marks", "model", "patterns", "sites",
    "source", "uses",
)  # fmt: skip
"""Modules of ours that decide what a codemod finds and writes; a test keeps the list whole."""


def digest(name: str) -> str:
    """Return a hash over everything of ours that decides what a codemod finds and writes.

    Reads files and imports none, so that a cached verdict costs no import of LibCST.
    """
    if name not in names():
        load(name)  # tells the error
    total = hashlib.sha256()
    here = Path(__file__).parent
    deciding = [here / f"{module}.py" for module in _DECIDING]
    for path in [
        directory() / f"{name}.py",
        *sorted((directory() / "runtime").glob("*.py")),
        *deciding,
    ]:
        raw = path.read_bytes()
        total.update(f"{path.name} {len(raw)}\n".encode() + raw)
    return total.hexdigest()
