"""Evidence that a change which has its place may need other lines by now: to be reviewed."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from rewriter.carry import bindings
from rewriter.carry.contracts import Fault
from rewriter.carry.matching import Mapping
from rewriter.carry.package import Module, Package, Place
from rewriter.carry.scopes import touching
from rewriter.carry.steps import Fate, Lines, Step
from rewriter.carry.units import Block, Unit, walk

_TELLING = 5
"""The least number of tokens of a statement whose copy is no accident."""

_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)


def copies(base: Block, theirs: Block, changed: Sequence[tuple[Unit, Lines]]) -> Iterator[Step]:
    """Yield a step where upstream has the statement that the patch changes once more by now.

    Args:
        changed: statements of the patch's release that it changes or removes; the patched lines.
    """
    told = [(u, lines) for u, lines in changed if u.nodes and len(u.tokens) >= _TELLING]
    more = Counter(map(str.strip, theirs.source.text.splitlines()))
    more -= Counter(map(str.strip, base.source.text.splitlines()))
    told = [(u, n) for u, n in told if isinstance(u.node, _SIMPLE) and _head(u) in more]
    if not told:
        return
    ours = Counter(u.key for u, _ in told)
    before = Counter(u.key for u in walk(base) if u.key in ours)
    there = Counter(u.key for u in walk(theirs) if u.key in ours)
    for unit, lines in told:
        if ours[unit.key] == before[unit.key] < there[unit.key]:
            line = max(u.first for u in walk(theirs) if u.key == unit.key)
            reason = f"upstream has the statement that the patch changes on line {line} too"
            old = (unit.first, unit.last)
            yield Step(Fate.REVIEW, old, lines, unit.block.name, line, reason)


def _head(unit: Unit) -> str:
    return unit.source.line_text(unit.first)


def peers(
    before: Unit | None, after: Unit | None, new: Sequence[Unit], mapping: Mapping
) -> str:  # fmt: skip
    """Return what upstream gave both neighbours, which are statements of one kind with the new one.

    Empty where it did not.
    """
    if before is None or after is None or not new:
        return ""
    kinds = {(type(u.node), u.ident[:1]) for u in (before, after, *new)}
    if len(kinds) != 1 or not isinstance(before.node, _SIMPLE):
        return ""
    given: list[set[str]] = []
    for unit in (before, after):
        other = mapping.get(unit)
        if other is None:
            return ""
        given.append(_words(other) - _words(unit))
    common = given[0] & given[1] - {word for unit in new for word in _words(unit)}
    return min(common) if common else ""


def _words(unit: Unit) -> set[str]:
    return {t.text for t in unit.tokens if t.text.isidentifier()}


def dated(
    ours: str, lines: frozenset[int], older: str | None, newer: str | None
) -> Iterator[Step]:  # fmt: skip
    """Yield a step for each comment of the patch that names its release and not the other one."""
    text = ours.splitlines()
    comments: dict[int, str] = {}
    last = 0
    for line in sorted(lines):
        if (at := text[line - 1].find("#")) < 0:
            continue
        follows = line - 1 in lines and text[line - 2].strip().startswith("#")
        last = last if follows and last else line
        comments[last] = comments.get(last, "") + text[line - 1][at:]
    for line, comment in comments.items():
        if (
            older != newer
            and older
            and _names(comment, older)
            and not (newer and _names(comment, newer))
        ):
            reason = f"a comment of the patch says that this is for {older}"
            yield Step(Fate.REVIEW, (1, 0), (line, line), reason=reason)


def _names(comment: str, version: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(version)}(?!\w|\.\w)", comment) is not None


def foreign(
    older: Module, module: Module, lines: frozenset[int], package: Package
) -> Iterator[Fault]:
    """Yield what the patch reads of ``self`` in one class and binds in another one alone.

    Where the class is as it was, that is no matter of carrying.

    Args:
        older: the module in the patch's release, with the patch.
    """
    stored: dict[str, set[str]] = {}
    for node, scope in touching(module, lines):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and scope.owner:
            if isinstance(node.value, ast.Name) and node.value.id == scope.receiver:
                stored.setdefault(node.attr, set()).add(scope.owner.name)
    told: set[str] = set()
    for node, scope in touching(module, lines):
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            continue
        owner, name = scope.owner, node.attr
        if owner is None or node.value.id != scope.receiver or name not in stored or name in told:
            continue
        same = older.names.get(owner.name)
        if same is not None and not isinstance(same, tuple) and ast.dump(same) == ast.dump(owner):
            continue
        if owner.name not in stored[name] and not bindings.binds(
            Place(module, owner), name, package
        ):
            told.add(name)
            other = min(stored[name])
            reason = f"the patch reads `self.{name}` in `{owner.name}` and binds it in `{other}`"
            yield Fault(node.lineno, reason)
