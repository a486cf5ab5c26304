"""Small trees to carry patches between, and what a test asks of the result."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping

from rewriter.carry.carrying import Carried, carry
from rewriter.carry.steps import Fate
from rewriter.model import Change
from rewriter.report.diff import unified

PATH = "sglang/srt/mod.py"


class Tree:
    """A target out of memory."""

    kind, location, version, diff_prefix, writable = "memory", "memory", None, "", False

    def __init__(self, files: Mapping[str, str | bytes]) -> None:
        self.contents = {
            path: text if isinstance(text, bytes) else text.encode() for path, text in files.items()
        }

    def read(self, path: str) -> bytes | None:
        return self.contents.get(path)

    def files(self, under: str = "sglang") -> Iterator[str]:
        return iter(sorted(p for p in self.contents if p.startswith(under)))


def code(text: str) -> str:
    return textwrap.dedent(text).lstrip("\n")


def diff(before: str, after: str, path: str = PATH) -> bytes:
    return unified([Change(path, code(before).encode(), code(after).encode())], "python/")


def place(base: str, ours: str, theirs: str, *, partial: bool = False) -> Carried:
    """Carry the patch that makes ``ours`` of ``base`` onto ``theirs``."""
    return carry(
        [("own.patch", diff(base, ours))],
        Tree({PATH: code(base)}),
        Tree({PATH: code(theirs)}),
        partial=partial,
    )


def text(carried: Carried, path: str = PATH) -> str:
    after = next(change.after for change in carried.changes if change.path == path)
    assert after is not None
    return after.decode()


def fates(carried: Carried) -> list[Fate]:
    return [result.fate for result in carried.results]


def reasons(carried: Carried) -> str:
    return "; ".join(step.reason for result in carried.results for step in result.steps)


def carries(base: str, ours: str, theirs: str, wanted: str, fate: Fate) -> None:
    """Assert the result, byte by byte, its fate, and that a second run has nothing to do."""
    found = place(base, ours, theirs)
    assert not found.conflicts, reasons(found)
    assert text(found) == code(wanted)
    assert set(fates(found)) == {fate}
    again = place(base, ours, wanted)
    assert set(fates(again)) == {Fate.UPSTREAM}, reasons(again)
    assert again.changes == ()


def refuses(base: str, ours: str, theirs: str, reason: str) -> None:
    """Assert a conflict with a reason, and that nothing came out."""
    found = place(base, ours, theirs)
    assert found.conflicts
    assert reason in reasons(found)
    assert found.changes == ()
