"""Where local names get their values: upstream may give them others by now."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from rewriter.carry.ledger import Added
from rewriter.carry.matching import Mapping
from rewriter.carry.names import read
from rewriter.carry.package import FUNCTIONS
from rewriter.carry.steps import Fate, Step
from rewriter.carry.units import Block, Unit, walk

_ASSIGNING = (ast.Assign, ast.AnnAssign, ast.AugAssign)


def changed(
    added: Sequence[Added], mapping: Mapping, steps: Sequence[Step]
) -> Iterator[Step]:  # fmt: skip
    """Yield a step where upstream assigns in another way what the patch reads from now on.

    What read a name already is upstream's to keep right; so is what upstream has too.

    Args:
        steps: what became of the statements that the patch adds.
    """
    out = {step.new[1] for step in steps if step.fate in (Fate.UPSTREAM, Fate.CONFLICT)}
    for block, index, gone, new in added:
        if new and new[-1].last in out:
            continue
        function = _function(block)
        wanted = read(new) - read(gone) if new else set()
        if function is None or not wanted or mapping.get(function) is None:
            continue
        at = block.units[index].first if index < len(block.units) else block.units[-1].last + 1
        for unit in walk(function.segments[0].block):
            names = sorted(_assigned(unit) & wanted) if unit.first < at else []
            other = mapping.get(unit) if names else None
            if other is not None and other.key != unit.key:
                wanted -= {*names}
                reason = f"upstream changed how `{names[0]}` comes about, which the patch reads"
                lines = (new[0].first, new[-1].last)
                yield Step(Fate.REVIEW, (1, 0), lines, block.name, other.first, reason)


def _function(block: Block) -> Unit | None:
    """Return the innermost function around a block."""
    owner = block.owner
    while owner is not None and not isinstance(owner.node, FUNCTIONS):
        owner = owner.block.owner
    return owner if owner is not None and owner.segments else None


def _assigned(unit: Unit) -> set[str]:
    """Return the names that an assignment gives a value as a whole."""
    node = unit.node
    if not isinstance(node, _ASSIGNING):
        return set()
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    each = [e for t in targets for e in (t.elts if isinstance(t, ast.Tuple) else [t])]
    return {e.id for e in each if isinstance(e, ast.Name)}
