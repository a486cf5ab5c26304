"""The pure engine: ``(codemod, bytes) -> bytes``. No I/O.

What stands on disk is a function of the pristine bytes and the codemods. So a file is always
judged the same way: take our insertions out (``peel``), find every site in what remains, put the
edits in again, and compare. All sites are found before any is edited.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import NamedTuple

from rewriter.codemod import Codemod, Insert, Replace, Site
from rewriter.definition import IMPORTS
from rewriter.edits import TextEdit, splice
from rewriter.errors import SourceError, ToolBug
from rewriter.marks import Mark, comments, may_hold, peel
from rewriter.model import Nearest, SiteResult, State
from rewriter.sites import Place, find
from rewriter.source import NEWLINE, Source, parse

__all__ = ["Examination", "apply", "examine", "may_hold", "only_inserts"]


class Examination(NamedTuple):
    """One file as one codemod sees it.

    Attributes:
        state: ready, applied, partial, tampered, upstream or drifted.
        sites: one result a place, lines of the file as it was given.
        pristine: the file without this codemod.
        patched: the file with it; None where it cannot be applied.
        exact: for applied, whether the bytes are the ones the engine writes; else only the
            layout of our lines was changed since.
    """

    state: State
    sites: tuple[SiteResult, ...]
    reason: str
    nearest: Nearest | None
    pristine: bytes
    patched: bytes | None
    exact: bool = True


def examine(codemod: Codemod, path: str, raw: bytes) -> Examination:
    """Judge one file.

    Raises:
        SourceError: the bytes are no Python that can be judged.
        ToolBug: the engine's own result failed a check.
    """
    sites = codemod.files()[path]
    source = Source(path, raw)
    source.tree  # noqa: B018  # refused by ast before LibCST sees a line of it
    try:
        marks = peel(sites, source)
        if not marks:
            return _without_marks(source, find(sites, source))
        return _with_marks(source, sites, marks)
    except RecursionError as error:
        raise SourceError(f"{path}: an expression in it is nested too deeply") from error


def apply(codemod: Codemod, path: str, raw: bytes) -> bytes:
    """Return the patched file, checked. The same bytes where it is applied already.

    Checks what no test of the codemod can promise for a source it has not seen: the result
    compiles, judging it again says applied without an edit, and taking the insertions out again
    gives back the bytes that came in.

    Raises:
        ToolBug: one of the checks failed.
        ValueError: the file is not ready; ask ``examine`` first.
    """
    before = examine(codemod, path, raw)
    if before.state is State.APPLIED:
        return raw
    if before.state is not State.READY or before.patched is None:
        raise ValueError(f"{codemod.name}: {path} is {before.state}")
    after = before.patched
    try:
        compile(after, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise ToolBug(f"{codemod.name}: the patched {path} does not compile: {error}") from error
    again = examine(codemod, path, after)
    if again.state is not State.APPLIED or not again.exact:
        raise ToolBug(f"{codemod.name}: the patched {path} is {again.state}: {again.reason}")
    if only_inserts(codemod) and again.pristine != raw:
        raise ToolBug(f"{codemod.name}: taking the patch out of {path} does not give it back")
    return after


def only_inserts(codemod: Codemod) -> bool:
    """Return whether every edit is an insertion, so that a revert needs no manifest."""
    return not any(isinstance(site.edit, Replace) for site in codemod.sites)


def _result(place: Place, source: Source) -> SiteResult:
    site = place.site
    return SiteResult(
        site.within, site.kind, place.line, place.state, place.reason, place.nearest, source.path
    )


def _without_marks(source: Source, places: list[Place]) -> Examination:
    results = tuple(_result(place, source) for place in places)
    deciding = [place for place in places if place.site.decides]
    drifted = [place for place in places if place.state is State.DRIFTED]
    upstream = [place for place in deciding if place.state is State.UPSTREAM]
    if deciding and len(upstream) == len(deciding):
        state, reason, nearest = State.UPSTREAM, upstream[0].reason, None
    elif drifted:
        state, reason, nearest = State.DRIFTED, drifted[0].reason, drifted[0].nearest
    elif upstream:
        reason = f"only some places are as upstream left them: {upstream[0].reason}"
        state, nearest = State.DRIFTED, None
    else:
        edits = [edit for place in places for edit in place.edits]
        patched = source.encode(splice(source.text, edits))
        return Examination(State.READY, results, "", None, source.raw, patched)
    return Examination(state, results, reason, nearest, source.raw, None)


def _with_marks(source: Source, sites: Iterable[Site], marks: list[Mark]) -> Examination:
    """Judge a file that holds marks: take them out, put the edits in again and compare."""
    taken = [edit for mark in marks for edit in mark.edits]
    pristine = _parsed_without(source, taken)
    if pristine is None:
        guilty = (mark for mark in marks if _parsed_without(source, mark.edits) is None)
        line = next(guilty, marks[0]).line
        results = tuple(_stray(mark, source) for mark in marks)
        reason = f"our lines were edited: taking out the one at line {line} leaves no Python"
        nearest = Nearest(line, source.line_text(line), "not as it was written")
        return Examination(State.TAMPERED, results, reason, nearest, source.raw, None, exact=False)
    places = _where_marked(find(sites, pristine), marks, taken)
    results = _sites_with_marks(marks, places, taken, pristine)
    missing = [r for r in results if r.state is not State.APPLIED]
    if missing:
        first = missing[0]
        total = len(results)
        reason = f"{total - len(missing)} of {total} places are ours; not: {first.kind} in "
        reason += f"`{first.definition}`" + (f" ({first.reason})" if first.reason else "")
        return Examination(
            State.PARTIAL, results, reason, first.nearest, pristine.raw, None, exact=False
        )
    text = splice(pristine.text, [edit for place in places for edit in place.edits])
    patched = pristine.encode(text)
    if text == source.text:
        return Examination(State.APPLIED, results, "", None, pristine.raw, patched)
    if _same_code(source, text):
        reason = "the layout of our lines was changed since"
        return Examination(State.APPLIED, results, reason, None, pristine.raw, patched, exact=False)
    line = _first_difference(source, text)
    reason = f"our lines were edited; the first difference is at line {line}"
    nearest = Nearest(line, source.line_text(line), "not as it was written")
    return Examination(State.TAMPERED, results, reason, nearest, pristine.raw, None, exact=False)


def _parsed_without(source: Source, edits: Iterable[TextEdit]) -> Source | None:
    """Return the source with edits made, or None where that is no Python."""
    try:
        made = Source(source.path, source.encode(splice(source.text, edits)))
        made.tree  # noqa: B018
    except (SourceError, ToolBug):
        return None
    return made


def _where_marked(places: list[Place], marks: list[Mark], taken: list[TextEdit]) -> list[Place]:
    """Expect an import where it stands in its block: sorting moves it, and so may other codemods.

    Its place among the imports has no meaning; all other insertions belong where they were put.
    """
    moved: list[Place] = []
    for place in places:
        own = [m for m in marks if m.site is place.site and place.site.within == IMPORTS]
        if own and place.edits and isinstance(place.site.edit, Insert):
            at = _pristine_offset(own[0].edits[0].start, taken)
            place = place._replace(edits=tuple(e._replace(start=at, end=at) for e in place.edits))
        moved.append(place)
    return moved


def _pristine_offset(offset: int, taken: list[TextEdit]) -> int:
    """Return where an offset of the given text lies in the pristine text."""
    return offset - sum(e.end - e.start - len(e.text) for e in taken if e.end <= offset)


def _sites_with_marks(
    marks: list[Mark], places: list[Place], taken: list[TextEdit], pristine: Source
) -> tuple[SiteResult, ...]:
    """Pair the places found in the pristine text with the marks found in the given one."""
    results: list[SiteResult] = []
    left = list(marks)
    for place in places:
        if place.state is not State.READY:
            results.append(_result(place, pristine))
            continue
        # A mark belongs to a place if it stands where the place's edit would put it.
        position = _given_offset(place.edits[0].start, taken)
        own = next((m for m in left if m.site is place.site and _covers(m, position)), None)
        if own is None:
            results.append(_result(place, pristine))
            continue
        left.remove(own)
        site = place.site
        results.append(
            SiteResult(site.within, site.kind, own.line, State.APPLIED, file=pristine.path)
        )
    return (*results, *(_stray(mark, pristine) for mark in left))


def _stray(mark: Mark, source: Source) -> SiteResult:
    reason = "one of our insertions stands where none belongs"
    return SiteResult(
        mark.site.within, mark.site.kind, mark.line, State.TAMPERED, reason, None, source.path
    )


def _given_offset(offset: int, taken: list[TextEdit]) -> int:
    """Return where an offset of the pristine text lies in the given text, before insertions."""
    shift = 0
    for edit in sorted(taken, key=lambda e: e.start):
        if edit.start - shift >= offset:
            break
        shift += (edit.end - edit.start) - len(edit.text)
    return offset + shift


def _covers(mark: Mark, position: int) -> bool:
    return mark.edits[0].start <= position <= mark.edits[0].end


def _same_code(source: Source, text: str) -> bool:
    """Return whether two texts differ in layout alone: the same tree and the same comments."""
    if ast.dump(source.tree) != ast.dump(parse(source.path, source.encode(text))):
        return False
    return comments(source.text) == comments(text)


def _first_difference(source: Source, text: str) -> int:
    for number, (have, want) in enumerate(
        zip(NEWLINE.split(source.text), NEWLINE.split(text), strict=False), 1
    ):
        if have != want:
            return number
    return source.line_at(len(source.text))
