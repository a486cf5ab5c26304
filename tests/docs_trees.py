"""A patch of one's own, and the source that it is for before and after an upgrade: our own text."""

from __future__ import annotations

from pathlib import Path

from rewriter.model import Change
from rewriter.report.diff import unified

PATH = "sglang/srt/waiting.py"

OLD = '''\
"""Requests that wait."""

import time
from collections import deque


class Waiting:
    def __init__(self, limit):
        self.limit = limit
        self.requests = deque()

    def put(self, request):
        if len(self.requests) >= self.limit:
            raise OverflowError(request)
        self.requests.append(request)

    def take(self, budget):
        taken = []
        while self.requests and budget > 0:
            request = self.requests.popleft()
            budget -= request.tokens
            taken.append(request)
        return taken

    def age(self, request):
        return time.time() - request.created
'''

_POP, _STORE = "request = self.requests.popleft()\n", "        self.requests.append(request)\n"

OWN = (
    OLD.replace(_POP, f"{_POP}            request.taken = time.time()\n")
    .replace(_STORE, f"        request.place = len(self.requests)\n{_STORE}")
    .replace("return time.time() -", "return time.monotonic() -")
)

NEW = '''\
"""Requests that wait, oldest first."""

import time
from collections import deque


class Waiting:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.requests = deque()

    def age(self, request) -> float:
        return time.monotonic() - request.created

    def take(self, budget: int, *, most: int = 64) -> list:
        taken = []
        while self.requests and budget > 0 and len(taken) < most:
            request = self.requests.popleft()
            budget -= request.tokens
            taken.append(request)
        return taken

    def put(self, request) -> None:
        if len(self.requests) >= self.limit:
            raise OverflowError(
                request,
            )
        self.requests.append(request)
'''

LATEST = NEW.partition("\n    def put")[0]


def write(root: Path) -> None:
    """Write the trees ``old``, ``new`` and ``latest``, and ``own.patch``, which is for ``old``."""
    for name, text in (("old", OLD), ("new", NEW), ("latest", LATEST)):
        package = root / name / "python" / "sglang"
        (package / "srt").mkdir(parents=True)
        (package / "__init__.py").write_text("", encoding="utf-8")
        (package.parent / PATH).write_text(text, encoding="utf-8")
    patch = unified([Change(PATH, OLD.encode(), OWN.encode())], "python/")
    (root / "own.patch").write_bytes(patch)
