"""``rewriter new``: a codemod to start from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from rewriter.commands.options import TargetOptions, with_target
from rewriter.errors import UsageError


@with_target
def run(
    options: TargetOptions,
    name: Annotated[str, typer.Argument(help="Its name: what it effects, in small letters.")],
    file: Annotated[
        str, typer.Option("--file", help="The file to edit: sglang/srt/….py.", metavar="PATH")
    ],
    within: Annotated[
        str, typer.Option("--within", help="The definition: Class.method.", metavar="NAME")
    ],
    line: Annotated[
        int | None, typer.Option("--line", help="The statement at this line of the file.")
    ] = None,
    find: Annotated[
        str | None, typer.Option("--find", help="Or its code, with {holes}.", metavar="CODE")
    ] = None,
) -> None:
    """Write a codemod and its test for one place, valid as they stand.

    In a directory with a `codemods` package they go into it and into `tests`; elsewhere a small
    package NAME is made. Nothing that exists is written over.
    """
    from rewriter import engine, skeleton
    from rewriter.report.progress import fetching

    skeleton.check_name(name)
    if (line is None) == (find is None):
        raise UsageError("give --line or --find: which statement is it about?")
    target = options.resolve(fetching())
    raw = target.read(file)
    if raw is None:
        raise UsageError(f"{target.location} has no {file}")
    if find is None:
        assert line is not None
        find = skeleton.pointed_at(file, raw, within, line)
    place = skeleton.Place(name, file, within, find)
    in_place = Path("codemods/__init__.py").is_file()
    made = skeleton.files(place, raw, in_place=in_place)
    _write(made)
    found = engine.examine(place.codemod(), file, raw)
    typer.echo(f"in {target.location} it is {found.state}{': ' * bool(found.reason)}{found.reason}")
    for command in _next(name, target.version or "RELEASE", in_place):
        typer.echo(f"next: {command}")


def _write(made: Mapping[str, str]) -> None:
    """Write files, all of them or none."""
    there = [path for path in made if Path(path).exists()]
    if there:
        raise UsageError(f"{there[0]} exists; nothing was written")
    for path, text in made.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text, encoding="utf-8", newline="\n")
        typer.echo(f"wrote {path}")


def _next(name: str, release: str, in_place: bool) -> list[str]:
    pin = f"rewriter pin {release} --codemod {name}"
    if in_place:
        return [f"pytest tests/test_{name}.py", pin]
    return [f"pip install -e {name}", f"pytest {name}", f"{pin} --fixtures {name}/fixtures"]
