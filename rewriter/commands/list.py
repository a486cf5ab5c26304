"""``rewriter list``: the codemods there are."""

from __future__ import annotations

import inspect

import typer

from rewriter import catalog
from rewriter.commands.options import Json


def run(as_json: Json = False) -> None:
    """List the codemods: what each does, for which releases, when to drop it."""
    rows = [_row(name) for name in catalog.names()]
    if as_json:
        from rewriter.report.jsons import document

        typer.echo(document("list", None, exit_code=0, codemods=rows))
        return
    for row in rows:
        typer.echo(f"{row['name']}  (sglang {row['supports']})")
        typer.echo(f"  {row['what']}")
        typer.echo(f"  file: {row['target']}")
        if row["drop_when"]:
            typer.echo(f"  drop when: {row['drop_when']}")


def _row(name: str) -> dict[str, str]:
    codemod = catalog.load(name)
    module = inspect.getmodule(type(codemod))
    what = (inspect.getdoc(module) or "").partition("\n")[0] if module else ""
    return {
        "name": name,
        "what": what,
        "supports": codemod.supports,
        "target": codemod.target,
        "drop_when": codemod.drop_when,
    }
