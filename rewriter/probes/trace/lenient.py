"""A JSON reader for damaged objects: what profilers wrote wrongly, read as it was meant.

It works on text in which one character is one byte (latin-1), so that positions are the file's;
strings come out as UTF-8. Known damage: lone backslashes (pytorch#98432), raw quotes and newlines
in names (pytorch#113001), control and NUL bytes (pytorch#136180), bad UTF-8, missing and extra
commas, NaN and log text between fields (pytorch#126703, #33961).
"""

from __future__ import annotations

import json
import re
from typing import Any

_SPACE = re.compile(r"[\s,\0]*")
_NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?")
_WORDS = re.compile(r"(?:-?(?:nan|inf(?:inity)?)(?:\(ind\))?|null|none|true|false)\b", re.I)
_KEY = re.compile(r'"[^"\n]{1,60}"\s*:')
_BAD_ESCAPE = re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_CONTROL = re.compile(r"[\0-\x08\x0b\x0c\x0e-\x1f]")
_QUOTE = re.compile(r'(?<!\\)((?:\\\\)*)"')

# What must follow a quote for it to be the end of a string.
_AFTER_KEY = re.compile(r"\s*:")
_AFTER_VALUE = re.compile(r'\s*(?:,[\s,]*["}]|[}\]]|"[^"\n]{1,60}"\s*:)')
_AFTER_ITEM = re.compile(r"\s*[,\]]")
# A name can hold anything, also `"cpu", "dtype": `: only a field of events ends it.
_AFTER_NAME = re.compile(
    r'\s*,?\s*"(?:ph|cat|pid|tid|ts|dur|id|args|bp|s)"\s*:|\s*\}\s*(?:,?\s*\{|,?\s*\]|,?\s*$)'
)

_LONGEST = 1 << 20
_DEEPEST = 64


class UnreadableError(Exception):
    """No object can be made of this text."""


def read_object(text: str, start: int) -> tuple[dict[str, Any], int]:
    """Read the object at a position; return it and the position behind it.

    Raises:
        UnreadableError: it does not end, or is not an object.
    """
    return _object(text, start, 0)


def _object(text: str, at: int, depth: int) -> tuple[dict[str, Any], int]:
    if depth > _DEEPEST or not text.startswith("{", at):
        raise UnreadableError
    found: dict[str, Any] = {}
    at += 1
    while True:
        at = _skip(text, at)
        if text.startswith("}", at):
            return found, at + 1
        at = _next_key(text, at)
        key, at = _string(text, at, _AFTER_KEY)
        at = _skip(text, text.index(":", at) + 1)
        named = key == "name" and depth == 0
        value, at = _value(text, at, _AFTER_NAME if named else _AFTER_VALUE, depth)
        found.setdefault(key, value)


def _next_key(text: str, at: int) -> int:
    """Return where the next key starts: log text may stand before it, on the object's level."""
    if text.startswith('"', at):
        return at
    key = _KEY.search(text, at, at + _LONGEST)
    if key is None or "{" in text[at : key.start()] or "}" in text[at : key.start()]:
        raise UnreadableError
    return key.start()


def _value(text: str, at: int, after: re.Pattern[str], depth: int) -> tuple[Any, int]:
    if text.startswith('"', at):
        return _string(text, at, after)
    if text.startswith("{", at):
        return _object(text, at, depth + 1)
    if text.startswith("[", at):
        return _list(text, at, depth + 1)
    if word := _WORDS.match(text, at):
        plain = {"true": True, "false": False}
        return plain.get(word.group().lower()), word.end()
    if number := _NUMBER.match(text, at):
        return _number(number.group()), number.end()
    raise UnreadableError


def _number(digits: str) -> int | float | None:
    try:
        return int(digits) if digits.lstrip("-").isdigit() else float(digits)
    except ValueError:  # more digits than Python converts
        return None


def _list(text: str, at: int, depth: int) -> tuple[list[Any], int]:
    if depth > _DEEPEST:
        raise UnreadableError
    found: list[Any] = []
    at += 1
    while True:
        at = _skip(text, at)
        if text.startswith("]", at):
            return found, at + 1
        value, at = _value(text, at, _AFTER_ITEM, depth)
        found.append(value)


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def _string(text: str, at: int, after: re.Pattern[str]) -> tuple[str, int]:
    """Read from a quote to the first quote that has what must follow an end."""
    for quote in _QUOTE.finditer(text, at + 1, at + _LONGEST):
        if after.match(text, quote.end()):
            return _unescaped(text[at + 1 : quote.end() - 1]), quote.end()
    raise UnreadableError


def _unescaped(raw: str) -> str:
    """Return a string's text; with one lone backslash in it, all of them are literal.

    ``torch\\nn\\modules`` holds a proper ``\\n`` by chance: its writer escaped nothing.
    """
    text = raw.encode("latin-1").decode("utf-8", "replace")
    text = _CONTROL.sub("", text)
    if _BAD_ESCAPE.search(text):
        return text.replace('\\"', '"').replace("\\\\", "\\")
    body = re.sub(r'(?<!\\)((?:\\\\)*)"', r'\1\\"', text)
    try:
        return str(json.loads(f'"{body}"', strict=False))
    except ValueError:
        return text
