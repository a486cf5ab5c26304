"""RECORD, the list of files and hashes that every wheel and installed package carries."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
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
