"""``rewriter sync``: exactly the configuration's codemods, from any state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rewriter.commands.options import ForceVersion, Json, TargetOptions, with_target
from rewriter.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rewriter.codemod import Codemod
    from rewriter.session import Session
    from rewriter.syncing import Synced
    from rewriter.targets import Target


@with_target
def run(
    options: TargetOptions,
    locked: Annotated[
        bool, typer.Option("--locked", help="Only if it comes out as rewriter.lock says.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be written.")] = False,
    accept_unproven: Annotated[
        bool,
        typer.Option("--accept-unproven", help="Patch files that nothing proves to be as shipped."),
    ] = False,
    force_version: ForceVersion = False,
    as_json: Json = False,
) -> None:
    """Bring a target from any state to what rewriter.toml says.

    Others are taken out, missing ones put in, old ones renewed, leftovers removed: all in one
    transition or not at all. Exits 1 where a codemod's file is not part of the release.
    """
    from rewriter.commands.writing import told, writing
    from rewriter.report.progress import fetching
    from rewriter.syncing import sync
    from rewriter.targets.overlay import Overlay

    target = options.resolve(None if as_json else fetching())
    if isinstance(target, Overlay):
        target.check_base()
    session, accepted = configured(target, force_version)
    with writing(target, "give --overlay DIR", dry_run=dry_run) as recovered:
        if locked:
            _check_lock(session, accept_unproven or accepted)
        done = sync(session, dry_run=dry_run, accept_unproven=accept_unproven or accepted)
    code = 1 if done.absent else 0
    if as_json:
        _print_json(session, done, recovered, dry_run, code)
    else:
        for line in (*told(target, recovered), *_lines(session, done, dry_run)):
            typer.echo(line)
    raise typer.Exit(code)


def configured(target: Target, force_version: bool) -> tuple[Session, bool]:
    """Return the session of exactly what the configuration lists, and if it accepts unproven files.

    Raises:
        UsageError: there is no configuration here, or it lists no codemods.
    """
    from rewriter import catalog, config
    from rewriter.session import Session, in_order

    wanted = config.load()
    if wanted.path is None or not wanted.lists:
        raise UsageError(
            "there is no list of `codemods` or `patches` in ./rewriter.toml or in [tool.rewriter] "
            "of ./pyproject.toml; an empty list takes all out"
        )
    patches: list[Codemod] = []
    if wanted.patches:
        from rewriter.patching import configured as patches_of

        patches = list(patches_of(target, exactly=True))
    codemods = in_order([*patches, *(catalog.load(name) for name in wanted.codemods)])
    return Session(target, codemods, force_version or wanted.force_version), wanted.accept_unproven


def _check_lock(session: Session, accept_unproven: bool) -> None:
    from rewriter.commands.lock import place
    from rewriter.locked import differences, load, of_session

    then = load(place())
    found = differences(then, of_session(session, accept_unproven=accept_unproven))
    if any(difference.matters for difference in found):
        told = "".join(f"\n  {difference.what}" for difference in found)
        raise RefusedError(f"nothing was written: not as in {place()}:{told}")


def _lines(session: Session, done: Synced, dry_run: bool) -> Iterable[str]:
    from rewriter.commands.writing import afterwards
    from rewriter.report.writing import pristine_lines, written_lines

    would = "would be " if dry_run else ""
    for names, what in (
        (done.taken_out, "taken out"), (done.put_in, "put in"),
        (done.renewed, "brought up to this version, or mended"),
    ):  # fmt: skip
        for name in names:
            yield f"{name}: {would}{what}"
    for name in done.absent:
        yield f"{name}: its file is not part of this release"
    if done.transition is None:
        yield "everything is as the configuration says; nothing to write"
        return
    yield from pristine_lines(done.transition.proofs)
    yield from written_lines(done.transition, session.target, dry_run=dry_run)
    if not dry_run:
        yield "all files were read back; their hashes are right"
        yield from afterwards(session, [change.path for change in done.transition.changes])


def _print_json(session: Session, done: Synced, recovered: str, dry_run: bool, code: int) -> None:
    from rewriter.report.jsons import document
    from rewriter.report.writing import shown_paths

    paths = shown_paths(done.transition, session.target) if done.transition is not None else []
    typer.echo(
        document(
            "sync", session.described(), [s.verdict for s in done.survey.standings],
            exit_code=code, written=[] if dry_run else paths, planned=paths if dry_run else [],
            put_in=done.put_in, taken_out=done.taken_out, renewed=done.renewed,
            absent=done.absent, recovered=recovered,
        )
    )  # fmt: skip
