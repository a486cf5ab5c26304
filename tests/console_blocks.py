"""What the documentation shows was really printed: run the console blocks of its pages.

    python tests/console_blocks.py [PAGE…]     write down again what is printed; default: all pages

A page is one session of a shell in a directory of its own (``docs_stage`` says what lies there):

- A block ``console`` holds commands, each behind ``$ `` (one that ends in a backslash goes on in
  the next line), and what they print.
- What cannot be run here is a block ``sh``, without ``$ ``; it is left alone.
- In ``console title="figures differ from run to run"`` numbers may be others.
- A block of another language with ``title="PATH"`` is written to that file.
- A comment ``<!-- beforehand: … -->`` holds commands that are run and not shown.
- One ``<!-- provoked by: … -->`` holds such that print the messages that stand quoted in the
  paragraph behind it; behind ``<!-- provoked in FILE -->`` a test of that file asserts them.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from docs_stage import RELEASE, Stage, releases, staged

ROOT = Path(__file__).parent.parent

FIGURES = 'title="figures differ from run to run"'

_PART = re.compile(
    r"^```(?P<language>\w+)(?P<title>[^\n]*)\n(?P<body>.*?)^```$"
    r"|^<!-- (?P<why>beforehand|provoked by):\n(?P<hidden>.*?)^-->$",
    re.MULTILINE | re.DOTALL,
)
_COMMAND = re.compile(r"^\$ (?:[^\n]*\\\n)*[^\n]*\n", re.MULTILINE)
_TERM = re.compile(r"\s*(.*?)(?=\n:|\n\n|\Z)", re.DOTALL)
_QUOTED = re.compile(r"``.+?``|`[^`]+`")
_END = re.compile("\x1e(\\d+)\n")


class Printed(NamedTuple):
    """What one command printed, and its exit code."""

    text: str
    code: int


class Message(NamedTuple):
    """A message that a page quotes, and what the commands in front of it printed."""

    quoted: str
    printed: str

    def is_real(self) -> bool:
        """Tell whether it was printed; an ellipsis stands for anything, white space for any."""
        parts = [r"\s+".join(map(re.escape, part.split())) for part in self.quoted.split("…")]
        return re.search(r"[\s\S]*?".join(parts), self.printed) is not None


def elsewhere(text: str) -> Iterator[tuple[str, str]]:
    """Yield the messages that a page quotes and a test provokes, with the test's file."""
    for found in re.finditer(r"^<!-- provoked in (\S+) -->$", text, re.MULTILINE):
        term = _TERM.match(text, found.end())
        for quoted in _QUOTED.findall(term[1]) if term else []:
            yield quoted.strip("`"), found[1]


def pages() -> list[Path]:
    """Return the pages that are sessions: those with a block that is run."""
    every = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [page for page in every if any(_steps(page.read_text(encoding="utf-8")))]


def commands(text: str) -> list[str]:
    """Return the commands of a page that are run, in order."""
    return [c for part in _PART.finditer(text) if _is_run(part) for c in _commands(part)]


def shown(text: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of a page with what is shown that they print."""
    for part in _PART.finditer(text):
        if part["language"] == "console":
            ends = [*(m.start() for m in _COMMAND.finditer(part["body"])), len(part["body"])]
            for match, end in zip(_COMMAND.finditer(part["body"]), ends[1:], strict=True):
                yield match[0], part["body"][match.end() : end]


def run(text: str, stage: Stage) -> tuple[str, list[Message]]:
    """Return a page with what its commands print now, and the messages that it quotes."""
    printed = iter(_session(list(_steps(text)), stage))
    messages: list[Message] = []

    def now(part: re.Match[str]) -> str:
        if _written(part):
            next(printed)
        if not _is_run(part):
            return part[0]
        told = [(command, next(printed)) for command in _commands(part)]
        if part["hidden"] is not None:
            term = _TERM.match(text, part.end()) if part["why"] != "beforehand" else None
            output = "".join(p.text for _, p in told)
            quoted = _QUOTED.findall(term[1]) if term else []
            messages.extend(Message(q.strip("`"), output) for q in quoted)
            return part[0]
        body = "".join(f"{command}{p.text}{_code(p.code)}" for command, p in told)
        if settled(body, part["title"]) == settled(part["body"], part["title"]):
            return part[0]  # figures do not change from one writing to the next
        return f"```console{part['title']}\n{body}```"

    return _PART.sub(now, text), messages


def settled(text: str, title: str = "") -> str:
    """Return what was printed without what differs from run to run, or with a codemod's version."""
    if FIGURES in title:  # `bench` marks with ~ what it does not see a difference in
        text = text.replace("  ~: no difference seen\n", "")
        return re.sub(r" +", " ", re.sub(r"[-+~x]?\d[\d.,]*", "0", text))
    text = re.sub(r"\b[0-9a-f]{64}\b", "0", text)
    text = re.sub(r"\b(LibCST|Python) \d+(\.\d+)+", r"\1 0", text)
    text = re.sub(r"\bbin/python3?(\.\d+)?\b", "bin/python", text)
    text = re.sub(r"\b[\d,]+ files\b", "0 files", text)  # pip lists byte code as well
    return re.sub(r"\b\d+\.\d+(?= ?m?s\b)", "0", text)


def _is_run(part: re.Match[str]) -> bool:
    return part["language"] == "console" or part["hidden"] is not None


def _written(part: re.Match[str]) -> str:
    """Return the file that a block is written to, or nothing."""
    found = re.search(r'title="([^"]+)"', part["title"] or "")
    return found[1] if found and part["language"] != "console" else ""


def _commands(part: re.Match[str]) -> list[str]:
    return _COMMAND.findall(part["body"] or part["hidden"] or "")


def _steps(text: str) -> Iterator[str]:
    """Yield what the shell is given, in order."""
    for part in _PART.finditer(text):
        if path := _written(part):
            folder, file, body = map(shlex.quote, (str(Path(path).parent), path, part["body"]))
            yield f"mkdir -p {folder} && printf %s {body} > {file}"
        elif _is_run(part):
            yield from (command[2:] for command in _commands(part))


def _code(code: int) -> str:
    return f"(exit code {code})\n" if code else ""


def _session(steps: Sequence[str], stage: Stage) -> Iterator[Printed]:
    """Run steps in one shell, one after the other; yield what each printed."""
    script = "".join(
        f"eval {shlex.quote(stage.meant(step))} </dev/null\nprintf '\\x1e%d\\n' $?\n"
        for step in steps
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", f"exec 2>&1\n{script}"], cwd=stage.place, env=stage.environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False, text=True, timeout=600,
    )  # fmt: skip
    told = _END.split(stage.named(done.stdout))
    if len(told) != 2 * len(steps) + 1:
        raise AssertionError(f"the shell ended after {len(told) // 2} steps: {told[-1]}")
    for text, code in zip(told[::2], told[1::2], strict=False):
        yield Printed(text if text.endswith("\n") or not text else f"{text}\n", int(code))


def main() -> None:
    """Write the pages that were named, or all, with what their commands print now."""
    from rewriter.cache import cache_directory
    from rewriter.targets.release import Release

    for page in [Path(name) for name in sys.argv[1:]] or pages():
        text = page.read_text(encoding="utf-8")
        for version in releases(commands(text)):
            Release(version)  # fetched here: the page has not the user's configuration
        wheel = Path(Release(RELEASE).path)
        with tempfile.TemporaryDirectory() as scratch:
            place = Path(scratch).resolve()
            with staged(place, commands(text), wheel, cache_directory()) as stage:
                now, messages = run(text, stage)
        page.write_text(now, encoding="utf-8")
        for message in messages:
            if not message.is_real():
                print(f"{page}: `{message.quoted}` was not printed, but:\n{message.printed}")


if __name__ == "__main__":
    main()
