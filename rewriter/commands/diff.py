"""``rewriter diff``: the change, as a unified diff that ``git apply`` accepts."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rewriter.commands.options import Codemods, ForceVersion, Json, TargetOptions, with_target
from rewriter.model import State
from rewriter.visible import acts, visible


@with_target
def run(
    options: TargetOptions,
    codemods: Codemods = None,
    force_version: ForceVersion = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Say nothing on standard error but errors.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print what apply would change. What is not ready is told on standard error."""
    from rewriter.report.diff import unified
    from rewriter.report.progress import fetching
    from rewriter.report.text import colourful, diff_lines, verdict_lines
    from rewriter.session import opened

    session = opened(options.resolve(None if as_json else fetching()), codemods, force_version)
    found = session.verdicts()
    ready = [c for c, v in zip(session.codemods, found, strict=True) if v.state is State.READY]
    diff = b""
    if ready:
        from rewriter.patching import changes

        diff = unified(changes(ready, session.target.read), session.target.diff_prefix)
    if as_json:
        from rewriter.report.jsons import document

        text = diff.decode("utf-8", "replace")
        typer.echo(document("diff", session.described(), found, exit_code=0, diff=text))
        return
    for verdict in found:
        if verdict.state is not State.READY and not quiet:
            for line in verdict_lines(verdict, colour=colourful(sys.stderr)):
                typer.echo(line, err=True)
    if any(acts(c) and c not in "\n\r\t" for c in set(diff.decode("utf-8", "replace"))):
        if not quiet:
            typer.echo(
                "rewriter: the diff holds characters that act on a terminal (control, or turning "
                "text around); there they are written out, in a file or pipe they are as they are",
                err=True,
            )
    if sys.stdout.isatty():
        shown = visible(diff.decode("utf-8", "replace"), keep="\n\r\t")
        typer.echo(diff_lines(shown, colour=colourful()), nl=False)
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(diff)
