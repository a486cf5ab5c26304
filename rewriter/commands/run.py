"""``rewriter run``: start a command with an overlay's modules in the place of the package's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rewriter.commands.options import ForceVersion
from rewriter.errors import NotInstalledError, RefusedError, TargetError, UsageError

if TYPE_CHECKING:
    from rewriter.targets.overlay import Overlay


def run(
    command: Annotated[list[str], typer.Argument(help="After `--`: what to start.")],
    overlay: Annotated[
        Path, typer.Option("--overlay", help="Made by `apply --overlay DIR`.", metavar="DIR")
    ],
    python: Annotated[
        Path | None,
        typer.Option("--python", help="Whose sglang it is for; default: COMMAND's.", metavar="P"),
    ] = None,
    force_version: ForceVersion = False,
) -> None:
    """Start a command with an overlay, once it is known to be served.

    It goes on PYTHONPATH, and COMMAND takes the place of this process.
    Everything on the overlay's record must be applied, and COMMAND's Python must serve it; else
    nothing is started and the exit code is 2. Then the exit code is COMMAND's.
    """
    from rewriter.serving import check_served, environment, interpreter_of
    from rewriter.targets import resolve
    from rewriter.targets.overlay import Overlay

    found = interpreter_of(command)
    try:
        base = resolve(python=python or (found.path if found else None))
    except NotInstalledError as error:
        raise TargetError(
            f"{error}, and so not for this command; nothing was started. Name the environment that "
            "has it with --python"
        ) from error
    target = Overlay(overlay, base)
    _check_state(target, force_version)
    if found is not None:
        check_served(target.root, found)
    _replace_process(command, environment(target.root, os.environ))


def _check_state(target: Overlay, force_version: bool) -> None:
    """Refuse to start unless every codemod on the overlay's record is applied."""
    from rewriter import manifest
    from rewriter.model import State
    from rewriter.removing import chosen
    from rewriter.session import Session

    known = manifest.load(target.home.manifest_path)
    if known is None:
        raise UsageError(
            f"{target.root}: no overlay there; make one with "
            f"`rewriter apply --overlay {target.root}`"
        )
    names = [held.name for held in known.codemods]
    session = Session(target, chosen(names, target), force_version)
    wrong = [v for v in session.verdicts() if v.state is not State.APPLIED]
    if wrong:
        told = "; ".join(f"{v.codemod} is {v.state}: {v.reason}" for v in wrong)
        raise RefusedError(f"{target.location}: nothing was started: {told}")


def _replace_process(command: list[str], environment: dict[str, str]) -> None:
    """Become the command.

    Raises:
        UsageError: it cannot be run.
    """
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        raise UsageError(f"{command[0]}: cannot be run: {error.strerror or error}") from error
