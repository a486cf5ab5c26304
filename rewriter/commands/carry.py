"""``rewriter carry``: an ordinary patch of one release, for another one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rewriter.commands.options import Json, Quiet
from rewriter.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from rewriter.carry.carrying import Carried
    from rewriter.targets import Target


def run(
    patches: Annotated[list[Path], typer.Argument(help="Unified diffs, in the order to apply.")],
    older: Annotated[
        str,
        typer.Option("--from", help="What they are for: release, directory, wheel, or commit."),
    ],
    newer: Annotated[
        str, typer.Option("--onto", help="What they shall be for: the same kinds.", metavar="B")
    ],
    repo: Annotated[
        Path | None,
        typer.Option("--repo", help="--from and --onto are commits of it.", metavar="DIR"),
    ] = None,
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
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Carry patches from one release to another, by structure.

    Exit 0 if every hunk has one place, 1 if there are conflicts, 2 for bad input. Nothing is
    written on 1 or 2; with --partial what can be carried is, and conflicts still exit 1.
    """
    from rewriter.carry.carrying import carry
    from rewriter.report.progress import fetching

    if full and output is None:
        raise UsageError("--full goes with --output DIR")
    progress = None if as_json else fetching()
    one, two = (_target(name, repo, progress) for name in (older, newer))
    carried = carry([(str(p), _bytes(p)) for p in patches], one, two, partial=partial)
    written: list[str] = []
    if partial or not carried.conflicts:
        written = _write(carried, two, output, patch, full=full)
    code = 1 if carried.conflicts else 0
    if as_json:
        _print_json(carried, one, two, written, code)
    elif not quiet:
        _print(carried, one, two, written, aside=patch == Path("-"))
    raise typer.Exit(code)


def _target(name: str, repo: Path | None, progress: object) -> Target:
    """Return what a user names in one word."""
    from rewriter.errors import TargetError
    from rewriter.targets import resolve

    if repo is not None:
        return resolve(repo=repo, rev=name)
    place = Path(name)
    if place.is_dir():
        try:
            return resolve(checkout=place)
        except TargetError:
            return resolve(site_packages=place)
    if place.suffix == ".whl":
        return resolve(wheel=place)
    return resolve(release=name, progress=progress)  # type: ignore[arg-type]


def _bytes(path: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if path == Path("-") else path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error


def _write(
    carried: Carried, target: Target, output: Path | None, patch: Path | None, *, full: bool
) -> list[str]:
    written: list[str] = []
    if patch is not None:
        from rewriter.report.diff import unified

        diff = unified(carried.changes, target.diff_prefix)
        if patch == Path("-"):
            sys.stdout.flush()
            sys.stdout.buffer.write(diff)
        else:
            _save(patch, diff)
            written.append(str(patch))
    if output is not None:
        written += _tree(carried, target, output, full=full)
    return written


def _tree(carried: Carried, target: Target, output: Path, *, full: bool) -> list[str]:
    """Write the changed files, or all, into an empty directory."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise RefusedError(f"{output} is not an empty directory; give one that is")
    contents = {change.path: change.after for change in carried.changes}
    if full:
        for path in target.files():
            contents.setdefault(path, target.read(path))
    written: list[str] = []
    for path, raw in sorted(contents.items()):
        if raw is not None:
            _save(output / path, raw)
            written.append(str(output / path))
    return written


def _save(path: Path, raw: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(raw)
    except OSError as error:
        raise RefusedError(f"{path}: cannot be written: {error.strerror or error}") from error


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
