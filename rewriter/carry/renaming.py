"""Local names that upstream renamed: the patch is read as if it had been made with the new ones."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from rewriter.carry.lexing import lex
from rewriter.carry.package import FUNCTIONS, Function
from rewriter.carry.scopes import bound_in
from rewriter.carry.sequences import common
from rewriter.carry.texts import parsed
from rewriter.carry.units import first_line
from rewriter.edits import TextEdit, splice
from rewriter.source import Source

_COVERED = 0.8
"""The share of a name's uses that must be found again, every one of them as the new name."""

_LOCAL = "\0"


class Followed(NamedTuple):
    """The patch's release and the patched one, with upstream's names.

    Attributes:
        lines: what was renamed on which patched lines.
    """

    base: Source
    ours: Source
    lines: Mapping[int, str]


class _Named:
    """A function and where its local names stand."""

    def __init__(self, source: Source, node: Function) -> None:
        self.source, self.node = source, node

    @cached_property
    def offsets(self) -> dict[str, set[int]]:
        """Where each local name stands; none of those that stand where it cannot be told."""
        found: defaultdict[str, set[int]] = defaultdict(set)
        unclear: set[str] = set()
        for node in ast.walk(self.node):
            name = node.id if isinstance(node, ast.Name) else getattr(node, "arg", None)
            if isinstance(node, (ast.Name, ast.arg)) and name in bound_in(self.node):
                at = self.source.offset(node.lineno, node.col_offset)
                if at in found[name] or not self.source.text.startswith(name, at):
                    unclear.add(name)
                found[name].add(at)
            unclear.update(_unclear(node))
        return {name: places for name, places in found.items() if name not in unclear}

    @cached_property
    def words(self) -> set[str]:
        """Every name in the function, local or not."""
        found = {node.id for node in ast.walk(self.node) if isinstance(node, ast.Name)}
        return found | bound_in(self.node)

    def marked(self) -> list[tuple[str, str]]:
        """Return each token as what is compared, and its text."""
        local = {at for places in self.offsets.values() for at in places}
        last = self.node.end_lineno or self.node.lineno
        tokens = lex(self.source, first_line(self.node), last)
        return [(_LOCAL if t.start in local else t.text, t.text) for t in tokens]


def _unclear(node: ast.AST) -> Iterator[str]:
    """Yield names that a node has as mere text."""
    if isinstance(node, ast.keyword) and node.arg is not None:
        yield node.arg
    elif isinstance(node, (ast.Global, ast.Nonlocal)):
        yield from node.names
    elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
        yield node.name
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from ((a.asname or a.name).split(".")[0] for a in node.names)


def follow(base: Source, ours: Source, theirs: Source) -> Followed:
    """Return the patch with the names that upstream gave the locals of what it changes."""
    edits: tuple[list[TextEdit], list[TextEdit]] = ([], [])
    lines: dict[int, str] = {}
    for name, nodes in base.nodes.items():
        three = [_only(source, name) for source in (base, ours, theirs)]
        old, new, there = three
        if len(nodes) != 1 or old is None or new is None or there is None:
            continue
        if _text(old) == _text(new) or _text(old) == _text(there):
            continue
        for one, two in _renamed(old, there).items():
            if one not in new.offsets or two in new.words:
                continue
            for side, function in zip(edits, (old, new), strict=True):
                places = function.offsets[one]
                side += [TextEdit(at, at + len(one), two) for at in places]
            for at in new.offsets[one]:
                lines[ours.line_at(at)] = f"`{one}` is `{two}` by now"
    if not lines:
        return Followed(base, ours, {})
    return Followed(_again(base, edits[0]), _again(ours, edits[1]), lines)


def _only(source: Source, name: str) -> _Named | None:
    found = source.nodes.get(name, [])
    return _Named(source, found[0]) if len(found) == 1 and isinstance(found[0], FUNCTIONS) else None


def _text(named: _Named) -> str:
    source, node = named.source, named.node
    last = node.end_lineno or node.lineno
    return source.text[source.line_start(first_line(node)) : source.line_start(last + 1)]


def _again(source: Source, edits: list[TextEdit]) -> Source:
    return parsed(source.path, source.encode(splice(source.text, edits)))


def _renamed(old: _Named, there: _Named) -> dict[str, str]:
    """Return the names of one function that another one has under a new name throughout."""
    lost = set(old.offsets) - there.words
    fresh = set(there.offsets) - old.words
    if not lost or not fresh:
        return {}
    one, two = old.marked(), there.marked()
    pairs: Counter[tuple[str, str]] = Counter()
    for i, j in common([mark for mark, _ in one], [mark for mark, _ in two]):
        if one[i][0] == _LOCAL:
            pairs[one[i][1], two[j][1]] += 1
    found: dict[str, str] = {}
    for name in sorted(lost):
        became = [(new, count) for (before, new), count in pairs.items() if before == name]
        if len(became) != 1 or became[0][0] not in fresh:
            continue
        ((new, count),) = became
        sources = [before for before, after in pairs if after == new]
        if sources == [name] and count >= _COVERED * len(old.offsets[name]):
            found[name] = new
    return found
