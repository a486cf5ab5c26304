"""``rewriter apply``: put codemods in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rewriter.commands.check import target_line
from rewriter.commands.options import Codemods, ForceVersion, Json, TargetOptions, with_target
from rewriter.errors import RefusedError, UsageError
from rewriter.model import Change, State, Verdict


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
    force_version: ForceVersion = False,
    as_json: Json = False,
) -> None:
    """Apply codemods, all of them or none, to a target or into a directory of its own."""
    from rewriter.judge import changes
    from rewriter.report.progress import fetching
    from rewriter.session import Session, choose, partition

    target = options.resolve(None if as_json else fetching())
    if output is None:
        raise UsageError(f"give --output DIR: writing into {target.location} is not built yet")
    session = Session(target, choose(codemods), force_version)
    found = session.verdicts()
    todo, satisfied, rest = partition(found)
    if rest and not (keep_going or all(v.state is State.ABSENT for v in rest)):
        raise RefusedError(_refusal(rest))
    names = {v.codemod for v in todo}
    made = changes([c for c in session.codemods if c.name in names], target.read)
    written: list[str] = []
    if made and not dry_run:
        from rewriter.output import write

        written = write(output, target, todo, made, full=full)
    code = 0 if todo or any(v.state is State.APPLIED for v in satisfied) else 1
    if as_json:
        from rewriter.report.jsons import document

        typer.echo(document("apply", session.described(), found, written=written, exit_code=code))
        raise typer.Exit(code)
    typer.echo(target_line(target.location, target.version))
    _tell(found, made, output, written, dry_run)
    raise typer.Exit(code)


def _refusal(rest: list[Verdict]) -> str:
    lines = [f"{v.codemod} is {v.state}: {v.reason or 'see check'}" for v in rest]
    more = "" if len(rest) == 1 else "\n  "
    return (
        "nothing was written: " + more + more.join(lines)
        + ("" if more else "; `rewriter check` shows it site by site")
    )  # fmt: skip


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
