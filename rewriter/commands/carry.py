"""``rewriter carry``: an ordinary patch of one release, for another one, or into an install."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rewriter.commands.options import Json, TargetOptions, with_target
from rewriter.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from rewriter.carry.carrying import Carried
    from rewriter.targets import Target


@with_target
def run(
    options: TargetOptions,
    patches: Annotated[list[Path], typer.Argument(help="Unified diffs, in the order to apply.")],
    older: Annotated[
        str,
        typer.Option("--from", help="What they are for: release, directory, wheel, or commit."),
    ],
    newer: Annotated[
        str | None,
        typer.Option("--onto", help="What they shall be for: the same kinds.", metavar="B"),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Put them into TARGET; `revert` takes them out.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", help="Write the patched files.", metavar="DIR")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="With --output: the whole package.")] = False,
    patch: Annotated[
        Path | None,
        typer.Option("--patch", help="Write the new diff; - is standard output.", metavar="FILE"),
    ] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Write what can be carried; conflicts are left out.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --apply: say what would be written.")
    ] = False,
    accept_unproven: Annotated[
        bool,
        typer.Option("--accept-unproven", help="Patch files that nothing proves to be as shipped."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Carry patches from one release to another, by structure.

    With --repo DIR, --from and --onto are commits of it. Exit 0 if every hunk has one place, 1 if
    there are conflicts or hunks to review, 2 for bad input. Nothing is written on 1 or 2; with
    --partial what can be carried is, and it still exits 1.
    """
    from rewriter.patching import opened, release_named
    from rewriter.report.progress import fetching

    progress = None if as_json else fetching()
    files = [opened(path) for path in patches]
    if apply:
        given = {"--onto": newer, "--output": output, "--patch": patch, "--partial": partial}
        _check_apply(options, given)
        one = release_named(older, options.repo, progress)
        target = options._replace(repo=None).resolve(progress)
        from rewriter.commands.carrying import put_in

        raise typer.Exit(put_in(files, older, one, target, dry_run, accept_unproven, as_json))
    _check_onto(options, newer, full=full and output is None, apply=dry_run or accept_unproven)
    assert newer is not None
    one, two = (release_named(name, options.repo, progress) for name in (older, newer))
    _onto(files, (older, one), two, output, patch, full, partial, as_json)


def _check_apply(options: TargetOptions, given: dict[str, Any]) -> None:
    wrong = next((name for name, value in given.items() if value), None)
    if wrong == "--partial":
        raise UsageError("--partial goes with --output or --patch: an install gets all or nothing")
    if wrong is not None:
        raise UsageError(f"--apply writes into a target; {wrong} goes without it")
    if options.rev is not None:
        raise UsageError("--rev: --apply writes, and a commit is never written; give --checkout")


def _check_onto(options: TargetOptions, newer: str | None, *, full: bool, apply: bool) -> None:
    named = [name for name, value in options._asdict().items() if value and name != "repo"]
    if named:
        option = f"--{named[0].replace('_', '-')}"
        raise UsageError(f"{option} names a target to write, which goes with --apply")
    if apply:
        raise UsageError("--dry-run and --accept-unproven go with --apply")
    if newer is None:
        raise UsageError("name what the patches shall be for (--onto B), or where to (--apply)")
    if full:
        raise UsageError("--full goes with --output DIR")


def _onto(
    files: list[tuple[str, bytes]], older: tuple[str, Target], two: Target,
    output: Path | None, patch: Path | None, full: bool, partial: bool, as_json: bool,
) -> None:  # fmt: skip
    from rewriter.carry.carrying import carry

    carried = carry(files, older[1], two, partial=partial)
    written: list[str] = []
    if partial or not carried.conflicts:
        if output is not None:
            from rewriter.commands.carrying import into_directory

            written += into_directory(files, older[0], carried, two, output, full=full)
        if patch is not None:
            written += _diff(carried, two, patch)
    code = 1 if carried.conflicts else 0
    if as_json:
        _print_json(carried, older[1], two, written, code)
    else:
        _print(carried, older[1], two, written, aside=patch == Path("-"))
    raise typer.Exit(code)


def _diff(carried: Carried, target: Target, patch: Path) -> list[str]:
    from rewriter.report.diff import unified

    diff = unified(carried.changes, target.diff_prefix)
    if patch == Path("-"):
        sys.stdout.flush()
        sys.stdout.buffer.write(diff)
        return []
    try:
        patch.parent.mkdir(parents=True, exist_ok=True)
        patch.write_bytes(diff)
    except OSError as error:
        raise RefusedError(f"{patch}: cannot be written: {error.strerror or error}") from error
    return [str(patch)]


def _print(carried: Carried, one: Target, two: Target, written: list[str], *, aside: bool) -> None:
    from rewriter.report.carried import lines
    from rewriter.report.text import colourful

    stream = sys.stderr if aside else sys.stdout
    typer.echo(f"from {one.location} onto {two.location}", err=aside)
    for line in lines(carried, colour=colourful(stream)):
        typer.echo(line, err=aside)
    if carried.conflicts and not written:
        typer.echo("nothing was written; --partial leaves out what conflicts", err=aside)
    if written:
        shown = written[0] if len(written) == 1 else f"{len(written)} files"
        typer.echo(f"wrote {shown}", err=aside)


def _print_json(carried: Carried, one: Target, two: Target, written: list[str], code: int) -> None:
    from rewriter.report.carried import as_json
    from rewriter.report.jsons import document

    target: dict[str, str | None] = {
        "kind": two.kind, "location": two.location, "version": two.version,
    }  # fmt: skip
    origin = {"kind": one.kind, "location": one.location, "version": one.version}
    values = as_json(carried)
    typer.echo(document("carry", target, exit_code=code, written=written, origin=origin, **values))
