"""Code templates with ``{holes}``: matching that ignores layout, comments and brackets."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import libcst as cst

from rewriter.definition import Definition
from rewriter.model import Nearest

_HOLE = re.compile(r"\{(\*?)([A-Za-z_]\w*)\}")
_NAMES = re.compile(r"__(hole|rest)_(\w+)__")
_SPELLED = re.compile(r"\b__hole_(\w+?)__\b")
_NEAR = 0.3  # of the tokens in common; less is no resemblance
_TOKEN = re.compile(r"\w+|[^\w\s]+|\n")

# What a layout tool may change without changing the meaning.
_LAYOUT: tuple[type, ...] = (
    cst.BaseParenthesizableWhitespace,
    cst.TrailingWhitespace,
    cst.EmptyLine,
    cst.Comma,
    cst.Semicolon,
    cst.LeftParen,
    cst.RightParen,
    cst.AssignEqual,
    cst.Dot,
)

_LAYOUT_FIELDS = frozenset(
    {"lpar", "rpar", "leading_lines", "lines_after_decorators", "header", "footer", "indent"}
)


class Found(NamedTuple):
    """A node that a pattern matched, and what stood in its holes."""

    node: cst.CSTNode
    holes: Mapping[str, cst.CSTNode]


class Pattern:
    """A template. ``{x}`` stands for any expression, ``{*x}`` for any further arguments.

    The same hole twice must hold the same code. A template that is one expression matches
    expressions, anything else matches statements.
    """

    def __init__(self, template: str) -> None:
        self.template = template
        self.root = _parse(_HOLE.sub(_name, template.strip()))

    def search(self, definition: Definition) -> Iterator[Found]:
        """Yield every match in a definition, in the order of the text."""
        kind = type(self.root)
        anything = isinstance(self.root, cst.Name)
        for node in definition.nodes:
            if anything or isinstance(node, kind):
                holes = self.match(node)
                if holes is not None:
                    yield Found(node, holes)

    def match(self, node: cst.CSTNode) -> dict[str, cst.CSTNode] | None:
        """Return what stands in the holes if ``node`` matches, else None."""
        holes: dict[str, cst.CSTNode] = {}
        return holes if _same(self.root, node, holes) else None

    def fill(self, definition: Definition, holes: Mapping[str, cst.CSTNode]) -> str:
        """Return the template with each hole replaced by the code that stood there.

        In brackets where the code would else mean something else at its new place.
        """
        code = {name: definition.code(node) for name, node in holes.items()}
        plain = _HOLE.sub(lambda m: code[m.group(2)], self.template.strip())
        if self.holds(plain, holes):
            return plain
        return _HOLE.sub(lambda m: f"({code[m.group(2)]})", self.template.strip())

    def changes(self, other: Pattern, node: cst.CSTNode) -> list[tuple[cst.CSTNode, str]]:
        """Say what of a node that this template matches must change to make it another's.

        The smallest expressions in which the templates differ, each with the template of what it
        becomes; empty where they differ by more than expressions.
        """
        return [
            (old, _SPELLED.sub(r"{\1}", cst.Module([]).code_for_node(new)))
            for old, new in _changes(self.root, other.root, node) or ()
        ]

    def holds(
        self, code: str, holes: Mapping[str, cst.CSTNode], *, in_brackets: bool = False
    ) -> bool:
        """Return whether code is this template with just these expressions in its holes.

        Where it stands in brackets an expression may be spread over lines.
        """
        if in_brackets and isinstance(self.root, cst.BaseExpression):
            code = f"(\n{code}\n)"
        try:
            found = self.match(_parse(code))
        except (cst.ParserSyntaxError, ValueError):
            return False
        return found is not None and all(_same(holes[name], found[name], {}) for name in found)

    @cached_property
    def _tokens(self) -> list[str]:
        return _TOKEN.findall(_HOLE.sub("_", self.template))

    def nearest(self, definition: Definition) -> Nearest | None:
        """Return the statement or expression of the same kind that comes closest, if any does."""
        return next(iter(self.candidates(definition, 1)), None)

    def candidates(self, definition: Definition, most: int = 3) -> list[Nearest]:
        """Return what comes near in a definition, the closest first, one a line."""
        found: dict[int, tuple[float, Nearest]] = {}
        for node in definition.nodes:
            if type(node) is not type(self.root) or node is definition.module:
                continue
            tokens = _TOKEN.findall(definition.code(node))[:200]
            ratio = difflib.SequenceMatcher(None, self._tokens, tokens).ratio()
            line = definition.line(node) if ratio > _NEAR else 0
            if line and ratio > found.get(line, (_NEAR,))[0]:
                text = definition.source.line_text(line)
                found[line] = ratio, Nearest(line, text, _difference(self._tokens, tokens))
        ordered = sorted(found.values(), key=lambda pair: -pair[0])
        return [nearest for _, nearest in ordered[:most]]


@lru_cache(maxsize=256)
def compiled(template: str) -> Pattern:
    """Return the pattern of a template, parsed once."""
    return Pattern(template)


def _name(found: re.Match[str]) -> str:
    star, name = found.groups()
    return f"*__rest_{name}__" if star else f"__hole_{name}__"


def _parse(code: str) -> cst.CSTNode:
    body = cst.parse_module(code + "\n").body
    if len(body) != 1:
        raise ValueError(f"a template is one statement or expression, not {len(body)}: {code!r}")
    statement = body[0]
    if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
        small = statement.body[0]
        return small.value if isinstance(small, cst.Expr) else statement
    return statement


def _same(pattern: Any, node: Any, holes: dict[str, cst.CSTNode]) -> bool:
    if isinstance(pattern, cst.Name) and (hole := _NAMES.fullmatch(pattern.value)):
        name = hole.group(2)
        if not isinstance(node, (cst.BaseExpression, cst.Name)):
            return False
        if name in holes:
            return _same(holes[name], node, {})
        holes[name] = node
        return True
    if isinstance(pattern, cst.SimpleString) and isinstance(node, cst.SimpleString):
        return _value(pattern.value) == _value(node.value)
    if isinstance(pattern, cst.CSTNode):
        if type(pattern) is not type(node):
            return False
        return all(
            _same(getattr(pattern, f.name), getattr(node, f.name), holes)
            for f in fields(pattern)
            if not _is_layout(f.name, getattr(pattern, f.name), getattr(node, f.name))
        )
    if isinstance(pattern, (list, tuple)):
        return isinstance(node, (list, tuple)) and _same_all(pattern, node, holes)
    return bool(pattern == node)


@lru_cache(maxsize=4096)
def _value(literal: str) -> str | bytes:
    """Evaluate a string literal; a long function holds hundreds, and each is asked for often."""
    found: str | bytes = ast.literal_eval(literal)
    return found


def _is_layout(name: str, left: Any, right: Any) -> bool:
    if name in _LAYOUT_FIELDS:
        return True
    return any(isinstance(value, _LAYOUT) for value in (left, right))


def _same_all(pattern: Sequence[Any], node: Sequence[Any], holes: dict[str, cst.CSTNode]) -> bool:
    if pattern and isinstance(last := pattern[-1], cst.Arg) and last.star == "*":
        rest = isinstance(last.value, cst.Name) and _NAMES.fullmatch(last.value.value)
        if rest and rest.group(1) == "rest":
            pattern = pattern[:-1]
            node = node[: len(pattern)]
    return len(pattern) == len(node) and all(
        _same(p, n, holes) for p, n in zip(pattern, node, strict=True)
    )


def _changes(old: Any, new: Any, node: Any) -> list[tuple[cst.CSTNode, cst.CSTNode]] | None:
    """Pair the parts of a node with what takes their place; None where no expression holds them."""
    if isinstance(old, (list, tuple)):
        if not len(old) == len(new) == len(node):
            return None
        each = [_changes(o, n, at) for o, n, at in zip(old, new, node, strict=True)]
        return None if None in each else [pair for pairs in each for pair in pairs or ()]
    if not isinstance(old, cst.CSTNode):
        return [] if old == new else None
    if type(old) is type(new):
        if isinstance(old, cst.Name) and _NAMES.fullmatch(old.value) and old.deep_equals(new):
            return []
        names = [f.name for f in fields(old)]
        parts = [(getattr(old, n), getattr(new, n), getattr(node, n, None)) for n in names]
        each = [
            _changes(o, n, at)
            for name, (o, n, at) in zip(names, parts, strict=True)
            if not _is_layout(name, o, n)
        ]
        if None not in each:
            return [pair for pairs in each for pair in pairs or ()]
    bracketed = bool(getattr(old, "lpar", ()) or getattr(new, "lpar", ()))
    whole = isinstance(node, cst.BaseExpression) and isinstance(new, cst.BaseExpression)
    return [(node, new)] if whole and not bracketed else None


def _difference(expected: list[str], found: list[str]) -> str:
    matcher = difflib.SequenceMatcher(None, expected, found)
    for tag, i, j, k, m in matcher.get_opcodes():
        if tag != "equal" and expected[i:j] != ["_"]:  # a hole takes what it finds
            want, have = " ".join(expected[i:j]), " ".join(found[k:m])
            return f"expected `{want or 'nothing'}`, found `{have or 'nothing'}`"
    return "the same tokens in another structure"
