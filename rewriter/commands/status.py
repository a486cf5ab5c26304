"""``rewriter status``: what every codemod is in a target, and what that rests on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rewriter.commands.options import Codemods, ForceVersion, Json, TargetOptions, with_target
from rewriter.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rewriter.codemod import Codemod
    from rewriter.leftovers import Leftover
    from rewriter.manifest import Held
    from rewriter.session import Session
    from rewriter.states import Survey
    from rewriter.targets import Target


@with_target
def run(
    options: TargetOptions,
    codemods: Codemods = None,
    only_digest: Annotated[
        bool, typer.Option("--digest", help="Print one hash, equal wherever patched alike.")
    ] = False,
    expect: Annotated[
        str | None,
        typer.Option("--expect", help="Exit 1 if the hash is another.", metavar="HASH"),
    ] = None,
    force_version: ForceVersion = False,
    as_json: Json = False,
) -> None:
    """Tell every codemod's state and proof, our files and leftovers.

    Exits 0 whatever the answer is; `check` is the one for gates, or `--expect HASH`.
    """
    from rewriter import config, states
    from rewriter.proving import proof_of
    from rewriter.report.progress import fetching
    from rewriter.session import Session

    target = options.resolve(None if as_json else fetching())
    force_version = force_version or config.load().force_version
    session = Session(target, chosen(codemods, target), force_version)
    survey = states.survey(session, lenient=True)
    if only_digest or expect is not None:
        raise typer.Exit(_tell_digest(session, survey, expect, as_json))
    proofs = {s.verdict.codemod: proof_of(session, survey, s) for s in survey.standings}
    left = left_over(session, survey)
    if as_json:
        _print_json(session, survey, proofs, left)
        return
    for line in _lines(session, survey, proofs, left):
        typer.echo(line)


def _tell_digest(session: Session, survey: Survey, expect: str | None, as_json: bool) -> int:
    """Print the hash of the target, and what differs from the expected one."""
    from rewriter import fleet

    if expect is not None and not re.fullmatch(r"[0-9a-f]{64}", expect):
        raise UsageError(f"--expect: {expect!r} is no hash that `status --digest` prints")
    found = fleet.digest(session, survey)
    told = fleet.differing(expect, found) if expect is not None else []
    code = 1 if told else 0
    if as_json:
        from rewriter.report.jsons import document

        verdicts = [standing.verdict for standing in survey.standings]
        typer.echo(
            document(
                "status", session.described(), verdicts, exit_code=code, digest=found, differs=told
            )
        )
        return code
    typer.echo(found)
    if told:
        typer.echo(f"expected {expect}; what differs: {', '.join(told)}", err=True)
        from rewriter.commands.check import target_line

        typer.echo(target_line(session.target.location, session.target.version), err=True)
        for standing in survey.standings:
            typer.echo(f"{standing.verdict.codemod}: {standing.verdict.state}", err=True)
    return code


def chosen(names: list[str] | None, target: Target) -> list[Codemod]:
    """Return the named codemods; else all that there are, and those that the record alone knows."""
    from rewriter import catalog, config
    from rewriter.forgotten import Forgotten
    from rewriter.manifest import load
    from rewriter.session import choose, in_order
    from rewriter.targets.home import home_of

    home = home_of(target)
    known = load(home.manifest_path) if home is not None else None
    held = list(known.codemods) if known is not None else []
    for one in held:
        if catalog.knows(one.name):
            catalog.load(one.name)  # a plug-in that the record names counts as named
    gone = [one for one in held if one.carried is None and one.name not in catalog.names()]
    forgotten = [Forgotten(one) for one in gone]
    if names:
        mine = [one for one in forgotten if one.name in names]
        rest = [n for n in names if all(n != one.name for one in mine)]
        return [*mine, *(choose(rest, target) if rest else ())]
    every = in_order(catalog.load(name) for name in catalog.names())
    if config.load().patches or any(one.carried for one in held):
        from rewriter.patching import wanted_or_there

        return [*wanted_or_there(target), *forgotten, *every]
    return [*forgotten, *every]


def left_over(session: Session, survey: Survey) -> list[Leftover]:
    """Return the files of ours that no codemod uses, whichever codemods were named."""
    from rewriter import states
    from rewriter.leftovers import leftovers
    from rewriter.session import Session

    if survey.home is None or survey.journal is not None:
        return []
    every = Session(session.target, chosen(None, session.target), session.force_version)
    in_use: set[str] = set()
    for codemod, standing in zip(
        every.codemods, states.survey(every, lenient=True).standings, strict=True
    ):
        held = survey.manifest.held(codemod.name) if survey.manifest is not None else None
        if standing.intact and held is not None:
            in_use |= held.companions.keys()
        elif standing.structure.state in states.MARKED:
            in_use |= {companion.path for companion in codemod.companions}
    return leftovers(survey.home, in_use)


def _lines(
    session: Session, survey: Survey, proofs: dict[str, str], left: list[Leftover]
) -> Iterable[str]:
    from rewriter import __version__
    from rewriter.commands.check import target_line
    from rewriter.report.text import colourful, verdict_lines

    target = session.target
    yield target_line(target.location, target.version)
    yield f"rewriter {__version__}" + _record_words(survey)
    for standing in survey.standings:
        yield from verdict_lines(standing.verdict, colour=colourful())
        yield from _patch_words(survey, standing.verdict.codemod)
        yield f"  proof: {proofs[standing.verdict.codemod]}"
    yield from _our_files(survey)
    for one in left:
        yield f"left over: {one.path} ({one.what})" + (
            "; `rewriter revert` removes it" if one.ours else "; remove it by hand"
        )
    yield from _processes(survey)


def _patch_words(survey: Survey, name: str) -> Iterable[str]:
    held = survey.manifest.held(name) if survey.manifest is not None else None
    if held is not None and held.carried is not None:
        yield f"  patch: made for {held.carried.origin}, sha256 {held.carried.sha256[:16]}…"


def _record_words(survey: Survey) -> str:
    if survey.home is None:
        return ""
    if survey.manifest is None:
        return "; no record: nothing was applied here by this tool, or the record is lost"
    known = survey.manifest
    version = f", to sglang {known.version}" if known.version else ""
    return f"; record: {survey.home.shown}/{survey.home.manifest}, by {known.tool}{version}"


def _our_files(survey: Survey) -> Iterable[str]:
    if survey.manifest is None or survey.home is None:
        return
    for held in survey.manifest.codemods:
        for path, version in held.companions.items():
            if (survey.home.root / path).is_file():
                yield f"ours: {path} (companion {version})"
        if held.carried is not None:
            for path, kept in held.carried.files.items():
                if kept.new and (survey.home.root / path).is_file():
                    yield f"ours: {path} (brought by {held.name})"
    yield f"ours: {survey.home.shown}/{survey.home.manifest} (the record)"


def _processes(survey: Survey) -> Iterable[str]:
    from rewriter.processes import older_than, sentence

    if survey.manifest is None or survey.home is None:
        return
    found = older_than(survey.home.root, survey.manifest.files)
    if found:
        yield sentence(found)


def _held_json(held: Held) -> dict[str, Any]:
    value: dict[str, Any] = {"name": held.name, "companions": dict(held.companions)}
    if held.carried is not None:
        patch = held.carried
        value["patch"] = {"sha256": patch.sha256, "from": patch.origin, "files": list(patch.files)}
    return value


def _print_json(
    session: Session, survey: Survey, proofs: dict[str, str], left: list[Leftover]
) -> None:
    from rewriter.report.jsons import document

    known, home = survey.manifest, survey.home
    record = None
    if known is not None and home is not None:
        record = {
            "path": f"{home.shown}/{home.manifest}",
            "tool": known.tool,
            "version": known.version,
            "codemods": [_held_json(held) for held in known.codemods],
        }
    typer.echo(
        document(
            "status", session.described(), [s.verdict for s in survey.standings], exit_code=0,
            proofs=proofs, record=record, left_over=[one._asdict() for one in left],
        )
    )  # fmt: skip
