"""Markdown: the summary of a matrix, and the table of codemods for a README."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from rewriter.report.matrix import count, origin, verdict_line
from rewriter.rows import Episode, Matrix, Row

_MARKS = re.compile(r"([\\`*_{}\[\]<>|#!~])")


def summary(matrix: Matrix) -> Iterator[str]:
    """Yield the lines of a summary: the answer, runs of revisions, what can be retired."""
    yield f"### {'✅' if matrix.exit_code == 0 else '❌'} rewriter: {escape(verdict_line(matrix))}"
    yield ""
    yield f"{escape(matrix.location)}: {count(matrix.sources, 'distinct source')}."
    heading = None
    for episode in matrix.episodes():
        row = episode.last
        if heading != (row.codemod, row.series):
            heading = row.codemod, row.series
            yield ""
            yield f"#### {escape(row.codemod)}, {row.series}"
            yield ""
            yield "| state | revisions | since | why |"
            yield "| --- | --- | --- | --- |"
        yield _line(episode)
    for row, drop_when in matrix.retired():
        yield ""
        yield (
            f"**{escape(row.codemod)}** has nothing to do at {escape(row.label)}: "
            f"{escape(row.reason)}. Drop when: {escape(drop_when)}."
        )


def _line(episode: Episode) -> str:
    first, last = episode.first, episode.last
    ends = _name(first) if first is last else f"{_name(first)} … {_name(last)}"
    many = "" if first is last else f" ({len(episode.rows)})"
    since = ""
    if first.since is not None:
        subject = f" {escape(first.since[1].subject)}" if first.since[1] else ""
        since = f"{escape(origin(first.since))}{subject}"
    mark = "✅" if last.fine else "❌"
    return f"| {mark} {last.word} | {ends}{many} | {since} | {_why(last)} |"


def _why(row: Row) -> str:
    nearest = row.verdict.nearest if row.verdict else None
    if nearest is None:
        return escape(row.reason)
    return f"{escape(row.reason)}; nearest: line {nearest.line}: {code(nearest.text)}"


def _name(row: Row) -> str:
    return escape(row.label) + (f" ({row.commit.date[:10]})" if row.commit else "")


def codemods(rows: Iterable[Mapping[str, str]]) -> Iterator[str]:
    """Yield the table of codemods for a README.

    Args:
        rows: name, what, supports, ready, target and drop_when of each.
    """
    yield "| codemod | what | sglang | checked | file | drop when |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for row in rows:
        cells = (
            code(row["name"]),
            prose(row["what"]),
            code(row["supports"]),
            escape(row["checked"]),
            code(row["target"]),
            escape(row["drop_when"]),
        )
        yield f"| {' | '.join(cells)} |"


def prose(text: str) -> str:
    """Return a docstring's line: what it marks as a literal as code, the rest escaped."""
    flat = " ".join(text.split())
    pieces = re.split(r"``(.+?)``", flat)  # every second one stood between the marks
    return "".join(
        code(piece) if number % 2 else _MARKS.sub(r"\\\1", piece)
        for number, piece in enumerate(pieces)
    )


def escape(text: str) -> str:
    """Return text that Markdown shows as it is, in one line, also inside a table."""
    return _MARKS.sub(r"\\\1", " ".join(text.split()))


def code(text: str) -> str:
    """Return text as code, in one line, also inside a table."""
    flat = " ".join(text.split()).replace("|", "\\|")
    longest = max((len(run) for run in re.findall(r"`+", flat)), default=0)
    fence = "`" * (longest + 1)
    gap = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{fence}{gap}{flat}{gap}{fence}" if flat else ""
