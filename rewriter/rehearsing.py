"""The other side of ``rewriter.rehearsal``: what runs in the process of its own."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import sys
import tempfile
import traceback
from typing import Any

from rewriter import catalog, engine, rehearsal
from rewriter.errors import RewriterError, SourceError
from rewriter.judge import judge
from rewriter.model import State

_MEMORY = 8 * 2**30
"""Bytes of address space that a plug-in may take; what it imports is counted."""


def main(told: dict[str, Any]) -> None:
    """Try a plug-in, and tell on standard output what is amiss, if anything is.

    What the plug-in itself prints goes elsewhere and counts as amiss: it would stand in the midst
    of what a command prints, which may be JSON.
    """
    rehearsal.under_way = True
    answer = os.dup(1)
    with tempfile.TemporaryFile() as printed:
        os.dup2(printed.fileno(), 1)
        _bound_memory()
        amiss = _amiss(told)
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        printed.seek(0)
        first = printed.readline(80).decode("utf-8", "replace").strip()
    if first and not amiss:
        amiss = f"it prints to standard output ({first!r}); a codemod only finds and edits"
    os.write(answer, json.dumps({"amiss": amiss}).encode())
    os._exit(0)  # what it left behind to be run at the end is not run


def _bound_memory() -> None:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


def _amiss(told: dict[str, Any]) -> str:
    try:
        _try(told)
    except RewriterError as error:
        return str(error)
    except BaseException as error:  # anybody's code: what it raises is told, whatever it is
        frames = traceback.extract_tb(error.__traceback__)
        where = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        return f"it raised {type(error).__name__}{where}: {error}"
    return ""


def _try(told: dict[str, Any]) -> None:
    codemod = catalog.load(told["name"])
    if told["files"] is None:
        return
    raws = {
        path: None if text is None else base64.b64decode(text)
        for path, text in told["files"].items()
    }
    with contextlib.suppress(SourceError):  # of the files, not of the plug-in: told elsewhere
        if judge(codemod, raws.get, told["version"], force_version=True).state is State.READY:
            for path in codemod.files():
                raw = raws.get(path)
                if raw is not None and engine.examine(codemod, path, raw).state is State.READY:
                    engine.apply(codemod, path, raw)
