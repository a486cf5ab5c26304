"""Where an insertion belongs in the other release: one spot, or a reason why there is none."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from rewriter.carry.matching import Mapping
from rewriter.carry.names import bound, defined, independent, read
from rewriter.carry.units import Block, Unit

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)


@dataclass(frozen=True)
class Spot:
    """Before the statement at ``index`` of a block; at its length: after the last one."""

    block: Block
    index: int
    how: str = ""


@dataclass(frozen=True)
class Nowhere:
    """No one place: why, and the nearest statement."""

    reason: str
    near: Unit | None = None
    between: tuple[Unit, ...] = ()


@dataclass(frozen=True)
class Gap:
    """Between which statements of the patch's release the patch inserts.

    Attributes:
        before, after: None where the block begins or ends.
        block: the block of the other release that is the same place.
        nearer: statements of the block before and after the gap, nearest first.
    """

    before: Unit | None
    after: Unit | None
    block: Block
    nearer: tuple[Sequence[Unit], Sequence[Unit]]


def find(gap: Gap, inserted: Sequence[Unit], mapping: Mapping) -> Spot | Nowhere:
    """Return the one place where both neighbours allow it."""
    before = mapping.get(gap.before) if gap.before is not None else None
    after = mapping.get(gap.after) if gap.after is not None else None
    block = next((u.block for u in (before, after) if u is not None), gap.block)
    if (gap.before is not None and before is None) or (gap.after is not None and after is None):
        return _beside_missing(gap, before, after, inserted, mapping)
    if (spot := _around(gap, before, after, inserted)) is not None:
        return spot
    if before is not None and after is not None and before.block is not after.block:
        return _apart(before, after, inserted)
    left = before.index if before is not None else -1
    right = after.index if after is not None else len(block.units)
    if block is not gap.block and not only_wrapped(block, gap.block):
        return Nowhere(
            "upstream moved what is beside it under a condition, or away", before or after
        )
    if right == left + 1:
        other = block is not gap.block
        return Spot(block, right, "its neighbours are in another block now" if other else "")
    if right < left:
        assert before is not None
        assert after is not None
        return _apart(before, after, inserted)
    return _among(gap, block, left, right, inserted, mapping)


def _around(
    gap: Gap, before: Unit | None, after: Unit | None, inserted: Sequence[Unit]
) -> Spot | None:
    """Return the place beside the statement that upstream put a neighbour into, if it is one.

    What is inserted runs as it did; it must not need what runs under a condition now.
    """
    one, two = (_outer(unit, gap.block) for unit in (before, after))
    if (one, two) == (before, after) or (before and one is None) or (after and two is None):
        return None
    moved = [u for u in (before, after) if u is not None and u not in (one, two)]
    if any(only_wrapped(unit.block, gap.block) for unit in moved):
        return None
    left = one.index if one is not None else -1
    right = two.index if two is not None else len(gap.block.units)
    # what ran after it still does, if at all; what ran before it may not have run
    put = [one] if one is not None and one is not before else []
    if right != left + 1 or not independent(inserted, put):
        return None
    return Spot(gap.block, right, "beside the statement that upstream put its neighbour into")


def _outer(unit: Unit | None, block: Block) -> Unit | None:
    """Return the statement of a block that is, or holds, another one."""
    while unit is not None and unit.block is not block:
        owner = unit.block.owner
        unit = None if owner is None or isinstance(owner.node, _DEFINITIONS) else owner
    return unit


def only_wrapped(inner: Block, outer: Block) -> bool:
    """Tell whether a block runs exactly when another one does: only a ``with`` is between them."""
    block = inner
    while block is not outer:
        owner = block.owner
        if owner is None or not isinstance(owner.node, (ast.With, ast.AsyncWith)):
            return False
        block = owner.block
    return True


def _among(
    gap: Gap, block: Block, left: int, right: int, inserted: Sequence[Unit], mapping: Mapping
) -> Spot | Nowhere:
    """Choose among what upstream put at the same place, where the order has no effect."""
    theirs = block.units[left + 1 : right]
    if _all(inserted, (ast.Import, ast.ImportFrom)) and block.kind == "module":
        return _import_spot(block, left, inserted)
    if (
        clash := bound(inserted) & bound(theirs)
        if block.kind == "code"
        else defined(inserted) & defined(theirs)
    ):
        names = ", ".join(sorted(clash))
        return Nowhere(f"upstream binds {names} at the same place", theirs[0], tuple(theirs))
    if block.kind != "code" and _all(inserted, _DEFINITIONS):
        return Spot(block, left + 1, "before definitions that upstream added there")
    if any(mapping.holds(unit) for unit in theirs):
        return Nowhere("upstream moved statements to the same place", theirs[0], tuple(theirs))
    last = theirs[-1].nodes[-1]
    free = independent(inserted, theirs) if block.kind == "code" else True
    if free and _follows(gap, inserted, theirs):
        return Spot(block, left + 1, "in the paragraph that it stood in")
    if gap.after is None and free and not isinstance(last, _ENDS):
        return Spot(block, right, "still the last of its block, after what upstream added")
    count = "a statement" if len(theirs) == 1 else f"{len(theirs)} statements"
    return Nowhere(f"upstream put {count} at the same place", theirs[0], tuple(theirs))


def _follows(gap: Gap, inserted: Sequence[Unit], theirs: Sequence[Unit]) -> bool:
    """Tell whether it ends the paragraph of what it follows, and upstream's begins another one.

    A paragraph is what no blank line and no comment parts.
    """
    if gap.before is None or gap.after is None:
        return False
    return bool(gap.after.trivia and theirs[0].trivia) and not inserted[0].trivia


def _all(units: Sequence[Unit], kinds: tuple[type[ast.stmt], ...]) -> bool:
    return bool(units) and all(isinstance(n, kinds) for u in units for n in u.nodes)


def _import_spot(block: Block, left: int, inserted: Sequence[Unit]) -> Spot:
    """Return the place in order of module names, among imports that follow each other.

    The order of imports has no meaning; where names are not sorted, the end of the run is taken.
    """
    index = left + 1
    wanted = _module(inserted[0])
    while index < len(block.units) and _all([block.units[index]], (ast.Import, ast.ImportFrom)):
        if _module(block.units[index]) > wanted:
            break
        index += 1
    return Spot(block, index, "among imports that upstream added there")


def _module(unit: Unit) -> str:
    node = unit.nodes[0]
    if isinstance(node, ast.ImportFrom):
        return "." * node.level + (node.module or "")
    assert isinstance(node, ast.Import)
    return node.names[0].name


def _apart(before: Unit, after: Unit, inserted: Sequence[Unit]) -> Spot | Nowhere:
    """Follow the neighbour that the data comes from, where upstream parted the two."""
    needs, gives = read(inserted), bound(inserted)
    follows = bool(bound([before]) & (needs | gives))
    leads = bool(read([after]) & gives)
    if follows and not leads:
        return Spot(before.block, before.index + 1, "after what it reads; upstream moved it")
    if leads and not follows:
        return Spot(after.block, after.index, "before what reads it; upstream moved it")
    return Nowhere("upstream moved its neighbours apart", before)


def _beside_missing(
    gap: Gap, before: Unit | None, after: Unit | None, inserted: Sequence[Unit], mapping: Mapping
) -> Spot | Nowhere:
    """Use the next statements that are still there, where nothing new is between them."""
    one = before or _nearest(gap.nearer[0], mapping)
    two = after or _nearest(gap.nearer[1], mapping)
    if (
        _all(inserted, (ast.Import, ast.ImportFrom))
        and one is not None
        and one.block.kind == "module"
    ):
        return _import_spot(one.block, one.index, inserted)
    block = next((u.block for u in (one, two) if u is not None), gap.block)
    left = one.index if one is not None else -1
    right = two.index if two is not None else len(block.units)
    whole = all(u is None or u.block is block for u in (one, two))
    missing = gap.before if before is None and gap.before is not None else gap.after
    if whole and right == left + 1 and (before or after):
        return Spot(block, right, "the statement beside it is gone; nothing else is there")
    if whole and right > left + 1 and block.kind != "code" and _all(inserted, _DEFINITIONS):
        return Spot(block, left + 1, "the definition beside it is gone")
    near = before or after or one or two
    what = "begins" if missing is None else f"has `{_head(missing)}`"
    return Nowhere(f"upstream changed what is beside it: no statement there {what} any more", near)


def _nearest(units: Sequence[Unit], mapping: Mapping) -> Unit | None:
    return next((found for u in units if (found := mapping.get(u)) is not None), None)


def _head(unit: Unit) -> str:
    line = unit.text.strip().splitlines()[0] if unit.text.strip() else ""
    return line if len(line) <= 60 else line[:57] + "..."
