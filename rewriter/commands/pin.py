"""``rewriter pin``: record what releases look like to a codemod."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rewriter import pins
from rewriter.codemod import Codemod
from rewriter.commands.options import Json
from rewriter.errors import RefusedError
from rewriter.model import State


def run(
    releases: Annotated[list[str], typer.Argument(help="Releases to fetch and pin.")],
    codemod: Annotated[
        list[str] | None, typer.Option("--codemod", help="Which codemod; may be repeated.")
    ] = None,
    fixtures: Annotated[
        Path, typer.Option("--fixtures", help="Where the pins go.", metavar="DIR")
    ] = Path("fixtures"),
    as_json: Json = False,
) -> None:
    """Write version pins: hashes, sites and lines, never upstream's source."""
    from rewriter.report.progress import fetching
    from rewriter.session import choose
    from rewriter.targets import resolve

    codemods = choose(codemod)
    made: dict[str, list[pins.Pin]] = {c.name: [] for c in codemods}
    rows: list[dict[str, str]] = []
    for release in releases:
        target = resolve(release=release, progress=None if as_json else fetching())
        for one in codemods:
            for path in one.files():
                raw = target.read(path)
                row = {"codemod": one.name, "release": release, "file": path, "state": "absent"}
                if raw is not None:
                    pin = pinned(one, path, raw, release)
                    made[one.name].append(pin)
                    row.update(state=pin.state.value, source=pin.source[:10])
                rows.append(row)
                if not as_json:
                    typer.echo(f"{release:<14} {one.name}: {row['state']} {row.get('source', '')}")
    written: list[str] = []
    for name, new in made.items():
        if new:
            merged = pins.merge(pins.load(name, fixtures), new)
            written += [str(path) for path in pins.save(name, merged, fixtures)]
    if as_json:
        from rewriter.report.jsons import document

        typer.echo(document("pin", None, written=written, exit_code=0, pinned=rows))
    else:
        typer.echo(f"{len(written)} pins in {fixtures}")


def pinned(codemod: Codemod, path: str, raw: bytes, release: str) -> pins.Pin:
    """Make the pin of one file of one release.

    Raises:
        RefusedError: the codemod is drifted there: nothing is pinned that does not work.
    """
    from rewriter import engine

    found = engine.examine(codemod, path, raw)
    if found.state not in (State.READY, State.UPSTREAM):
        raise RefusedError(
            f"{codemod.name} is {found.state} in {release} ({path}): {found.reason}; not pinned"
        )
    patched = ""
    if found.state is State.READY:
        patched = pins.sha256(engine.apply(codemod, path, raw))
    sites = tuple(
        pins.PinnedSite(s.definition, s.kind, s.line) for s in found.sites if s.line is not None
    )
    return pins.Pin(path, pins.sha256(raw), (release,), found.state, sites, patched)
