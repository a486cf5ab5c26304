"""``rewriter matrix``: codemods × revisions. Would each be fine?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rewriter.commands.options import Codemods, ForceVersion, Json
from rewriter.commands.reports import Github, Html, Junit, Markdown, Sarif, tell_github, write
from rewriter.errors import TargetError, UsageError

if TYPE_CHECKING:
    from rewriter.blobs import Judge
    from rewriter.rows import Matrix, Row
    from rewriter.targets import Target

_PANEL = "Revisions"


def _option(*names: str, help: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, rich_help_panel=_PANEL)


Repo = Annotated[Path | None, _option("--repo", help="A git repository of sglang.", metavar="DIR")]
Revs = Annotated[
    str | None,
    _option("--revs", help="Commits of --repo (default: all up to HEAD).", metavar="A..B"),
]
Tags = Annotated[bool, _option("--tags", help="The tags of --repo, not its commits.")]
Since = Annotated[
    str | None, _option("--since", help="Only what is later, as git reads it.", metavar="DATE")
]
Releases = Annotated[
    str | None, _option("--releases", help="Releases on the index, e.g. '>=0.5.9'.", metavar="SPEC")
]
Checkout = Annotated[
    Path | None, _option("--checkout", help="A working tree as well.", metavar="DIR")
]
Patches = Annotated[
    list[Path] | None,
    typer.Option("--patch", help="How far does this patch carry? May be repeated.", metavar="FILE"),
]
Origin = Annotated[
    str | None,
    typer.Option("--from", help="What --patch is for: as `carry --from`.", metavar="A"),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Name every revision.")]


def run(
    codemods: Codemods = None,
    repo: Repo = None,
    revs: Revs = None,
    tags: Tags = False,
    since: Since = None,
    releases: Releases = None,
    checkout: Checkout = None,
    patch: Patches = None,
    origin: Origin = None,
    force_version: ForceVersion = False,
    verbose: Verbose = False,
    as_json: Json = False,
    markdown: Markdown = False,
    github: Github = False,
    sarif: Sarif = None,
    junit: Junit = None,
    html: Html = None,
) -> None:
    """Judge codemods at many revisions; exit 0 if all are fine.

    Commits are judged by structure alone: between two releases a tree states the version of the
    one before it. Tags, releases and working trees are judged by their version as well. With
    --patch FILE --from A it is told how far an ordinary patch carries.
    """
    _check_options(repo, releases, checkout, {"--revs": revs, "--tags": tags, "--since": since})
    if as_json and (markdown or github):
        raise UsageError("--json prints one JSON object, nothing else: leave out the other")
    judge = _judge(codemods, patch or [], origin, repo, force_version, as_json)
    parts: dict[str, list[Row]] = {}
    if repo is not None:
        place = f"{repo} {revs or 'HEAD'}{' (tags)' if tags else ''}"
        parts[place] = _history(judge, repo, revs or "HEAD", since, tags, as_json)
    if releases is not None:
        parts[f"releases {releases}"] = _releases(judge, releases, as_json)
    if checkout is not None:
        parts[str(checkout)] = _tree(judge, checkout)
    matrix = _joined(judge, parts)
    written = write(matrix, sarif=sarif, junit=junit, html=html)
    _tell(matrix, written, as_json, markdown, verbose)
    if github:
        tell_github(matrix)
    raise typer.Exit(matrix.exit_code)


def _judge(
    codemods: list[str] | None, patches: list[Path], origin: str | None, repo: Path | None,
    force_version: bool, quiet: bool,
) -> Judge:  # fmt: skip
    if bool(patches) != bool(origin):
        raise UsageError("--patch FILE and --from A go together: which patch, and what it is for")
    if not patches or origin is None:
        from rewriter.blobs import Judge
        from rewriter.session import choose

        return Judge(choose(codemods), force_version=force_version)
    if codemods:
        raise UsageError(f"--patch is about that patch alone; leave out {codemods[0]}")
    from rewriter.patching import opened
    from rewriter.reach import Reach

    files = [opened(path) for path in patches]
    return Reach(files, origin, _older(origin, repo, quiet))


def _older(origin: str, repo: Path | None, quiet: bool) -> Target:
    """Return what patches are for: a commit of the repository if it has that one, else a release.

    Raises:
        TargetError: it is neither.
    """
    from rewriter.patching import release_named
    from rewriter.report.progress import fetching

    progress = None if quiet else fetching()
    if repo is not None:
        with suppress(TargetError):
            return release_named(origin, repo)
    return release_named(origin, None, progress)


def _joined(judge: Judge, parts: dict[str, list[Row]]) -> Matrix:
    """Make one matrix of the rows of several places, codemod by codemod."""
    from rewriter.rows import Matrix

    rows = [row for part in parts.values() for row in part]
    order = [codemod.name for codemod in judge.codemods]
    rows.sort(key=lambda row: order.index(row.codemod))
    return Matrix(tuple(rows), judge.codemods, ", ".join(parts), judge.sources, judge.judged)


def _check_options(
    repo: Path | None, releases: str | None, checkout: Path | None, of_repo: dict[str, Any]
) -> None:
    if repo is None:
        alone = next((name for name, value in of_repo.items() if value), None)
        if alone is not None:
            raise UsageError(f"{alone} needs --repo DIR: of which repository?")
        if releases is None and checkout is None:
            raise UsageError(
                "name the revisions: --repo DIR with --revs A..B, --tags or --since, "
                "--releases '>=0.5.9', --checkout DIR, or several of them"
            )


def _history(
    judge: Judge, repo: Path, revs: str, since: str | None, tags: bool, quiet: bool
) -> list[Row]:
    from rewriter import walk
    from rewriter.matrix import of_history
    from rewriter.report.steps import counting
    from rewriter.targets.history import History

    history = History(repo)
    span = history.span(revs, since)
    points = (walk.tags if tags else walk.commits)(history, span, judge.codemods)
    with counting("judging", quiet=quiet) as progress:
        return of_history(judge, history, points, progress)


def _releases(judge: Judge, wanted: str, quiet: bool) -> list[Row]:
    from rewriter.matrix import of_releases
    from rewriter.report.progress import fetching

    progress = None if quiet else fetching()
    versions = matching(wanted)
    opened: Sequence[tuple[str, Callable[[], Target]]] = [
        (version, _opener(version, progress)) for version in versions
    ]
    return of_releases(judge, opened)


def _opener(version: str, progress: Any) -> Callable[[], Target]:
    from rewriter.targets import resolve

    return lambda: resolve(release=version, progress=progress)


def matching(wanted: str) -> list[str]:
    """Return the releases on the index that a specifier takes, oldest first.

    Raises:
        UsageError: that is no specifier, or it takes none; the message names the newest there is.
        TargetError: the index cannot be asked.
    """
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    from rewriter.targets import available_releases

    try:
        specifier = SpecifierSet(wanted)
    except InvalidSpecifier as error:
        raise UsageError(f"--releases {wanted!r}: expected e.g. '>=0.5.9,<0.6'") from error
    known = available_releases()
    found = [version for version in known if specifier.contains(version, prereleases=True)]
    if not found:
        raise UsageError(f"--releases {wanted!r}: no release is; the newest is {known[-1]}")
    return found


def _tree(judge: Judge, checkout: Path) -> list[Row]:
    from rewriter.matrix import of_tree
    from rewriter.targets import resolve

    return of_tree(judge, resolve(checkout=checkout), str(checkout))


def _tell(matrix: Matrix, written: list[str], as_json: bool, markdown: bool, verbose: bool) -> None:
    if as_json:
        from rewriter.report.jsons import document
        from rewriter.report.matrix import rows_json

        target = {"kind": "revisions", "location": matrix.location, "version": None}
        typer.echo(
            document(
                "matrix", target, written=written, exit_code=matrix.exit_code,
                rows=rows_json(matrix.rows), sources=matrix.sources, judged=matrix.judged,
            )
        )  # fmt: skip
        return
    if markdown:
        from rewriter.report.markdown import summary

        typer.echo("\n".join(summary(matrix)))
        return
    from rewriter.report.matrix import lines
    from rewriter.report.text import colourful

    for line in lines(matrix, colour=colourful(), verbose=verbose):
        typer.echo(line)
    for path in written:
        typer.echo(f"wrote {path}")
