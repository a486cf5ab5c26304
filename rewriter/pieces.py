"""What a record keeps of bytes: how one text becomes another again, and whole texts, packed."""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import NamedTuple

from rewriter.errors import ToolBug

LARGEST = 64 * 2**20
"""Bytes that a packed part may unpack to; more than any RECORD or module, less than a bomb."""


class Piece(NamedTuple):
    """Of the patched bytes, ``size`` at ``offset`` stand in the place of ``text``."""

    offset: int
    size: int
    text: bytes


def pieces(before: bytes, after: bytes) -> tuple[Piece, ...]:
    """Return how to make ``before`` of ``after``, line by line.

    Raises:
        ToolBug: the pieces do not give it back.
    """
    import difflib

    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    starts = [0]
    for line in new:
        starts.append(starts[-1] + len(line))
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    found = tuple(
        Piece(starts[j1], starts[j2] - starts[j1], b"".join(old[i1:i2]))
        for tag, i1, i2, j1, j2 in matcher.get_opcodes()
        if tag != "equal"
    )
    if restored(after, found) != before:
        raise ToolBug("the manifest would not give the original bytes back")
    return found


def restored(after: bytes, undo: tuple[Piece, ...]) -> bytes:
    """Return the original bytes of patched ones."""
    parts: list[bytes] = []
    done = 0
    for piece in undo:
        parts += [after[done : piece.offset], piece.text]
        done = piece.offset + piece.size
    return b"".join([*parts, after[done:]])


def as_json(undo: tuple[Piece, ...]) -> list[list[int | str]]:
    """Return pieces as JSON holds them."""
    return [[p.offset, p.size, base64.b64encode(p.text).decode("ascii")] for p in undo]


def of_json(value: list[tuple[int, int, str]]) -> tuple[Piece, ...]:
    """Return the pieces that JSON holds.

    Raises:
        ValueError, TypeError: it holds none.
    """
    undo = tuple(Piece(int(o), int(s), base64.b64decode(t)) for o, s, t in value)
    if any(piece.offset < 0 or piece.size < 0 for piece in undo):
        raise ValueError("a piece outside the file")
    return undo


def pack(raw: bytes) -> str:
    """Return bytes as a short text."""
    return base64.b64encode(zlib.compress(raw, 9)).decode("ascii")


def unpack(text: str) -> bytes:
    """Return the bytes of a packed text.

    Raises:
        ValueError: it is damaged, or would be too long.
    """
    try:
        unpacker = zlib.decompressobj()
        raw = unpacker.decompress(base64.b64decode(text, validate=True), LARGEST)
    except (zlib.error, binascii.Error) as error:
        raise ValueError(f"packed bytes are damaged: {error}") from error
    if unpacker.unconsumed_tail:
        raise ValueError("packed bytes are too many")
    return raw
