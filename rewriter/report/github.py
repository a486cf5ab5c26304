"""Workflow commands of GitHub Actions: annotations at the lines that they are about."""

from __future__ import annotations

from collections.abc import Iterator

from rewriter.report.matrix import count, origin, sentence
from rewriter.report.sarif import line_of
from rewriter.rows import Matrix, Row


def commands(matrix: Matrix) -> Iterator[str]:
    """Yield one command a run of revisions that is not fine, and one a codemod to retire."""
    for episode in matrix.episodes():
        row = episode.last
        if not row.fine and row.asked:
            text = row.reason or row.word
            if row.since is not None:
                text += f"\nsince {origin(row.since)}"
                text += f" {row.since[1].subject}" if row.since[1] else ""
            if len(episode.rows) > 1:
                text += f"\nin {count(len(episode.rows), 'revision')} from {episode.first.label} on"
            yield _command("error", row, sentence(row), text)
    for row, drop_when in matrix.retired():
        text = f"{row.reason}\nDrop when: {drop_when}"
        yield _command("notice", row, f"{row.codemod} has nothing to do at {row.label}", text)


def _command(level: str, row: Row, title: str, text: str) -> str:
    properties = {"title": title}
    if row.file:
        properties = {"file": row.file, "line": str(line_of(row)), **properties}
    written = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{level} {written}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
