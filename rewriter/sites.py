"""Looking for sites: what matches in which definition, and what came nearest where nothing does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from rewriter.codemod import Drift, Match, Site, Upstream
from rewriter.definition import IMPORTS, Definition
from rewriter.edits import TextEdit, edits_of
from rewriter.errors import CatalogError
from rewriter.model import Nearest, State
from rewriter.names import amiss, bound_again, imported, needs, taken
from rewriter.source import Source

if TYPE_CHECKING:
    import libcst as cst


class Place(NamedTuple):
    """What looking for one site gave: its edits, or why not."""

    site: Site
    state: State
    line: int | None
    edits: tuple[TextEdit, ...] = ()
    reason: str = ""
    nearest: Nearest | None = None


def find(sites: Iterable[Site], source: Source) -> list[Place]:
    """Look for every site in a source without our marks; one or more places a site."""
    sites = list(sites)
    ours = imported(sites)
    cache: dict[str, list[Definition]] = {}
    places: list[Place] = []
    for site in sites:
        if site.within not in cache:
            cache[site.within] = source.definitions(site.within)
        places += _find_site(site, source, cache[site.within], ours)
    return _apart(places, source)


def _apart(places: list[Place], source: Source) -> list[Place]:
    """Turn places that lie inside one another into drifted ones: their edits would mix."""
    end, kept = 0, []
    for place in sorted(places, key=lambda p: p.edits[0].start if p.edits else 0):
        if place.edits and place.edits[0].start < end:
            reason = f"line {place.line}: two places of `{place.site.within}` overlap"
            nearest = Nearest(place.line or 0, source.line_text(place.line or 0), "")
            kept.append(Place(place.site, State.DRIFTED, None, (), reason, nearest))
        elif place.edits:
            end = place.edits[-1].end
    lost = {(place.site.within, place.site.kind): place for place in kept}
    return [lost.get((p.site.within, p.site.kind), p) for p in places] if lost else places


def _find_site(
    site: Site, source: Source, definitions: list[Definition], ours: frozenset[str]
) -> list[Place]:
    if site.one_of and not definitions:
        return []  # another of the group is where it is; the judge sees all files
    if len(definitions) != 1:
        return [_no_definition(site, source, definitions)]
    definition = definitions[0]
    try:
        matches = _matches(site, definition)
        if isinstance(matches, Place):
            return [matches]
        _stands(site, definition, matches, ours)
        return [
            Place(site, State.READY, definition.line(m.node), tuple(edits_of(site, definition, m)))
            for m in matches
        ]
    except Drift as drift:
        nearest = _at(definition, drift.node) if drift.node is not None else None
        reason = f"{site.kind} in `{site.within}`: {drift}"
        return [Place(site, State.DRIFTED, None, (), reason, nearest)]
    except Upstream as upstream:
        line = definition.line(upstream.node) if upstream.node is not None else definition.first
        return [Place(site, State.UPSTREAM, line, (), str(upstream))]


def _stands(site: Site, definition: Definition, matches: list[Match], ours: frozenset[str]) -> None:
    """Refuse a place where what is found is not what runs, or where our code cannot run.

    Raises:
        Drift: the definition is bound again, or a name that our code uses means nothing there.
    """
    source = definition.source
    if site.within == IMPORTS:
        found = taken(source, ours)
        if found is not None:
            raise Drift(f"the name `{found.name}` is taken: line {found.line} binds it")
        return
    again = bound_again(source, site.within)
    if again is not None:
        raise Drift(f"line {again} binds it again: what runs is something else")
    for match in matches:
        reason = amiss(site, match, definition, ours)
        if reason:
            raise Drift(reason, match.node)
        if site.unconditional:
            _always_runs(site, definition, match)


def _always_runs(site: Site, definition: Definition, match: Match) -> None:
    """Refuse a statement that does not run whenever its function does, or not as it is known.

    Raises:
        Drift: with what is in the way.
    """
    import libcst as cst

    from rewriter.flow import bound

    statement: cst.CSTNode = match.node
    while not isinstance(statement, cst.BaseStatement):
        statement = definition.parents[statement] or definition.module
    block = definition.parents[statement]
    function = definition.parents[block] if block is not None else None
    own = [n for n in definition.nodes if isinstance(n, cst.FunctionDef)][:1]
    if not isinstance(block, cst.IndentedBlock) or [function] != own:
        raise Drift("it does not run whenever its function does", match.node)
    for before in definition.nodes[: definition.nodes.index(statement)]:
        if isinstance(before, (cst.Return, cst.Yield)):
            raise Drift("its function may return before it", before)
    for name in sorted(needs(site, match).names):
        origins = bound(definition, name, statement)
        if len(origins) > 1 or origins[0].what not in ("parameter", "free"):
            raise Drift(f"`{name}`, which the inserted code uses, is bound again", match.node)


def _matches(site: Site, definition: Definition) -> list[Match] | Place:
    if callable(site.find):
        found = list(site.find(definition))
        for match in found:
            _check_match(site, definition, match)
        if not found and (site.optional or site.one_of):
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
    if not hits and (site.optional or site.one_of):
        return []
    looked = " or ".join(f"`{t}`" for t in templates)
    if not hits:
        nearest = compiled(templates[0]).nearest(definition)
        reason = f"`{site.within}` has no {looked}"
        return Place(site, State.DRIFTED, None, (), reason, nearest)
    lines = sorted(definition.line(f.node) for _, found in hits for f in found)
    where = ", ".join(map(str, lines))
    wanted = site.count or "one form"
    raise Drift(f"expected {wanted} of {looked}, found {len(lines)}: lines {where}")


def _check_match(site: Site, definition: Definition, match: object) -> None:
    """Refuse what a finder must not return: it could not be edited, or not only there.

    Raises:
        CatalogError: the finder's author has to mend it.
    """
    import ast

    where = f"the finder of the {site.kind} site in {site.within}"
    if not isinstance(match, Match):
        raise CatalogError(f"{where} returned {match!r}; expected a Match")
    if match.node not in definition.parents:
        raise CatalogError(f"{where} returned a node that is not one of the definition")
    for argument in match.arguments:
        try:
            call = ast.parse(f"f({argument})", mode="eval").body
        except (SyntaxError, ValueError, TypeError):
            call = None
        given = [*call.args, *call.keywords] if isinstance(call, ast.Call) else []
        if len(given) != 1 or "\n" in argument:
            raise CatalogError(f"{where} returned {argument!r}; expected the code of one argument")


def _no_definition(site: Site, source: Source, definitions: list[Definition]) -> Place:
    if definitions:
        lines = ", ".join(str(d.first) for d in definitions)
        reason = f"`{site.within}` is defined {len(definitions)} times: lines {lines}"
        return Place(site, State.DRIFTED, None, (), reason)
    if site.within == IMPORTS:
        return Place(site, State.DRIFTED, None, (), "no import at the top of the module")
    import difflib

    reason = f"`{site.within}` is not defined"
    last = site.within.rsplit(".", 1)[-1]
    alike = [n for n in source.nodes if n.rsplit(".", 1)[-1] == last]
    names = difflib.get_close_matches(site.within, alike, 1, 0) if alike else []
    names += difflib.get_close_matches(site.within, list(source.nodes), 1)
    if not names:
        return Place(site, State.DRIFTED, None, (), reason)
    line = source.nodes[names[0]][0].lineno
    nearest = Nearest(line, source.line_text(line), f"it is called `{names[0]}`")
    return Place(site, State.DRIFTED, None, (), reason, nearest)


def _at(definition: Definition, node: cst.CSTNode) -> Nearest:
    line = definition.line(node)
    return Nearest(line, definition.source.line_text(line), "")
