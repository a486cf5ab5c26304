"""One command's work on one target: which codemods, their verdicts, kept or made anew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from rewriter import __version__, catalog, verdicts
from rewriter.codemod import Codemod
from rewriter.errors import CatalogError, SourceError, UsageError
from rewriter.model import SATISFIED, State, Verdict

if TYPE_CHECKING:
    from rewriter.states import Survey
    from rewriter.targets import Target


class Session:
    """Codemods on a target.

    Attributes:
        target: the target.
        codemods: those that the command is about, in order.
        force_version: judge by structure alone, whatever the version.
    """

    def __init__(
        self, target: Target, codemods: Iterable[Codemod], force_version: bool = False
    ) -> None:
        self.target = target
        self.codemods = tuple(codemods)
        self.force_version = force_version

    def judge(self, codemod: Codemod, raws: Mapping[str, bytes | None]) -> Verdict:
        """Judge a codemod on bytes by structure; the verdict is kept under these bytes.

        Raises:
            SourceError: a file of the codemod does not parse.
        """
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

        if (plugin := catalog.plugin(codemod.name)) is not None:
            from rewriter.rehearsal import rehearse

            rehearse(plugin, raws, self.target.version)
        made = judge(codemod, raws.get, self.target.version, force_version=self.force_version)
        verdicts.save(name, made)
        return made

    @cached_property
    def survey(self) -> Survey:
        """What every codemod of the session is in the target, with its record looked at."""
        from rewriter.states import survey

        return survey(self)

    def verdicts(self) -> list[Verdict]:
        """Return the verdict on every codemod of the session."""
        return [standing.verdict for standing in self.survey.standings]

    def described(self) -> dict[str, str | None]:
        """Return the target as JSON shows it."""
        target = self.target
        return {"kind": target.kind, "location": target.location, "version": target.version}


def opened(
    target: Target, names: Iterable[str] | None, force_version: bool, *, patches: bool = True
) -> Session:
    """Return the session of a command line, with what the configuration adds to it.

    Args:
        target: the target.
        names: what was named.
        force_version: judge by structure alone, whatever the version.
        patches: whether the command is about carried patches as well.

    Raises:
        CatalogError: a codemod is unknown or malformed.
        UsageError: the configuration is malformed.
    """
    from rewriter import config

    chosen = choose(names, target if patches else None)
    return Session(target, chosen, force_version or config.load().force_version)


def choose(names: Iterable[str] | None, target: Target | None = None) -> tuple[Codemod, ...]:
    """Return the codemods that a command line or the configuration names, required ones first.

    Args:
        names: what was named; a target's patches, wanted or on record, may be among them.
        target: where they are asked about; without one there are no patches.

    Raises:
        CatalogError: one is unknown or malformed.
        UsageError: a patch cannot be read, or the configuration's list is empty.
    """
    from rewriter import config

    chosen, wanted = list(names or ()), config.load()
    patches: list[Codemod] = []
    if target is not None and chosen and not all(catalog.knows(name) for name in chosen):
        from rewriter.patching import picked

        found, chosen = picked(chosen, target)
        patches = list(found)
    elif target is not None and not chosen and wanted.patches:
        from rewriter.patching import configured

        patches = list(configured(target))
    if not chosen and not names:
        if wanted.lists and not wanted.codemods and not wanted.patches:
            raise UsageError(
                f"{wanted.path}: the list of `codemods` is empty, so nothing is wanted here; name "
                "a codemod, or list one (`rewriter sync` takes all out that are not listed)"
            )
        chosen = list(wanted.codemods) or ([] if patches else [catalog.DEFAULT])
    return tuple(in_order([*patches, *(catalog.load(name) for name in dict.fromkeys(chosen))]))


def in_order(codemods: Iterable[Codemod]) -> list[Codemod]:
    """Return codemods in their order, but each after those of them that it requires.

    Carried patches come first: they lie beneath all codemods.

    Raises:
        CatalogError: they require each other in a circle.
    """
    given = {codemod.name: codemod for codemod in codemods}
    ordered: dict[str, Codemod] = {}

    def place(codemod: Codemod, above: tuple[str, ...]) -> None:
        if codemod.name in above:
            raise CatalogError(f"codemods require each other: {' → '.join((*above, codemod.name))}")
        for name in codemod.requires:
            if name in given and name not in ordered:
                place(given[name], (*above, codemod.name))
        ordered.setdefault(codemod.name, codemod)

    for codemod in sorted(given.values(), key=lambda codemod: not codemod.is_patch):
        place(codemod, ())
    return list(ordered.values())


def partition(found: list[Verdict]) -> tuple[list[Verdict], list[Verdict], list[Verdict]]:
    """Split verdicts into those to apply, those satisfied and those in the way."""
    todo = [v for v in found if v.state is State.READY]
    satisfied = [v for v in found if v.state in SATISFIED]
    rest = [v for v in found if v not in todo and v not in satisfied]
    return todo, satisfied, rest


__all__ = ["Session", "SourceError", "choose", "in_order", "opened", "partition"]
