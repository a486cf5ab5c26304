"""What one codemod sees of files that hold several: without those that stand upon it.

What stands on disk is a function of the pristine bytes and an ordered list of codemods, so a
codemod is judged on the bytes that it was given, not on what later ones made of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from rewriter import catalog
from rewriter.codemod import Codemod
from rewriter.errors import CatalogError
from rewriter.model import SATISFIED, State, Verdict

if TYPE_CHECKING:
    from rewriter.session import Session

Raws = dict[str, bytes | None]
"""Path relative to the package's parent → bytes, or None for "no such file"."""


def seen_by(codemod: Codemod, session: Session) -> Raws:
    """Return the bytes on which a codemod is to be judged.

    Those of codemods that require it are taken out; those that it requires, that are named with
    it and are ready, are put in.

    Raises:
        SourceError: a file does not parse.
    """
    paths = [*codemod.files(), *(c.path for c in codemod.companions)]
    raws: Raws = {path: session.target.read(path) for path in paths}
    for upper in reversed(_upon(codemod)):
        _take_out(upper, raws)
    for lower in _below(codemod, session):
        _put_in(lower, session, raws)
    return raws


def _upon(codemod: Codemod) -> list[Codemod]:
    """Return the codemods that require one, directly or not, in an order to apply them in."""
    if len(catalog.names()) < 2:
        return []
    from rewriter.session import in_order

    known = in_order(catalog.load(name) for name in catalog.names())
    found: list[Codemod] = []
    for other in known:
        if {codemod.name, *(c.name for c in found)} & set(other.requires):
            found.append(other)
    return found


def _below(codemod: Codemod, session: Session) -> list[Codemod]:
    """Return the codemods of the session that one requires, directly or not, in order."""
    named = {c.name: c for c in session.codemods}
    found: dict[str, Codemod] = {}

    def add(one: Codemod) -> None:
        for name in one.requires:
            if name in named and name not in found and name != codemod.name:
                add(named[name])
                found[name] = named[name]

    add(codemod)
    return list(found.values())


def _take_out(codemod: Codemod, raws: Raws) -> None:
    from rewriter import engine

    for path in codemod.files():
        raw = raws.get(path)
        if raw is not None and engine.may_hold(codemod, path, raw):
            raws[path] = engine.examine(codemod, path, raw).pristine


def _put_in(codemod: Codemod, session: Session, raws: Raws) -> None:
    """Put a codemod into bytes if it is ready there; if not, it is judged by itself anyway."""
    from rewriter.judge import changes, judge

    def read(path: str) -> bytes | None:
        if path in companions:
            return None
        return raws[path] if path in raws else session.target.read(path)

    companions = {c.path for c in codemod.companions}
    found = judge(
        codemod, read, session.target.version, force_version=session.force_version
    )  # fmt: skip
    if found.state is State.READY:
        for change in changes([codemod], read):
            if change.path in raws and change.path not in companions:
                raws[change.path] = change.after


def missing(codemod: Codemod, verdicts: Mapping[str, Verdict], named: Collection[str]) -> str:
    """Say which requirement of a codemod is not met; empty where all are.

    Args:
        codemod: the codemod, applied or ready.
        verdicts: of every codemod that was judged, by name; its own among them.
        named: those that would be applied together with it if both are ready.
    """
    for name in codemod.requires:
        found = verdicts.get(name)
        if found is None:
            return f"requires {name}, which this version of the tool does not have"
        together = name in named and verdicts[codemod.name].state is State.READY
        if found.state in SATISFIED or (together and found.state is State.READY):
            continue
        if found.state is State.READY:
            return f"requires {name}, which is not applied; name both"
        return f"requires {name}, which is {found.state}: {found.reason}"
    return ""


def required(codemods: Iterable[Codemod]) -> list[Codemod]:
    """Return the codemods that some require and that are not among them; unknown ones left out."""
    given = list(codemods)
    found: dict[str, Codemod] = {}
    todo = [name for codemod in given for name in codemod.requires]
    while todo:
        name = todo.pop()
        if name in found or any(c.name == name for c in given):
            continue
        try:
            found[name] = catalog.load(name)
        except CatalogError:
            continue  # told as a requirement that is not met
        todo += found[name].requires
    return list(found.values())
