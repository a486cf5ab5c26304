"""``rewriter doctor``: one page about a target, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from rewriter.commands.options import Codemods, ForceVersion, Json, TargetOptions, with_target

if TYPE_CHECKING:
    from rewriter.leftovers import Leftover
    from rewriter.states import Survey


@with_target
def run(
    options: TargetOptions,
    codemods: Codemods = None,
    force_version: ForceVersion = False,
    as_json: Json = False,
) -> None:
    """Say what a target is, what is amiss and what to do.

    Reads only. Exits 0 if nothing needs attention, else 1. Codemods that are named, configured or
    applied ought to be applied; of all others only what they left behind counts.
    """
    from rewriter import checkup, config, states
    from rewriter.commands.status import chosen, left_over
    from rewriter.errors import RewriterError
    from rewriter.report.checkup import checkup_lines
    from rewriter.report.progress import fetching
    from rewriter.session import Session

    target = options.resolve(None if as_json else fetching())
    named = {
        "--" + name.replace("_", "-"): str(value)
        for name, value in options._asdict().items()
        if value is not None
    }
    survey: Survey | RewriterError
    left: list[Leftover] = []
    session = Session(target, (), force_version)
    try:
        session = Session(target, chosen(codemods, target), force_version)
        survey = states.survey(session, lenient=True)
        left = left_over(session, survey)
    except RewriterError as error:  # a page that tells it is worth more than the message alone
        survey = error
    wanted = codemods or config.load().codemods
    found = checkup.examine(session, survey, wanted, left, named)
    code = 0 if found.healthy else 1
    if as_json:
        from rewriter.report.jsons import document

        verdicts = [standing.verdict for standing in found.standings]
        typer.echo(
            document(
                "doctor", session.described(), verdicts, exit_code=code, facts=found.facts,
                findings=[one._asdict() for one in found.findings], advice=list(found.advice),
                proofs={s.verdict.codemod: s.proof for s in found.standings},
            )
        )  # fmt: skip
        raise typer.Exit(code)
    for line in checkup_lines(found):
        typer.echo(line)
    raise typer.Exit(code)
