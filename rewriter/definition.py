"""One definition of a source file, parsed by LibCST: nodes, parents, and where they stand.

Only the lines of a definition that holds sites are parsed; everything else is never touched, so
newlines, encoding, BOM and layout outside a site are kept by construction.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from functools import cache, cached_property
from typing import TYPE_CHECKING

from rewriter.errors import SourceError

if TYPE_CHECKING:
    import libcst as cst

    from rewriter.source import Source

IMPORTS = "<imports>"
"""The definition that stands for a module's leading block of imports."""

FIELDS = ".<fields>"
"""Behind a class's name: its statements in front of the first method, such as the fields of a
dataclass. The whole of a class like ServerArgs takes seconds to parse."""


class Definition:
    """The lines of one function, class or import block, parsed by LibCST when first asked.

    Attributes:
        start, end: offsets into the source's text, whole lines.
    """

    def __init__(self, source: Source, name: str, first: int, last: int) -> None:
        self.source = source
        self.name = name
        self.first, self.last = first, last
        self.start, self.end = source.line_start(first), source.line_start(last + 1)

    @property
    def text(self) -> str:
        """The definition's lines as they stand."""
        return self.source.text[self.start : self.end]

    @cached_property
    def module(self) -> cst.Module:
        """The lines as a LibCST module; a method's come inside a class without a name."""
        import libcst as cst

        code = self._header + self.text
        try:
            return cst.parse_module(code)
        except (cst.ParserSyntaxError, TypeError, RecursionError) as error:
            raise SourceError(
                f"{self.source.path}: LibCST cannot parse {self.name} "
                f"(lines {self.first} to {self.last}): {str(error).splitlines()[0]}"
            ) from error

    @cached_property
    def _header(self) -> str:
        indented = self.text[:1] in (" ", "\t")
        return "class _:" + self.source.newline(self.start) if indented else ""

    @cached_property
    def nodes(self) -> list[cst.CSTNode]:
        """All nodes but layout, outer before inner, statements in the order of the text."""
        return list(self.parents)

    @cached_property
    def walruses(self) -> frozenset[str]:
        """The names that a walrus binds somewhere in the definition."""
        import libcst as cst

        if ":=" not in self.text:
            return frozenset()
        targets = (n.target for n in self.nodes if isinstance(n, cst.NamedExpr))
        return frozenset(target.value for target in targets if isinstance(target, cst.Name))

    @cached_property
    def parents(self) -> dict[cst.CSTNode, cst.CSTNode | None]:
        """Each node's parent, within this definition; in the order of ``nodes``."""
        found: dict[cst.CSTNode, cst.CSTNode | None] = {}
        todo: list[tuple[cst.CSTNode, cst.CSTNode | None]] = [(self.module, None)]
        while todo:
            node, parent = todo.pop()
            found[node] = parent
            todo.extend((child, node) for child in reversed(children(node)))
        return found

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """Return a node's offsets into the source's text, brackets around it not included.

        Only the statement around the node is written out again to measure it; ``ast`` says where
        that statement stands. A whole definition would cost ten times as much.
        """
        import libcst as cst

        statement: cst.CSTNode | None = node
        while statement is not None and not isinstance(statement, cst.BaseSmallStatement):
            if isinstance(statement, cst.SimpleStatementLine):
                first, last = self.span(statement.body[0]), self.span(statement.body[-1])
                return first[0], last[1]
            statement = self.parents[statement]
        if statement is None or not isinstance(
            line := self.parents[statement], cst.SimpleStatementLine
        ):
            return self._whole[node]  # a compound statement's header, or `if x: y` on one line
        if statement not in self._measured:
            start = self._simple_statements[statement]
            self._measured[statement] = self._written(line, statement, start)
        return self._measured[statement][node]

    def _written(
        self, line: cst.SimpleStatementLine, statement: cst.CSTNode, start: int
    ) -> dict[cst.CSTNode, tuple[int, int]]:
        """Write one line out, on its own at its indentation, and measure what is in it."""
        import libcst as cst

        body: list[cst.SimpleStatementLine | cst.BaseCompoundStatement] = [line]
        if indent := self.source.indent(start):
            body = [cst.If(cst.Name("_"), cst.IndentedBlock([line], indent=indent))]
        code, spans = _spans(cst.Module(body, default_newline=self.module.default_newline))
        shift = start - spans[statement][0]
        if not self.source.text.startswith(code[slice(*spans[statement])], start):
            raise SourceError(
                f"{self.source.path}: LibCST does not reproduce line "
                f"{self.source.line_at(start)} exactly; nothing can be edited there"
            )
        return {node: (first + shift, last + shift) for node, (first, last) in spans.items()}

    @cached_property
    def _measured(self) -> dict[cst.CSTNode, dict[cst.CSTNode, tuple[int, int]]]:
        return {}

    @cached_property
    def _simple_statements(self) -> dict[cst.CSTNode, int]:
        """Offset of each simple statement: both parsers see the same ones in the same order."""
        mine = [n for n in self.nodes if _is_small(n.__class__)]
        theirs = sorted((node.lineno, node.col_offset) for node in _simple(self._ast))
        if len(mine) != len(theirs):
            raise SourceError(f"{self.source.path}: {self.name} cannot be measured")
        return {
            node: self.source.offset(line, column)
            for node, (line, column) in zip(mine, theirs, strict=True)
        }

    @property
    def _ast(self) -> list[ast.stmt]:
        if self.name == IMPORTS:
            around = self.source.tree.body
        elif self.name.endswith(FIELDS):
            classes = self.source.nodes[self.name.removesuffix(FIELDS)]
            around = [inner for node in classes for inner in getattr(node, "body", [])]
        else:
            around = self.source.nodes[self.name]
        return [node for node in around if self.first <= node.lineno <= self.last]

    @cached_property
    def _whole(self) -> dict[cst.CSTNode, tuple[int, int]]:
        code, spans = _spans(self.module)
        skip = self.start - len(self._header)
        if code != self._header + self.text:
            raise SourceError(
                f"{self.source.path}: LibCST does not reproduce {self.name} "
                f"(lines {self.first} to {self.last}) exactly; nothing can be edited there"
            )
        return {node: (first + skip, last + skip) for node, (first, last) in spans.items()}

    def code(self, node: cst.CSTNode) -> str:
        """Return a node's text as it stands, brackets around it not included."""
        name = dotted(node)  # needs no measuring
        if name is not None:
            return name
        start, end = self.span(node)
        return self.source.text[start:end]

    def line(self, node: cst.CSTNode) -> int:
        """Return the 1-based line in the file where a node begins."""
        return self.source.line_at(self.span(node)[0])


def dotted(node: cst.CSTNode) -> str | None:
    """Return the text of a name, or of names with nothing but dots between; None of others."""
    import libcst as cst

    parts: list[str] = []
    while node.__class__ is cst.Attribute:
        assert isinstance(node, cst.Attribute)
        around = (node.dot.whitespace_before, node.dot.whitespace_after)
        if any(getattr(space, "value", None) != "" for space in around):
            return None
        parts.append(node.attr.value)
        node = node.value
        if node.lpar:
            return None
    if not isinstance(node, cst.Name):
        return None
    return ".".join([node.value, *reversed(parts)])


def children(node: cst.CSTNode) -> list[cst.CSTNode]:
    """Return a node's children, layout left out; LibCST's own way is many times slower."""
    kind: type = type(node)
    found: list[cst.CSTNode] = []
    for name in _fields(kind):
        value = getattr(node, name)
        if _is_node(value.__class__):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found.extend(item for item in value if _is_node(item.__class__))
    return found


@cache
def _is_node(kind: type) -> bool:
    import libcst as cst

    return issubclass(kind, cst.CSTNode)


@cache
def _is_small(kind: type) -> bool:
    import libcst as cst

    return issubclass(kind, cst.BaseSmallStatement)


@cache
def _fields(kind: type) -> tuple[str, ...]:
    names = [f.name for f in dataclasses.fields(kind)]
    return tuple(n for n in names if not n.startswith("whitespace") and n not in _LAYOUT)


_LAYOUT = frozenset(
    {"lpar", "rpar", "lbracket", "rbracket", "lbrace", "rbrace", "comma", "semicolon", "equal",
     "dot", "colon", "header", "footer", "leading_lines", "lines_after_decorators",
     "trailing_whitespace", "indent", "first_line"}
)  # fmt: skip


def _spans(module: cst.Module) -> tuple[str, dict[cst.CSTNode, tuple[int, int]]]:
    """Return a module's code and each node's offsets in it, brackets around it not included."""
    from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper

    code = module.code
    found = MetadataWrapper(module, unsafe_skip_copy=True).resolve(ByteSpanPositionProvider)
    if code.isascii():
        return code, {n: (s.start, s.start + s.length) for n, s in found.items()}
    raw = code.encode()
    return code, {
        node: (len(raw[: s.start].decode()), len(raw[: s.start + s.length].decode()))
        for node, s in found.items()
    }


def _simple(statements: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the simple statements at or below statements, without a look at expressions."""
    for node in statements:
        inner = [
            block for name in ("body", "orelse", "finalbody", "handlers", "cases")
            for block in getattr(node, name, ())
        ]  # fmt: skip
        if inner:
            yield from _simple(inner)  # handlers and cases are no statements, but hold some
        else:
            yield node
