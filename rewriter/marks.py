"""What a codemod's edits have left in a file, and the edits that take it out again."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from rewriter.codemod import Codemod, Replace, Site, Wrap
from rewriter.definition import Definition
from rewriter.edits import TextEdit, replaced
from rewriter.source import NEWLINE, Source


class Mark(NamedTuple):
    """One of our insertions, as found, and the edits that take it out."""

    site: Site
    line: int
    edits: tuple[TextEdit, ...]


def peel(sites: Iterable[Site], source: Source) -> list[Mark]:
    """Find what these sites' edits have put into a source, with the edits that take it out."""
    marks: list[Mark] = []
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


def _marks(site: Site, definition: Definition) -> list[Mark]:
    from rewriter.patterns import compiled

    edit, source = site.edit, definition.source
    if isinstance(edit, Wrap):
        return _wrapped(site, edit, definition)
    found: list[Mark] = []
    for hit in compiled(edit.code).search(definition):
        start, end = definition.span(hit.node)
        line = source.line_at(start)
        if isinstance(edit, Replace):
            original = site.find[0] if isinstance(site.find, tuple) else site.find
            assert isinstance(original, str), "a Replace site is found by a template"
            back = replaced(edit.code, original, definition, hit.node, hit.holes)
            found.append(Mark(site, line, tuple(back)))
            continue
        first, last = source.line_start(line), source.line_start(source.line_at(end) + 1)
        if source.line_at(last) == source.line_at(end) and first > 0:  # last line, no newline
            first -= len(source.newline(source.line_start(line - 1)))
        found.append(Mark(site, line, (TextEdit(first, last, ""),)))
    return found


def _wrapped(site: Site, edit: Wrap, definition: Definition) -> list[Mark]:
    import libcst as cst

    from rewriter.flow import plain_name

    source = definition.source
    found: list[Mark] = []
    for node in definition.nodes:
        if not isinstance(node, cst.Call) or plain_name(node.func) != edit.call:
            continue
        head = node.args[: edit.keeps + 1]
        if len(head) <= edit.keeps or any(arg.star or arg.keyword for arg in head):
            continue
        start, end = definition.span(node)
        inner, outer = definition.span(node.args[edit.keeps])
        edits = (_taken_out(source, start, inner), _taken_out(source, outer, end))
        found.append(Mark(site, definition.line(node), edits))
    return found


def _taken_out(source: Source, start: int, end: int) -> TextEdit:
    """Take out a stretch of ours; a comment that a formatter moved into it stays."""
    text = source.text[start:end]
    if "#" not in text:
        return TextEdit(start, end, "")
    found = comments("(" * text.count(")") + text + ")" * text.count("("))
    kept = "".join(f"  {comment}" for comment in found)
    line_ends = source.text[end : source.line_start(source.line_at(end) + 1)].strip() == ""
    if kept and not line_ends:
        kept += source.newline(start) + source.indent(start)
    return TextEdit(start, end, kept)


def comments(text: str) -> list[str]:
    """Return the comments of a text in order, as far as it can be cut into tokens."""
    import io
    import tokenize

    found: list[str] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(NEWLINE.sub("\n", text)).readline):
            if token.type == tokenize.COMMENT:
                found.append(token.string)
    except (tokenize.TokenError, SyntaxError):
        return found
    return found
