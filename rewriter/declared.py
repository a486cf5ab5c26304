"""What a codemod declares, checked as it is loaded: an error names file and line."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from rewriter.codemod import Codemod, Companion, Replace, Site, Wrap
from rewriter.errors import CatalogError

_HOLE = re.compile(r"\{(\*?)([A-Za-z_]\w*)\}")


def check(codemod: Codemod, path: Path, companions: Path) -> None:
    """Check a codemod of a file.

    Args:
        codemod: the codemod.
        path: where it is defined.
        companions: the directory that its companions are beside.

    Raises:
        CatalogError: something that it declares cannot be.
    """
    kind = type(codemod).__name__
    for attribute in ("target", "supports"):
        if not getattr(codemod, attribute):
            raise malformed(path, f"{kind} has no `{attribute}`", kind)
    if not codemod.sites:
        raise malformed(path, f"{kind} has no sites", kind)
    for site in codemod.sites:
        if not isinstance(site, Site):
            raise malformed(path, f"{site!r} among the sites of {kind} is no Site", kind)
        _check_site(site, path, kind)
    for inside in [*codemod.files(), *(c.path for c in codemod.companions)]:
        if not inside.startswith("sglang/") or ".." in inside.split("/") or "\\" in inside:
            reason = f"`{inside}` is no path inside the package sglang"
            raise malformed(path, reason, inside, kind)
    for companion in codemod.companions:
        source = companion_file(companion, companions)
        if not source.is_file():
            reason = f"its companion {source} does not exist"
            raise malformed(path, reason, companion.source, kind)


def companion_file(companion: Companion, beside: Path) -> Path:
    """Return where a companion's source lies."""
    name = companion.source if companion.source.endswith(".py") else f"{companion.source}.py"
    return (Path(companion.beside) if companion.beside else beside) / name


def _check_site(site: Site, path: Path, kind: str) -> None:
    where = f"the {site.kind} site in {site.within}"
    if callable(site.find):
        if isinstance(site.edit, Replace):
            reason = f"{where}: what a function finds can be wrapped or inserted at, not replaced"
            raise malformed(path, reason, site.within, kind)
    else:
        templates = (site.find,) if isinstance(site.find, str) else site.find
        if not templates or not all(isinstance(t, str) and t.strip() for t in templates):
            raise malformed(path, f"{where} looks for nothing", site.within, kind)
        for template in templates:
            _check_template(template, where, path, kind)
    if isinstance(site.edit, Wrap):
        return
    _check_template(site.edit.code, where, path, kind)
    if callable(site.find):
        return
    known = set.intersection(*(_holes(template) for template in templates))
    unknown = sorted(_holes(site.edit.code) - known)
    if unknown:
        reason = f"{where} uses {{{unknown[0]}}}, which what it looks for does not have"
        raise malformed(path, reason, site.edit.code, site.within, kind)


def _check_template(template: str, where: str, path: Path, kind: str) -> None:
    """Refuse what is not one statement or expression; ``ast`` is enough to tell."""
    code = _HOLE.sub(lambda m: f"{m.group(1)}_{m.group(2)}", template.strip())
    try:
        number = len(ast.parse(code).body)
    except (SyntaxError, ValueError) as error:
        told = error.msg if isinstance(error, SyntaxError) else str(error)
        reason = f"{where}: `{template}` is no Python: {told}"
        raise malformed(path, reason, template, kind) from error
    if number != 1:
        reason = f"{where}: `{template}` is not one statement or expression"
        raise malformed(path, reason, template, kind)


def _holes(template: str) -> set[str]:
    return {name for star, name in _HOLE.findall(template) if not star}


def malformed(path: Path, reason: str, *words: str) -> CatalogError:
    """Return the error about a file, at the line of the first word that stands in it.

    Args:
        path: the codemod's file.
        reason: what is wrong.
        words: strings, or names of classes, to look for in the file, in this order.
    """
    line = next((found for word in words if (found := _line(path, word))), 1)
    return CatalogError(f"{path}:{line}: {reason}")


def _line(path: Path, word: str) -> int | None:
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    for node in ast.walk(tree):
        named = isinstance(node, ast.ClassDef) and node.name == word
        if named or (isinstance(node, ast.Constant) and node.value == word):
            return int(getattr(node, "lineno", 1))
    return None


def not_imported(path: Path, error: BaseException) -> CatalogError:
    """Return the error about a file that cannot be imported, at the line that failed."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    if isinstance(error, SyntaxError) and error.filename == str(path):
        lines.append(error.lineno)
    line = next((number for number in reversed(lines) if number), 1)
    return CatalogError(f"{path}:{line}: cannot be imported: {type(error).__name__}: {error}")
