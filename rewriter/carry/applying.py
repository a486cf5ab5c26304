"""A patch applied to its own release: exactly, every context line verified."""

from __future__ import annotations

from dataclasses import dataclass

from rewriter.carry.hunks import FilePatch, Hunk
from rewriter.errors import RefusedError


@dataclass
class Placed:
    """Where a hunk is in the patched file.

    Attributes:
        first, last: the lines that it adds, 1-based, in the file as all hunks leave it.
        said: what had to be put right to apply it.
    """

    file: FilePatch
    hunk: Hunk
    first: int
    last: int
    said: str = ""


class Applied:
    """One file on its way from its own release to what the patches make of it.

    Attributes:
        executable: whether the patch makes it, as a file to be run.
        lines: without line ends, as far as patched.
        placed: the hunks that were applied, in order.
    """

    def __init__(self, path: str, before: bytes | None) -> None:
        self.path = path
        self.before = before
        self.gone = self.executable = False
        text = _decode(before or b"")
        self.ending = "\r\n" if text.count("\r\n") * 2 > text.count("\n") else "\n"
        self.open = bool(text) and not text.endswith("\n")
        self.lines = [line.removesuffix("\r") for line in text.split("\n")] if text else []
        self._ends = (
            ["\r\n" if x.endswith("\r") else "\n" for x in text.split("\n")] if text else []
        )
        if text and not self.open:
            self.lines.pop()
            self._ends.pop()
        self.placed: list[Placed] = []

    @property
    def after(self) -> bytes | None:
        """The file as patched; None where it was deleted."""
        if self.gone:
            return None
        text = "".join(a + b for a, b in zip(self.lines, self._ends, strict=True))
        if self.open:
            text = text.removesuffix("\n").removesuffix("\r")
        return text.encode("utf-8", "surrogateescape")

    def apply(self, file: FilePatch) -> None:
        """Apply all hunks of a file.

        Raises:
            RefusedError: a hunk does not fit; which, where and why.
        """
        shift = 0
        for hunk in file.hunks:
            at = self._place(file, hunk, shift)
            added, removed = hunk.counts
            shift += added - removed
            self._replace(file, hunk, at)

    def _place(self, file: FilePatch, hunk: Hunk, shift: int) -> int:
        old = hunk.old
        start = hunk.start
        if start is not None:
            guess = start - 1 + shift if old else start + shift
            if self._fits(old, guess):
                return guess
        if not old:
            raise self._refusal(file, hunk, "it has no context, and its line is not in the file")
        found = self._all(old)
        if len(found) == 1:
            return found[0]
        if found:
            raise self._refusal(
                file, hunk, f"its context is not where it says and in {len(found)} other places"
            )
        raise self._refusal(file, hunk, self._why(file, hunk, shift))

    def _fits(self, lines: list[str], at: int) -> bool:
        return (
            at >= 0
            and self.lines[at : at + len(lines)] == lines
            and (at + len(lines) <= len(self.lines))
        )

    def _all(self, lines: list[str]) -> list[int]:
        return [n for n in range(len(self.lines) - len(lines) + 1) if self._fits(lines, n)]

    def _why(self, file: FilePatch, hunk: Hunk, shift: int) -> str:
        added, removed = hunk.counts
        if added + removed and self._all(hunk.new) and hunk.new:
            return "its result is there already: it is applied, or the patch is reversed"
        start = (hunk.start or 1) - 1 + shift
        old = hunk.old
        near = range(max(0, start - 400), max(0, min(len(self.lines), start + 400)))
        at = max(near, key=lambda n: (self._score(old, n), -abs(n - start)), default=0)
        for number, line in enumerate(old):
            there = self.lines[at + number] if at + number < len(self.lines) else None
            if there != line:
                found = f"`{there.strip()}`" if there is not None else "the end of the file"
                return f"expected `{line.strip()}` at line {at + number + 1}, found {found}"
        return "its context is not in the file"

    def _score(self, lines: list[str], at: int) -> int:
        there = self.lines[at : at + len(lines)]
        return sum(a == b for a, b in zip(lines, there, strict=False))

    def _refusal(self, file: FilePatch, hunk: Hunk, why: str) -> RefusedError:
        return RefusedError(
            f"{file.patch}: {self.path}, hunk {hunk.number} ({hunk.header.strip()}): does not "
            f"apply to the release that the patch is for (--from): {why}"
        )

    def _replace(self, file: FilePatch, hunk: Hunk, at: int) -> None:
        current = at
        first: int | None = None
        last = at
        for number, (sign, text) in enumerate(hunk.lines):
            if sign == " ":
                current += 1
                continue
            first = current if first is None else first
            if sign == "-":
                del self.lines[current], self._ends[current]
                self._shift(current, -1)
            else:
                self.lines.insert(current, text)
                exact = "\r\n" if number in hunk.returns else "\n"
                self._ends.insert(current, exact if hunk.returns else self.ending)
                self._shift(current, 1)
                current += 1
            last = current
        if current >= len(self.lines):
            self.open = hunk.new_open or (self.open and not hunk.old_open)
        said = hunk.repaired
        if file.modes and hunk.number == 1 and not file.renamed:
            said = "; ".join(filter(None, [said, "its change of the file's mode is left out"]))
        self.placed.append(Placed(file, hunk, (first if first is not None else at) + 1, last, said))

    def _shift(self, at: int, by: int) -> None:
        for placed in self.placed:
            if placed.first > at + 1:
                placed.first += by
            if placed.last > at:
                placed.last += by


def _decode(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
