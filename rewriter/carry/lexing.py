"""Tokens with the layout before them, so that text put together again is the text itself."""

from __future__ import annotations

import bisect
import io
import token
import tokenize
import weakref
from typing import NamedTuple

from rewriter.source import Source

_LAYOUT = frozenset(
    {tokenize.COMMENT, tokenize.NL, token.NEWLINE, token.INDENT, token.DEDENT, token.ENDMARKER}
)
_OPEN = frozenset(
    getattr(token, name) for name in ("FSTRING_START", "TSTRING_START") if hasattr(token, name)
)
_CLOSE = frozenset(
    getattr(token, name) for name in ("FSTRING_END", "TSTRING_END") if hasattr(token, name)
)


class Token(NamedTuple):
    """One token; an f-string is one.

    Attributes:
        before: blanks, newlines and comments since the token before it.
    """

    text: str
    before: str
    start: int
    end: int


_known: weakref.WeakKeyDictionary[Source, list[tuple[int, int]]] = weakref.WeakKeyDictionary()


def lex(source: Source, first: int, last: int) -> list[Token]:
    """Return the tokens of whole lines. ``source`` parses, so they can be had."""
    start, end = source.line_start(first), source.line_start(last + 1)
    found: list[Token] = []
    done = start
    for begin, stop in _between(source, start, end):
        found.append(Token(source.text[begin:stop], source.text[done:begin], begin, stop))
        done = stop
    return found


def _between(source: Source, start: int, end: int) -> list[tuple[int, int]]:
    """Return the spans of the tokens of some lines: these alone are read where they can be."""
    if source not in _known:
        try:
            return [(start + a, start + b) for a, b in _spans(source.text[start:end])]
        except (tokenize.TokenError, SyntaxError):  # half of a statement, such as an `else:`
            _known[source] = _spans(source.text)
    spans = _known[source]
    at = bisect.bisect_left(spans, (start, 0))
    return spans[at : bisect.bisect_left(spans, (end, 0))]


def _spans(text: str) -> list[tuple[int, int]]:
    # tokenize counts lines as io does: a lone carriage return ends none, but sources that hold
    # one are never divided (see ``files``).
    starts = [0]
    for line in _lines(text):
        starts.append(starts[-1] + len(line))
    spans: list[tuple[int, int]] = []
    depth = begin = 0
    for item in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
        start = starts[item.start[0] - 1] + item.start[1]
        stop = starts[item.end[0] - 1] + item.end[1]
        if item.type in _OPEN:
            begin = start if depth == 0 else begin
            depth += 1
        elif item.type in _CLOSE:
            depth -= 1
            if depth == 0:
                spans.append((begin, stop))
        elif item.type == token.ERRORTOKEN and not item.string.isspace():
            raise tokenize.TokenError("half of a token", item.start)
        elif depth == 0 and item.type not in _LAYOUT:
            spans.append((start, stop))
    return spans


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    return [line + "\n" for line in lines[:-1]] + [lines[-1], ""]
