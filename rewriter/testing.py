"""What the tests of a codemod are written with. Bytes are compared: nothing is normalised.

A codemod is given by its name, as a class or as an object; a source as text or bytes. Where a
codemod edits several files, ``path`` says which of them a source stands for.
"""

from __future__ import annotations
import __future__

import ast
import difflib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from rewriter import catalog, engine, pins
from rewriter.codemod import Codemod
from rewriter.definition import IMPORTS
from rewriter.errors import SourceError
from rewriter.model import State
from rewriter.source import Source

__all__ = [
    "assert_refuses", "assert_reverts", "assert_rewrites", "assert_untouched", "check_pins",
    "load_definition",
]  # fmt: skip

Given = str | Codemod | type[Codemod]


class Readable(Protocol):
    """What holds the files of a release."""

    def read(self, path: str) -> bytes | None:
        """Return a file, or None where there is none."""


def assert_rewrites(
    codemod: Given, before: str | bytes, after: str | bytes, *, path: str | None = None
) -> None:
    """Check that a codemod turns one source into the other, byte for byte, and then leaves it.

    Raises:
        AssertionError: with a diff, or with the reason for which nothing was rewritten.
    """
    one, raw, file = _codemod(codemod), _bytes(before), path or _codemod(codemod).target
    found = engine.examine(one, file, raw)
    if found.state is not State.READY:
        raise AssertionError(f"{one.name}: {file} is {found.state}: {_why(found)}")
    made = engine.apply(one, file, raw)
    _equal(made, _bytes(after), f"{one.name}: {file} becomes something else")
    if engine.apply(one, file, made) is not made:
        raise AssertionError(f"{one.name}: a second run edits {file} again")


def assert_reverts(codemod: Given, before: str | bytes, *, path: str | None = None) -> None:
    """Check that taking the patch out again, with no record beside it, gives back every byte.

    Raises:
        AssertionError: with a diff. A codemod that replaces may not hold this promise.
    """
    one, raw, file = _codemod(codemod), _bytes(before), path or _codemod(codemod).target
    made = engine.apply(one, file, raw)
    back = engine.examine(one, file, made).pristine
    _equal(back, raw, f"{one.name}: taken out of {file}, something else is left")


def assert_refuses(
    codemod: Given, source: str | bytes, match: str, *, path: str | None = None
) -> None:
    """Check that a codemod refuses a source, for a reason that the expression ``match`` finds.

    Raises:
        AssertionError: it would rewrite, or the reason is another one.
    """
    one, file = _codemod(codemod), path or _codemod(codemod).target
    try:
        found = engine.examine(one, file, _bytes(source))
    except SourceError as error:
        state, reason = "refused", str(error)
    else:
        state, reason = str(found.state), found.reason
        if found.state not in (State.DRIFTED, State.PARTIAL, State.TAMPERED):
            raise AssertionError(f"{one.name}: {file} is {state}, expected a refusal")
    if not re.search(match, reason):
        raise AssertionError(f"{one.name}: {state} for another reason than {match!r}: {reason}")


def assert_untouched(codemod: Given, source: str | bytes, *, path: str | None = None) -> None:
    """Check that a codemod finds none of its places in a source that looks like its own.

    The place of an import does not count: every module has one.

    Raises:
        AssertionError: it found a place, with its line.
    """
    one, file = _codemod(codemod), path or _codemod(codemod).target
    for site in engine.examine(one, file, _bytes(source)).sites:
        if site.definition != IMPORTS and site.state in (State.READY, State.APPLIED):
            raise AssertionError(
                f"{one.name}: found its {site.kind} in `{site.definition}`, line {site.line}"
            )


def check_pins(
    codemod: Given,
    directory: Path | None = None,
    *,
    release: Callable[[str], Readable] | None = None,
) -> int:
    """Check every pin of a codemod against its releases; return how many there are.

    Args:
        codemod: the codemod.
        directory: where pins lie, as ``rewriter pin --fixtures`` wrote them; default: shipped.
        release: from a version to its files; default: the package index, with a cache.

    Raises:
        AssertionError: there are no pins, or a hash, a site or a line is another.
    """
    from rewriter.targets.release import Release

    one = _codemod(codemod)
    known = pins.load(one.name, directory)
    if not known:
        raise AssertionError(f"{one.name}: there are no pins in {directory or pins.shipped()}")
    for pin in known:
        _check_pin(one, pin, (release or Release)(pin.releases[0]))
    return len(known)


def _check_pin(codemod: Codemod, pin: pins.Pin, release: Readable) -> None:
    raw = release.read(pin.file)
    if raw is None:
        raise AssertionError(f"{codemod.name}: {pin.releases[0]} has no {pin.file}")
    found = engine.examine(codemod, pin.file, raw)
    made = engine.apply(codemod, pin.file, raw) if found.state is State.READY else None
    sites = tuple(
        pins.PinnedSite(s.definition, s.kind, s.line) for s in found.sites if s.line is not None
    )
    patched = "" if made is None else pins.sha256(made)
    now = pins.Pin(pin.file, pins.sha256(raw), pin.releases, found.state, sites, patched)
    for part in ("source", "state", "sites", "patched"):
        if getattr(now, part) != getattr(pin, part):
            raise AssertionError(
                f"{codemod.name}: {part} of {pin.file} in {pin.releases[0]}: pinned "
                f"{getattr(pin, part)}, found {getattr(now, part)}"
            )


def load_definition(source: str | bytes, qualname: str, namespace: Mapping[str, Any]) -> Any:
    """Execute one definition of a source and return it, without importing what is around it.

    A method comes as the plain function, in a class that has no bases; annotations are not
    evaluated.

    Args:
        source: the module's text.
        qualname: such as ``Class.method``.
        namespace: the names that the definition uses.

    Raises:
        LookupError: it is not defined exactly once.
    """
    nodes = Source("<source>", _bytes(source)).nodes.get(qualname, [])
    if len(nodes) != 1:
        raise LookupError(f"{qualname} is defined {len(nodes)} times in the source, expected once")
    outer, _, name = qualname.rpartition(".")
    body: list[ast.stmt] = [nodes[0]]
    if outer:
        holder = ast.parse(f"class {outer.rpartition('.')[2]}: pass").body[0]
        assert isinstance(holder, ast.ClassDef)
        holder.body, body = body, [holder]
    flags = __future__.annotations.compiler_flag
    code = compile(
        ast.Module(body, type_ignores=[]), "<source>", "exec", flags=flags, dont_inherit=True
    )
    made = {**namespace}
    exec(code, made)
    return vars(made[outer.rpartition(".")[2]])[name] if outer else made[name]


def _codemod(given: Given) -> Codemod:
    if isinstance(given, str):
        return catalog.load(given)
    codemod = given() if isinstance(given, type) else given
    codemod.name = codemod.name or type(codemod).__module__.rpartition(".")[2]
    return codemod


def _bytes(source: str | bytes) -> bytes:
    return source.encode() if isinstance(source, str) else source


def _why(found: engine.Examination) -> str:
    nearest = found.nearest
    if nearest is None:
        return found.reason
    return f"{found.reason}\nnearest: line {nearest.line}: {nearest.text}\n{nearest.differs}"


def _equal(found: bytes, wanted: bytes, told: str) -> None:
    if found == wanted:
        return
    lines = difflib.unified_diff(
        [repr(line)[1:] for line in wanted.splitlines(keepends=True)],
        [repr(line)[1:] for line in found.splitlines(keepends=True)],
        "expected", "found", lineterm="",
    )  # fmt: skip
    raise AssertionError("\n".join([told, *lines]))
