"""One command's work on one target: which codemods, their verdicts, kept or made anew."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rewriter import __version__, catalog, verdicts
from rewriter.codemod import Codemod
from rewriter.errors import SourceError
from rewriter.model import SATISFIED, State, Verdict

if TYPE_CHECKING:
    from rewriter.targets import Target


@dataclass(frozen=True)
class Session:
    """Codemods on a target."""

    target: Target
    codemods: tuple[Codemod, ...]
    force_version: bool = False

    def verdict(self, codemod: Codemod) -> Verdict:
        """Judge a codemod here; the verdict is kept under the bytes that it rests on."""
        paths = [*codemod.files(), *(c.path for c in codemod.companions)]
        raws = {path: self.target.read(path) for path in paths}
        name = verdicts.key(
            __version__,
            catalog.digest(codemod.name),
            self.target.version,
            str(self.force_version),
            *raws.values(),
        )
        kept = verdicts.load(name)
        if kept is not None:
            return kept
        from rewriter.judge import judge

        made = judge(codemod, raws.get, self.target.version, force_version=self.force_version)
        verdicts.save(name, made)
        return made

    def verdicts(self) -> list[Verdict]:
        """Judge every codemod of the session."""
        return [self.verdict(codemod) for codemod in self.codemods]

    def described(self) -> dict[str, str | None]:
        """Return the target as JSON shows it."""
        target = self.target
        return {"kind": target.kind, "location": target.location, "version": target.version}


def choose(names: Iterable[str] | None) -> tuple[Codemod, ...]:
    """Return the codemods that a command line or the configuration names, in order.

    Raises:
        CatalogError: one is unknown or malformed, or requires one that is not named.
    """
    from rewriter import config
    from rewriter.errors import CatalogError

    chosen = list(names or ()) or list(config.load().codemods) or [catalog.DEFAULT]
    codemods = tuple(catalog.load(name) for name in dict.fromkeys(chosen))
    for codemod in codemods:
        missing = [name for name in codemod.requires if name not in chosen]
        if missing:
            raise CatalogError(f"{codemod.name} requires {missing[0]}; name it as well")
    return codemods


def partition(found: list[Verdict]) -> tuple[list[Verdict], list[Verdict], list[Verdict]]:
    """Split verdicts into those to apply, those satisfied and those in the way."""
    todo = [v for v in found if v.state is State.READY]
    satisfied = [v for v in found if v.state in SATISFIED]
    rest = [v for v in found if v not in todo and v not in satisfied]
    return todo, satisfied, rest


__all__ = ["Session", "SourceError", "choose", "partition"]
