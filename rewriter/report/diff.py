"""Unified diffs that ``git apply`` accepts, made of bytes: no encoding is guessed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from rewriter.model import Change


def unified(changes: Iterable[Change], prefix: str) -> bytes:
    """Return one diff of several files.

    Args:
        changes: what changes; a file that is not there before is a new one.
        prefix: stands before the paths: ``python/`` in a checkout, else empty.
    """
    return b"".join(_file(change, prefix) for change in changes)


def _file(change: Change, prefix: str) -> bytes:
    path = prefix + change.path
    old, new = f"a/{path}", f"b/{path}"
    head = [f"diff --git {old} {new}\n"]
    if change.before is None:
        head.append(f"new file mode 100{755 if change.executable else 644}\n")
        old = "/dev/null"
    if change.after is None:
        head.append("deleted file mode 100644\n")
        new = "/dev/null"
    before, after = _lines(change.before), _lines(change.after)
    body = difflib.diff_bytes(
        difflib.unified_diff, before, after, old.encode(), new.encode(), lineterm=b"\n"
    )
    return "".join(head).encode() + b"".join(_whole(body))


def _lines(raw: bytes | None) -> list[bytes]:
    """Split at line feeds alone, as git does: a lone carriage return is part of a line."""
    if not raw:
        return []
    lines = raw.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _whole(lines: Iterator[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield line
        if not line.endswith(b"\n"):
            yield b"\n\\ No newline at end of file\n"
