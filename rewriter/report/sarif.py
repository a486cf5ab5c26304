"""SARIF 2.1.0: what code-scanning services read. One rule a codemod, one result a run of rows."""

from __future__ import annotations

import hashlib
import json
from typing import Any
from urllib.parse import quote

from rewriter import __version__
from rewriter.model import State
from rewriter.report.matrix import count, origin, sentence
from rewriter.rows import Episode, Matrix, Row

_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)


def document(matrix: Matrix) -> str:
    """Return the matrix as a SARIF log.

    Results are the runs of revisions that are not fine (errors), and the newest revisions where
    a codemod has nothing left to do (notes).
    """
    found = [_result(e, "error") for e in matrix.episodes() if not e.last.fine and e.last.asked]
    for row, drop_when in matrix.retired():
        found.append(_result(Episode((row,)), "note", f"Drop when: {drop_when}"))
    driver = {
        "name": "rewriter",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": [
            {
                "id": codemod.name,
                "name": type(codemod).__name__,
                "shortDescription": {"text": (type(codemod).__doc__ or codemod.name).strip()},
                "fullDescription": {
                    "text": f"Edits {codemod.target} of sglang {codemod.supports}. "
                    f"Drop when: {codemod.drop_when or 'never'}."
                },
                "defaultConfiguration": {"level": "error"},
            }
            for codemod in matrix.codemods
        ],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": True, "exitCode": matrix.exit_code}],
        "results": found,
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _result(episode: Episode, level: str, more: str = "") -> dict[str, Any]:
    row = episode.last
    result: dict[str, Any] = {
        "ruleId": row.codemod,
        "level": level,
        "message": {"text": _message(episode, more)},
        "partialFingerprints": {"codemodState/v1": _fingerprint(row)},
        "properties": {"state": row.word, "revisions": [each.label for each in episode.rows]},
    }
    if row.file:
        result["locations"] = [_location(row)]
    return result


def _message(episode: Episode, more: str) -> str:
    row, others = episode.last, len(episode.rows) - 1
    where = f" and {count(others, 'revision')} before it" if others else ""
    text = f"{sentence(row)}{where}: {row.reason or 'no reason given'}."
    if row.since is not None:
        subject = f" ({row.since[1].subject})" if row.since[1] else ""
        text += f" Since {origin(row.since)}{subject}."
    nearest = row.verdict.nearest if row.verdict else None
    if nearest is not None:
        text += f" Nearest: line {nearest.line}: {nearest.text}."
    return f"{text} {more}".rstrip()


def _location(row: Row) -> dict[str, Any]:
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": quote(row.file), "uriBaseId": "%SRCROOT%"},
            "region": {"startLine": line_of(row)},
        }
    }


def line_of(row: Row) -> int:
    """Return the line to point at: the nearest, else the first place that is not fine, else 1."""
    if row.verdict is None:
        return 1
    if row.verdict.nearest is not None:
        return row.verdict.nearest.line
    placed = [site for site in row.verdict.sites if site.line]
    bad = [site for site in placed if site.state not in (State.READY, State.APPLIED)]
    return next((site.line for site in [*bad, *placed] if site.line), 1)


def _fingerprint(row: Row) -> str:
    """Return what stays the same while the same thing is wrong, whatever the line."""
    parts = (row.codemod, row.series, row.word, row.reason)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
