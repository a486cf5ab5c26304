"""``rewriter explain``: what each site of a codemod looked for, and what it found."""

from __future__ import annotations

from typing import Annotated

import typer

from rewriter.commands.check import target_line
from rewriter.commands.options import Json, TargetOptions, with_target


@with_target
def run(
    options: TargetOptions,
    codemod: Annotated[str, typer.Argument(help="Which codemod.")],
    as_json: Json = False,
) -> None:
    """Show every site: what was looked for beside what was found, with what came near.

    Exits 0 if every site was found, else 1. Versions do not count here: structure does.
    """
    from rewriter import catalog
    from rewriter.explaining import FOUND, explain
    from rewriter.report.explanation import explanation_lines, width
    from rewriter.report.progress import fetching
    from rewriter.report.text import colourful

    one = catalog.load(codemod)
    target = options.resolve(None if as_json else fetching())
    told = explain(one, target.read)
    code = 0 if all(r.state in FOUND for each in told for r in each.found) else 1
    if as_json:
        from rewriter.report.jsons import document

        rows = [
            {
                "file": each.file,
                "definition": each.site.within,
                "kind": each.site.kind,
                "looked": list(each.looked),
                "becomes": list(each.becomes),
                "found": [
                    {"line": r.line, "state": r.state.value, "reason": r.reason, "text": text}
                    for r, text in zip(each.found, each.texts, strict=True)
                ],
                "near": [{"line": n.line, "text": n.text} for n in each.candidates],
            }
            for each in told
        ]
        about = {"kind": target.kind, "location": target.location, "version": target.version}
        typer.echo(document("explain", about, exit_code=code, sites=rows))
        raise typer.Exit(code)
    typer.echo(target_line(target.location, target.version))
    for line in explanation_lines(told, columns=width(), colour=colourful()):
        typer.echo(line)
    raise typer.Exit(code)
