"""A change inside one statement or one header, merged token by token."""

from __future__ import annotations

import ast
import bisect
import keyword
import re
from collections.abc import Sequence

from rewriter.carry.lexing import Token
from rewriter.carry.sequences import Change, common, holds, merge

_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


def merged(
    base: Sequence[Token], ours: Sequence[Token], theirs: Sequence[Token], newline: str
) -> str | None:
    """Return their text with our changes in it; None where both changed the same tokens.

    Kept tokens keep the layout that they have there, unless it is the old one and ours is not.
    """
    base, ours, theirs = folded(base), folded(ours), folded(theirs)
    words = [[t.text for t in side] for side in (base, ours, theirs)]
    if holds(*words):
        return "".join(token.before + token.text for token in theirs)
    found = merge(words[0], words[1], words[2], lambda mine, other: _items(words, mine, other))
    if found is None:
        return None
    to_base = {j: i for i, j in common(words[0], words[2])}
    to_ours = dict(common(words[0], words[1]))
    parts: list[str] = []
    at = 0
    for piece in found:
        parts += _kept(base, ours, theirs, range(at, piece.start), to_base, to_ours)
        taken = ours[piece.left : piece.right]
        for number, token in enumerate(taken):
            first = number == 0 and piece.start < piece.end
            before = theirs[piece.start].before if first else token.before
            parts.append(re.sub(r"\r\n|\n", newline, before) + token.text)
        at = piece.end
    parts += _kept(base, ours, theirs, range(at, len(theirs)), to_base, to_ours)
    return "".join(parts)


def _items(words: Sequence[Sequence[str]], mine: Change, other: Change) -> bool:
    """Tell whether we add items to a list of them where they only take others out of it."""
    if mine.start != mine.end or other.left != other.right:
        return False
    added, gone = words[1][mine.left : mine.right], words[0][other.start : other.end]
    return all(part[0] == "," and _balanced(part) for part in (added, gone))


def _balanced(words: Sequence[str]) -> bool:
    depth = 0
    for word in words:
        depth += (word in _OPENING) - (word in _CLOSING)
        if depth < 0:
            return False
    return depth == 0


def folded(tokens: Sequence[Token]) -> list[Token]:
    """Make a trailing comma a part of the layout before the bracket that it precedes.

    Not that of ``(x,)`` and ``x[1,]``, which makes the tuple.
    """
    found: list[Token] = []
    depths: list[list[bool]] = []
    for index, token in enumerate(tokens):
        if token.text in _OPENING:
            before = tokens[index - 1].text if index else ""
            call = token.text == "(" and (before.isidentifier() or before in (")", "]"))
            depths.append([(call and not keyword.iskeyword(before)) or before == "import"])
        elif token.text in _CLOSING and depths:
            (several,) = depths.pop()
            if several and found and found[-1].text == ",":
                comma = found.pop()
                token = token._replace(before=comma.before + "," + token.before)
        elif token.text == "," and depths and index + 1 < len(tokens):
            depths[-1][0] |= tokens[index + 1].text not in _CLOSING
        found.append(token)
    return found


def _kept(
    base: Sequence[Token], ours: Sequence[Token], theirs: Sequence[Token], span: range,
    to_base: dict[int, int], to_ours: dict[int, int],
) -> list[str]:  # fmt: skip
    parts: list[str] = []
    for index in span:
        token = theirs[index]
        before = token.before
        origin = to_base.get(index)
        if origin is not None and origin in to_ours and base[origin].before == before:
            before = ours[to_ours[origin]].before
        parts.append(before + token.text)
    return parts


def lost_comments(base: Sequence[Token], ours: Sequence[Token], theirs: Sequence[Token]) -> bool:
    """Tell whether a comment that the patch changed stands where their layout differs."""
    words = [[t.text for t in side] for side in (base, ours, theirs)]
    to_theirs = dict(common(words[0], words[2]))
    for i, j in common(words[0], words[1]):
        if "#" in ours[j].before + base[i].before and ours[j].before != base[i].before:
            other = to_theirs.get(i)
            if other is None or theirs[other].before != base[i].before:
                return True
    return False


def import_places(
    there: Sequence[str], ours: Sequence[str], new: Sequence[str]
) -> list[tuple[int, str]]:
    """Return before which of the imported names each new one goes, in order where they are.

    The orders are those of isort: constants, classes, others, or all together; 9 before 10. Where
    they are in none, a name goes behind the one that it follows in the patch.
    """
    for key in (_by_kind, _natural, _plain):
        keys = [key(other) for other in there]
        if keys == sorted(keys):
            return [(bisect.bisect_right(keys, key(n)), n) for n in sorted(new, key=key)]
    places: dict[str, int] = {name: n + 1 for n, name in enumerate(there)}
    for name in new:
        before = ours[ours.index(name) - 1] if ours.index(name) else ""
        places[name] = places.get(before, len(there))
    return sorted(((places[name], name) for name in new), key=lambda found: found[0])


def _plain(name: str) -> tuple[str | int, ...]:
    return (name,)


def _natural(name: str) -> tuple[str | int, ...]:
    parts = re.split(r"(\d+)", name.lower())
    return tuple(int(part) if n % 2 else part for n, part in enumerate(parts))


def _by_kind(name: str) -> tuple[str | int, ...]:
    if name.isupper() and len(name) > 1:
        return (0, *_natural(name))
    return (1 if name[:1].isupper() else 2, *_natural(name))


def imported(
    base: ast.stmt | None, ours: ast.stmt | None, theirs: ast.stmt | None
) -> list[str] | None:
    """Return the names that a patch adds to an import; None where it does anything else.

    The order of names in an import has no meaning, so both sides may add some.
    """
    if not (
        isinstance(base, ast.ImportFrom)
        and isinstance(ours, ast.ImportFrom)
        and isinstance(theirs, ast.ImportFrom)
        and (base.module, base.level) == (ours.module, ours.level) == (theirs.module, theirs.level)
    ):
        return None
    old, new, there = ([ast.unparse(a) for a in s.names] for s in (base, ours, theirs))
    if set(old) - set(new) or "*" in there:
        return None
    return [name for name in new if name not in old and name not in there]
