"""JSON, schema 1: one object a command, as docs/decisions.md lays down."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from rewriter import __version__
from rewriter.model import Verdict
from rewriter.verdicts import as_json


def document(
    command: str,
    target: dict[str, str | None] | None,
    results: Iterable[Verdict] = (),
    *,
    written: Iterable[str] = (),
    exit_code: int,
    **more: Any,
) -> str:
    """Return the document that a command prints with ``--json``."""
    value = {
        "schema": 1,
        "tool": f"rewriter {__version__}",
        "command": command,
        "target": target,
        "results": [as_json(verdict) for verdict in results],
        "written": list(written),
        "exit": exit_code,
        **more,
    }
    return json.dumps(value, indent=2, ensure_ascii=False)
