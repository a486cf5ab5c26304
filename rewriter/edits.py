"""Edits of a text: how a site's edit becomes insertions and replacements at offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from rewriter.codemod import Drift, Insert, Match, Site, Wrap
from rewriter.definition import Definition
from rewriter.errors import ToolBug
from rewriter.source import Source

if TYPE_CHECKING:
    import libcst as cst

_WIDTH = 88
"""Columns; a wrapped expression that would be longer is laid out over several lines."""


class TextEdit(NamedTuple):
    """Replace ``text[start:end]``; an insertion where both are the same offset."""

    start: int
    end: int
    text: str


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


def edits_of(site: Site, definition: Definition, match: Match) -> list[TextEdit]:
    """Return the edits that a site makes at one match.

    Raises:
        Drift: the match cannot be edited that way.
    """
    edit, source = site.edit, definition.source
    if isinstance(edit, Insert):
        return _insert(edit, definition, match)
    start, end = definition.span(match.node)
    if isinstance(edit, Wrap):
        if _needs_brackets(match.node):
            raise Drift("a bare tuple, generator or yield cannot be an argument", match.node)
        return _wrap(edit, source, start, end, match.arguments)
    from rewriter.patterns import compiled

    templates = (site.find,) if isinstance(site.find, str) else site.find
    assert not callable(templates), "a Replace site is found by a template"
    found = next(t for t in templates if compiled(t).match(match.node) is not None)
    return replaced(found, edit.code, definition, match.node, match.holes)


def replaced(
    old: str, new: str, definition: Definition, node: cst.CSTNode, holes: Mapping[str, cst.CSTNode]
) -> list[TextEdit]:
    """Turn what one template matched into another: only the expressions that differ are touched.

    So the layout and the comments of the rest stay. Where the templates differ by more than
    expressions, or where brackets would be needed, the whole is written anew.
    """
    from rewriter.patterns import compiled

    start, end = definition.span(node)
    edits = [
        TextEdit(*definition.span(part), compiled(code).fill(definition, holes))
        for part, code in compiled(old).changes(compiled(new), node)
    ]
    edits.sort(key=lambda edit: edit.start)
    text = definition.source.text[start:end]
    moved = [TextEdit(e.start - start, e.end - start, e.text) for e in edits]
    if edits and compiled(new).holds(splice(text, moved), holes, in_brackets=True):
        return edits
    return [TextEdit(start, end, compiled(new).fill(definition, holes))]


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
        indent = source.indent(start)
        inner = newline + indent + ("\t" if indent.startswith("\t") else "    ")
        head = f"{edit.call}({inner}{''.join(a + ',' + inner for a in before)}"
        tail = f",{''.join(inner + a + ',' for a in after)}{newline}{indent})"
    return [TextEdit(start, start, head), TextEdit(end, end, tail)]
