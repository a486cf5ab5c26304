"""Packages that hold a file of the target's shapes, for tests of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fake_sglang import FILES, installed_files
from sources import PATH, backend

from rewriter import catalog, engine

COMPANION = "sglang/srt/layers/attention/_rewriter_kv_gather.py"


def files(text: str | bytes | None = None, **more: bytes) -> dict[str, bytes]:
    """Return a fake package with the target's file: a module's text, or a shape's."""
    raw = backend() if text is None else text
    raw = raw.encode() if isinstance(raw, str) else raw
    return {**FILES, "sglang/srt/layers/attention/__init__.py": b"", PATH: raw, **more}


def written(root: Path, contents: Mapping[str, bytes]) -> Path:
    """Write files below a directory and return it."""
    for path, raw in contents.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(raw)
    return root


def installed(root: Path, text: str | bytes | None = None, version: str = "0.5.9") -> Path:
    """Write a site-packages that has a fake sglang with the target's file."""
    return written(root, installed_files(version, files(text)))


def checkout(root: Path, text: str | bytes | None = None) -> Path:
    """Write a source tree as upstream lays it out, without git."""
    project = b'[project]\nname = "sglang"\ndynamic = ["version"]\n'
    contents = {f"python/{path}": raw for path, raw in files(text).items() if "version" not in path}
    return written(root, {**contents, "python/pyproject.toml": project})


def patched(text: str | None = None) -> str:
    """Return a shape with the patch in it."""
    raw = (backend() if text is None else text).encode()
    return engine.apply(catalog.load("mla_kv_gather"), PATH, raw).decode()


def companion() -> bytes:
    """Return the companion as it is installed."""
    return catalog.companion_bytes(catalog.load("mla_kv_gather").companions[0])
