"""The record beside a target: what was applied, to which bytes, proved by what.

It holds what undoing takes: for each module how its patched bytes become the original ones again,
and the first bytes of RECORD. All paths are relative, so a copied container layer keeps it true.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rewriter import __version__
from rewriter.errors import TargetError, ToolBug
from rewriter.witness import Witness

LARGEST = 64 * 2**20
"""Bytes that a packed part may unpack to; more than any RECORD or module, less than a bomb."""


class Held(NamedTuple):
    """One applied codemod.

    Attributes:
        name: its name.
        files: the modules that it changed.
        companions: those that it brought, path → name and version, e.g. ``kv_gather 1``.
        requires: the codemods that it stands upon.
    """

    name: str
    files: tuple[str, ...]
    companions: Mapping[str, str]
    requires: tuple[str, ...] = ()


class Piece(NamedTuple):
    """Of the patched bytes, ``size`` at ``offset`` stand in the place of ``text``."""

    offset: int
    size: int
    text: bytes


class FileRecord(NamedTuple):
    """One file of ours, or one that we changed.

    Attributes:
        before: SHA-256 of the file without codemods; None for a companion.
        after: SHA-256 of what was written.
        mode: permission bits, which were kept.
        link: the text of the link that stood there, if it was one.
        undo: makes the original bytes of the patched ones.
        witness: what proved the original bytes before the first write, frozen.
    """

    before: str | None
    after: str
    mode: int
    link: str | None = None
    undo: tuple[Piece, ...] = ()
    witness: Witness | None = None


class Manifest(NamedTuple):
    """The record of one target.

    Attributes:
        tool: which version of the tool wrote it.
        version: of sglang, when it was written; None where it was unknown.
        codemods: in the order in which they were applied.
        files: by path relative to the package's parent.
        record: RECORD's bytes before the first write; None where there was none.
    """

    tool: str
    version: str | None
    codemods: tuple[Held, ...]
    files: Mapping[str, FileRecord]
    record: bytes | None = None

    def held(self, name: str) -> Held | None:
        """Return the entry of a codemod, if it is applied."""
        return next((held for held in self.codemods if held.name == name), None)

    def dump(self) -> bytes:
        """Return the file's bytes; the same for the same record."""
        value: dict[str, Any] = {
            "schema": 1,
            "tool": self.tool,
            "package": {"name": "sglang", "version": self.version},
            "codemods": [
                {
                    "name": h.name,
                    "files": list(h.files),
                    "companions": dict(h.companions),
                    "requires": list(h.requires),
                }
                for h in self.codemods
            ],
            "files": {path: _file_json(entry) for path, entry in self.files.items()},
        }
        if self.record is not None:
            value["record"] = {"sha256": sha256(self.record), "packed": _pack(self.record)}
        return (json.dumps(value, indent=1) + "\n").encode()


TOOL = f"rewriter {__version__}"


def sha256(raw: bytes) -> str:
    """Return the hash that manifests hold."""
    return hashlib.sha256(raw).hexdigest()


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


def load(path: Path) -> Manifest | None:
    """Read a manifest; None where there is none.

    Raises:
        TargetError: what is there cannot be read, is none of ours, or points outside the package.
    """
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise TargetError(f"{path}: cannot be read: {error.strerror or error}") from error
    try:
        return parse(raw)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TargetError(
            f"{path}: expected the manifest of an applied codemod, found: {error!r}; it was "
            "damaged or edited. Remove it, and `rewriter revert` goes by the structure of the "
            "files; or reinstall the package"
        ) from error


def parse(raw: bytes) -> Manifest:
    """Read a manifest's bytes.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: they are no manifest.
    """
    value = json.loads(raw)
    if value["schema"] != 1:
        raise ValueError(f"schema {value['schema']!r}, which this version does not know")
    record = value.get("record")
    kept = None if record is None else _unpack(record["packed"])
    if kept is not None and sha256(kept) != record["sha256"]:
        raise ValueError("RECORD's first bytes do not have their hash")
    return Manifest(
        str(value["tool"]),
        value["package"]["version"],
        tuple(
            Held(
                str(h["name"]),
                tuple(_path(p) for p in h["files"]),
                {_path(p): str(v) for p, v in h["companions"].items()},
                tuple(str(r) for r in h["requires"]),
            )
            for h in value["codemods"]
        ),
        {_path(path): _file(entry) for path, entry in value["files"].items()},
        kept,
    )


def _path(path: object) -> str:
    """Return a path that a manifest may hold: inside the package, relative, without ``..``."""
    from rewriter.targets.disk import inside

    if not isinstance(path, str):
        raise ValueError(f"{path!r} is no path")
    try:
        return inside(path)
    except ToolBug:
        raise ValueError(f"{path!r} leaves the package") from None


def _file_json(entry: FileRecord) -> dict[str, Any]:
    value: dict[str, Any] = {
        "before": entry.before, "after": entry.after, "mode": f"{entry.mode:04o}"
    }  # fmt: skip
    if entry.link is not None:
        value["link"] = entry.link
    if entry.undo:
        value["undo"] = [[p.offset, p.size, _text(p.text)] for p in entry.undo]
    if entry.witness is not None:
        value["witness"] = entry.witness._asdict()
    return value


def _file(value: dict[str, Any]) -> FileRecord:
    witness = value.get("witness")
    undo = tuple(Piece(int(o), int(s), base64.b64decode(t)) for o, s, t in value.get("undo", ()))
    if any(piece.offset < 0 or piece.size < 0 for piece in undo):
        raise ValueError("a piece outside the file")
    fields = None if witness is None else {k: str(witness[k]) for k in Witness._fields}
    return FileRecord(
        None if value["before"] is None else str(value["before"]),
        str(value["after"]),
        int(value["mode"], 8),
        value.get("link"),
        undo,
        None if fields is None else Witness(**fields),
    )


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def _pack(raw: bytes) -> str:
    return _text(zlib.compress(raw, 9))


def _unpack(text: str) -> bytes:
    try:
        unpacker = zlib.decompressobj()
        raw = unpacker.decompress(base64.b64decode(text, validate=True), LARGEST)
    except (zlib.error, binascii.Error) as error:
        raise ValueError(f"RECORD's first bytes are damaged: {error}") from error
    if unpacker.unconsumed_tail:
        raise ValueError("RECORD's first bytes are too many")
    return raw
