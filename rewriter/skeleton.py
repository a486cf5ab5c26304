"""A codemod to start from, for a place that its author points at: valid as it stands.

Beside a ``codemods`` package it is one more of its modules; anywhere else it is a small package of
its own, which the tool finds once it is installed.
"""

from __future__ import annotations

import ast
import keyword
import re
from dataclasses import dataclass

from rewriter import engine
from rewriter.codemod import Codemod, Insert, Site
from rewriter.errors import SourceError, UsageError
from rewriter.model import State
from rewriter.source import Source, parse

_HOLE = re.compile(r"\{(\*?)([A-Za-z_]\w*)\}")


@dataclass(frozen=True)
class Place:
    """Where the new codemod works.

    Attributes:
        name: the codemod's name.
        file: path relative to the package's parent.
        within: the definition.
        find: the template.
    """

    name: str
    file: str
    within: str
    find: str

    @property
    def insert(self) -> str:
        """The statement that the skeleton puts behind what it found: it does nothing."""
        return f'"{self.name}: your statement goes here"'

    def codemod(self) -> Codemod:
        """Return the codemod that the skeleton's module will define."""
        made = Codemod()
        made.name, made.target, made.supports = self.name, self.file, ">=0"
        made.sites = (Site(self.within, "line", self.find, Insert(self.insert)),)
        return made


def check_name(name: str) -> None:
    """Refuse what cannot be the name of a module.

    Raises:
        UsageError: it is none, or is one that says nothing.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise UsageError(
            f"{name!r} cannot be a codemod's name: small letters, digits and _, such as "
            "`norm_watch`; name it by its effect"
        )


def pointed_at(file: str, raw: bytes, within: str, line: int) -> str:
    """Return the template of the statement at a line: its code, in one line if that is possible.

    Raises:
        UsageError: the definition is not there, or no simple statement is at that line.
        SourceError: the file is no Python.
    """
    source = Source(file, raw)
    found = [node for definition in source.definitions(within)
             for node in _statements(source, definition.first, definition.last)]  # fmt: skip
    if not found:
        known = [name for name in source.nodes if name.rpartition(".")[2] in within.split(".")]
        hint = f"; there is {', '.join(known[:3])}" if known else ""
        raise UsageError(f"{file} has no {within}{hint}")
    for node in found:
        if node.lineno <= line <= (node.end_lineno or node.lineno):
            return ast.unparse(node)
    lines = sorted({node.lineno for node in found}, key=lambda number: abs(number - line))
    near = ", ".join(map(str, sorted(lines[:3])))
    raise UsageError(f"{file}: no simple statement of {within} is at line {line}; near: {near}")


def _statements(source: Source, first: int, last: int) -> list[ast.stmt]:
    return [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.stmt) and not hasattr(node, "body") and not hasattr(node, "cases")
        if first <= node.lineno <= last
    ]


def files(place: Place, raw: bytes | None, *, in_place: bool) -> dict[str, str]:
    """Return the skeleton's files by path.

    Args:
        place: where it works.
        raw: the file of the release, for the kind of the definition; None for a plain function.
        in_place: beside a ``codemods`` package, instead of a package of its own.

    Raises:
        UsageError: no valid test can be made for such a place.
    """
    before, after = _example(place, raw)
    module, test = _module(place), _test(place, before, after)
    try:
        compile(test, "test", "exec", dont_inherit=True)
    except SyntaxError as error:  # three quotes in it
        raise UsageError(f"`{place.find}` cannot stand in a test; give --find") from error
    if in_place:
        return {f"codemods/{place.name}.py": module, f"tests/test_{place.name}.py": test}
    name = place.name
    return {
        f"{name}/pyproject.toml": _PROJECT.format(name=name, dist=name.replace("_", "-")),
        f"{name}/src/{name}/__init__.py": f'"""The codemod {name}, for rewriter."""\n',
        f"{name}/src/{name}/{name}.py": module,
        f"{name}/tests/test_{name}.py": test,
    }


def _example(place: Place, raw: bytes | None) -> tuple[str, str]:
    """Make a source around the template, ours from top to bottom, and what becomes of it."""
    *classes, name = place.within.split(".")
    lines = [f"{'    ' * depth}class {one}:" for depth, one in enumerate(classes)]
    indent = "    " * len(classes)
    if name != "<fields>":
        nodes = Source(place.file, raw).nodes.get(place.within, []) if raw is not None else []
        word = "async def" if any(isinstance(n, ast.AsyncFunctionDef) for n in nodes) else "def"
        lines.append(f"{indent}{word} {name}({'self' if classes else ''}):")
        indent += "    "
    code = _HOLE.sub(lambda m: "" if m.group(1) else m.group(2), place.find)
    code = re.sub(r",\s*\)", ")", code)
    lines += [indent + line for line in code.split("\n")]
    before = "\n".join(lines) + "\n"
    try:
        if len(parse("it", code.encode()).body) != 1:
            raise ValueError("more than one")
        compile(before, "test", "exec", dont_inherit=True)
        found = engine.examine(place.codemod(), place.file, before.encode())
    except (SourceError, SyntaxError, ValueError) as error:
        raise UsageError(f"`{place.find}` is no statement to start from: {error}") from error
    if found.state is not State.READY:
        raise UsageError(f"`{place.find}` is no statement on a line of its own: {found.reason}")
    return before, engine.apply(place.codemod(), place.file, before.encode()).decode()


def _module(place: Place) -> str:
    find = _quoted(place.find)
    return _MODULE.format(
        name=place.name, within=place.within, file=place.file, find=find,
        insert=_quoted(place.insert),
        kind="".join(part.title() for part in place.name.split("_")),
    )  # fmt: skip


def _quoted(code: str) -> str:
    """Write a string as it would be written by hand."""
    return repr(code) if any(sign in code for sign in '"\\\n') else f'"{code}"'


def _test(place: Place, before: str, after: str) -> str:
    outer, _, name = place.within.rpartition(".")
    old, new = f"def {name}(", "def other("
    if name == "<fields>":
        old, new = f"class {outer.rpartition('.')[2]}:", "class Other:"
    gone = before.replace(old, new, 1)
    return _TEST.format(name=place.name, before=before, after=after, gone=gone)


_MODULE = '''\
"""{within} does … (say what is other than before, in one line).

Why: … (a link to the measurement or the report; forty characters or more).
Drop when: … (the upstream change that makes this needless).
"""

from __future__ import annotations

from rewriter.codemod import Codemod, Insert, Site


class {kind}(Codemod):
    """One statement behind the one that is there."""

    target = "{file}"
    supports = ">=0.5,<0.6"
    sites = (
        Site(
            "{within}",
            "line",
            {find},
            Insert({insert}),
        ),
    )
'''

_TEST = '''\
"""{name} on sources of our own."""

from rewriter.testing import assert_refuses, assert_reverts, assert_rewrites, assert_untouched

BEFORE = r"""
{before}"""
AFTER = r"""
{after}"""
ELSEWHERE = r"""
{gone}"""


def test_the_place_is_rewritten_and_given_back():
    assert_rewrites("{name}", BEFORE, AFTER)
    assert_reverts("{name}", BEFORE)


def test_without_the_definition_it_refuses():
    assert_refuses("{name}", ELSEWHERE, "is not defined")


def test_the_same_statement_elsewhere_is_left_alone():
    assert_untouched("{name}", ELSEWHERE)
'''

_PROJECT = """\
[build-system]
requires = ["hatchling>=1.25"]
build-backend = "hatchling.build"

[project]
name = "{dist}"
version = "0.1.0"
requires-python = ">=3.10"
dependencies = ["sglang-rewriter"]

[project.entry-points."rewriter.codemods"]
{name} = "{name}.{name}"

[tool.hatch.build.targets.wheel]
packages = ["src/{name}"]
"""
