"""``rewriter explain``: what each site of a codemod looked for, and what it found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rewriter.commands.check import target_line
from rewriter.commands.options import Json, TargetOptions, with_target

if TYPE_CHECKING:
    from rewriter.explaining import Explained


@with_target
def run(
    options: TargetOptions,
    codemod: Annotated[str, typer.Argument(help="Which codemod.")],
    as_json: Json = False,
) -> None:
    """Show every site: what was looked for beside what was found.

    Exits 0 if every site was found, else 1. Versions do not count here: structure does.
    """
    from rewriter import catalog
    from rewriter.explaining import FOUND, explain
    from rewriter.report.explanation import explanation_lines, width
    from rewriter.report.progress import fetching
    from rewriter.report.text import colourful

    one_codemod = catalog.load(codemod)
    target = options.resolve(None if as_json else fetching())
    told = explain(one_codemod, target.read)
    code = 0 if all(r.state in FOUND for each in told for r in each.found) else 1
    if as_json:
        from rewriter.report.jsons import document

        about = {"kind": target.kind, "location": target.location, "version": target.version}
        typer.echo(document("explain", about, exit_code=code, sites=[_row(one) for one in told]))
        raise typer.Exit(code)
    typer.echo(target_line(target.location, target.version))
    for line in explanation_lines(told, columns=width(), colour=colourful()):
        typer.echo(line)
    raise typer.Exit(code)


def _row(one: Explained) -> dict[str, Any]:
    return {
        "file": one.file,
        "definition": one.site.within,
        "kind": one.site.kind,
        "looked": list(one.looked),
        "becomes": list(one.becomes),
        "found": [
            {"line": r.line, "state": r.state.value, "reason": r.reason, "text": text}
            for r, text in zip(one.found, one.texts, strict=True)
        ],
        "near": [{"line": near.line, "text": near.text} for near in one.candidates],
    }
