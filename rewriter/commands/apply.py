"""``rewriter apply``: put codemods in."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rewriter.commands.check import target_line
from rewriter.commands.options import Codemods, ForceVersion, Json, TargetOptions, with_target
from rewriter.errors import RefusedError, UsageError
from rewriter.model import Change, State, Verdict

if TYPE_CHECKING:
    from rewriter.installing import Installed
    from rewriter.session import Session

_INSTEAD = "give --output DIR for a copy, or --overlay DIR for what PYTHONPATH serves"


@with_target
def run(
    options: TargetOptions,
    codemods: Codemods = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="Write the patched files there instead.", metavar="DIR"),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="With --output: the whole package.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be written.")] = False,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Leave out codemods that cannot be applied.")
    ] = False,
    accept_unproven: Annotated[
        bool,
        typer.Option("--accept-unproven", help="Patch files that nothing proves to be as shipped."),
    ] = False,
    force_version: ForceVersion = False,
    as_json: Json = False,
) -> None:
    """Apply codemods to a target, all of them or none."""
    from rewriter import config
    from rewriter.report.progress import fetching
    from rewriter.session import opened

    target = options.resolve(None if as_json else fetching())
    session = opened(target, codemods, force_version)
    if output is not None and options.overlay is not None:
        raise UsageError("--output and --overlay each name a directory to write; give one of them")
    wanted = config.load()
    keep_going = keep_going or wanted.keep_going
    if output is not None:
        raise typer.Exit(_into_directory(session, output, full, dry_run, keep_going, as_json))
    if full:
        raise UsageError("--full goes with --output DIR")
    accept_unproven = accept_unproven or wanted.accept_unproven
    raise typer.Exit(_in_place(session, dry_run, keep_going, accept_unproven, as_json))


def _in_place(
    session: Session, dry_run: bool, keep_going: bool, accept_unproven: bool, as_json: bool
) -> int:
    from rewriter.commands.writing import told, writing
    from rewriter.installing import install
    from rewriter.targets.overlay import Overlay

    target = session.target
    if isinstance(target, Overlay):
        target.check_base()
    with writing(target, _INSTEAD, dry_run=dry_run) as recovered:
        done = install(
            session, dry_run=dry_run, keep_going=keep_going, accept_unproven=accept_unproven
        )
    applied = any(verdict.state is State.APPLIED for verdict in done.sorted.satisfied)
    code = 0 if done.sorted.todo or applied else 1
    if as_json:
        _print_json(session, done, recovered, dry_run, code)
        return code
    for line in told(target, recovered):
        typer.echo(line)
    _print(session, done, dry_run)
    return code


def _print_json(
    session: Session, done: Installed, recovered: str, dry_run: bool, code: int
) -> None:
    from rewriter.report.jsons import document
    from rewriter.report.writing import proofs_json, shown_paths

    transition = done.transition
    paths = shown_paths(transition, session.target) if transition is not None else []
    typer.echo(
        document(
            "apply", session.described(), _verdicts(done), exit_code=code,
            written=[] if dry_run else paths,
            planned=paths if dry_run else [],
            proofs=proofs_json(transition.proofs) if transition is not None else [],
            recovered=recovered,
            left_out=[v.codemod for v in (*done.sorted.rest, *done.sorted.absent)],
        )
    )  # fmt: skip


def _verdicts(done: Installed) -> list[Verdict]:
    """Return the codemods as they are now; for a dry run as they were found."""
    if done.survey is not None:
        return [standing.verdict for standing in done.survey.standings]
    return [v for group in done.sorted for v in group]


def _print(session: Session, done: Installed, dry_run: bool) -> None:
    from rewriter.report.text import colourful, verdict_lines
    from rewriter.report.writing import pristine_lines, written_lines

    for verdict in _verdicts(done):
        for line in verdict_lines(verdict, colour=colourful()):
            typer.echo(line)
    _tell_aside(done.sorted.satisfied, (*done.sorted.rest, *done.sorted.absent))
    if done.transition is None:
        return
    for line in pristine_lines(done.transition.proofs):
        typer.echo(line)
    for line in written_lines(done.transition, session.target, dry_run=dry_run):
        typer.echo(line)
    if dry_run:
        return
    typer.echo("all files were read back; their hashes are right")
    from rewriter.commands.writing import afterwards

    for line in afterwards(session, [c.path for c in done.transition.changes]):
        typer.echo(line)


def _tell_aside(satisfied: Iterable[Verdict], left_out: Iterable[Verdict]) -> None:
    """Say for which codemods nothing is written, and why."""
    for verdict in satisfied:
        typer.echo(f"{verdict.codemod} was {verdict.state} already; nothing to write for it")
    for verdict in left_out:
        typer.echo(f"{verdict.codemod} is {verdict.state}: left out")


# --- into a directory of its own -----------------------------------------------------------


def _into_directory(
    session: Session, output: Path, full: bool, dry_run: bool, keep_going: bool, as_json: bool
) -> int:
    from rewriter.installing import refusal
    from rewriter.patching import changes, records
    from rewriter.session import partition

    target = session.target
    found = session.verdicts()
    todo, satisfied, rest = partition(found)
    if rest and not (keep_going or all(v.state is State.ABSENT for v in rest)):
        raise RefusedError(refusal(rest))
    names = {v.codemod for v in todo}
    chosen = [c for c in session.codemods if c.name in names]
    made = changes(chosen, target.read)
    written: list[str] = []
    if made and not dry_run:
        from rewriter.output import write

        mine = [v for v, c in zip(todo, chosen, strict=True) if not c.is_patch]
        record = records(chosen, made)
        written = write(output, target, mine, made, full=full, patches=record)
    code = 0 if todo or any(v.state is State.APPLIED for v in satisfied) else 1
    if as_json:
        from rewriter.report.jsons import document

        paths = [change.path for change in made] if dry_run else []
        left = [verdict.codemod for verdict in rest]
        typer.echo(
            document(
                "apply", session.described(), found, exit_code=code, written=written,
                planned=paths, left_out=left,
            )
        )  # fmt: skip
        return code
    typer.echo(target_line(target.location, target.version))
    _tell(found, made, output, written, dry_run)
    _tell_aside(satisfied, rest)
    if not made:
        typer.echo(f"nothing was written to {output}")
    return code


def _tell(
    found: list[Verdict], made: list[Change], output: Path, written: list[str], dry_run: bool
) -> None:
    from rewriter.report.text import colourful, verdict_lines

    for verdict in found:
        for line in verdict_lines(verdict, colour=colourful()):
            typer.echo(line)
    for change in made:
        verb = "would write" if dry_run else "wrote"
        added = (change.after or b"").count(b"\n") - (change.before or b"").count(b"\n")
        what = "new file" if change.before is None else f"{added:+d} lines"
        typer.echo(f"{verb} {output / change.path} ({what})")
    if len(written) > len(made):
        typer.echo(f"wrote {len(written) - len(made)} unchanged files of the package beside them")
