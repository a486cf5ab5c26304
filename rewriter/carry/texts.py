"""Text of the patch, made to fit where it goes: indentation and newlines."""

from __future__ import annotations

import re
from functools import lru_cache

from rewriter.carry.lexing import lex
from rewriter.carry.units import Block, Unit
from rewriter.source import Source


@lru_cache(maxsize=64)
def parsed(path: str, raw: bytes) -> Source:
    """Return a module with its tree, made once for the same bytes.

    Raises:
        SourceError: it is no Python that can be judged.
    """
    source = Source(path, raw)
    source.tree  # noqa: B018
    return source


_NEWLINES = re.compile(r"\r\n|\r|\n")


def newline(source: Source) -> str:
    """Return the newline that a file uses."""
    return source.newline(0)


def fitted(source: Source, first: int, last: int, indent: str, onto: Block | Unit) -> str:
    """Return whole lines, indented as in ``onto`` and ending as its file's lines do.

    Lines inside of strings keep their indentation: it is part of what they say.
    """
    block = onto if isinstance(onto, Block) else onto.block
    there, ending = block.indent, newline(block.source)
    inside = _inside(source, first, last) if indent != there else frozenset()
    lines: list[str] = []
    for number in range(first, last + 1):
        line = source.text[source.line_start(number) : source.line_start(number + 1)]
        if number not in inside and line.startswith(indent) and line.strip():
            line = there + line[len(indent) :]
        lines.append(_NEWLINES.sub("", line) + ending)
    return "".join(lines)


def _inside(source: Source, first: int, last: int) -> frozenset[int]:
    found: set[int] = set()
    for token in lex(source, first, last):
        if "\n" in token.text:
            begin = source.line_at(token.start)
            found.update(range(begin + 1, begin + token.text.count("\n") + 1))
    return frozenset(found)


def comments(trivia: str) -> list[str]:
    """Return the comments among blank and comment lines."""
    return [line.strip() for line in trivia.splitlines() if line.strip()]


def shown(text: str, most: int = 12) -> str:
    """Return a text for a report: not indented, cut where it is long."""
    import textwrap

    lines = textwrap.dedent(text.strip("\r\n")).splitlines()
    if len(lines) > most:
        lines = [*lines[:most], f"… {len(lines) - most} more lines"]
    return "\n".join(line.rstrip() for line in lines)
