"""Which statement of one version is which of another."""

from __future__ import annotations

import ast
import difflib
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

from rewriter.carry.sequences import common
from rewriter.carry.units import Block, Unit, walk

_ALIKE = 0.6
"""The share of common tokens from which a statement is the same one, changed."""

_MARGIN = 0.03
"""What a pair must be more alike than another that it excludes, to be no guess."""

_TELLING = 4
"""The least number of tokens of a statement that is known again in another block."""

_NAMED = frozenset({"def", "class", "=", "from"})
"""Identities that name what they are about; others need their place as evidence too."""


def pairs(one: Sequence[Unit], two: Sequence[Unit]) -> list[tuple[Unit, Unit]]:
    """Pair the statements of two blocks in their order: equal ones, then changed ones."""
    found = [(one[i], two[j]) for i, j in common([_mark(u) for u in one], [_mark(u) for u in two])]
    found = _between(one, two, found, _by_identity)
    return _between(one, two, found, _by_likeness)


def _mark(unit: Unit) -> Hashable:
    return unit.key if unit.nodes else "the end of the file"


_Pairs = list[tuple[Unit, Unit]]


def _between(
    one: Sequence[Unit],
    two: Sequence[Unit],
    anchors: _Pairs,
    pairing: Callable[[Sequence[Unit], Sequence[Unit]], _Pairs],
) -> _Pairs:
    """Pair what lies between pairs already known."""
    places_one = {id(u): i for i, u in enumerate(one)}
    places_two = {id(u): j for j, u in enumerate(two)}
    found: _Pairs = []
    i = j = 0
    for left, right in anchors:
        to_i, to_j = places_one[id(left)], places_two[id(right)]
        found += pairing(one[i:to_i], two[j:to_j])
        found.append((left, right))
        i, j = to_i + 1, to_j + 1
    return found + pairing(one[i:], two[j:])


def _by_identity(one: Sequence[Unit], two: Sequence[Unit]) -> _Pairs:
    if not one or not two:
        return []
    left = [u.ident or ("?", str(id(u))) for u in one]
    right = [u.ident or ("?", str(id(u))) for u in two]
    return [(one[i], two[j]) for i, j in common(left, right) if _may_pair(one[i], two[j])]


def _may_pair(one: Unit, two: Unit) -> bool:
    """Refuse a pair whose identity says little where the rest is something else."""
    if one.ident[0] in ("call", "Return", "Raise", "Try"):
        return likeness(one, two) >= _ALIKE / 2
    return True


def _by_likeness(one: Sequence[Unit], two: Sequence[Unit]) -> _Pairs:
    """Pair the statements that are most alike, best first, in their order."""
    scored = sorted(
        (
            (-likeness(a, b), i, j)
            for i, a in enumerate(one)
            for j, b in enumerate(two)
            if a.nodes and b.nodes and type(a.nodes[0]) is type(b.nodes[0])
        ),
    )
    taken: list[tuple[int, int]] = []
    alike = [(-score, i, j) for score, i, j in scored if -score >= _ALIKE]
    for score, i, j in alike:
        if all((i - a) * (j - b) > 0 for a, b in taken):
            if len(one) == len(two) or not _rivals(score, i, j, alike, taken):
                taken.append((i, j))
    return [(one[i], two[j]) for i, j in sorted(taken)]


def _rivals(
    score: float, i: int, j: int, alike: list[tuple[float, int, int]], taken: list[tuple[int, int]]
) -> bool:
    """Tell whether another pair of one of the two is about as good: which one it is, is a guess."""
    return any(
        (a == i) != (b == j)
        and other >= score - _MARGIN
        and all((a - x) * (b - y) > 0 for x, y in taken)
        for other, a, b in alike
    )


def likeness(one: Unit, two: Unit) -> float:
    """Return the share of tokens that two statements have in common, in order: 0 to 1."""
    left, right = [t.text for t in one.tokens], [t.text for t in two.tokens]
    return ratio(left, right, _ALIKE / 2)


def ratio(left: list[str], right: list[str], least: float) -> float:
    """Return the common share of two token sequences; 0 where it is surely below ``least``."""
    total = len(left) + len(right)
    if not total:
        return 1.0
    shared = sum((Counter(left) & Counter(right)).values())
    if 2 * shared / total < least:
        return 0.0
    if len(left) * len(right) > 250_000:
        return 2 * shared / total
    return difflib.SequenceMatcher(None, left, right, autojunk=False).ratio()


class Mapping:
    """Where the statements of the patch's release are in the other one."""

    def __init__(self) -> None:
        self._to: dict[Unit, Unit] = {}
        self._from: dict[Unit, Unit] = {}
        self._seen: set[tuple[Block, Block]] = set()
        self._rested: set[Unit] = set()
        self.moved: set[Unit] = set()

    def get(self, unit: Unit) -> Unit | None:
        """Return the statement that this one became, or None."""
        if unit not in self._to and (around := _definition(unit)) is not None:
            other = self._to.get(around)
            if other is not None and around not in self._rested:
                self._rested.add(around)
                self._rest(around, other)
        return self._to.get(unit)

    def put(self, left: Unit, right: Unit) -> None:
        """Note that a statement became another one."""
        self._put(left, right)
        self.moved.add(left)

    def holds(self, unit: Unit) -> bool:
        """Tell whether a statement of the other release is one that was there before."""
        return unit in self._from

    def fresh(self, unit: Unit) -> bool:
        """Tell whether a statement of the other release says what none said there before."""
        origin = self._from.get(unit)
        return origin is None or origin.key != unit.key

    def blocks(self, one: Block, two: Block) -> None:
        """Map the statements of two blocks that are the same place."""
        if (one, two) in self._seen:
            return
        self._seen.add((one, two))
        for left, right in pairs(one.units, two.units):
            self._put(left, right)
        self._moves(one.units, two.units, _mark)
        self._moves(one.units, two.units, _name)

    def _rest(self, one: Unit, two: Unit) -> None:
        """Map what is left in two definitions, across blocks, where it is there once in each."""
        for unit in _inner(one):
            if (other := self._to.get(unit)) is not None:
                for left, right in zip(unit.segments, other.segments, strict=False):
                    self.blocks(left.block, right.block)
        self._moves(_inner(one), _inner(two), _telling)

    def _put(self, left: Unit, right: Unit) -> None:
        if left not in self._to and right not in self._from:
            self._to[left] = right
            self._from[right] = left

    def _moves(
        self, one: Iterable[Unit], two: Iterable[Unit], by: Callable[[Unit], Hashable | None]
    ) -> None:
        left = _once(one, by)
        right = _once(two, by)
        for mark, unit in left.items():
            other = right.get(mark)
            if other is None or unit in self._to or other in self._from:
                continue
            self._put(unit, other)
            self.moved.add(unit)


def _once(units: Iterable[Unit], by: Callable[[Unit], Hashable | None]) -> dict[Hashable, Unit]:
    found: defaultdict[Hashable, list[Unit]] = defaultdict(list)
    for unit in units:
        if unit.nodes and (mark := by(unit)) is not None:
            found[mark].append(unit)
    return {mark: group[0] for mark, group in found.items() if len(group) == 1}


def _name(unit: Unit) -> Hashable | None:
    return unit.ident if unit.ident and unit.ident[0] in _NAMED else None


def _telling(unit: Unit) -> Hashable | None:
    """Return what a statement is, if it says enough to be known again in another block."""
    return unit.key if len(unit.tokens) >= _TELLING else None


def _inner(unit: Unit) -> Iterator[Unit]:
    for segment in unit.segments:
        yield from walk(segment.block)


def _definition(unit: Unit) -> Unit | None:
    """Return the outermost function around a statement."""
    found: Unit | None = None
    around = unit.block.owner
    while around is not None:
        if isinstance(around.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found = around
        around = around.block.owner
    return found
