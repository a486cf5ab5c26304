"""Text of files and paths as it may be shown: what a terminal would act on is written out."""

from __future__ import annotations

import unicodedata

_ACTING = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs"})
"""Control characters, among them escape sequences; those that turn text around or are not seen;
separators of lines; halves of characters."""


def visible(text: str, keep: str = "\n\t") -> str:
    """Return a text with every character written out that acts instead of being seen.

    Args:
        text: from a file, a path, an error.
        keep: what stays as it is.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in keep or not acts(c) else _written(c) for c in text)


def acts(character: str) -> bool:
    """Return whether a character acts on what is shown: moves, turns, hides or ends it."""
    return unicodedata.category(character) in _ACTING


def _written(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
