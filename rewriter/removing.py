"""``revert``: which codemods go, which stay, and what proves the bytes that come back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rewriter import catalog
from rewriter.carried import file_of
from rewriter.codemod import Codemod
from rewriter.errors import CatalogError, Interrupted, RefusedError, TargetError
from rewriter.installing import applied, carry_out, left_over, staying, steady
from rewriter.leftovers import Leftover
from rewriter.model import Verdict
from rewriter.patches import named, of_record
from rewriter.recording import Proof
from rewriter.session import Session, in_order
from rewriter.states import Survey
from rewriter.targets.home import home_of
from rewriter.transition import Planner, Transition
from rewriter.witness import Witness

if TYPE_CHECKING:
    from rewriter.manifest import Held
    from rewriter.targets import Target


class Removed(NamedTuple):
    """What ``revert`` did, or would do.

    Attributes:
        verdicts: the codemods as they were found.
        transition: what was, or would be, written; None where nothing of ours was there.
        proofs: of every module that was restored, the release's wheel looked at where nothing
            nearer could tell.
        frozen: whether the witness was taken before the first write.
        left: files of ours that were removed because nothing used them.
        survey: the target afterwards; None for a dry run.
    """

    verdicts: tuple[Verdict, ...]
    transition: Transition | None
    proofs: dict[str, Proof]
    frozen: bool
    left: tuple[Leftover, ...]
    survey: Survey | None

    @property
    def proven(self) -> bool:
        """Whether every restored file is proven, or holds the user's own edits for certain."""
        return self.frozen or all(proof.holds for proof in self.proofs.values())


def remove(session: Session, *, dry_run: bool = False) -> Removed:
    """Take the codemods of a session out of its target, all of them or none.

    The caller holds the target's lock and has recovered what an earlier run left, except for a
    dry run, which writes nothing.

    Raises:
        RefusedError: our lines were edited, or a codemod that stays requires one that goes.
        Interrupted: for a dry run, an earlier run died half-way.
    """
    survey = session.survey
    verdicts = tuple(standing.verdict for standing in survey.standings)
    if survey.journal is not None:
        raise Interrupted(f"{session.target.location}: {verdicts[0].reason}")
    present = applied(session, survey, session.codemods)
    named = {codemod.name for codemod in session.codemods}
    going = [c for c in present if c.name in named]
    stays = staying(session, [c for c in present if c not in going])
    _check_requirements(going, stays)
    wanted = in_order(stays)
    left = left_over(session, survey, [*wanted, *going])
    orphaned = survey.manifest is not None and not stays
    if not going and not left and not orphaned:
        return Removed(verdicts, None, {}, True, (), None if dry_run else survey)
    with steady(session.target):
        transition = Planner(session, survey).plan(present, wanted, left, accept_unproven=True)
    restored = {c.path for c in transition.changes} & transition.proofs.keys()
    proofs = {path: transition.proofs[path] for path in sorted(restored)}
    frozen = survey.manifest is not None and all(path in survey.manifest.files for path in restored)
    if not frozen:
        proofs = {p: _by_release(session, transition, p, proof) for p, proof in proofs.items()}
    after = None if dry_run else carry_out(session, survey, transition, "revert")
    return Removed(verdicts, transition, proofs, frozen, tuple(left), after)


def _check_requirements(going: Sequence[Codemod], stays: Sequence[Codemod]) -> None:
    """Refuse to take away what another codemod stands upon."""
    for codemod in stays:
        needed = [c.name for c in going if c.name in codemod.requires]
        if needed:
            raise RefusedError(
                f"nothing was written: {codemod.name}, which is applied, requires {needed[0]}; "
                f"revert both: rewriter revert {needed[0]} {codemod.name}"
            )


def _by_release(session: Session, transition: Transition, path: str, proof: Proof) -> Proof:
    """Prove a file by the wheel of its release, where the record is lost and no pin knows it."""
    version = session.target.version
    if proof.holds or version is None:
        return proof
    from rewriter.targets import resolve

    after = next(c.after for c in transition.changes if c.path == path)
    try:
        shipped = resolve(release=version).read(path)
    except TargetError:
        return proof
    if shipped is None or after is None or shipped != after:
        return proof
    from rewriter.manifest import sha256

    return Proof(Witness("wheel", f"sglang {version}", sha256(after)), True)


def chosen(names: Sequence[str] | None, target: Target) -> list[Codemod]:
    """Return the codemods that ``revert`` is about.

    Named ones; else those of the configuration; else all that the manifest lists; else the
    default.

    Raises:
        CatalogError: one is unknown, to the manifest too.
        TargetError: the manifest cannot be read.
    """
    from rewriter.manifest import load

    home = home_of(target)
    known = load(home.manifest_path) if home is not None else None
    held = {one.name: one for one in known.codemods} if known is not None else {}
    wanted = list(names or ()) or _configured(held) or list(held) or [catalog.DEFAULT]
    found: list[Codemod] = []
    for name in dict.fromkeys(wanted):
        name = _on_record(name, held)
        found.append(of_record(held[name]) if name in held else catalog.load(name))
    return in_order(found)


def _configured(held: Mapping[str, Held]) -> list[str]:
    """Return what the configuration lists; of patches those that are on record, by their file."""
    from rewriter import config

    listed = config.load()
    files = {Path(name).name for name in listed.patches}
    patches = [name for name, one in held.items() if one.carried and file_of(name) in files]
    return [*patches, *listed.codemods]


def _on_record(name: str, held: Mapping[str, Held]) -> str:
    """Return what the record calls it: a patch may be named by its file alone."""
    if name in held or catalog.knows(name):
        return name
    patches = [one.name for one in held.values() if one.carried is not None]
    found = named(name, patches)
    if found is None:
        there = ", ".join(patches) or "none"
        raise CatalogError(
            f"neither a codemod nor a patch on record here is called {name!r}; patches: {there}; "
            f"codemods: {', '.join(catalog.names())}"
        )
    return found
