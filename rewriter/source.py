"""One source file: its bytes, its text, and where its definitions stand.

A definition is found with ``ast``, which is fast and refuses what Python refuses; only the lines
of a definition that holds sites are parsed by LibCST. Everything else is never touched, so
newlines, encoding, BOM and layout outside a site are kept by construction.
"""

from __future__ import annotations

import ast
import bisect
import codecs
import io
import re
import tokenize
import warnings
from collections.abc import Iterator
from functools import cached_property

from rewriter.definition import FIELDS, IMPORTS, Definition
from rewriter.errors import SourceError
from rewriter.visible import visible

LARGEST = 8 * 2**20
"""Bytes; no module of sglang comes near, and what does is not worth the memory to parse."""

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
        """Return one line, stripped, with what acts on a terminal written out; for messages."""
        return visible(self.text[self.line_start(line) : self.line_start(line + 1)].strip())

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
