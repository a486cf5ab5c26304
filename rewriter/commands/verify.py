"""``rewriter verify``: prove on the CPU that a patched release computes the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from rewriter.commands.check import target_line
from rewriter.commands.options import Codemods, ForceVersion, Json, TargetOptions, with_target
from rewriter.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from rewriter.codemod import Codemod
    from rewriter.probes.equivalence import ModeRow
    from rewriter.session import Session


@with_target
def run(
    options: TargetOptions,
    codemods: Codemods = None,
    force_version: ForceVersion = False,
    as_json: Json = False,
) -> None:
    """Compare original and patched file in every mode, bit by bit.

    Needs torch for the CPU, neither sglang's dependencies nor a GPU. The target's own file is
    run, on stand-ins of ours for tensors and server; nothing is written.
    """
    from rewriter.probes.equivalence import PROVED, prepare, verify
    from rewriter.report.progress import fetching
    from rewriter.session import opened

    target = options.resolve(None if as_json else fetching())
    session = opened(target, codemods, force_version, patches=False)
    for codemod in session.codemods:
        if codemod.name not in PROVED:
            raise UsageError(f"{codemod.name} has no proof by stand-ins; {', '.join(PROVED)} has")
    if len(session.codemods) > 1:
        named = ", ".join(codemod.name for codemod in session.codemods)
        raise UsageError(f"verify proves one codemod at a time, not {named}; name the one")
    (codemod,) = session.codemods
    original, patched = before_and_after(session, codemod)
    from rewriter.catalog import companion_bytes
    from rewriter.report.equivalence import head, line, summary

    prepare()
    if not as_json:
        typer.echo(target_line(session.target.location, session.target.version))
        typer.echo(head())
    rows = verify(
        original,
        patched,
        companion_bytes(codemod.companions[0]),
        told=(lambda row: None) if as_json else (lambda row: typer.echo(line(row))),
        codemod=codemod.name,
    )
    code = 1 if failing(rows) else 0
    if as_json:
        from rewriter.report.equivalence import as_json as rows_json
        from rewriter.report.jsons import document

        typer.echo(document("verify", session.described(), exit_code=code, modes=rows_json(rows)))
    else:
        typer.echo(summary(rows))
    raise typer.Exit(code)


def before_and_after(session: Session, codemod: Codemod) -> tuple[bytes, bytes]:
    """Return the codemod's file without and with it, whether it is applied or not.

    Raises:
        RefusedError: there is no such file, or the codemod cannot be applied to it.
    """
    from rewriter.engine import examine

    raw = session.target.read(codemod.target)
    if raw is None:
        raise RefusedError(f"{session.target.location} has no {codemod.target}: nothing to prove")
    found = examine(codemod, codemod.target, raw)
    if found.patched is None:
        raise RefusedError(f"{codemod.name} is {found.state}: {found.reason}; nothing to prove")
    return found.pristine, found.patched


def failing(rows: Sequence[ModeRow]) -> list[ModeRow]:
    """Return the rows that make the answer a no."""
    return [row for row in rows if row.state in ("differs", "not run")]
