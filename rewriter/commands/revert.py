"""``rewriter revert``: take codemods out again, byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rewriter.commands.options import Codemods, ForceVersion, Json, TargetOptions, with_target

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rewriter.removing import Removed
    from rewriter.session import Session

_INSTEAD = "what was made of it is named by --overlay DIR, or as a directory by --site-packages DIR"


@with_target
def run(
    options: TargetOptions,
    codemods: Codemods = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be written.")] = False,
    force_version: ForceVersion = False,
    as_json: Json = False,
) -> None:
    """Restore every byte, remove what came along, prove the result."""
    from rewriter import config
    from rewriter.commands.writing import told, writing
    from rewriter.removing import chosen, remove
    from rewriter.report.progress import fetching
    from rewriter.session import Session

    target = options.resolve(None if as_json else fetching())
    with writing(target, _INSTEAD, dry_run=dry_run) as recovered:
        force_version = force_version or config.load().force_version
        session = Session(target, chosen(codemods, target), force_version)
        done = remove(session, dry_run=dry_run)
    code = 0 if done.proven else 1
    if as_json:
        _print_json(session, done, recovered, dry_run, code)
        raise typer.Exit(code)
    for line in (*told(target, recovered), *_lines(session, done, dry_run)):
        typer.echo(line)
    raise typer.Exit(code)


def _lines(session: Session, done: Removed, dry_run: bool) -> Iterable[str]:
    from rewriter.commands.writing import afterwards
    from rewriter.report.text import colourful, verdict_lines
    from rewriter.report.writing import restored_lines, written_lines

    if done.transition is None:
        for verdict in done.verdicts:
            why = f" ({verdict.reason})" if verdict.reason else ""
            yield f"{verdict.codemod} is {verdict.state}, not applied: nothing to revert{why}"
        return
    yield from written_lines(done.transition, session.target, dry_run=dry_run)
    if done.survey is not None:
        yield "all files were read back; their hashes are right"
    yield from restored_lines(done.proofs, frozen=done.frozen)
    if done.survey is None:
        return
    for standing in done.survey.standings:
        verdict = standing.verdict
        yield from list(verdict_lines(verdict, colour=colourful()))[:1]
    for name in done.transition.codemods:
        yield f"{name} stays applied"
    yield from afterwards(session, [c.path for c in done.transition.changes])


def _print_json(session: Session, done: Removed, recovered: str, dry_run: bool, code: int) -> None:
    from rewriter.report.jsons import document
    from rewriter.report.writing import proofs_json, shown_paths

    found = done.verdicts
    if done.survey is not None:
        found = tuple(standing.verdict for standing in done.survey.standings)
    planned = done.transition
    paths = shown_paths(planned, session.target) if planned is not None else []
    typer.echo(
        document(
            "revert", session.described(), found, exit_code=code,
            written=[] if dry_run else paths,
            planned=paths if dry_run else [],
            proofs=proofs_json(done.proofs),
            proven=done.proven,
            recovered=recovered,
            left_applied=list(done.transition.codemods) if done.transition is not None else [],
        )
    )  # fmt: skip
