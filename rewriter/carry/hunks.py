"""Unified diffs as people have them: read, checked, and repaired where the body leaves no doubt."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from rewriter.errors import UsageError

_HEADER = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_GIT = re.compile(r"diff --git (\S+) (\S+)$")
_BINARY = re.compile(r"GIT binary patch$|Binary files .* differ$")
_HEADS = ("diff --git ", "+++ ")
_NO_NEWLINE = "\\"
_CONTEXT = "*" * 15
"""What stands before each hunk of a context diff."""


@dataclass(frozen=True)
class Hunk:
    """One hunk. Lines have no line ends.

    Attributes:
        number: 1-based within its file.
        start: the 1-based line in the old file; None where the header does not say.
        lines: sign (blank, ``+`` or ``-``) and text of each line.
        old_open, new_open: the old or new side ends without a newline.
        returns: which of the lines end with a carriage return too; none where the whole patch has
            them, or has lost them.
    """

    number: int
    start: int | None
    lines: tuple[tuple[str, str], ...]
    header: str
    repaired: str = ""
    old_open: bool = False
    new_open: bool = False
    returns: frozenset[int] = frozenset()

    @property
    def old(self) -> list[str]:
        """The lines that it expects."""
        return [text for sign, text in self.lines if sign != "+"]

    @property
    def new(self) -> list[str]:
        """The lines that it leaves."""
        return [text for sign, text in self.lines if sign != "-"]

    @property
    def counts(self) -> tuple[int, int]:
        """How many lines it adds and removes."""
        signs = [sign for sign, _ in self.lines]
        return signs.count("+"), signs.count("-")


@dataclass
class FilePatch:
    """What a diff does to one file. ``None`` stands for /dev/null.

    Attributes:
        modes: whether it changes the mode of a file that is there, which is not carried.
        executable: whether a new or renamed file is one to be run.
    """

    patch: str
    old: str | None
    new: str | None
    renamed: bool = False
    modes: bool = False
    executable: bool = False
    hunks: list[Hunk] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The path, without git's ``a/`` and ``b/``; for messages."""
        path = self.new or self.old or ""
        return path[2:] if path.startswith(("a/", "b/")) else path


def read(raw: bytes, patch: str) -> list[FilePatch]:
    """Return the files of a diff in their order.

    Args:
        patch: what the diff is called in messages.

    Raises:
        UsageError: it is no unified diff, or one that cannot be trusted.
    """
    text = raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    raws = text.split("\n")
    if raws and not raws[-1]:
        raws.pop()
    lines = [line.removesuffix("\r") for line in raws]
    heads = [line for line in raws if line.startswith(_HEADS)]
    whole = all(line.endswith("\r") for line in heads)
    returns = {n for n, line in enumerate(raws) if line.endswith("\r") and not whole}
    reader = _Reader(lines, patch, returns)
    files = reader.files()
    found = [f for f in files if f.hunks or f.renamed or None in (f.old, f.new)]
    if not found:
        modes = next((f.name for f in files if f.modes), "")
        if modes:
            raise UsageError(
                f"{patch}: changes only the mode of {modes}; modes are not carried, and no text "
                "changes"
            )
        other = ", but a context diff; make it with diff -u" if _CONTEXT in lines else ""
        if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
            other = ": it is written in UTF-16; make it with git diff --output=FILE"
        raise UsageError(f"{patch}: expected a unified diff, found no hunk in it{other}")
    return found


class _Reader:
    def __init__(self, lines: list[str], patch: str, returns: set[int]) -> None:
        self.lines, self.patch, self.at = lines, patch, 0
        self.returns = returns

    def files(self) -> list[FilePatch]:
        """Read all files."""
        found: list[FilePatch] = []
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if _BINARY.match(line):
                name = found[-1].name if found else line
                raise UsageError(
                    f"{self.patch}: line {self.at + 1}: a binary change of {name}; "
                    "binary files cannot be carried, take it out of the patch"
                )
            if match := _GIT.match(line):
                found.append(self._git(match))
            elif self._is_header(self.at):
                self._plain(found)
            elif line.startswith("@@"):
                if not found:
                    raise UsageError(
                        f"{self.patch}: line {self.at + 1}: a hunk without a file header"
                    )
                found[-1].hunks.append(self._hunk(len(found[-1].hunks) + 1, found[-1]))
            else:
                self.at += 1
        return found

    def _is_header(self, at: int) -> bool:
        pair = self.lines[at : at + 2]
        return len(pair) == 2 and pair[0].startswith("--- ") and pair[1].startswith("+++ ")

    def _git(self, match: re.Match[str]) -> FilePatch:
        file = FilePatch(self.patch, _path(match.group(1)), _path(match.group(2)))
        self.at += 1
        while self.at < len(self.lines):
            line = self.lines[self.at]
            self._check_kind(line, file)
            if re.match(r"(?:new file mode|new mode|index \S+) 100755$", line):
                file.executable = True
            if line.startswith("new file mode"):
                file.old = None
            elif line.startswith("deleted file mode"):
                file.new = None
            elif line.startswith("old mode"):
                file.modes = True
            elif line.startswith("rename from "):
                file.old, file.renamed = line.removeprefix("rename from "), True
            elif line.startswith("rename to "):
                file.new = line.removeprefix("rename to ")
            elif line.startswith(("--- ", "@@", "diff ")) or _BINARY.match(line):
                break
            self.at += 1
        return file

    def _check_kind(self, line: str, file: FilePatch) -> None:
        """Refuse what is no change of a regular file."""
        where = f"{self.patch}: line {self.at + 1}: {file.name}"
        found = re.match(r"(?:(?:new|deleted) file mode|new mode|index \S+) (\d{6})$", line)
        kind = {"120": "a symbolic link", "160": "a submodule"}.get(found[1][:3] if found else "")
        if kind:
            raise UsageError(
                f"{where} is {kind}; only regular files can be carried, take it out of the patch"
            )
        if line.startswith("copy from "):
            raise UsageError(
                f"{where} is made as a copy of {line.removeprefix('copy from ')}; make the patch "
                "without -C, so that it is a new file"
            )

    def _plain(self, found: list[FilePatch]) -> None:
        old, new = (_path(self.lines[self.at + k][4:]) for k in (0, 1))
        last = found[-1] if found else None
        fresh = last is None or last.hunks or last.name.split("/")[-1] not in {
            path.split("/")[-1] for path in (old, new) if path is not None
        }  # fmt: skip
        self.at += 2
        if fresh or last is None:
            found.append(FilePatch(self.patch, old, new))
        elif not last.renamed:
            last.old, last.new = old, new

    def _hunk(self, number: int, file: FilePatch) -> Hunk:
        header = self.lines[self.at]
        where = f"{self.patch}: {file.name}, hunk {number} (line {self.at + 1} of the patch)"
        match = _HEADER.match(header)
        self.at += 1
        first = self.at
        if header.startswith("@@@"):
            raise UsageError(
                f"{where}: a merge's combined diff has no one old side; make it with git diff A B"
            )
        if match is None:
            if not re.match(r"@@.*@@|@@\s*$", header):
                raise UsageError(f"{where}: expected `@@ -1,2 +1,2 @@`, found `{header}`")
            body = self._greedy(where)
            said = "its header gives no line numbers"
            return self._made(number, None, body, header, said)
        start, *counts = (int(g) if g is not None else 1 for g in match.groups())
        wanted = counts[0], counts[2]
        counted = self._counted(*wanted)
        if counted is not None:
            return self._made(number, start, counted, header, "")
        self.at = first
        body = self._greedy(where)
        real = _count(body)
        if real == (0, 0):
            raise UsageError(f"{where}: its body is empty")
        said = f"its header counts {wanted[0]} and {wanted[1]} lines, its body has " + (
            f"{real[0]} and {real[1]}"
        )
        return self._made(number, start, body, header, said)

    def _made(
        self, number: int, start: int | None, body: list[tuple[int, str]], header: str, said: str
    ) -> Hunk:
        """Return the hunk of some numbered lines."""
        lines: list[tuple[str, str]] = []
        returns: set[int] = set()
        old_open = new_open = False
        for at, line in body:
            if line.startswith(_NO_NEWLINE):
                sign = lines[-1][0] if lines else " "
                old_open, new_open = old_open or sign in " -", new_open or sign in " +"
                continue
            if at in self.returns:
                returns.add(len(lines))
            lines.append((line[:1] or " ", line[1:]))
        return Hunk(
            number, start, tuple(lines), header, said, old_open, new_open, frozenset(returns)
        )

    def _counted(self, old: int, new: int) -> list[tuple[int, str]] | None:
        """Return the body that the header counts, or None where it does not end there."""
        body: list[tuple[int, str]] = []
        while old > 0 or new > 0:
            line = self.lines[self.at] if self.at < len(self.lines) else "@@"
            sign = line[:1] or " "
            if sign not in " +-\\" or old < 0 or new < 0:
                return None
            old -= sign in " -"
            new -= sign in " +"
            body.append((self.at, line))
            self.at += 1
        if old or new:
            return None
        while self.at < len(self.lines) and self.lines[self.at].startswith(_NO_NEWLINE):
            body.append((self.at, self.lines[self.at]))
            self.at += 1
        return body if self._ends(self.at) else None

    def _ends(self, at: int) -> bool:
        """Tell whether a hunk may end before a line."""
        if at >= len(self.lines):
            return True
        line = self.lines[at]
        if line[:1] not in (" ", "+", "-") or self._is_header(at):
            return True
        return line.rstrip() == "--"

    def _greedy(self, where: str) -> list[tuple[int, str]]:
        """Return all lines that can be of the hunk; blank ones at its end are none."""
        body: list[tuple[int, str]] = []
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if line.rstrip() == "--" or self._is_header(self.at):
                break
            if line and line[0] not in " +-\\":
                if not line.startswith(("@@", "diff ", "Index: ", "From ", "Only in ", "====")):
                    raise UsageError(
                        f"{where}: its counts are wrong and line {self.at + 1} of the patch, "
                        f"`{line[:60]}`, begins with none of blank, + and -: it cannot be repaired"
                    )
                break
            body.append((self.at, line))
            self.at += 1
        while body and not body[-1][1]:
            body.pop()
        return body


def _count(body: Iterable[tuple[int, str]]) -> tuple[int, int]:
    signs = [line[:1] or " " for _, line in body]
    return sum(s in " -" for s in signs), sum(s in " +" for s in signs)


def _path(text: str) -> str | None:
    """Return a path without its time stamp; None for /dev/null."""
    text = text.split("\t")[0].strip()
    if text.startswith('"') and text.endswith('"'):
        raw = text[1:-1].encode("latin-1", "replace").decode("unicode_escape")
        text = raw.encode("latin-1", "replace").decode("utf-8", "replace")
    text = re.sub(r"\s+\d{4}-\d\d-\d\d .*$", "", text)
    return None if text == "/dev/null" else text
