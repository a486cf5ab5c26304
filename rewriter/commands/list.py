"""``rewriter list``: the codemods there are."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Annotated

import typer

from rewriter import catalog, plugins
from rewriter.commands.options import Json
from rewriter.errors import UsageError
from rewriter.model import State


def run(
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the table that the README shows.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the codemods: what each does, where, and when to drop it."""
    rows = [_row(name) for name in catalog.names()]
    others = [plugin._asdict() for _, plugin in sorted(plugins.installed().items())]
    if markdown and as_json:
        raise UsageError("--markdown and --json are two formats; give one of them")
    if markdown:
        from rewriter.report.markdown import codemods

        typer.echo("\n".join(codemods({**row, "checked": _checked(row["name"])} for row in rows)))
        return
    if as_json:
        from rewriter.report.jsons import document

        typer.echo(document("list", None, exit_code=0, codemods=rows, plugins=others))
        return
    for row in rows:
        typer.echo("\n".join(_lines(row)))
    for other in others:
        typer.echo(f"{other['name']}  (installed by {other['package']})")
        typer.echo(f"  module: {other['module']}; runs only where it is named")


def _lines(row: dict[str, str]) -> Iterator[str]:
    from rewriter.report.text import wrapped

    yield f"{row['name']}  (sglang {row['supports']})"
    yield from wrapped(row["what"].replace("``", ""), "  ")
    yield f"  file: {row['target']}"
    if row["drop_when"]:
        yield from wrapped(row["drop_when"], "  drop when: ")


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


def _checked(name: str) -> str:
    """Say in which releases the pins prove a codemod, oldest and newest."""
    from packaging.version import Version

    from rewriter import pins

    # A release counts once, however many files of it are pinned.
    ready = {r for pin in pins.load(name) if pin.state is State.READY for r in pin.releases}
    if not ready:
        return "no release"
    ordered = sorted(ready, key=Version)
    return f"{len(ready)} releases, {ordered[0]} to {ordered[-1]}"
