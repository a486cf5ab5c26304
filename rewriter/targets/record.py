"""RECORD, the list of files and hashes that every wheel and installed package carries."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple


class Row(NamedTuple):
    """One line of RECORD."""

    hash: str
    """``sha256=`` and the digest in URL-safe base64 without padding; empty when not stated."""
    size: int | None
    """In bytes; None when not stated."""

    def matches(self, data: bytes) -> bool:
        """Tell whether ``data`` is what the row describes; False when it states no hash."""
        algorithm, _, stated = self.hash.partition("=")
        return bool(stated) and algorithm in _ALGORITHMS and self.hash == digest(data, algorithm)


_ALGORITHMS = ("sha256", "sha384", "sha512")
"""What the wheel format allows: SHA-256 or better."""


def parse_record(data: bytes) -> dict[str, Row]:
    """Parse RECORD into path → row, with paths as they stand.

    Raises:
        ValueError: a line does not have three fields, or the text is not UTF-8.
    """
    import csv

    rows: dict[str, Row] = {}
    lines = data.decode("utf-8").splitlines()
    for number, fields in enumerate(csv.reader(lines), start=1):
        if not fields:
            continue
        if len(fields) != 3 or (fields[2] and not fields[2].isdecimal()):
            raise ValueError(f"RECORD line {number}: expected path,hash,size")
        path, stated, size = fields
        rows[path] = Row(stated, int(size) if size else None)
    return rows


def digest(data: bytes, algorithm: str = "sha256") -> str:
    """Return the hash of ``data`` as RECORD spells it (PEP 376, PEP 427)."""
    import base64
    import hashlib

    raw = hashlib.new(algorithm, data).digest()
    return f"{algorithm}=" + base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def rewritten(data: bytes, contents: Mapping[str, bytes | None], new: Collection[str]) -> bytes:
    """Return RECORD with true rows for some files; every other byte stays as it is.

    Args:
        data: RECORD.
        contents: path → the file's bytes, or None for a file that is gone. A row keeps its
            algorithm, and one that states no hash goes on stating none.
        new: which paths get a row if they have none. A module that RECORD does not list is not
            the installer's, so it gets none, and an uninstall leaves it alone.
    """
    lines = [line for _, line in _rows(data)]
    ending = _ending(lines[0]) if lines else "\n"
    kept: list[str] = []
    listed: set[str] = set()
    for line in lines:
        path, stated = _fields(line)
        if path not in contents:
            kept.append(line)
            continue
        listed.add(path)
        raw = contents[path]
        if raw is not None:
            kept.append(_line(path, raw, stated) + _ending(line) if stated else line)
    added = [path for path in contents if path in new and path not in listed]
    if added and kept and not _ending(kept[-1]):
        kept[-1] += ending
    for path in added:
        raw = contents[path]
        if raw is not None:
            kept.append(_line(path, raw, "sha256") + ending)
    return "".join(kept).encode("utf-8", "surrogateescape")


def taken_back(data: bytes, first: bytes, paths: Collection[str]) -> bytes:
    """Return RECORD with the rows of some files as they first were.

    Where nobody else has changed anything since, that is the first RECORD itself.

    Args:
        data: RECORD as it is now.
        first: its bytes before the first write.
        paths: the files whose rows are taken back.
    """
    now, then = _rows(data), _rows(first)

    def others(rows: list[tuple[str, str]]) -> list[str]:
        return [line.rstrip("\r\n") for path, line in rows if path not in paths]

    if others(now) == others(then):
        return first
    original = dict(then)
    lines = [original.get(path, "") if path in paths else line for path, line in now]
    listed = {path for path, _ in now}
    gone = [line for path, line in then if path in paths and path not in listed]
    if gone and lines and not _ending(lines[-1]):
        lines[-1] += _ending(gone[0]) or "\n"
    lines += gone
    return "".join(lines).encode("utf-8", "surrogateescape")


def _rows(data: bytes) -> list[tuple[str, str]]:
    """Return path and whole line of every row."""
    lines = [row.decode("utf-8", "surrogateescape") for row in data.splitlines(keepends=True)]
    return [(_fields(line)[0], line) for line in lines]


def _fields(line: str) -> tuple[str, str]:
    """Return the path of a row and the algorithm that it states, empty where it states none."""
    import csv

    fields = next(csv.reader([line]), [])
    return (fields[0], fields[1].partition("=")[0]) if len(fields) == 3 else ("", "")


def _line(path: str, raw: bytes, algorithm: str) -> str:
    import csv
    import io

    text = io.StringIO()
    algorithm = algorithm if algorithm in _ALGORITHMS else "sha256"
    csv.writer(text, lineterminator="").writerow([path, digest(raw, algorithm), len(raw)])
    return text.getvalue()


def _ending(line: str) -> str:
    """Return the newline that ends a line: pip writes ``\\r\\n``, uv and wheels ``\\n``."""
    return line[len(line.rstrip("\r\n")) :]
