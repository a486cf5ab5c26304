"""One hash for a fleet: equal wherever the same sglang was patched alike.

It depends on versions, codemods and bytes; not on paths, times, the interpreter or who applied it.
It is made of three parts, so that a gate can say in which of them two differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from rewriter import catalog
from rewriter.carried import CarriedPatch
from rewriter.model import State
from rewriter.session import Session
from rewriter.states import Survey

_NOT_IN = frozenset(
    {State.READY, State.UPSTREAM, State.UNSUPPORTED, State.DRIFTED, State.ABSENT}
)  # fmt: skip
"""States of codemods that have left nothing in the target."""

PARTS = (("the version of sglang", 8), ("the codemods or their companions", 16),
         ("the bytes of the patched files", 64))  # fmt: skip
"""What differs where two hashes differ up to this digit."""

LENGTH = 64


def digest(session: Session, survey: Survey) -> str:
    """Return the hash of a target, 64 hexadecimal digits, for all codemods of a session."""
    codemods: list[str] = []
    files: dict[str, bytes] = {}
    for codemod, standing in zip(session.codemods, survey.standings, strict=True):
        verdict = standing.verdict
        if verdict.state in _NOT_IN:
            continue
        companions = {c.path: session.target.read(c.path) for c in codemod.companions}
        versions = [str(catalog.companion_version(raw or b"")) for raw in companions.values()]
        name = verdict.codemod
        if isinstance(codemod, CarriedPatch):  # whatever its file is called
            name = f"patch {codemod.sha256}"
        codemods.append(" ".join([name, verdict.state.value, *versions]))
        for path in (*codemod.files(), *companions):
            files[path] = session.target.read(path) or b""
    version = _hash([session.target.version or ""])
    names = _hash(sorted(codemods))
    contents = _hash(f"{path} {hashlib.sha256(files[path]).hexdigest()}" for path in sorted(files))
    return version[:8] + names[:8] + contents[: LENGTH - 16]


def _hash(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def differing(expected: str, found: str) -> list[str]:
    """Return which parts of two hashes differ, in words."""
    told: list[str] = []
    start = 0
    for what, end in PARTS:
        if expected[start:end] != found[start:end]:
            told.append(what)
        start = end
    return told
