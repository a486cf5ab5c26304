"""Where ``carry`` puts patches: into a target, or into a directory with a record of its own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rewriter.carry import hunks
from rewriter.carry.carrying import Carried
from rewriter.carry.steps import Fate
from rewriter.fresh import FreshPatch
from rewriter.model import State
from rewriter.patching import wanted
from rewriter.session import Session

if TYPE_CHECKING:
    from rewriter.installing import Installed
    from rewriter.targets import Target

Files = list[tuple[str, bytes]]


def put_in(
    files: Files, origin: str, older: Target, target: Target,
    dry_run: bool, accept_unproven: bool, as_json: bool,
) -> int:  # fmt: skip
    """Carry patches into a target, all or nothing, and tell it; return the exit code."""
    from rewriter import config
    from rewriter.commands.writing import told, writing
    from rewriter.installing import install
    from rewriter.targets.overlay import Overlay

    if isinstance(target, Overlay):
        target.check_base()
    accept_unproven = accept_unproven or config.load().accept_unproven
    for name, raw in files:
        hunks.read(raw, name)  # what is no patch is told first
    with writing(target, "give --overlay DIR", dry_run=dry_run) as recovered:
        patches = wanted(files, origin, older, target)
        session = Session(target, patches)
        fresh = [p for p in patches if isinstance(p, FreshPatch) and not p.rival]
        bad = next((patch for patch in fresh if patch.carried.conflicts), None)
        done = None
        if bad is None:
            done = install(session, dry_run=dry_run, accept_unproven=accept_unproven)
    code = 1
    if done is not None and (done.sorted.todo or _is_in(done)):
        code = 0
    if as_json:
        _print_json(session, fresh, done, recovered, dry_run, code)
        return code
    for line in (*told(target, recovered), *_lines(session, fresh, done, dry_run)):
        typer.echo(line)
    return code


def _is_in(done: Installed) -> bool:
    return any(verdict.state is State.APPLIED for verdict in done.sorted.satisfied)


def _lines(
    session: Session, fresh: list[FreshPatch], done: Installed | None, dry_run: bool
) -> Iterable[str]:
    from rewriter.commands.writing import afterwards
    from rewriter.report.carried import lines
    from rewriter.report.text import colourful
    from rewriter.report.writing import pristine_lines, written_lines

    for patch in fresh:
        yield f"{patch.name}, made for {patch.origin}"
        yield from lines(patch.carried, colour=colourful())
        if patch.carried.conflicts:
            version = session.target.version or "DIR"
            yield "nothing was written: an install gets all of a patch or nothing. Way on:"
            yield (
                f"  rewriter carry {patch.file[0]} --from {patch.origin} --onto {version} "
                "--partial --patch new.patch"
            )
            yield "  put right in new.patch what is told above, then:"
            yield f"  rewriter carry new.patch --from {version} --apply"
            return
    if done is None:
        return
    for verdict in done.sorted.satisfied:
        yield f"{verdict.codemod} was {verdict.state} already; nothing to write for it"
    if done.transition is None:
        return
    yield from pristine_lines(done.transition.proofs)
    yield from written_lines(done.transition, session.target, dry_run=dry_run)
    if not dry_run:
        for verdict in done.sorted.todo:
            yield f"{verdict.codemod}: applied"
        yield "all files were read back; their hashes are right"
        yield from afterwards(session, [change.path for change in done.transition.changes])


def _print_json(
    session: Session, fresh: list[FreshPatch], done: Installed | None,
    recovered: str, dry_run: bool, code: int,
) -> None:  # fmt: skip
    from rewriter.report.carried import as_json
    from rewriter.report.jsons import document
    from rewriter.report.writing import proofs_json, shown_paths

    transition = done.transition if done is not None else None
    paths = shown_paths(transition, session.target) if transition is not None else []
    survey = done.survey if done is not None and done.survey is not None else session.survey
    typer.echo(
        document(
            "carry", session.described(), [s.verdict for s in survey.standings], exit_code=code,
            written=[] if dry_run else paths,
            planned=paths if dry_run else [],
            proofs=proofs_json(transition.proofs) if transition is not None else [],
            recovered=recovered,
            patches=[
                {"patch": each.name, "origin": each.origin, **as_json(each.carried)}
                for each in fresh
            ],
        )
    )  # fmt: skip


# --- into a directory of its own -----------------------------------------------------------


def into_directory(
    files: Files, origin: str, carried: Carried, target: Target, output: Path, *, full: bool
) -> list[str]:
    """Write the patched files, or all, and the record by which `status` and `revert` know them."""
    from rewriter.carried import held
    from rewriter.output import write

    patch = FreshPatch(_joined(files, in_part=_in_part(carried)), origin, (target, target))
    patch.carried = carried
    contents = {c.path: c.after for c in carried.changes if c.after is not None}
    record = [held(patch, patch.deltas, contents)] if carried.changes else []
    written = write(output, target, (), carried.changes, full=full, patches=record)
    return [str(output / path) for path in written]


def _in_part(carried: Carried) -> bool:
    whole = (Fate.UPSTREAM, Fate.EXACTLY, Fate.STRUCTURE, Fate.REVIEW)
    return any(result.fate not in whole for result in carried.results)


def _joined(files: Files, *, in_part: bool) -> tuple[str, bytes]:
    """Return several patches as one, for a record; one that is not whole is called so."""
    name = "+".join(name for name, _ in files) + ("-in-part" if in_part else "")
    return name, b"".join(raw for _, raw in files)
