"""``rewriter pin``: record what releases look like to a codemod."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from rewriter import pins
from rewriter.codemod import Codemod
from rewriter.commands.options import Json
from rewriter.errors import RefusedError, UsageError
from rewriter.model import State

Releases = Annotated[list[str] | None, typer.Argument(help="Releases to fetch and pin.")]
Which = Annotated[
    list[str] | None, typer.Option("--codemod", help="Which codemod; may be repeated.")
]
Update = Annotated[
    bool, typer.Option("--update", help="All releases since the last one that is pinned.")
]
Fixtures = Annotated[Path, typer.Option("--fixtures", help="Where the pins go.", metavar="DIR")]


def run(
    releases: Releases = None,
    codemod: Which = None,
    update: Update = False,
    fixtures: Fixtures = Path("fixtures"),
    as_json: Json = False,
) -> None:
    """Write version pins: hashes, sites and lines, no source.

    All or nothing: where a codemod is drifted in one of the releases, no pin is written.
    """
    from rewriter.session import choose

    codemods = choose(codemod)
    made: dict[str, list[pins.Pin]] = {c.name: [] for c in codemods}
    rows: list[dict[str, str]] = []
    for release, wanted in _wanted(codemods, releases or [], update, fixtures).items():
        for row, pin in _release(release, wanted, quiet=as_json):
            made[row["codemod"]] += [] if pin is None else [pin]
            rows.append(row)
            if not as_json:
                found = f"{row['state']} {row.get('source', '')}"
                typer.echo(f"{release:<14} {row['codemod']}: {found}".rstrip())
    written: list[str] = []
    for name, new in made.items():
        if new:
            merged = pins.merge(pins.load(name, fixtures), new)
            written += [str(path) for path in pins.save(name, merged, fixtures)]
    if as_json:
        from rewriter.report.jsons import document

        typer.echo(document("pin", None, written=written, exit_code=0, pinned=rows))
    elif not rows:
        last = ", ".join(f"{c.name} {last_pinned(c.name, fixtures)}" for c in codemods)
        typer.echo(f"no release is newer than those pinned in {fixtures}: {last}")
    else:
        from rewriter.report.matrix import count

        typer.echo(f"{count(len(written), 'pin')} in {fixtures}")


def _wanted(
    codemods: Sequence[Codemod], releases: list[str], update: bool, fixtures: Path
) -> dict[str, list[Codemod]]:
    """Return for each release, oldest first, the codemods to pin there."""
    if update == bool(releases):
        raise UsageError("give releases to pin, or --update for all since the last pin")
    if not update:
        return {release: list(codemods) for release in releases}
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    from rewriter.targets import available_releases

    wanted: dict[str, list[Codemod]] = {}
    last = {codemod.name: last_pinned(codemod.name, fixtures) for codemod in codemods}
    for release in available_releases():
        for codemod in codemods:
            newest = last[codemod.name]
            if newest is None:
                new = SpecifierSet(codemod.supports).contains(release, prereleases=True)
            else:
                new = Version(release) > Version(newest)
            if new:
                wanted.setdefault(release, []).append(codemod)
    return wanted


def last_pinned(codemod: str, fixtures: Path) -> str | None:
    """Return the newest release that a codemod is pinned in; None where there are no pins."""
    from packaging.version import Version

    known = [release for pin in pins.load(codemod, fixtures) for release in pin.releases]
    return max(known, key=Version, default=None)


def _release(
    release: str, codemods: Sequence[Codemod], *, quiet: bool
) -> Iterator[tuple[dict[str, str], pins.Pin | None]]:
    """Yield what each codemod is in each of its files of one release, and the pin of it."""
    from rewriter.report.progress import fetching
    from rewriter.targets import resolve

    target = resolve(release=release, progress=None if quiet else fetching())
    for codemod in codemods:
        for path in codemod.files():
            raw = target.read(path)
            row = {"codemod": codemod.name, "release": release, "file": path, "state": "absent"}
            pin = None if raw is None else pinned(codemod, path, raw, release)
            if pin is not None:
                row |= {"state": pin.state.value, "source": pin.source[:10]}
            yield row, pin


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
