"""One source file: its bytes, its text, and where its definitions stand.

A definition is found with ``ast``, which is fast and refuses what Python refuses; only the lines
of a definition that holds sites are parsed by LibCST. Everything else is never touched, so
newlines, encoding, BOM and layout outside a site are kept by construction.
"""

from __future__ import annotations

import ast
import bisect
import codecs
import dataclasses
import io
import re
import tokenize
import warnings
from collections.abc import Iterator
from functools import cache, cached_property
from typing import TYPE_CHECKING

from rewriter.errors import SourceError

if TYPE_CHECKING:
    import libcst as cst

LARGEST = 8 * 2**20
"""Bytes; no module of sglang comes near, and what does is not worth the memory to parse."""

IMPORTS = "<imports>"
"""The definition that stands for a module's leading block of imports."""

FIELDS = ".<fields>"
"""Behind a class's name: its statements in front of the first method, such as the fields of a
dataclass. The whole of a class like ServerArgs takes seconds to parse."""

NEWLINE = re.compile(r"\r\n|\r|\n")  # Python's own; str.splitlines knows more of them

_INDENT = re.compile(r"[ \t\f]*")

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Source:
    """A parsed module. Raises SourceError where the bytes are no Python that can be judged.

    Attributes:
        path: relative to the package's parent; for messages.
        raw: the bytes as read.
        text: decoded, newlines as they are, without the BOM.
    """

    def __init__(self, path: str, raw: bytes) -> None:
        if len(raw) > LARGEST:
            raise SourceError(
                f"{path}: {len(raw)} bytes, more than the {LARGEST} that a module of sglang "
                "can have; is this the right file?"
            )
        self.path = path
        self.raw = raw
        self._bom = codecs.BOM_UTF8 if raw.startswith(codecs.BOM_UTF8) else b""
        self._encoding, self.text = _decode(path, raw, self._bom)

    def encode(self, text: str) -> bytes:
        """Return ``text`` in this file's encoding, with its BOM if it has one."""
        return self._bom + text.encode(self._encoding)

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree; for finding definitions, not for editing."""
        return parse(self.path, self.raw)

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(m.end() for m in NEWLINE.finditer(self.text))]

    def line_start(self, line: int) -> int:
        """Return the offset of a 1-based line; of the line after the last one, the end."""
        starts = self._line_starts
        return starts[line - 1] if line <= len(starts) else len(self.text)

    def line_at(self, offset: int) -> int:
        """Return the 1-based line that holds ``offset``."""
        return bisect.bisect_right(self._line_starts, offset)

    def offset(self, line: int, column: int) -> int:
        """Return the offset of a 1-based line and a column in UTF-8 bytes, as ``ast`` counts."""
        start = self.line_start(line)
        if self.text.isascii():
            return start + column
        head = self.text[start : self.line_start(line + 1)].encode()[:column]
        return start + len(head.decode())

    def line_text(self, line: int) -> str:
        """Return one line, stripped; for messages."""
        return self.text[self.line_start(line) : self.line_start(line + 1)].strip()

    def indent(self, offset: int) -> str:
        """Return the white space that the line at ``offset`` begins with."""
        found = _INDENT.match(self.text, self.line_start(self.line_at(offset)))
        return found.group() if found else ""

    def newline(self, offset: int) -> str:
        """Return the newline that ends the line at ``offset``, or the file's first one."""
        found = NEWLINE.search(self.text, offset) or NEWLINE.search(self.text)
        return found.group() if found else "\n"

    @cached_property
    def nodes(self) -> dict[str, list[ast.stmt]]:
        """Definitions by qualified name; more than one where a name is defined again.

        Nested functions are no definitions of their own: they belong to what surrounds them.
        """
        found: dict[str, list[ast.stmt]] = {}
        for name, node in _walk(self.tree.body, ""):
            found.setdefault(name, []).append(node)
        return found

    def definitions(self, name: str) -> list[Definition]:
        """Return all definitions called ``name``, in order; for IMPORTS the leading block.

        ``Class.<fields>`` is the block of statements that a class begins with.
        """
        if name == IMPORTS:
            first, last = _imports(self.tree)
            return [Definition(self, IMPORTS, first, last)] if first else []
        if name.endswith(FIELDS):
            blocks = [_fields_of(node) for node in self.nodes.get(name.removesuffix(FIELDS), [])]
            return [Definition(self, name, first, last) for first, last in blocks if first]
        return [
            Definition(self, name, _first_line(node), node.end_lineno or node.lineno)
            for node in self.nodes.get(name, [])
        ]


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
        import libcst as cst

        if node.__class__ is cst.Name:  # needs no measuring
            return str(node.value)
        start, end = self.span(node)
        return self.source.text[start:end]

    def line(self, node: cst.CSTNode) -> int:
        """Return the 1-based line in the file where a node begins."""
        return self.source.line_at(self.span(node)[0])


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


def parse(path: str, raw: bytes) -> ast.Module:
    """Parse with ``ast``; it refuses what would crash other parsers, such as deep nesting."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(raw, path)
    except SyntaxError as error:
        where = f" at line {error.lineno}" if error.lineno else ""
        raise SourceError(f"{path}: does not parse{where}: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        reason = str(error) or "nested too deeply"
        raise SourceError(f"{path}: does not parse: {reason}") from error


def _decode(path: str, raw: bytes, bom: bytes) -> tuple[str, str]:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        encoding = "utf-8" if encoding == "utf-8-sig" else encoding
        text = raw[len(bom) :].decode(encoding)
        same = text.encode(encoding) == raw[len(bom) :]
    except (SyntaxError, UnicodeError, LookupError) as error:
        raise SourceError(f"{path}: cannot be decoded: {error}") from error
    if not same:
        raise SourceError(f"{path}: its encoding {encoding} does not keep its bytes")
    return encoding, text


def _walk(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.stmt]]:
    for node in body:
        if isinstance(node, _DEFINITIONS):
            yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from _walk(node.body, f"{prefix}{node.name}.")
            continue
        for block in ("body", "orelse", "finalbody"):
            yield from _walk(getattr(node, block, []), prefix)
        for handler in getattr(node, "handlers", []):
            yield from _walk(handler.body, prefix)


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(d.lineno for d in decorators)])


def _fields_of(node: ast.stmt) -> tuple[int, int]:
    """Return first and last line of what a class has in front of its methods, or (0, 0)."""
    first = last = 0
    for inner in node.body if isinstance(node, ast.ClassDef) else ():
        if isinstance(inner, _DEFINITIONS) or inner.lineno == node.lineno:
            break
        first, last = first or inner.lineno, inner.end_lineno or inner.lineno
    return first, last


def _imports(tree: ast.Module) -> tuple[int, int]:
    """Return the first and last line of the leading imports, or (0, 0) where there are none.

    Strings between them belong to the block: some releases have imports above the docstring.
    """
    first = last = 0
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            first, last = first or node.lineno, node.end_lineno or node.lineno
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            break
    return first, last
