"""A plug-in's codemod tried in a process of its own, before it runs in this one.

It is anybody's code, and runs as it is imported and as it looks for its places. There it may raise,
hang, print or end the process; here it would take the command with it, and a gate would say what
the plug-in likes. What came to a good end once is not tried again on the same bytes.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from rewriter import plugins
from rewriter.cache import cache_directory
from rewriter.errors import CatalogError, UsageError
from rewriter.plugins import Plugin

VARIABLE = "REWRITER_PLUGIN_SECONDS"
"""Environment variable that replaces the time limit."""

_SECONDS = 30.0

_START = (
    "import sys, json; told = json.loads(sys.stdin.buffer.read()); sys.path[:] = told['path']; "
    "from rewriter.rehearsing import main; main(told)"
)

under_way = False
"""Whether this process is the one in which a plug-in is tried."""


def rehearse(
    plugin: Plugin, files: Mapping[str, bytes | None] | None = None, version: str | None = None
) -> None:
    """Import a plug-in's codemod, and let it look at files and change them, in a new process.

    Args:
        plugin: what is tried.
        files: path relative to the package's parent → bytes; None to import it only.
        version: of the target.

    Raises:
        CatalogError: it did not come to a good end; the message says how.
    """
    if under_way:
        return
    place = plugins.place(plugin)
    mark = _mark(plugin, files)
    if mark.is_file():
        return
    told = {
        "path": sys.path,
        "name": plugin.name,
        "version": version,
        "files": None if files is None else {p: _text(raw) for p, raw in files.items()},
    }
    doing = "importing it" if files is None else f"looking for its places in {', '.join(files)}"
    reason = _tried(json.dumps(told).encode(), doing)
    if reason:
        raise CatalogError(
            reason if reason.startswith(str(place)) else f"{place}: {reason}; nothing was written"
        )
    with contextlib.suppress(OSError):  # then it is tried again the next time
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else base64.b64encode(raw).decode()


def _mark(plugin: Plugin, files: Mapping[str, bytes | None] | None) -> Path:
    """Return the file that says that this very plug-in came to a good end on these bytes."""
    import hashlib

    total = hashlib.sha256(f"{plugin.module} {sys.version}\n".encode())
    parts = [path.read_bytes() for path in plugins.deciding(plugin)]
    for path, raw in sorted((files or {}).items()):
        parts += [path.encode(), b"none" if raw is None else raw]
    for part in parts:
        total.update(b"%d\n%s\n" % (len(part), part))
    name = total.hexdigest()
    return cache_directory() / "rehearsed" / name[:2] / name


def _limit() -> float:
    chosen = os.environ.get(VARIABLE)
    try:
        return float(chosen) if chosen else _SECONDS
    except ValueError:
        raise UsageError(f"{VARIABLE}: expected seconds, found {chosen!r}") from None


def _tried(told: bytes, doing: str) -> str:
    """Run the process, and say what went wrong in it; empty where nothing did."""
    limit = _limit()
    process = subprocess.Popen(
        [sys.executable, "-c", _START],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    try:
        answer, errors = process.communicate(told, limit)
    except subprocess.TimeoutExpired:
        _end(process)
        return f"{doing} was ended after {limit:g} s ({VARIABLE})"
    finally:
        if process.poll() is None:
            _end(process)
    try:
        return str(json.loads(answer)["amiss"])
    except (ValueError, KeyError, TypeError):
        last = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
        told_why = f": {last}" if last else ""
        return f"{doing} ended the process (exit code {process.returncode}){told_why}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.communicate()
