"""``rewriter bisect``: the commit after which a codemod no longer applies."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rewriter.commands.options import Json

if TYPE_CHECKING:
    from rewriter.bisect import Finding
    from rewriter.codemod import Codemod


def run(
    codemod: Annotated[str, typer.Argument(help="Which codemod.")],
    repo: Annotated[
        Path, typer.Option("--repo", help="A git repository of sglang.", metavar="DIR")
    ],
    revs: Annotated[
        str, typer.Option("--revs", help="From which commit to which.", metavar="A..B")
    ],
    as_json: Json = False,
) -> None:
    """Name the commit that broke a codemod, and what it changed there.

    Exit 0 if there is one, 1 if the codemod applies at B or never applied. Commits are judged by
    structure alone.
    """
    from rewriter.report.bisect import as_json as finding_json
    from rewriter.report.bisect import lines
    from rewriter.report.text import colourful, diff_lines
    from rewriter.session import choose

    [chosen] = choose([codemod])
    found, diff = _found(chosen, repo, revs, quiet=as_json)
    code = 0 if found.culprit is not None else 1
    if as_json:
        from rewriter.report.jsons import document

        target = {"kind": "revisions", "location": f"{repo} {revs}", "version": None}
        told = finding_json(found, diff.decode("utf-8", "replace"))
        typer.echo(document("bisect", target, exit_code=code, codemod=codemod, **told))
        raise typer.Exit(code)
    for line in lines(found, chosen.drop_when, colour=colourful()):
        typer.echo(line)
    if colourful():
        typer.echo(diff_lines(diff.decode("utf-8", "replace"), colour=True), nl=False)
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(diff)
    raise typer.Exit(code)


def _found(codemod: Codemod, repo: Path, revs: str, *, quiet: bool) -> tuple[Finding, bytes]:
    """Return what the range did to the codemod, and the culprit's diff at the sites."""
    from rewriter import walk
    from rewriter.bisect import bisect, diff_at_sites
    from rewriter.blobs import Judge
    from rewriter.matrix import of_history
    from rewriter.report.steps import counting
    from rewriter.targets.history import History

    history = History(repo)
    judge = Judge([codemod])
    points = walk.commits(history, history.span(revs), judge.codemods)
    with counting("judging", quiet=quiet) as progress:
        rows = of_history(judge, history, points, progress)
    found = bisect(rows)
    if found.culprit is None:
        return found, b""
    point = points[rows.index(found.culprit.row)]
    with history.reader() as reader:
        return found, diff_at_sites(history, codemod, found.culprit, point, reader)
