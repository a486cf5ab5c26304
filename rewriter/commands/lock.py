"""``rewriter lock``: write down what the configuration makes of this very install."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rewriter.commands.options import ForceVersion, Json, TargetOptions, with_target
from rewriter.errors import RefusedError


@with_target
def run(
    options: TargetOptions,
    accept_unproven: Annotated[
        bool,
        typer.Option("--accept-unproven", help="Lock files that nothing proves to be as shipped."),
    ] = False,
    force_version: ForceVersion = False,
    as_json: Json = False,
) -> None:
    """Write rewriter.lock: what comes out here, to compare with later.

    That is versions, codemods, and hashes of files before and after. The target is only read;
    its codemods need not be applied yet. `check --locked` and `sync --locked` tell what is
    different later, and why.
    """
    from rewriter.commands.check import target_line
    from rewriter.commands.sync import configured
    from rewriter.locked import dump, of_session
    from rewriter.report.progress import fetching

    target = options.resolve(None if as_json else fetching())
    session, accepted = configured(target, force_version)
    lock = of_session(session, accept_unproven=accept_unproven or accepted)
    try:
        place().write_text(dump(lock), encoding="utf-8")
    except OSError as error:
        raise RefusedError(f"{place()}: cannot be written: {error.strerror or error}") from error
    if as_json:
        from rewriter.report.jsons import document

        typer.echo(
            document(
                "lock", session.described(), session.verdicts(), exit_code=0,
                written=[str(place())], files={p: list(h) for p, h in lock.files.items()},
            )
        )  # fmt: skip
        return
    typer.echo(target_line(target.location, target.version))
    for entry in lock.codemods.values():
        typer.echo(f"{entry.name}: {entry.effect}")
    typer.echo(f"wrote {place()} ({len(lock.files)} files)")


def place() -> Path:
    """Return where the lock lies: beside the configuration."""
    from rewriter import locked

    return Path(locked.NAME).absolute()
