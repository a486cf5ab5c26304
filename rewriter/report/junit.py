"""JUnit XML: a suite a codemod and series, a case a revision."""

from __future__ import annotations

import re
from itertools import groupby
from xml.etree import ElementTree as ET

from rewriter.model import State
from rewriter.rows import Matrix, Row

_FORBIDDEN = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, not even escaped."""


def document(matrix: Matrix) -> bytes:
    """Return the matrix as JUnit XML, UTF-8. A range's base is no case: it is not asked about."""
    root = ET.Element("testsuites", name="rewriter matrix")
    asked = [row for row in matrix.rows if row.asked]
    for (codemod, series), rows in groupby(asked, key=lambda row: (row.codemod, row.series)):
        _suite(root, codemod, series, list(rows))
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    ET.indent(root)
    body: bytes = ET.tostring(root, "utf-8")
    return b'<?xml version="1.0" encoding="utf-8"?>\n' + body + b"\n"


def _suite(root: ET.Element, codemod: str, series: str, rows: list[Row]) -> None:
    suite = ET.SubElement(root, "testsuite", name=f"{codemod}, {series}", time="0")
    kinds = [_case(suite, row) for row in rows]
    suite.set("tests", str(len(rows)))
    for name, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(kinds.count(kind)))


def _case(suite: ET.Element, row: Row) -> str:
    name = row.label
    if row.commit is not None:
        name = f"{row.label} {row.commit.date[:10]} {row.commit.subject}"
    case = ET.SubElement(suite, "testcase", classname=row.codemod, name=_clean(name), time="0")
    kind = _kind(row)
    if kind:
        outcome = ET.SubElement(case, kind, message=_clean(f"{row.word}: {row.reason}"))
        if kind != "skipped":
            outcome.set("type", row.word)
            outcome.text = _clean(_details(row))
    else:
        ET.SubElement(case, "system-out").text = _clean(f"{row.word} {row.reason}".rstrip())
    return kind


def _kind(row: Row) -> str:
    if row.verdict is None:
        return "error"
    if not row.fine:
        return "failure"
    return "skipped" if row.state is State.ABSENT else ""


def _details(row: Row) -> str:
    told = [row.reason]
    nearest = row.verdict.nearest if row.verdict else None
    if nearest is not None:
        told.append(f"nearest: {row.file}:{nearest.line}: {nearest.text} {nearest.differs}")
    if row.since is not None and row.since[1] is not None:
        commit = row.since[1]
        told.append(f"since: {commit.id} {commit.date} {commit.subject}")
    return "\n".join(told)


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
