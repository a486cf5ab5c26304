"""The record beside a target: what was applied, to which bytes, proved by what.

It holds what undoing takes: for each module how its patched bytes become the original ones again,
and the first bytes of RECORD. All paths are relative, so a copied container layer keeps it true.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rewriter import __version__
from rewriter.errors import TargetError, ToolBug
from rewriter.pieces import Piece, as_json, of_json, pack, pieces, restored, unpack
from rewriter.witness import Witness


class Kept(NamedTuple):
    """One file of a carried patch: whole, because such a change is no insertion.

    Attributes:
        before, after: SHA-256 of the file without and with the patch; None where there is none.
        packed: the file with the patch; None where the patch deleted it.
        undo: makes the file without the patch of it; all of it where it was deleted.
    """

    before: str | None
    after: str | None
    packed: str | None
    undo: tuple[Piece, ...] = ()

    @property
    def new(self) -> bool:
        """Whether the patch brought the file."""
        return self.before is None


class Hunk(NamedTuple):
    """One place of a carried patch, as it was written.

    Attributes:
        file: path relative to the package's parent.
        kind: ``hunk 3``, or what became of the file: new, deleted, renamed.
        definition: around it; empty in a module's own lines.
        line: 1-based, in the file with this patch alone; None where nothing is to see.
        at: the same in the written file, which codemods and other patches lie over.
        how: how it was placed, where not exactly.
    """

    file: str
    kind: str
    definition: str
    line: int | None
    at: int | None = None
    how: str = ""


class Carried(NamedTuple):
    """What a record keeps of a carried patch.

    Attributes:
        sha256: of the patch's file.
        origin: what it was made for, e.g. ``0.5.11``.
        files: by path.
        hunks: in the order of the patch.
    """

    sha256: str
    origin: str
    files: Mapping[str, Kept]
    hunks: tuple[Hunk, ...]


class Held(NamedTuple):
    """One applied codemod or carried patch.

    Attributes:
        name: its name.
        files: the modules that it changed.
        companions: those that it brought, path → name and version, e.g. ``kv_gather 1``.
        requires: the codemods that it stands upon.
        carried: of a patch, what it made of the files.
    """

    name: str
    files: tuple[str, ...]
    companions: Mapping[str, str]
    requires: tuple[str, ...] = ()
    carried: Carried | None = None


class FileRecord(NamedTuple):
    """One file of ours, or one that we changed.

    Attributes:
        before: SHA-256 of the file without codemods and patches; None for one that they brought.
        after: SHA-256 of what was written; None for a file that a patch deleted.
        mode: permission bits, which were kept.
        link: the text of the link that stood there, if it was one.
        undo: makes the original bytes of the patched ones.
        witness: what proved the original bytes before the first write, frozen.
    """

    before: str | None
    after: str | None
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
            # A tool that knows no carried patches must not take such a record for its own.
            "schema": 2 if any(h.carried for h in self.codemods) else 1,
            "tool": self.tool,
            "package": {"name": "sglang", "version": self.version},
            "codemods": [_held_json(held) for held in self.codemods],
            "files": {path: _file_json(entry) for path, entry in self.files.items()},
        }
        if self.record is not None:
            value["record"] = {"sha256": sha256(self.record), "packed": pack(self.record)}
        return (json.dumps(value, indent=1) + "\n").encode()


__all__ = [
    "TOOL", "Carried", "FileRecord", "Held", "Hunk", "Kept", "Manifest", "Piece", "load", "parse",
    "pieces", "restored", "sha256", "unpack",
]  # fmt: skip

TOOL = f"rewriter {__version__}"


def sha256(raw: bytes) -> str:
    """Return the hash that manifests hold."""
    return hashlib.sha256(raw).hexdigest()


def load(path: Path) -> Manifest | None:
    """Read a manifest; None where there is none.

    Raises:
        TargetError: what is there cannot be read, is none of ours, or points outside the package.
    """
    from rewriter.targets.disk import read_file

    raw = read_file(path)
    if raw is None:
        if path.is_dir():
            raise TargetError(f"{path}: cannot be read: Is a directory")
        return None
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
    if value["schema"] not in (1, 2):
        raise ValueError(f"schema {value['schema']!r}, which this version does not know")
    record = value.get("record")
    kept = None if record is None else unpack(record["packed"])
    if kept is not None and sha256(kept) != record["sha256"]:
        raise ValueError("RECORD's first bytes do not have their hash")
    return Manifest(
        str(value["tool"]),
        value["package"]["version"],
        tuple(_held(h) for h in value["codemods"]),
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


def _held_json(held: Held) -> dict[str, Any]:
    value: dict[str, Any] = {
        "name": held.name,
        "files": list(held.files),
        "companions": dict(held.companions),
        "requires": list(held.requires),
    }
    if held.carried is not None:
        value["patch"] = {
            "sha256": held.carried.sha256,
            "from": held.carried.origin,
            "files": {
                path: {**kept._asdict(), "undo": as_json(kept.undo)}
                for path, kept in held.carried.files.items()
            },
            "hunks": [list(hunk) for hunk in held.carried.hunks],
        }
    return value


def _held(value: dict[str, Any]) -> Held:
    patch = value.get("patch")
    carried = None
    if patch is not None:
        carried = Carried(
            str(patch["sha256"]),
            str(patch["from"]),
            {_path(path): _kept(kept) for path, kept in patch["files"].items()},
            tuple(_hunk(*hunk) for hunk in patch["hunks"]),
        )
    return Held(
        str(value["name"]),
        tuple(_path(p) for p in value["files"]),
        {_path(p): str(v) for p, v in value["companions"].items()},
        tuple(str(r) for r in value["requires"]),
        carried,
    )


def _kept(value: dict[str, Any]) -> Kept:
    before, after, packed = value["before"], value["after"], value["packed"]
    if not all(isinstance(part, (str, type(None))) for part in (before, after, packed)):
        raise ValueError("a patched file that is no packed text")
    if (after is None) != (packed is None):
        raise ValueError("a patched file without its hash, or a hash without its file")
    return Kept(before, after, packed, of_json(value["undo"]))


def _hunk(file: object, kind: object, name: object, line: object, at: object, how: object) -> Hunk:
    first, second = (None if n is None else int(str(n)) for n in (line, at))
    return Hunk(_path(file), str(kind), str(name), first, second, str(how))


def _file_json(entry: FileRecord) -> dict[str, Any]:
    value: dict[str, Any] = {
        "before": entry.before, "after": entry.after, "mode": f"{entry.mode:04o}"
    }  # fmt: skip
    if entry.link is not None:
        value["link"] = entry.link
    if entry.undo:
        value["undo"] = as_json(entry.undo)
    if entry.witness is not None:
        value["witness"] = entry.witness._asdict()
    return value


def _file(value: dict[str, Any]) -> FileRecord:
    witness = value.get("witness")
    fields = None if witness is None else {k: str(witness[k]) for k in Witness._fields}
    return FileRecord(
        None if value["before"] is None else str(value["before"]),
        None if value["after"] is None else str(value["after"]),
        int(value["mode"], 8),
        value.get("link"),
        of_json(value.get("undo", [])),
        None if fields is None else Witness(**fields),
    )
