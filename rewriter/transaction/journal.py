"""The journal: what a run is about to do, on disk and durable before its first change.

It is there only while a run is under way or after one died. A live run holds a lock on the file
itself, which the system drops with the process: so a dead run is told from a live one across
users and containers.
"""

from __future__ import annotations

import errno
import json
import os
import re
import socket
from pathlib import Path
from typing import Any, NamedTuple

from rewriter import __version__
from rewriter.errors import TargetError
from rewriter.targets.disk import PACKAGE, read_file
from rewriter.targets.home import Home
from rewriter.transaction.folder import Content


class Write(NamedTuple):
    """One name whose content changes.

    Attributes:
        at: ``root`` for a path relative to the package's parent, ``home`` for one in the
            record's own directory.
        path: with forward slashes.
        before, after: the contents; a link stands for itself, not for what it leads to.
        like: for a new file, the path in ``root`` of the one whose mode and owner it gets.
        mode: for a new file, its own permission bits where they are known.
    """

    at: str
    path: str
    before: Content
    after: Content
    like: str | None = None
    mode: int | None = None

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


class Noted(NamedTuple):
    """One write as the journal keeps it: fingerprints in the place of contents."""

    at: str
    path: str
    before: str | None
    after: str | None


class Journal(NamedTuple):
    """What a run was about to do.

    Attributes:
        command: ``apply`` or ``revert``.
        token: part of the names of the run's temporary files.
        process: ``HOST:PID`` of the run; for messages.
        writes: in the order in which they are done.
    """

    command: str
    token: str
    process: str
    writes: tuple[Noted, ...]

    def dump(self) -> bytes:
        """Return the file's bytes."""
        value = {"schema": 1, "tool": f"rewriter {__version__}", **self._asdict()}
        value["writes"] = [write._asdict() for write in self.writes]
        return (json.dumps(value, indent=1) + "\n").encode()


def new_name(name: str, token: str) -> str:
    """Return the name of the file that will take the place of ``name``."""
    return f".{name}.rewriter-{token}.new"


def old_name(name: str, token: str) -> str:
    """Return the second name that the replaced file keeps until the run is over."""
    return f".{name}.rewriter-{token}.old"


LEFT_NAME = re.compile(r"\.(?P<name>.+)\.rewriter-(?P<token>[0-9a-f]{8})\.(new|old)")
"""The names of a run's temporary files."""


def describe_process() -> str:
    """Return host and process id of this run."""
    return f"{socket.gethostname()}:{os.getpid()}"


def checked_path(at: object, path: object) -> str:
    """Return a path of a record after checking that it stays where records may point.

    Raises:
        ValueError: it is absolute, climbs, or names something that is never ours.
    """
    if not isinstance(path, str) or "\\" in path or "\0" in path:
        raise ValueError(f"{path!r} is no path")
    parts = path.split("/")
    plain = all(part not in ("", ".", "..") for part in parts)
    if at == "home" and plain and len(parts) == 1:
        return path
    in_package = parts[0] == PACKAGE and len(parts) > 1
    start = path == "sitecustomize.py"  # of an overlay
    in_dist_info = parts[0].endswith(".dist-info") and len(parts) == 2
    if at == "root" and plain and (in_package or in_dist_info or start):
        return path
    raise ValueError(f"{path!r} leaves the package")


def parse(raw: bytes, place: Path) -> Journal:
    """Read a journal's bytes.

    Raises:
        TargetError: they are no journal of ours, or it points outside the package.
    """
    try:
        value = json.loads(raw)
        if value["schema"] != 1 or not re.fullmatch(r"[0-9a-f]{8}", value["token"]):
            raise ValueError("unknown schema or token")
        writes = tuple(
            Noted(str(w["at"]), checked_path(w["at"], w["path"]), _mark(w, "before"),
                  _mark(w, "after"))
            for w in value["writes"]
        )  # fmt: skip
        return Journal(
            str(value["command"]), value["token"], str(value["process"]), writes
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise TargetError(
            f"{place}: expected the journal of an interrupted run, found: {error}; nothing is "
            "recovered from it. Reinstall the package, or remove the file if the package is whole"
        ) from error


def _mark(write: dict[str, Any], key: str) -> str | None:
    value = write[key]
    if value is not None and not isinstance(value, str):
        raise ValueError(f"`{key}` is no fingerprint")
    return value


def read(home: Home) -> Journal | None:
    """Return the journal of a target, if a run is under way there or died.

    Raises:
        TargetError: there is something else under its name.
    """
    raw = read_file(home.journal_path)
    if raw is None:
        if home.journal_path.is_dir():
            raise TargetError(f"{home.journal_path}: cannot be read: Is a directory")
        return None
    return parse(raw, home.journal_path)


def is_alive(home: Home) -> bool:
    """Tell whether the run that wrote the journal still goes on."""
    try:
        descriptor = os.open(home.journal_path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return not hold(descriptor)
    finally:
        os.close(descriptor)


def hold(descriptor: int) -> bool:
    """Lock an open journal until it is closed; False when another process holds it.

    A file system that has no such locks counts as free: the lock of the state directory is then
    the only one.
    """
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True
