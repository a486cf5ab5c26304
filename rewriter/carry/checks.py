"""What is demanded of a result: it compiles, it misses no name, it leaves the rest alone."""

from __future__ import annotations

import ast
import warnings
from typing import TYPE_CHECKING

from rewriter.carry import names
from rewriter.carry.applying import Applied
from rewriter.carry.sequences import changes
from rewriter.carry.steps import Fate, Step
from rewriter.errors import SourceError
from rewriter.source import Source

if TYPE_CHECKING:
    from rewriter.carry.single import Sources


def problem(
    path: str, applied: Applied, theirs: bytes | None, made: bytes, sources: Sources
) -> Step | None:
    """Return a conflict where the result is not sound, told at the line that shows it."""
    del sources
    try:
        tree = Source(path, made).tree
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(tree, path, "exec")
    except (SourceError, SyntaxError) as error:
        if theirs is None or applied.before is None:
            return None  # a new file is as the patch has it
        return Step(Fate.CONFLICT, (1, 0), (1, 1), reason=f"the result does not compile: {error}")
    if applied.before is None or applied.after is None or theirs is None:
        return None
    texts = [_text(path, raw) for raw in (applied.before, applied.after, theirs, made)]
    if None in texts:
        return None
    base, ours, old, new = (text or "" for text in texts)
    missing = names.unresolved(new, path) - names.unresolved(old, path)
    missing -= names.unresolved(ours, path)
    if missing:
        return _unbound(base, ours, min(missing))
    lost = _lost(base, ours, old, new)
    if lost:
        reason = f"the patch uses `self.{lost}`, which upstream has not in this file any more"
        return _told(ours, base, lost, reason)
    return None


def _text(path: str, raw: bytes) -> str | None:
    try:
        source = Source(path, raw)
        source.tree  # noqa: B018
    except SourceError:
        return None
    return source.text


def _lost(base: str, ours: str, old: str, new: str) -> str | None:
    """Return an attribute of ``self`` that was there, that the patch uses, and that is gone.

    Only where the patch reads it and no line of upstream's file, nor the patch itself, names it.
    """
    trees = [ast.parse(text) for text in (base, ours, old, new)]
    before, patched, there, result = (names.attributes(tree) for tree in trees)
    fresh = (result - there) & before & patched
    bound = {
        node.attr
        for node in ast.walk(trees[3])
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    gone = sorted(name for name in fresh - bound if f".{name}" not in old)
    return gone[0] if gone else None


def _unbound(base: str, ours: str, name: str) -> Step:
    """Tell a name that nothing binds: the patch uses it, or takes away what upstream uses."""
    changed = changes(base.splitlines(), ours.splitlines())
    lines = ours.splitlines()
    for change in changed:
        if any(name in line for line in lines[change.left : change.right]):
            return _told(ours, base, name, f"the patch uses `{name}`, which nothing binds there")
    for change in changed:
        if any(name in line for line in base.splitlines()[change.start : change.end]):
            at = (change.left + 1, max(change.left + 1, change.right))
            old = (change.start + 1, change.end)
            reason = f"the patch takes away `{name}`, which upstream still uses"
            return Step(Fate.CONFLICT, old, at, reason=reason)
    reason = f"`{name}` would be bound nowhere in the result"
    return Step(Fate.CONFLICT, (1, 0), (1, 1), reason=reason)


def _told(ours: str, base: str, name: str, reason: str) -> Step:
    """Return a conflict at the first line of the patch that has the name and is new."""
    old = set(base.splitlines())
    line = next((n for n, x in enumerate(ours.splitlines(), 1) if name in x and x not in old), 1)
    return Step(Fate.CONFLICT, (1, 0), (line, line), reason=reason)
