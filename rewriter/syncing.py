"""``sync``: from any state to exactly the codemods that are wanted, in one transition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rewriter import catalog
from rewriter.codemod import Codemod
from rewriter.errors import Interrupted, RefusedError
from rewriter.installing import applied, carry_out, left_over, sort, steady
from rewriter.leftovers import Leftover
from rewriter.model import State
from rewriter.session import Session, in_order
from rewriter.states import Survey
from rewriter.transition import Planner, Transition


class Synced(NamedTuple):
    """What ``sync`` did, or would do.

    Attributes:
        put_in, taken_out, renewed: names of codemods; the last are those that were brought up to
            this version of the tool, or mended.
        absent: wanted ones whose file this release does not have.
        left: files of ours that nothing used, and that were removed.
        transition: what was, or would be, written; None where everything was as wanted.
        survey: the target afterwards; for a dry run as it is.
    """

    put_in: tuple[str, ...]
    taken_out: tuple[str, ...]
    renewed: tuple[str, ...]
    absent: tuple[str, ...]
    left: tuple[Leftover, ...]
    transition: Transition | None
    survey: Survey


class Way(NamedTuple):
    """How a target stands to what is wanted.

    Attributes:
        present: the codemods whose edits its files hold, or its record names.
        wanted: those that shall be in, in order, without those that are absent here.
        absent: names of those.
        left: files of ours that nothing uses.
    """

    present: list[Codemod]
    wanted: list[Codemod]
    absent: tuple[str, ...]
    left: list[Leftover]


def way(session: Session) -> Way:
    """Compare a target with the codemods of a session, which are all that shall be in it.

    Raises:
        RefusedError: one of them requires another that is not wanted.
        Interrupted: an earlier run died half-way.
    """
    survey = session.survey
    if survey.journal is not None:
        reason = survey.standings[0].verdict.reason if survey.standings else "a run died half-way"
        raise Interrupted(f"{session.target.location}: {reason}")
    absent = tuple(verdict.codemod for verdict in sort(session, survey).absent)
    wanted = in_order(c for c in session.codemods if c.name not in absent)
    names = {codemod.name for codemod in wanted}
    for codemod in wanted:
        lacking = [name for name in codemod.requires if name not in names]
        if lacking:
            raise RefusedError(
                f"nothing was written: {codemod.name} requires {lacking[0]}, which is not among "
                "the codemods of the configuration; name both there, or neither"
            )
    every = [catalog.load(name) for name in catalog.names()]
    present = applied(session, survey, every)
    return Way(present, wanted, absent, left_over(session, survey, wanted))


def plan(session: Session, found: Way, *, accept_unproven: bool = False) -> Transition:
    """Plan the one transition to what is wanted.

    Raises:
        RefusedError: a file is not proven, our lines in it were edited, or a wanted codemod does
            not apply to the original files.
    """
    with steady(session.target):
        return Planner(session, session.survey).plan(
            found.present, found.wanted, found.left, accept_unproven=accept_unproven
        )


def sync(session: Session, *, dry_run: bool = False, accept_unproven: bool = False) -> Synced:
    """Bring a target to exactly the codemods of a session.

    The caller holds the target's lock and has recovered what an earlier run left, except for a
    dry run, which writes nothing.

    Raises:
        RefusedError: it cannot be done; nothing was written.
        Interrupted: for a dry run, an earlier run died half-way.
    """
    survey, found = session.survey, way(session)
    if is_reached(survey, found):
        return Synced((), (), (), found.absent, (), None, survey)
    transition = plan(session, found, accept_unproven=accept_unproven)
    before = {c.name for c in found.present}
    after = set(transition.codemods)
    put_in = tuple(name for name in transition.codemods if name not in before)
    taken_out = tuple(c.name for c in found.present if c.name not in after)
    renewed = tuple(
        standing.verdict.codemod
        for standing in survey.standings
        if (standing.verdict.codemod in before & after and not _is_there(standing.verdict.state))
        or standing.outdated
    )  # fmt: skip
    if transition.writes and not dry_run:
        survey = carry_out(session, survey, transition, "sync")
    kept = transition if transition.writes else None
    return Synced(put_in, taken_out, renewed, found.absent, tuple(found.left), kept, survey)


def is_reached(survey: Survey, found: Way) -> bool:
    """Tell whether everything is as wanted, so that nothing needs to be planned."""
    states = {s.verdict.codemod: s.verdict.state for s in survey.standings}
    there = {name for name, state in states.items() if state is State.APPLIED}
    return (
        not found.left
        and all(_is_there(states[codemod.name]) for codemod in found.wanted)
        and not any(standing.outdated for standing in survey.standings)
        and {codemod.name for codemod in found.present} == there
        and _recorded(survey) <= there
    )


def _is_there(state: State) -> bool:
    return state in (State.APPLIED, State.UPSTREAM)


def _recorded(survey: Survey) -> set[str]:
    held: Sequence[str] = [h.name for h in survey.manifest.codemods] if survey.manifest else []
    return set(held)
