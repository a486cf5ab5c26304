"""One patched file, carried: from what the patch made of its own release to steps and edits."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from rewriter.carry import origins, plain, renaming, reviews, units
from rewriter.carry.matching import likeness
from rewriter.carry.paths import Tree
from rewriter.carry.placing import Placing
from rewriter.carry.steps import Fate, Step
from rewriter.carry.texts import parsed, shown
from rewriter.carry.units import Unit
from rewriter.edits import TextEdit, splice
from rewriter.errors import SourceError
from rewriter.source import Source

_ALIKE, _RENAMED = 0.5, 0.75
"""From which likeness a definition of the same name is the same one, moved; or one renamed."""

_GENERIC = 0.85
"""The same for names that every other class has."""


@dataclass
class Outcome:
    """What became of one file's changes.

    Attributes:
        edits: path, edit, and which step it belongs to (None: layout alone).
        whole: files that are made anew, replaced as a whole, or (None) deleted, and the step.
    """

    steps: list[Step] = field(default_factory=list)
    edits: list[tuple[str, TextEdit, int | None]] = field(default_factory=list)
    whole: list[tuple[str, bytes | None, int]] = field(default_factory=list)


class Sources:
    """The other release's files, parsed once each."""

    def __init__(self, older: Tree, newer: Tree) -> None:
        self.older, self.newer = older, newer
        self._modules: dict[str, units.Block] = {}

    def module(self, path: str) -> units.Block:
        """Return a file of the other release as statements; raises SourceError."""
        raw = self.newer.read(path) or b""
        if path not in self._modules:
            self._modules[path] = units.module(Source(path, raw))
        return self._modules[path]


def python(path: str, base: bytes, ours: bytes, onto: str, sources: Sources) -> Outcome:
    """Carry one Python file's changes statement by statement.

    Raises:
        SourceError: one of the versions is no Python that can be divided.
    """
    if _closed(base) != _closed(ours):  # a missing last newline is put right at the end
        base, ours = _closed(base), _closed(ours)
    newer = sources.module(onto)
    _source(onto, newer.source.raw)
    followed = renaming.follow(_source(path, base), _source(path, ours), newer.source)
    older, patched = units.module(followed.base), units.module(followed.ours)

    def elsewhere(unit: Unit) -> Unit | None:
        found = moved_definition(unit, newer, sources)
        if found is not None:
            placing.mapping.put(unit, found)
        return found

    placing = Placing(elsewhere)
    placing.blocks(older, patched, newer)
    if any(s.fate is Fate.CONFLICT for s in placing.ledger.steps) and _holds(older, patched, newer):
        return Outcome([replace(s, fate=Fate.UPSTREAM, reason="") for s in placing.ledger.steps])
    steps = [_told(step, followed.lines) for step in placing.ledger.steps]
    steps += reviews.copies(older, newer, placing.ledger.changed)
    steps += origins.changed(placing.ledger.added, placing.mapping, placing.ledger.steps)
    edits = [(source.path, edit, step) for source, edit, step in placing.ledger.edits]
    return Outcome(steps, edits)


def _told(step: Step, renamed: Mapping[int, str]) -> Step:
    """Return a step that says what was renamed in its lines."""
    said = [renamed[n] for n in range(step.new[0], step.new[1] + 1) if n in renamed]
    if not said or step.fate not in (Fate.EXACTLY, Fate.STRUCTURE):
        return step
    reason = "; ".join(filter(None, [step.reason, *dict.fromkeys(said)]))
    return replace(step, fate=Fate.STRUCTURE, reason=reason)


def _holds(base: units.Block, ours: units.Block, theirs: units.Block) -> bool:
    """Tell whether a file has the whole patch: taken out and put in again, it is as it was."""
    back = _only(ours, base, theirs)
    if back is None or back == theirs.source.text:
        return False
    try:
        source = _source(theirs.source.path, theirs.source.encode(back))
    except SourceError:
        return False
    return _only(base, ours, units.module(source)) == theirs.source.text


def _only(base: units.Block, ours: units.Block, theirs: units.Block) -> str | None:
    """Return a file with all changes between two others, or None where one has no place."""
    placing = Placing()
    placing.blocks(base, ours, theirs)
    if any(step.fate in (Fate.CONFLICT, Fate.UPSTREAM) for step in placing.ledger.steps):
        return None
    return splice(theirs.source.text, [edit for _, edit, _ in placing.ledger.edits])


def _source(path: str, raw: bytes) -> Source:
    source = parsed(path, raw)
    if "\r" in source.text.replace("\r\n", ""):
        raise SourceError(f"{path}: holds a lone carriage return")
    return source


def _closed(raw: bytes) -> bytes:
    """Return a file with a newline at its end: without one, its last line would not be the same."""
    if not raw or raw.endswith((b"\n", b"\r")):
        return raw
    return raw + (b"\r\n" if b"\r\n" in raw else b"\n")


def by_line(base: bytes, ours: bytes, onto: str, theirs: bytes) -> Outcome:
    """Carry a file's changes line by line, as a whole or not at all."""
    texts = [raw.decode("utf-8", "surrogateescape") for raw in (base, ours, theirs)]
    made, steps = plain.merged(*texts)
    outcome = Outcome(steps)
    step = next((n for n, s in enumerate(steps) if s.fate is Fate.EXACTLY), 0)
    if made != texts[2]:
        outcome.whole.append((onto, made.encode("utf-8", "surrogateescape"), step))
    return outcome


def moved_definition(unit: Unit, newer: units.Block, sources: Sources) -> Unit | None:
    """Return the one definition that another one became: moved, or renamed; None in doubt."""
    node = unit.node
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return None
    least = _GENERIC if node.name.startswith("__") or node.name == "forward" else _ALIKE
    here = list(_definitions(newer))
    named = [u for u in here if u.ident == unit.ident and likeness(unit, u) >= least]
    if named:
        return named[0] if len(named) == 1 else None
    word = b"class " if isinstance(node, ast.ClassDef) else b"def "
    word += node.name.encode()
    found: list[Unit] = []
    for path in sources.newer.holding(word):
        if path == newer.source.path or word in (sources.older.read(path) or b""):
            continue
        try:
            candidates = list(_definitions(sources.module(path)))
        except SourceError:
            continue
        found += [u for u in candidates if u.ident == unit.ident and likeness(unit, u) >= least]
    if found:
        return found[0] if len(found) == 1 else None
    alike = [
        u
        for u in here
        if type(u.node) is type(node)
        and u.ident not in _names(unit)
        and likeness(unit, u) >= _RENAMED
    ]
    return alike[0] if len(alike) == 1 else None


def _names(unit: Unit) -> set[tuple[str, ...]]:
    """Return what is defined beside a definition in its own release: none of these is it."""
    return {other.ident for other in unit.block.units if other.ident}


def _definitions(block: units.Block) -> Iterator[Unit]:
    for unit in block.units:
        if isinstance(unit.node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield unit
        if isinstance(unit.node, ast.ClassDef):
            for segment in unit.segments:
                yield from _definitions(segment.block)


def added(path: str, ours: bytes, theirs: bytes | None) -> Outcome:
    """Carry a new file."""
    lines = (1, max(1, ours.count(b"\n")))
    if theirs is None:
        return Outcome([Step(Fate.EXACTLY, (1, 0), lines)], [], [(path, ours, 0)])
    if theirs == ours or _same_code(path, theirs, ours):
        return Outcome([Step(Fate.UPSTREAM, (1, 0), lines, "", 1)])
    reason = "upstream has another file of that name by now"
    sides = (shown(raw.decode("utf-8", "replace"), 4) for raw in (ours, theirs))
    return Outcome([Step(Fate.CONFLICT, (1, 0), lines, "", 1, reason, *sides)])


def deleted(path: str, base: bytes, theirs: bytes | None) -> Outcome:
    """Carry a deletion."""
    lines = (1, base.count(b"\n"))
    if theirs is None:
        return Outcome([Step(Fate.UPSTREAM, lines, (1, 0), reason="upstream removed it too")])
    if theirs == base:
        return Outcome([Step(Fate.EXACTLY, lines, (1, 0), "", 1)], [], [(path, None, 0)])
    reason = "upstream changed the file that the patch deletes"
    return Outcome([Step(Fate.CONFLICT, lines, (1, 0), "", 1, reason)])


def _same_code(path: str, one: bytes, two: bytes) -> bool:
    if not path.endswith(".py"):
        return False
    try:
        return ast.dump(parsed(path, one).tree) == ast.dump(parsed(path, two).tree)
    except SourceError:
        return False
