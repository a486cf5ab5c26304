"""The pure engine: ``(codemod, bytes) -> bytes``. No I/O.

What stands on disk is a function of the pristine bytes and the codemods. So a file is always
judged the same way: take our insertions out (``peel``), find every site in what remains, put the
edits in again, and compare. All sites are found before any is edited.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rewriter.codemod import Codemod, Drift, Insert, Match, Replace, Site, Upstream, Wrap
from rewriter.errors import SourceError, ToolBug
from rewriter.model import Nearest, SiteResult, State
from rewriter.source import IMPORTS, NEWLINE, Definition, Source, parse

if TYPE_CHECKING:
    import libcst as cst

_WIDTH = 88
"""Columns; a wrapped expression that would be longer is laid out over several lines."""


@dataclass(frozen=True)
class TextEdit:
    """Replace ``text[start:end]``; an insertion where both are the same offset."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Examination:
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


@dataclass(frozen=True)
class _Mark:
    """One of our insertions, as found, and the edits that take it out."""

    site: Site
    line: int
    edits: tuple[TextEdit, ...]


@dataclass(frozen=True)
class _Place:
    """What looking for one site gave: its edits, or why not."""

    site: Site
    state: State
    line: int | None
    edits: tuple[TextEdit, ...] = ()
    reason: str = ""
    nearest: Nearest | None = None


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


def splice(text: str, edits: Iterable[TextEdit]) -> str:
    """Return ``text`` with the edits made; edits at one offset stay in their order."""
    parts: list[str] = []
    done = 0
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        if edit.start < done:
            raise ToolBug(f"two edits overlap at offset {edit.start}")
        parts += [text[done : edit.start], edit.text]
        done = edit.end
    return "".join([*parts, text[done:]])


# --- looking -------------------------------------------------------------------------------


def find(sites: Iterable[Site], source: Source) -> list[_Place]:
    """Look for every site in a source without our marks; one or more places a site."""
    cache: dict[str, list[Definition]] = {}
    places: list[_Place] = []
    for site in sites:
        if site.within not in cache:
            cache[site.within] = source.definitions(site.within)
        places += _find_site(site, source, cache[site.within])
    return _apart(places, source)


def _apart(places: list[_Place], source: Source) -> list[_Place]:
    """Turn places that lie inside one another into drifted ones: their edits would mix."""
    end, kept = 0, []
    for place in sorted(places, key=lambda p: p.edits[0].start if p.edits else 0):
        if place.edits and place.edits[0].start < end:
            reason = f"line {place.line}: two places of `{place.site.within}` overlap"
            nearest = Nearest(place.line or 0, source.line_text(place.line or 0), "")
            kept.append(_Place(place.site, State.DRIFTED, None, (), reason, nearest))
        elif place.edits:
            end = place.edits[-1].end
    lost = {(place.site.within, place.site.kind): place for place in kept}
    return [lost.get((p.site.within, p.site.kind), p) for p in places] if lost else places


def _find_site(site: Site, source: Source, definitions: list[Definition]) -> list[_Place]:
    if len(definitions) != 1:
        return [_no_definition(site, source, definitions)]
    definition = definitions[0]
    try:
        matches = _matches(site, definition)
        if isinstance(matches, _Place):
            return [matches]
        return [
            _Place(site, State.READY, definition.line(m.node), tuple(_edits(site, definition, m)))
            for m in matches
        ]
    except Drift as drift:
        nearest = _at(definition, drift.node) if drift.node is not None else None
        reason = f"{site.kind} in `{site.within}`: {drift}"
        return [_Place(site, State.DRIFTED, None, (), reason, nearest)]
    except Upstream as upstream:
        line = definition.line(upstream.node) if upstream.node is not None else definition.first
        return [_Place(site, State.UPSTREAM, line, (), str(upstream))]


def _matches(site: Site, definition: Definition) -> list[Match] | _Place:
    if callable(site.find):
        found = list(site.find(definition))
        if not found and site.optional:
            return []
        if not found or (site.count is not None and len(found) != site.count):
            raise Drift(f"found {len(found)} places of kind {site.kind}, expected {site.count}")
        return found
    from rewriter.patterns import compiled

    templates = (site.find,) if isinstance(site.find, str) else site.find
    hits = [(t, list(compiled(t).search(definition))) for t in templates]
    hits = [(t, found) for t, found in hits if found]
    if len(hits) == 1 and site.count in (None, len(hits[0][1])):
        return [Match(f.node, holes=f.holes) for f in hits[0][1]]
    if not hits and site.optional:
        return []
    looked = " or ".join(f"`{t}`" for t in templates)
    if not hits:
        nearest = compiled(templates[0]).nearest(definition)
        reason = f"`{site.within}` has no {looked}"
        return _Place(site, State.DRIFTED, None, (), reason, nearest)
    lines = sorted(definition.line(f.node) for _, found in hits for f in found)
    where = ", ".join(map(str, lines))
    wanted = site.count or "one form"
    raise Drift(f"expected {wanted} of {looked}, found {len(lines)}: lines {where}")


def _no_definition(site: Site, source: Source, definitions: list[Definition]) -> _Place:
    if definitions:
        lines = ", ".join(str(d.first) for d in definitions)
        reason = f"`{site.within}` is defined {len(definitions)} times: lines {lines}"
        return _Place(site, State.DRIFTED, None, (), reason)
    if site.within == IMPORTS:
        return _Place(site, State.DRIFTED, None, (), "no import at the top of the module")
    import difflib

    reason = f"`{site.within}` is not defined"
    last = site.within.rsplit(".", 1)[-1]
    names = [n for n in source.nodes if n.rsplit(".", 1)[-1] == last]
    names += difflib.get_close_matches(site.within, list(source.nodes), 1)
    if not names:
        return _Place(site, State.DRIFTED, None, (), reason)
    line = source.nodes[names[0]][0].lineno
    nearest = Nearest(line, source.line_text(line), f"it is called `{names[0]}`")
    return _Place(site, State.DRIFTED, None, (), reason, nearest)


def _at(definition: Definition, node: cst.CSTNode) -> Nearest:
    line = definition.line(node)
    return Nearest(line, definition.source.line_text(line), "")


# --- editing -------------------------------------------------------------------------------


def _edits(site: Site, definition: Definition, match: Match) -> list[TextEdit]:
    edit, source = site.edit, definition.source
    if isinstance(edit, Insert):
        return _insert(edit, definition, match)
    start, end = definition.span(match.node)
    if isinstance(edit, Wrap):
        if _needs_brackets(match.node):
            raise Drift("a bare tuple, generator or yield cannot be an argument", match.node)
        return _wrap(edit, source, start, end, match.arguments)
    from rewriter.patterns import compiled

    return [TextEdit(start, end, compiled(edit.code).fill(definition, match.holes))]


def _needs_brackets(node: cst.CSTNode) -> bool:
    """Return whether brackets around an expression are part of what it is."""
    import libcst as cst

    return isinstance(node, (cst.Tuple, cst.GeneratorExp, cst.Yield))


def _insert(edit: Insert, definition: Definition, match: Match) -> list[TextEdit]:
    """Insert whole lines beside a statement that has its lines to itself."""
    import libcst as cst

    from rewriter.patterns import compiled

    source = definition.source
    node: cst.CSTNode | None = match.node
    if isinstance(node, cst.BaseExpression) and isinstance(definition.parents[node], cst.Expr):
        node = definition.parents[node]
    if isinstance(node, cst.BaseSmallStatement):
        node = definition.parents[node]
        if isinstance(node, cst.SimpleStatementLine) and len(node.body) > 1:
            raise Drift("its line holds more than one statement", match.node)
    if not isinstance(node, cst.SimpleStatementLine):
        raise Drift("it does not stand on a line of its own", match.node)
    start, end = definition.span(node)
    first, last = source.line_at(start), source.line_at(end)
    indent = source.text[source.line_start(first) : start]
    newline = source.newline(source.line_start(first))
    code = indent + compiled(edit.code).fill(definition, match.holes)
    code = code.replace("\n", newline + indent)
    at = source.line_start(first if edit.before else last + 1)
    if not edit.before and source.line_at(at) == last:  # the file ends without a newline
        return [TextEdit(at, at, newline + code)]
    return [TextEdit(at, at, code + newline)]


def _wrap(
    edit: Wrap, source: Source, start: int, end: int, others: tuple[str, ...]
) -> list[TextEdit]:
    before, after = others[: edit.keeps], others[edit.keeps :]
    head = f"{edit.call}({''.join(a + ', ' for a in before)}"
    tail = f"{''.join(', ' + a for a in after)})"
    first = source.line_at(start)
    line_start, line_end = source.line_start(first), source.line_start(source.line_at(end) + 1)
    whole = source.text[line_start:line_end].rstrip()
    if "\n" in whole or "\r" in whole or len(whole) + len(head) + len(tail) > _WIDTH:
        newline = source.newline(line_start)
        text = source.text[line_start:end]
        indent = text[: len(text) - len(text.lstrip(" \t\f"))]
        inner = newline + indent + ("\t" if indent.startswith("\t") else "    ")
        head = f"{edit.call}({inner}{''.join(a + ',' + inner for a in before)}"
        tail = f",{''.join(inner + a + ',' for a in after)}{newline}{indent})"
    return [TextEdit(start, start, head), TextEdit(end, end, tail)]


# --- taking out ----------------------------------------------------------------------------


def peel(sites: Iterable[Site], source: Source) -> list[_Mark]:
    """Find what these sites' edits have put into a source, with the edits that take it out."""
    marks: list[_Mark] = []
    for site in sites:
        if _may_hold(site, source.text):
            for definition in source.definitions(site.within):
                if _may_hold(site, definition.text):
                    marks += _marks(site, definition)
    return marks


def may_hold(codemod: Codemod, path: str, raw: bytes) -> bool:
    """Return False where none of a codemod's edits can be in a file; cheap, nothing is parsed."""
    text = raw.decode("utf-8", "replace")
    return any(_may_hold(site, text) for site in codemod.files().get(path, ()))


def _may_hold(site: Site, text: str) -> bool:
    """Return False where a site's edit cannot be in a text; a cheap test before parsing."""
    if isinstance(site.edit, Wrap):
        return site.edit.call in text
    return all(word in text for word in re.findall(r"\w+", re.sub(r"\{\w+\}", " ", site.edit.code)))


def _marks(site: Site, definition: Definition) -> list[_Mark]:
    from rewriter.patterns import compiled

    edit, source = site.edit, definition.source
    if isinstance(edit, Wrap):
        return _wrapped(site, edit, definition)
    found: list[_Mark] = []
    for hit in compiled(edit.code).search(definition):
        start, end = definition.span(hit.node)
        line = source.line_at(start)
        if isinstance(edit, Replace):
            original = site.find[0] if isinstance(site.find, tuple) else site.find
            assert isinstance(original, str), "a Replace site is found by a template"
            text = compiled(original).fill(definition, hit.holes)
            found.append(_Mark(site, line, (TextEdit(start, end, text),)))
            continue
        first, last = source.line_start(line), source.line_start(source.line_at(end) + 1)
        if source.line_at(last) == source.line_at(end) and first > 0:  # last line, no newline
            first -= len(source.newline(source.line_start(line - 1)))
        found.append(_Mark(site, line, (TextEdit(first, last, ""),)))
    return found


def _wrapped(site: Site, edit: Wrap, definition: Definition) -> list[_Mark]:
    import libcst as cst

    found: list[_Mark] = []
    for node in definition.nodes:
        if not isinstance(node, cst.Call) or _dotted(node.func) != edit.call:
            continue
        head = node.args[: edit.keeps + 1]
        if len(head) <= edit.keeps or any(arg.star or arg.keyword for arg in head):
            continue
        start, end = definition.span(node)
        inner, outer = definition.span(node.args[edit.keeps])
        edits = (TextEdit(start, inner, ""), TextEdit(outer, end, ""))
        found.append(_Mark(site, definition.line(node), edits))
    return found


def _dotted(node: cst.CSTNode) -> str:
    import libcst as cst

    if isinstance(node, cst.Attribute):
        return f"{_dotted(node.value)}.{node.attr.value}"
    return node.value if isinstance(node, cst.Name) else ""


# --- verdicts ------------------------------------------------------------------------------


def _result(place: _Place, source: Source) -> SiteResult:
    site = place.site
    return SiteResult(
        site.within, site.kind, place.line, place.state, place.reason, place.nearest, source.path
    )


def _without_marks(source: Source, places: list[_Place]) -> Examination:
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


def _with_marks(source: Source, sites: Iterable[Site], marks: list[_Mark]) -> Examination:
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


def _where_marked(places: list[_Place], marks: list[_Mark], taken: list[TextEdit]) -> list[_Place]:
    """Expect an import where it stands in its block: sorting moves it, and so may other codemods.

    Its place among the imports has no meaning; all other insertions belong where they were put.
    """
    moved: list[_Place] = []
    for place in places:
        own = [m for m in marks if m.site is place.site and place.site.within == IMPORTS]
        if own and place.edits and isinstance(place.site.edit, Insert):
            at = _pristine_offset(own[0].edits[0].start, taken)
            place = replace(place, edits=tuple(replace(e, start=at, end=at) for e in place.edits))
        moved.append(place)
    return moved


def _pristine_offset(offset: int, taken: list[TextEdit]) -> int:
    """Return where an offset of the given text lies in the pristine text."""
    return offset - sum(e.end - e.start - len(e.text) for e in taken if e.end <= offset)


def _sites_with_marks(
    marks: list[_Mark], places: list[_Place], taken: list[TextEdit], pristine: Source
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


def _stray(mark: _Mark, source: Source) -> SiteResult:
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


def _covers(mark: _Mark, position: int) -> bool:
    return mark.edits[0].start <= position <= mark.edits[0].end


def _same_code(source: Source, text: str) -> bool:
    """Return whether two texts differ in layout alone: the same tree and the same comments."""
    if ast.dump(source.tree) != ast.dump(parse(source.path, source.encode(text))):
        return False
    return _comments(source.text) == _comments(text)


def _comments(text: str) -> list[str]:
    import io
    import tokenize

    tokens = tokenize.generate_tokens(io.StringIO(NEWLINE.sub("\n", text)).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT]


def _first_difference(source: Source, text: str) -> int:
    for number, (have, want) in enumerate(
        zip(NEWLINE.split(source.text), NEWLINE.split(text), strict=False), 1
    ):
        if have != want:
            return number
    return source.line_at(len(source.text))
