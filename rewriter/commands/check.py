"""``rewriter check``: would it be fine? The exit code is the answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rewriter.commands.options import Codemods, ForceVersion, Json, TargetOptions, with_target
from rewriter.errors import UsageError
from rewriter.model import FINE, State, Verdict

if TYPE_CHECKING:
    from rewriter.locked import Difference
    from rewriter.processes import Running
    from rewriter.session import Session


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
    locked: Annotated[
        bool, typer.Option("--locked", help="Demand what rewriter.lock says as well.")
    ] = False,
    force_version: ForceVersion = False,
    as_json: Json = False,
) -> None:
    """Exit 0 if every codemod is fine, else 1.

    Fine is ready, applied, upstream, or absent: a release without the file.
    """
    from rewriter.report.progress import fetching
    from rewriter.session import opened

    if locked and codemods:
        raise UsageError("--locked is about the configuration's codemods; name none")
    session = opened(options.resolve(None if as_json else fetching()), codemods, force_version)
    found = session.verdicts()
    wanted = frozenset({require}) if require else FINE
    code = 0 if all(verdict.state in wanted for verdict in found) else 1
    unlike = _unlike_lock(session) if locked else []
    code = 1 if any(difference.matters for difference in unlike) else code
    running = _running(session) if require is State.APPLIED and not code else ()
    if as_json:
        from rewriter.report.jsons import document

        more: dict[str, Any] = {"running": [one._asdict() for one in running]} if require else {}
        if locked:
            more["unlike_lock"] = [difference.what for difference in unlike]
        typer.echo(document("check", session.described(), found, exit_code=code, **more))
        raise typer.Exit(code)
    for line in _lines(session, found, require, unlike, running):
        typer.echo(line)
    raise typer.Exit(code)


def _lines(
    session: Session, found: Sequence[Verdict], require: State | None,
    unlike: Sequence[Difference], running: Sequence[Running],
) -> Iterator[str]:  # fmt: skip
    from rewriter.report.text import colourful, verdict_lines

    yield target_line(session.target.location, session.target.version)
    for verdict in found:
        yield from verdict_lines(verdict, colour=colourful())
    others = [f"{v.codemod} is {v.state}" for v in found if v.state is not require]
    if require and others:
        yield f"required: {require}; {', '.join(others)}"
    for difference in unlike:
        yield f"{'not as locked' if difference.matters else 'note'}: {difference.what}"
    if running:
        from rewriter.processes import sentence

        yield sentence(running)


def _unlike_lock(session: Session) -> Sequence[Difference]:
    """Return what is not as locked; nothing is compared while a codemod is not fine."""
    from rewriter.commands.lock import place
    from rewriter.commands.sync import configured
    from rewriter.locked import differences, load, of_session

    then = load(place())
    if not all(verdict.state in FINE for verdict in session.verdicts()):
        return []
    wanted, accepted = configured(session.target, session.force_version)
    return differences(then, of_session(wanted, accept_unproven=accepted))


def _running(session: Session) -> Sequence[Running]:
    """Return the servers that may still run what was on disk before; a hint, not part of the gate.

    A gate that runs before the server starts finds none.
    """
    from rewriter.processes import older_than
    from rewriter.targets.home import home_of

    home = home_of(session.target)
    paths = [path for codemod in session.codemods for path in codemod.files()]
    return older_than(home.root, paths) if home is not None else ()


def target_line(location: str, version: str | None) -> str:
    """Return the line that names a target and its version, each once."""
    from rewriter.visible import visible

    location = visible(location, keep="")
    if version is None:
        return f"{location} (version unknown)"
    return location if f"sglang {version} (" in location else f"{location} (sglang {version})"
