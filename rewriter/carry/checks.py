"""What is demanded of a result: it compiles, and what the patch uses is there and still fits."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from rewriter.carry import bindings, callers, contracts, names, reviews, vanished
from rewriter.carry.applying import Applied
from rewriter.carry.contracts import Fault, Key
from rewriter.carry.package import Module, Package
from rewriter.carry.sequences import changes
from rewriter.carry.steps import Fate, Step
from rewriter.carry.texts import parsed
from rewriter.errors import SourceError


@dataclass(frozen=True)
class Sides:
    """The patch's release and the other one, each with the whole patch in it."""

    ours: Package
    made: Package
    _fresh: dict[str, frozenset[int]] = field(default_factory=dict)

    @cached_property
    def own(self) -> set[str]:
        """What the patch itself defines, in any of its files."""
        found: set[str] = set()
        for path, raw in self.ours.patched.items():
            module = self.ours.at(path) if raw is not None and path.endswith(".py") else None
            if module is not None:
                found.update(vanished.defined(module, self.fresh(path)))
        return found

    def fresh(self, path: str) -> frozenset[int]:
        """Return the patched lines of a file of the patch's release."""
        if path not in self._fresh:
            texts = (_text(path, self.ours.tree.read(path) or b""), self.ours.read(path))
            after = _text(path, texts[1]) if texts[1] is not None else None
            self._fresh[path] = fresh(texts[0] or "", after or "")
        return self._fresh[path]


def fresh(before: str, after: str) -> frozenset[int]:
    """Return the lines of a text that another one has not, 1-based."""
    one, two = before.splitlines(), after.splitlines()
    head = 0
    while head < min(len(one), len(two)) and one[head] == two[head]:
        head += 1
    tail = 0
    while tail < min(len(one), len(two)) - head and one[-1 - tail] == two[-1 - tail]:
        tail += 1
    middle = difflib.SequenceMatcher(None, one[head : len(one) - tail], two[head : len(two) - tail])
    spans = [code[3:] for code in middle.get_opcodes() if code[0] != "equal"]
    return frozenset(head + n + 1 for left, right in spans for n in range(left, right))


def problems(
    path: str, applied: Applied, theirs: bytes | None, made: bytes, sides: Sides
) -> Iterator[Step]:
    """Yield a conflict for each thing that makes a result unsound, at the line that shows it."""
    try:
        tree = parsed(path, made).tree
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(tree, path, "exec")
    except (SourceError, SyntaxError) as error:
        if theirs is not None and applied.before is not None:  # a new file is as the patch has it
            reason = f"the result does not compile: {error}"
            yield Step(Fate.CONFLICT, (1, 0), (1, 1), reason=reason)
        return
    if theirs is None or applied.after is None:
        return
    texts = [_text(path, raw) for raw in (applied.before or b"", applied.after, theirs, made)]
    if None in texts:
        return
    base, ours, old, new = (text or "" for text in texts)
    if missing := _unbound(path, (base, ours, old, new)):
        yield missing
    yield from _faults(applied.path, path, (ours, old, new), sides)
    yield from _taken(base, applied.path, path, sides)
    yield from _called(applied.path, path, new, sides)


def _text(path: str, raw: bytes) -> str | None:
    try:
        return parsed(path, raw).text
    except SourceError:
        return None


def _faults(here: str, there: str, texts: tuple[str, str, str], sides: Sides) -> Iterator[Step]:
    """Yield what is wrong in the other release and was not in the patch's own."""
    ours, old, new = texts
    one, two = sides.ours.at(here), sides.made.at(there)
    if one is None or two is None:
        return
    before, after = sides.fresh(here), fresh(old, new)
    found: list[Fault] = []
    for kind in (contracts.faults, bindings.faults):
        wrong: dict[Key, Fault] = kind(two, after, sides.made)
        known = kind(one, before, sides.ours) if wrong else {}
        found += [fault for key, fault in wrong.items() if key not in known]
    given = (contracts.demands(one, before, sides.ours), contracts.demands(two, after, sides.made))
    found += contracts.shifted(*given)
    trees = sides.ours.tree, sides.made.tree
    found += vanished.faults(two, after, there, trees, sides.own)
    for fault in found:
        line = _line(ours, new, before, fault.line)
        text = (ours.splitlines() or [""])[line - 1].strip()
        yield Step(Fate.CONFLICT, (1, 0), (line, line), "", fault.line, fault.reason, text)
    for fault in reviews.foreign(one, two, after, sides.made):
        line = _line(ours, new, before, fault.line)
        yield Step(Fate.REVIEW, (1, 0), (line, line), "", fault.line, fault.reason)
    versions = (tree.target.version for tree in trees)
    yield from reviews.dated(ours, before, *versions)


def _called(here: str, there: str, new: str, sides: Sides) -> Iterator[Step]:
    """Yield a conflict for each call by upstream of what the patch makes take other arguments."""
    ends: list[tuple[Module, Package, Module, Package]] = []
    for path, side in ((here, sides.ours), (there, sides.made)):
        plain = Package(side.tree, {})
        one, two = plain.at(path), side.at(path)
        if one is None or two is None:
            return
        ends.append((one, plain, two, side))
    own = fresh(_text(there, sides.made.tree.read(there) or b"") or "", new)
    line = min(sides.fresh(here), default=1)
    for path, fault in callers.faults(ends[0], ends[1]):
        if path != there or fault.line not in own:  # the patch's own lines are told already
            reason = f"upstream calls what the patch changes: {path}, line {fault.line}: "
            yield Step(Fate.CONFLICT, (1, 0), (line, line), reason=reason + fault.reason)


def _taken(base: str, here: str, there: str, sides: Sides) -> Iterator[Step]:
    """Yield a conflict for what the patch takes away and another module imports by now."""
    one, two = sides.ours.at(here), sides.made.at(there)
    if one is None or two is None:
        return
    before = Module(here, parsed(here, base.encode()).tree)
    for name in sorted(before.names.keys() - one.names.keys() - two.names.keys()):
        fresh_ones = contracts.importers(name, two, sides.made)
        fresh_ones -= contracts.importers(name, one, sides.ours) if fresh_ones else set()
        if fresh_ones:
            node = before.names[name]
            line = getattr(node, "lineno", 1)
            reason = f"the patch takes away `{name}`, which {min(fresh_ones)} imports by now"
            yield Step(Fate.CONFLICT, (line, line), (1, 0), reason=reason)


def _line(ours: str, new: str, before: frozenset[int], line: int) -> int:
    """Return the patched file's own line that a line of the result comes from."""
    here, there = ours.splitlines(), new.splitlines()
    wanted = there[line - 1].strip()
    same = [n for n in sorted(before) if here[n - 1].strip() == wanted]
    return same[0] if same else min(before, key=lambda n: abs(n - line), default=1)


def _unbound(path: str, texts: tuple[str, str, str, str]) -> Step | None:
    """Tell a name that nothing binds: the patch uses it, or takes away what upstream uses."""
    base, ours, old, new = texts
    missing = names.unresolved(new, path) - names.unresolved(old, path)
    missing -= names.unresolved(ours, path)
    if not missing:
        return None
    name = min(missing)
    before, after = base.splitlines(), ours.splitlines()
    changed = changes(before, after)
    for change in changed:
        if any(name in line for line in after[change.left : change.right]):
            reason = f"the patch uses `{name}`, which nothing binds there"
            line = next(n for n in sorted(fresh(base, ours)) if name in after[n - 1])
            return Step(Fate.CONFLICT, (1, 0), (line, line), reason=reason)
    for change in changed:
        if any(name in line for line in before[change.start : change.end]):
            at = (change.left + 1, max(change.left + 1, change.right))
            lines = (change.start + 1, change.end)
            reason = f"the patch takes away `{name}`, which upstream still uses"
            return Step(Fate.CONFLICT, lines, at, reason=reason)
    reason = f"`{name}` would be bound nowhere in the result"
    return Step(Fate.CONFLICT, (1, 0), (1, 1), reason=reason)
