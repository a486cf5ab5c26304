"""Verdicts kept between runs, so that asking again about the same bytes costs no parsing.

The key holds everything that decides: the bytes of every file, our own code, the version. A kept
verdict is therefore never wrong, and one that cannot be read is simply made again.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from rewriter.cache import cache_directory
from rewriter.model import Nearest, SiteResult, State, Verdict


def key(*parts: bytes | str | None) -> str:
    """Return a key over parts; None is a part of its own."""
    total = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        total.update(b"none\n" if raw is None else b"%d\n%s\n" % (len(raw), raw))
    return total.hexdigest()


def load(name: str) -> Verdict | None:
    """Return the verdict kept under a key, or None."""
    try:
        return _verdict(json.loads(_path(name).read_bytes()))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def save(name: str, verdict: Verdict) -> None:
    """Keep a verdict; a cache that cannot be written is no error."""
    path = _path(name)
    scratch = path.with_name(f"{path.name}.{os.getpid()}")  # tempfile takes longer to import
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_text(json.dumps(as_json(verdict)), encoding="utf-8")  # dump has no C loop
        scratch.replace(path)
    except OSError:
        return


def as_json(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as the JSON that commands print and the cache keeps."""
    return {
        "codemod": verdict.codemod,
        "file": verdict.file,
        "state": verdict.state.value,
        "sites": [
            {
                "definition": site.definition,
                "kind": site.kind,
                "file": site.file,
                "line": site.line,
                "state": site.state.value,
                "reason": site.reason,
                "nearest": _nearest_json(site.nearest),
            }
            for site in verdict.sites
        ],
        "reason": verdict.reason,
        "nearest": _nearest_json(verdict.nearest),
    }


def _nearest_json(nearest: Nearest | None) -> dict[str, Any] | None:
    if nearest is None:
        return None
    return {"line": nearest.line, "text": nearest.text, "differs": nearest.differs}


def _nearest(value: dict[str, Any] | None) -> Nearest | None:
    return Nearest(value["line"], value["text"], value["differs"]) if value else None


def _verdict(value: dict[str, Any]) -> Verdict:
    sites = tuple(
        SiteResult(
            s["definition"], s["kind"], s["line"], State(s["state"]), s["reason"],
            _nearest(s["nearest"]), s["file"],
        )
        for s in value["sites"]
    )  # fmt: skip
    return Verdict(
        value["codemod"], value["file"], State(value["state"]), sites, value["reason"],
        _nearest(value["nearest"]),
    )  # fmt: skip


def _path(name: str) -> Path:
    return cache_directory() / "verdicts" / name[:2] / f"{name}.json"
