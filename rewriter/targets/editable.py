"""Where a site-packages directory says that its editable install is, read without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from rewriter.targets import distinfo
from rewriter.targets.disk import PACKAGE


def editable_roots(directory: Path) -> Iterator[Path]:
    """Yield the directories that may hold the package, likeliest first.

    Both shapes that build backends write: a ``.pth`` file with a path, and a finder module with
    a mapping. Last the project directory that ``direct_url.json`` names.
    """
    for pth in sorted(directory.glob("*.pth")):
        for line in _text(pth).splitlines():
            if line.strip() and not line.startswith(("#", "import ", "import\t")):
                yield directory / line.strip()
    for finder in sorted(directory.glob("__editable___*_finder.py")):
        package = _mapping(_text(finder)).get(PACKAGE)
        if package is not None:
            yield Path(package).parent
    for dist_info in distinfo.dist_infos(directory, lambda path: True):
        source = distinfo.editable_source(dist_info)
        if source is not None:
            yield from (source / "python", source)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "surrogateescape")
    except OSError:
        return ""


def _mapping(finder: str) -> dict[str, str]:
    """Return the ``MAPPING`` literal of a setuptools finder module; empty when there is none."""
    try:
        body = ast.parse(finder).body
    except (SyntaxError, ValueError):
        return {}
    for node in body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(target, ast.Name) and target.id == "MAPPING" for target in targets):
            return _literal(node.value)
    return {}


def _literal(node: ast.expr) -> dict[str, str]:
    """Evaluate a literal dictionary; anything else is empty."""
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return {}
    return {str(k): str(v) for k, v in value.items()} if isinstance(value, dict) else {}
