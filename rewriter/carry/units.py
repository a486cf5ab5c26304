"""A module as a tree of statements that own whole lines, with the comments that stand above them.

Definitions and statements are found by ``ast``; text is only ever cut at line ends, so what is not
moved keeps its bytes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from rewriter.carry.lexing import Token, lex
from rewriter.source import Source

_BARE = re.compile(r"[ \t\f]*(#.*)?\r?\n?")
"""A line that holds no code: blank, or a comment alone."""


_keys: dict[str, str] = {}
_KEPT = 50_000


@dataclass(eq=False)
class Unit:
    """One statement (several where they share a line), or the end of a module.

    Attributes:
        above: the first of the blank and comment lines over it; ``first`` where there are none.
        first, last: the 1-based lines of its own, decorators included.
    """

    block: Block
    index: int
    nodes: tuple[ast.stmt, ...]
    above: int
    first: int
    last: int

    @property
    def source(self) -> Source:
        """The file that the statement stands in."""
        return self.block.source

    @property
    def node(self) -> ast.stmt | None:
        """The statement, where it is one."""
        return self.nodes[0] if len(self.nodes) == 1 else None

    @property
    def start(self) -> int:
        """Offset of its first own line."""
        return self.source.line_start(self.first)

    @property
    def top(self) -> int:
        """Offset of the blank and comment lines above it."""
        return self.source.line_start(self.above)

    @property
    def end(self) -> int:
        """Offset behind its last line."""
        return self.source.line_start(self.last + 1) if self.nodes else self.start

    @property
    def text(self) -> str:
        """Its own lines."""
        return self.source.text[self.start : self.end]

    @property
    def trivia(self) -> str:
        """The blank and comment lines above it."""
        return self.source.text[self.top : self.start]

    @cached_property
    def key(self) -> str:
        """What makes two statements the same code: the syntax without layout and comments."""
        text = self.text  # the same text is the same code, and most of it is in all versions
        if text not in _keys:
            if len(_keys) > _KEPT:
                _keys.clear()
            _keys[text] = "\n".join(ast.dump(node) for node in self.nodes)
        return _keys[text]

    @cached_property
    def ident(self) -> tuple[str, ...]:
        """What a statement is about; empty where only all of it could tell."""
        node = self.node
        return identity(node) if node is not None else ()

    @cached_property
    def tokens(self) -> list[Token]:
        """Its tokens; each with the layout and comments before it."""
        return lex(self.source, self.first, self.last)

    @cached_property
    def segments(self) -> list[Segment]:
        """The headers and blocks of a compound statement; empty where it cannot be divided."""
        return _segments(self)


@dataclass(eq=False)
class Segment:
    """A header such as ``if x:`` or ``else:``, whole lines, and the block under it."""

    source: Source
    first: int
    last: int
    block: Block

    @property
    def text(self) -> str:
        """The header's lines, with blank and comment lines above an ``else``."""
        return self.source.text[self.start : self.end]

    @property
    def start(self) -> int:
        """Offset of its first line."""
        return self.source.line_start(self.first)

    @property
    def end(self) -> int:
        """Offset behind its last line."""
        return self.source.line_start(self.last + 1)

    @cached_property
    def tokens(self) -> list[Token]:
        """Its tokens; each with the layout and comments before it."""
        return lex(self.source, self.first, self.last)


@dataclass(eq=False)
class Block:
    """Statements that follow each other at one indentation.

    Attributes:
        owner: the statement that the block belongs to; None for a module.
    """

    source: Source
    owner: Unit | None
    units: list[Unit] = field(default_factory=list)

    @property
    def indent(self) -> str:
        """The white space before its statements."""
        first = self.units[0]
        return self.source.indent(first.start) if first.nodes else ""

    @property
    def name(self) -> str:
        """The qualified name of the definition around it; empty in a module's own lines."""
        names: list[str] = []
        owner = self.owner
        while owner is not None:
            if isinstance(owner.node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                names.append(owner.node.name)
            owner = owner.block.owner
        return ".".join(reversed(names))

    @property
    def kind(self) -> str:
        """``module``, ``class``, or ``code`` for statements that run in their order."""
        if self.owner is None:
            return "module"
        return "class" if isinstance(self.owner.node, ast.ClassDef) else "code"


def module(source: Source) -> Block:
    """Return a module's block; its last unit stands for the end of the file."""
    block = Block(source, None)
    _fill(block, source.tree.body, 1)
    lines = source.line_at(len(source.text)) + 1
    above = block.units[-1].last + 1 if block.units else 1
    if not source.text or source.text.endswith(("\n", "\r")):
        lines -= 1
    block.units.append(Unit(block, len(block.units), (), min(above, lines), lines, lines))
    return block


def walk(block: Block) -> Iterator[Unit]:
    """Yield all statements at or below a block, outer before inner."""
    for unit in block.units:
        yield unit
        for segment in unit.segments:
            yield from walk(segment.block)


def _fill(block: Block, body: list[ast.stmt], after: int) -> None:
    """Make the units of a block. ``after`` is the first line that may belong to it."""
    for node in body:
        first, last = first_line(node), node.end_lineno or node.lineno
        if block.units and first <= block.units[-1].last:
            unit = block.units[-1]
            unit.nodes, unit.last = (*unit.nodes, node), max(last, unit.last)
        else:
            above = _above(block.source, first, after)
            block.units.append(Unit(block, len(block.units), (node,), above, first, last))
        after = block.units[-1].last + 1


def first_line(node: ast.stmt) -> int:
    """Return where a statement begins, its decorators included."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(d.lineno for d in decorators)])


def _above(source: Source, first: int, after: int) -> int:
    while first > after:
        line = source.text[source.line_start(first - 1) : source.line_start(first)]
        if not _BARE.fullmatch(line):
            break
        first -= 1
    return first


def _segments(unit: Unit) -> list[Segment]:
    node = unit.node
    if node is None or (not hasattr(node, "body") and not isinstance(node, ast.Match)):
        return []
    found: list[Segment] = []
    line = unit.first
    for body in _bodies(unit.source, node):
        block = Block(unit.source, unit)
        if first_line(body[0]) <= line:
            return []  # the block stands on its header's line
        _fill(block, body, line)
        head = block.units[0].above
        if head <= line or block.units[0].above > block.units[0].first:
            return []
        found.append(Segment(unit.source, line, head - 1, block))
        line = block.units[-1].last + 1
    return found if line == unit.last + 1 else []


def _bodies(source: Source, node: ast.stmt) -> list[list[ast.stmt]]:
    if isinstance(node, ast.Match):
        return [case.body for case in node.cases]
    bodies: list[list[ast.stmt]] = [getattr(node, "body", [])]
    bodies += [handler.body for handler in getattr(node, "handlers", [])]
    orelse: list[ast.stmt] = getattr(node, "orelse", [])
    if len(orelse) == 1 and isinstance(node, ast.If) and _is_elif(source, orelse[0]):
        bodies += _bodies(source, orelse[0])
    elif orelse:
        bodies.append(orelse)
    if final := getattr(node, "finalbody", []):
        bodies.append(final)
    return bodies


def _is_elif(source: Source, node: ast.stmt) -> bool:
    if not isinstance(node, ast.If):
        return False
    return source.text.startswith("elif", source.offset(node.lineno, node.col_offset))


def identity(node: ast.stmt) -> tuple[str, ...]:
    """Return what a statement defines, binds or asks: enough to know a changed one again."""
    kind = type(node).__name__
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        setter = [d.attr for d in node.decorator_list if isinstance(d, ast.Attribute)]
        return ("def", node.name, *(s for s in setter if s in {"setter", "deleter"}))
    if isinstance(node, ast.ClassDef):
        return ("class", node.name)
    if isinstance(node, ast.Assign):
        return ("=", *map(ast.unparse, node.targets))
    if isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        return ("=", ast.unparse(node.target))
    if isinstance(node, ast.ImportFrom):
        return ("from", "." * node.level + (node.module or ""))
    if isinstance(node, (ast.If, ast.While)):
        return (kind, ast.dump(node.test))
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return (kind, ast.dump(node.target), ast.dump(node.iter))
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return (kind, *(ast.dump(item) for item in node.items))
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return ("call", ast.dump(node.value.func))
    return (kind,) if isinstance(node, (ast.Try, ast.Return, ast.Raise)) else ()
