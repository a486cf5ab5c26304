"""``rewriter check``: would it be fine? The exit code is the answer."""

from __future__ import annotations

from typing import Annotated

import typer

from rewriter.commands.options import Codemods, ForceVersion, Json, TargetOptions, with_target
from rewriter.model import FINE, State


@with_target
def run(
    options: TargetOptions,
    codemods: Codemods = None,
    require: Annotated[
        State | None,
        typer.Option(
            "--require",
            help="Demand this one state, e.g. `applied` as a start-up gate.",
            metavar="STATE",
        ),
    ] = None,
    force_version: ForceVersion = False,
    as_json: Json = False,
) -> None:
    """Exit 0 if every codemod is ready, applied, upstream or not needed; else 1."""
    from rewriter.session import Session, choose

    session = Session(options.resolve(_progress(as_json)), choose(codemods), force_version)
    found = session.verdicts()
    wanted = frozenset({require}) if require else FINE
    code = 0 if all(verdict.state in wanted for verdict in found) else 1
    if as_json:
        from rewriter.report.jsons import document

        typer.echo(document("check", session.described(), found, exit_code=code))
        raise typer.Exit(code)
    from rewriter.report.text import colourful, verdict_lines

    typer.echo(target_line(session.target.location, session.target.version))
    for verdict in found:
        for line in verdict_lines(verdict, colour=colourful()):
            typer.echo(line)
    if require and code:
        states = ", ".join(f"{v.codemod} is {v.state}" for v in found if v.state is not require)
        typer.echo(f"required: {require}; {states}")
    raise typer.Exit(code)


def target_line(location: str, version: str | None) -> str:
    """Return the line that names a target and its version, each once."""
    if version is None:
        return f"{location} (version unknown)"
    return location if version in location else f"{location} (sglang {version})"


def _progress(quiet: bool):  # type: ignore[no-untyped-def]
    from rewriter.report.progress import fetching

    return None if quiet else fetching()
