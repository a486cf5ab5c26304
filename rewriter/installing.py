"""``apply`` into a target: which codemods, from which state, and the run that writes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from rewriter import catalog
from rewriter.carried import CarriedPatch
from rewriter.codemod import Codemod
from rewriter.errors import Interrupted, RefusedError, RewriterError
from rewriter.forgotten import Forgotten
from rewriter.leftovers import Leftover, leftovers
from rewriter.model import State, Verdict
from rewriter.patches import of_record
from rewriter.session import Session, in_order
from rewriter.states import MARKED, Standing, Survey
from rewriter.targets.overlay import START, Overlay
from rewriter.transition import Planner, Transition

if TYPE_CHECKING:
    from rewriter.targets import Target


class Sorted(NamedTuple):
    """The codemods of a command by what is to be done about them.

    Attributes:
        todo: to be applied, or to be brought up to this version.
        satisfied: applied, or not needed.
        absent: not part of this release.
        rest: in the way of an application.
    """

    todo: list[Verdict]
    satisfied: list[Verdict]
    absent: list[Verdict]
    rest: list[Verdict]


class Installed(NamedTuple):
    """What ``apply`` did, or would do.

    Attributes:
        sorted: the codemods as they were found.
        transition: what was, or would be, written; None where nothing was to be done.
        survey: the target afterwards; None for a dry run.
    """

    sorted: Sorted
    transition: Transition | None
    survey: Survey | None


def install(
    session: Session,
    *,
    dry_run: bool = False,
    keep_going: bool = False,
    accept_unproven: bool = False,
) -> Installed:
    """Apply the codemods of a session to its target, all of them or none.

    The caller holds the target's lock and has recovered what an earlier run left, except for a
    dry run, which writes nothing.

    Raises:
        RefusedError: one of them cannot be applied; nothing was written.
        Interrupted: for a dry run, an earlier run died half-way.
    """
    survey = session.survey
    if survey.journal is not None:
        raise Interrupted(f"{session.target.location}: {survey.standings[0].verdict.reason}")
    found = sort(session, survey)
    if found.rest and not keep_going:
        raise RefusedError(refusal(found.rest))
    if not found.todo:
        return Installed(found, None, None if dry_run else survey)
    with steady(session.target):
        transition = plan(session, survey, found, accept_unproven=accept_unproven)
    if dry_run:
        return Installed(found, transition, None)
    return Installed(found, transition, carry_out(session, survey, transition, "apply"))


@contextmanager
def steady(target: Target) -> Iterator[None]:
    """Tell what cannot be read while a change is planned: an installer may be at work.

    Raises:
        RefusedError: something could not.
    """
    try:
        yield
    except OSError as error:
        raise RefusedError(
            f"{error.filename or target.location}: {error.strerror or error}, while the "
            "package was read; is an installer at work? Nothing was written"
        ) from error


def carry_out(session: Session, survey: Survey, transition: Transition, command: str) -> Survey:
    """Write a planned transition and return the target as it is then, judged anew.

    Raises:
        RefusedError: it could not be done; everything is as before.
        Interrupted: it could not be done, nor be undone.
    """
    from rewriter.transaction import Run
    from rewriter.transaction.steps import Step, StepFailed, perform

    assert survey.home is not None
    if transition.writes:
        Run(survey.home, command, transition.writes, transition.identity).carry_out()
    if isinstance(session.target, Overlay) and transition.writes:
        overlay = session.target
        with suppress(StepFailed):  # it is only there to be quicker
            perform(Step("compile", str(overlay.root / START), overlay.compile_start))
    known = [codemod for codemod in session.codemods if not isinstance(codemod, Forgotten)]
    try:
        return Session(session.target, known, session.force_version).survey
    except (RewriterError, OSError) as error:
        raise Interrupted(
            f"all files are written and right, but could not be judged again afterwards: {error}; "
            "`rewriter status` does that"
        ) from error


def sort(session: Session, survey: Survey) -> Sorted:
    """Sort the codemods of a session by what is to be done about them."""
    found = Sorted([], [], [], [])
    for codemod, standing in zip(session.codemods, survey.standings, strict=True):
        verdict = _beneath(session, codemod, standing)
        if verdict.state is State.READY or standing.outdated:
            found.todo.append(verdict)
        elif verdict.state in (State.APPLIED, State.UPSTREAM):
            found.satisfied.append(verdict)
        elif verdict.state is State.ABSENT:
            found.absent.append(verdict)
        else:
            found.rest.append(verdict)
    return found


def _beneath(session: Session, codemod: Codemod, standing: Standing) -> Verdict:
    """Return what a codemod would be without what is left over of it; ``apply`` starts clean."""
    if standing.verdict.state is not State.ORPHANED:
        return standing.verdict
    if isinstance(codemod, CarriedPatch):
        return codemod.afresh() or standing.verdict
    from rewriter import layers

    raws = layers.seen_by(codemod, session)
    raws.update({c.path: None for c in codemod.companions})
    return session.judge(codemod, raws)


def plan(
    session: Session, survey: Survey, found: Sorted, *, accept_unproven: bool = False
) -> Transition:
    """Plan the application of the codemods that are to be done, beside those applied already."""
    names = [verdict.codemod for verdict in found.todo]
    todo = [c for c in session.codemods if c.name in names]
    present = applied(session, survey, todo)
    others = [c for c in present if c not in todo]
    stays = staying(session, others)
    wanted = in_order([*(c for c in present if c in (*stays, *todo)), *todo])
    left = left_over(session, survey, wanted)
    return Planner(session, survey).plan(present, wanted, left, accept_unproven=accept_unproven)


def staying(session: Session, others: Sequence[Codemod]) -> list[Codemod]:
    """Return those of the other codemods that are applied, and so stay. An orphan does not.

    Raises:
        RefusedError: one is neither; nobody asked to change it.
    """
    if not others:
        return []
    for codemod in others:
        if isinstance(codemod, Forgotten):
            raise RefusedError(
                f"nothing was written: {codemod.name} is applied here and not known to this "
                f"version of the tool; first: rewriter revert {codemod.name}"
            )
    beside = Session(session.target, others, session.force_version).survey
    stays: list[Codemod] = []
    for codemod, standing in zip(others, beside.standings, strict=True):
        state = standing.verdict.state
        if state is State.APPLIED or standing.outdated:
            stays.append(codemod)
        elif state is not State.ORPHANED:
            raise RefusedError(
                f"nothing was written: {codemod.name}, which is in these files as well, is "
                f"{state}: {standing.verdict.reason}; first: rewriter revert {codemod.name}"
            )
    return stays


def applied(session: Session, survey: Survey, about: Iterable[Codemod]) -> list[Codemod]:
    """Return the codemods whose edits a target's files hold, in the order of their application.

    First those of the manifest; then those without one that share files with ``about``.
    """
    found: dict[str, Codemod] = {}
    if survey.manifest is not None:
        found = {held.name: of_record(held) for held in survey.manifest.codemods}
        if isinstance(session.target, Overlay):
            return list(found.values())  # what else is there lies in the package itself
    paths = {path for codemod in (*about, *found.values()) for path in codemod.files()}
    for codemod in in_order(catalog.load(name) for name in catalog.names()):
        if codemod.name not in found and _is_in(codemod, paths, session):
            found[codemod.name] = codemod
    return list(found.values())


def _is_in(codemod: Codemod, paths: Iterable[str], session: Session) -> bool:
    """Tell whether files hold edits of a codemod, whole or not."""
    from rewriter import engine, layers

    raws = {path: session.target.read(path) for path in paths if path in codemod.files()}
    if not any(raw and engine.may_hold(codemod, path, raw) for path, raw in raws.items()):
        return False
    return session.judge(codemod, layers.seen_by(codemod, session)).state in MARKED


def left_over(session: Session, survey: Survey, present: Iterable[Codemod]) -> list[Leftover]:
    """Return the files of ours that can be removed: left by an upgrade or by a run that died."""
    assert survey.home is not None
    in_use = {c.path for codemod in present for c in codemod.companions}
    return [left for left in leftovers(survey.home, in_use) if left.ours]


def refusal(rest: Sequence[Verdict]) -> str:
    """Return the message for codemods that cannot be applied."""
    lines = [f"{v.codemod} is {v.state}: {v.reason or 'see check'}" for v in rest]
    if len(lines) == 1:
        return f"nothing was written: {lines[0]}; `rewriter check` shows it site by site"
    return "nothing was written: " + "".join(f"\n  {line}" for line in lines)
