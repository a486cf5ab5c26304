"""A patch carried to a target: known by its file's name and digest, kept with whole files.

It lies beneath all codemods: these find their places by structure, so they go over it in any
order. What it changed is told by lines, because nothing of it is an insertion that has a mark.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from rewriter.carry.sequences import Change, changes
from rewriter.codemod import Codemod, Site
from rewriter.errors import TargetError
from rewriter.manifest import Carried, Held, Hunk, Kept, sha256
from rewriter.model import SiteResult, State, Verdict
from rewriter.pieces import pack, pieces, restored, unpack


class Delta(NamedTuple):
    """One file without and with a patch; None for "no such file"."""

    before: bytes | None
    after: bytes | None


class CarriedPatch(Codemod):
    """A patch on record: what it made of the files, whole.

    Attributes:
        sha256: of the patch's file.
        origin: what it was made for.
        hunks: where it was written.
    """

    is_patch = True

    def __init__(self, held: Held) -> None:
        assert held.carried is not None
        self.name = held.name
        self.sha256, self.origin = held.carried.sha256, held.carried.origin
        self.hunks: Sequence[Hunk] = held.carried.hunks
        self._kept = held.carried.files
        self.target = next(iter(self._kept), "")

    @cached_property
    def deltas(self) -> Mapping[str, Delta]:
        """Its files without and with it.

        Raises:
            TargetError: the record does not give them.
        """
        return {path: _delta(path, kept) for path, kept in self._kept.items()}

    def afresh(self) -> Verdict | None:
        """Return what it would be where nothing of it is; None where its file is not at hand."""
        return None

    def files(self) -> dict[str, list[Site]]:
        """Return its files; the sites are no codemod's."""
        return {path: [] for path in self._kept}

    @property
    def executable(self) -> frozenset[str]:
        """Those of the files that it brings that are to be run; on record they have their mode."""
        return frozenset()

    @property
    def new(self) -> tuple[str, ...]:
        """The files that it brings."""
        return tuple(path for path, kept in self._kept.items() if kept.new)


def name_of(file: str, raw: bytes) -> str:
    """Return what a patch is called: its file's name and the beginning of its digest."""
    return f"{file}@{hashlib.sha256(raw).hexdigest()[:8]}"


def file_of(name: str) -> str:
    """Return the file's part of a patch's name."""
    return name.rpartition("@")[0]


def held(patch: CarriedPatch, deltas: Mapping[str, Delta], contents: Mapping[str, bytes]) -> Held:
    """Return what a record keeps of a patch.

    Args:
        patch: the patch.
        deltas: what it makes of the files beneath the codemods.
        contents: the files as they are written.
    """
    files = {
        path: Kept(
            None if delta.before is None else sha256(delta.before),
            None if delta.after is None else sha256(delta.after),
            None if delta.after is None else pack(delta.after),
            () if delta.before is None else pieces(delta.before, delta.after or b""),
        )
        for path, delta in deltas.items()
    }
    hunks = tuple(_written(patch, deltas, contents))
    carried = Carried(patch.sha256, patch.origin, files, hunks)
    return Held(patch.name, tuple(deltas), {}, (), carried)


def _written(
    patch: CarriedPatch, deltas: Mapping[str, Delta], contents: Mapping[str, bytes]
) -> list[Hunk]:
    """Return where a patch's places are in the files as they are written, codemods included."""
    found: list[Hunk] = []
    for path, delta in deltas.items():
        moved = Shift(patch.deltas[path].after, delta.after)
        over = Shift(delta.after, contents.get(path))
        for hunk in patch.hunks:
            if hunk.file == path and hunk.line is not None:
                line = moved.line(hunk.line)
                found.append(hunk._replace(line=line, at=over.line(line)))
            elif hunk.file == path:
                found.append(hunk)
    return found


class Shift:
    """Where the lines of one text are in another one."""

    def __init__(self, one: bytes | None, two: bytes | None) -> None:
        self._changes = [] if one == two else changes(lines(one), lines(two))

    def line(self, number: int) -> int:
        """Return where a line is, 1-based; of a changed stretch, where it begins."""
        shift = 0
        for change in self._changes:
            if change.start >= number:
                break
            if change.end >= number:
                return change.left + min(number - change.start, max(1, change.right - change.left))
            shift = change.right - change.end
        return number + shift


def _delta(path: str, kept: Kept) -> Delta:
    try:
        after = None if kept.packed is None else unpack(kept.packed)
    except ValueError as error:
        raise TargetError(f"{_damaged(path)}: {error}") from error
    before = None if kept.before is None else restored(after or b"", kept.undo)
    for raw, digest in ((before, kept.before), (after, kept.after)):
        if raw is not None and sha256(raw) != digest:
            raise TargetError(_damaged(path))
    return Delta(before, after)


def _damaged(path: str) -> str:
    return (
        f"{path}: the record does not give the file of a carried patch: it was damaged or edited. "
        "Reinstall the package, or restore the files from its commit"
    )


# --- by lines ------------------------------------------------------------------------------


def lines(raw: bytes | None) -> list[bytes]:
    """Split at line feeds alone, which are kept."""
    parts = (raw or b"").split(b"\n")
    found = [part + b"\n" for part in parts[:-1]]
    return [*found, parts[-1]] if parts[-1] else found


def rebased(delta: Delta, now: bytes | None) -> Delta | None:
    """Return a change of a file that is another one by now; None where they touch."""
    if delta.before == now:
        return delta
    if delta.before is None or delta.after is None or now is None:
        return Delta(now, now) if delta.after == now else None
    base, ours, theirs = lines(delta.before), lines(delta.after), lines(now)
    placed = _placed(base, ours, theirs)
    if any(state is State.TAMPERED for _, state, _ in placed):
        return None
    return Delta(now, _made(ours, theirs, [p for p in placed if p[1] is State.APPLIED]))


def taken_out(delta: Delta, now: bytes) -> bytes:
    """Return a file without a patch that is in it whole or in part; edits elsewhere stay."""
    assert delta.before is not None and delta.after is not None
    base, ours, theirs = lines(delta.after), lines(delta.before), lines(now)
    placed = _placed(base, ours, theirs)
    return _made(ours, theirs, [p for p in placed if p[1] is State.APPLIED])


def places(path: str, delta: Delta, now: bytes | None) -> list[SiteResult]:
    """Return, place by place, whether a file on disk holds a patch."""
    if delta.before is None or delta.after is None:
        return [_whole(path, delta, now)]
    if now is None:
        return [SiteResult("", "file", None, State.READY, f"{path} is gone", file=path)]
    base, ours, theirs = lines(delta.after), lines(delta.before), lines(now)
    names = Names(delta.after)
    found: list[SiteResult] = []
    for change, state, line in _placed(base, ours, theirs):
        reason = {
            State.TAMPERED: f"line {line}: edited since, or lines that touch it were",
            State.READY: "not there: as without the patch",
        }.get(state, "")
        name = names.at(change.start + 1)
        found.append(SiteResult(name, "lines", line, state, reason, file=path))
    return found


def _whole(path: str, delta: Delta, now: bytes | None) -> SiteResult:
    kind = "new file" if delta.before is None else "deleted"
    line = None if now is None else 1
    if now == delta.after:
        return SiteResult("", kind, line, State.APPLIED, file=path)
    if now == delta.before:
        reason = f"{path} is missing" if now is None else f"{path} is there again"
        return SiteResult("", kind, line, State.READY, reason, file=path)
    reason = f"{path} was edited" if delta.after is not None else f"{path} is another file by now"
    return SiteResult("", kind, line, State.TAMPERED, reason, file=path)


Placed = tuple[Change, State, int]
"""A change, whether the file has what is to be changed, and the 1-based line there."""


def _placed(
    base: Sequence[bytes], ours: Sequence[bytes], theirs: Sequence[bytes]
) -> list[Placed]:  # fmt: skip
    """Look for each change from ``base`` to ``ours`` in ``theirs``.

    APPLIED: it can be made there. READY: it is made already. TAMPERED: other changes touch it.
    """
    others, found = changes(base, theirs), list[Placed]()
    shift = at = 0
    for change in changes(base, ours):
        while at < len(others) and others[at].end < change.start:
            shift = others[at].right - others[at].end
            at += 1
        near = [other for other in others[at:] if other.start <= change.end]
        line = change.start + shift + 1
        if not near:
            found.append((change, State.APPLIED, line))
            continue
        other = near[0]
        same = (
            len(near) == 1
            and (change.start, change.end) == (other.start, other.end)
            and ours[change.left : change.right] == theirs[other.left : other.right]
        )
        found.append((change, State.READY if same else State.TAMPERED, other.left + 1))
    return found


def _made(ours: Sequence[bytes], theirs: Sequence[bytes], placed: Sequence[Placed]) -> bytes:
    result = list(theirs)
    for change, _, line in reversed(placed):
        size = change.end - change.start
        result[line - 1 : line - 1 + size] = ours[change.left : change.right]
    return b"".join(result)


_NEAR = 5
"""Lines from a statement to what a hunk puts beside it: blank lines and comments."""


def first_changed(delta: Delta, line: int) -> int:
    """Return the line with a patch of what it changes at, or beside, a line without it."""
    found = changes(lines(delta.before), lines(delta.after))

    def distance(change: Change) -> int:
        return max(change.start - (line - 1), (line - 1) - change.end, 0)

    nearest = min(found, key=distance, default=None)
    if nearest is not None and distance(nearest) <= _NEAR:
        return nearest.left + 1
    return Shift(delta.before, delta.after).line(line)


class Names:
    """The definitions around the lines of a text; none where it is no Python."""

    def __init__(self, raw: bytes) -> None:
        self._spans: list[tuple[int, int, str]] = []
        try:
            tree = ast.parse(raw)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
        self._walk(tree, "")

    def _walk(self, node: ast.AST, above: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = above
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                name = f"{above}.{child.name}" if above else child.name
                self._spans.append((child.lineno, child.end_lineno or child.lineno, name))
            if not isinstance(child, ast.expr):
                self._walk(child, name)

    def at(self, line: int) -> str:
        """Return the innermost definition around a line; empty in a module's own lines."""
        around = [(first, name) for first, last, name in self._spans if first <= line <= last]
        return max(around)[1] if around else ""
