"""Configuration: ``rewriter.toml``, or ``[tool.rewriter]`` of a ``pyproject.toml``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

from rewriter.errors import UsageError

_OPTIONS = ("force-version", "keep-going", "accept-unproven")

_KEYS = frozenset({"codemods", "patches", "from", *_OPTIONS})


class Config(NamedTuple):
    """What a project wants of its sglang.

    Attributes:
        codemods: names, in the order in which they are applied.
        path: the file it came from, or None.
        force_version, keep_going, accept_unproven: as if the option were given.
        lists: whether it lists codemods or patches, be it none.
        patches: files of ordinary patches, in the order in which they are applied.
        origin: what the patches are for: a release, a directory, or a wheel.
    """

    codemods: tuple[str, ...] = ()
    path: Path | None = None
    force_version: bool = False
    keep_going: bool = False
    accept_unproven: bool = False
    lists: bool = False
    patches: tuple[str, ...] = ()
    origin: str = ""


def load(directory: Path | None = None) -> Config:
    """Read the configuration of a directory (default: the current one), if it has any.

    Raises:
        UsageError: the file is malformed; the message names file and key.
    """
    directory = directory or Path.cwd()
    own, project = directory / "rewriter.toml", directory / "pyproject.toml"
    if own.is_file():
        return _config(own, read_toml(own))
    if project.is_file() and b"[tool.rewriter" in project.read_bytes():
        table = read_toml(project).get("tool", {}).get("rewriter", {})
        return _config(project, table)
    return Config()


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        UsageError: it cannot be read.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read as TOML: {error}") from error
    return table


def _config(path: Path, table: dict[str, Any]) -> Config:
    unknown = sorted(set(table) - _KEYS)
    if unknown:
        known = ", ".join(sorted(_KEYS))
        raise UsageError(f"{path}: unknown key {unknown[0]!r}; known: {known}")
    codemods, patches = _names(path, table, "codemods"), _names(path, table, "patches")
    origin = table.get("from", "")
    if not isinstance(origin, str):
        raise UsageError(f"{path}: `from` must be a release in quotes, not {origin!r}")
    if bool(patches) != bool(origin):
        raise UsageError(
            f"{path}: `patches` and `from` go together: which patches, and what they are for, "
            'e.g. from = "0.5.11"'
        )
    options = [table.get(key, False) for key in _OPTIONS]
    for key, value in zip(_OPTIONS, options, strict=True):
        if not isinstance(value, bool):
            raise UsageError(f"{path}: `{key}` must be true or false, not {value!r}")
    return Config(codemods, path, *options)._replace(
        lists="codemods" in table or "patches" in table, patches=patches, origin=origin
    )


def _names(path: Path, table: dict[str, Any], key: str) -> tuple[str, ...]:
    names = table.get(key, [])
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise UsageError(f"{path}: `{key}` must be a list of names, not {names!r}")
    if len(set(names)) != len(names):
        raise UsageError(f"{path}: `{key}` names one twice: {names}")
    return tuple(names)
