"""What every codemod is in a target: structure, and the record beside it, in one verdict.

The record comes first where it proves itself by hashes; where it does not, the structure of the
files decides. The order of the states is that of ``State``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from rewriter import catalog, layers
from rewriter.codemod import Codemod
from rewriter.errors import SourceError
from rewriter.model import State, Verdict
from rewriter.targets.home import Home, home_of

if TYPE_CHECKING:
    from rewriter.manifest import Held, Manifest
    from rewriter.session import Session
    from rewriter.transaction.journal import Journal

MARKED = frozenset({State.APPLIED, State.PARTIAL, State.TAMPERED})
"""States that the structure gives to files that hold edits of ours."""


class Standing(NamedTuple):
    """What one codemod is in a target.

    Attributes:
        verdict: as it is told.
        structure: as the files alone give it, whatever the record says.
        intact: every file is what the manifest says was written.
        outdated: applied, but this version of the tool would write something else.
    """

    verdict: Verdict
    structure: Verdict
    intact: bool = False
    outdated: bool = False


class Survey(NamedTuple):
    """A target's record, and the standing of every codemod of a session.

    Attributes:
        home: where the record lies; None for a target that is never written.
        journal: of a run that is under way or died.
        alive: whether that run goes on.
        manifest: the record, if there is one.
        standings: in the order of the session's codemods.
    """

    home: Home | None
    journal: Journal | None
    alive: bool
    manifest: Manifest | None
    standings: tuple[Standing, ...]

    def standing(self, name: str) -> Standing:
        """Return the standing of one codemod."""
        return next(s for s in self.standings if s.verdict.codemod == name)


def survey(session: Session, *, lenient: bool = False) -> Survey:
    """Judge every codemod of a session, and what those require.

    Args:
        session: the session.
        lenient: call a codemod drifted whose file does not parse.

    Raises:
        SourceError: a file of a codemod does not parse, and no hash of the record says why.
        TargetError: the record or a file cannot be read.
    """
    home = home_of(session.target)
    journal, alive, manifest = _record(home)
    every = [*session.codemods, *layers.required(session.codemods)]
    found = {c.name: _judged(c, session, manifest, lenient) for c in every}
    verdicts = {name: standing.verdict for name, standing in found.items()}
    named = {c.name for c in session.codemods}
    for codemod in session.codemods:
        standing = found[codemod.name]
        if standing.verdict.state in (State.APPLIED, State.READY):
            lacking = layers.missing(codemod, verdicts, named)
            if lacking:
                applied = standing.verdict.state is State.APPLIED
                state = State.PARTIAL if applied else State.DRIFTED
                told = replace(standing.verdict, state=state, reason=lacking)
                found[codemod.name] = standing._replace(verdict=told)
        if journal is not None:
            told = replace(
                found[codemod.name].verdict,
                state=State.INTERRUPTED,
                reason=_interrupted(journal, alive),
                nearest=None,
            )
            found[codemod.name] = found[codemod.name]._replace(verdict=told)
    return Survey(
        home, journal, alive, manifest, tuple(found[c.name] for c in session.codemods)
    )  # fmt: skip


def _judged(
    codemod: Codemod, session: Session, manifest: Manifest | None, lenient: bool
) -> Standing:
    try:
        if codemod.is_patch:
            from rewriter.patches import of_patch

            return Standing(*of_patch(codemod, session.target, manifest))
        return _shared(_standing(codemod, session, manifest), codemod, session)
    except SourceError as error:
        if not lenient:
            raise
        broken = Verdict(codemod.name, codemod.target, State.DRIFTED, reason=str(error))
        return Standing(broken, broken)


def _record(home: Home | None) -> tuple[Journal | None, bool, Manifest | None]:
    """Read journal and manifest; what reads them is loaded only where there is something."""
    if home is None or not home.folder.is_dir():
        return None, False, None
    journal, alive, manifest = None, False, None
    if home.journal_path.exists():
        from rewriter.transaction.journal import is_alive, read

        journal, alive = read(home), is_alive(home)
    if home.manifest_path.exists():
        from rewriter.manifest import load

        manifest = load(home.manifest_path)
    return journal, alive, manifest


def _interrupted(journal: Journal, alive: bool) -> str:
    run = f"{journal.command} ({journal.process})"
    if alive:
        return f"a run of {run} is under way"
    return (
        f"a run of {run} died half-way; the next `rewriter apply` or `rewriter revert` puts "
        "everything back first"
    )


def _standing(codemod: Codemod, session: Session, manifest: Manifest | None) -> Standing:
    held = manifest.held(codemod.name) if manifest is not None else None
    if manifest is not None and held is not None and not catalog.knows(held.name):
        return _forgotten(codemod, held, manifest, session)
    if manifest is None or held is None:
        structure = session.judge(codemod, layers.seen_by(codemod, session))
        return Standing(structure, structure, outdated=_is_older(structure))
    intact = _is_intact(codemod, held, manifest, session)
    try:
        structure = session.judge(codemod, layers.seen_by(codemod, session))
    except SourceError as error:
        if not intact:
            reason = f"neither what was found nor what was written: {error}"
            broken = Verdict(codemod.name, codemod.target, State.TAMPERED, reason=reason)
            return Standing(broken, broken)
        raise
    if intact:
        if structure.state is State.APPLIED:
            return Standing(structure, structure, intact=True)
        versions = ", ".join(held.companions.values())
        reason = f"as {manifest.tool} wrote it" + (f" ({versions})" if versions else "")
        reason += "; `rewriter apply` brings it up to this version"
        told = replace(structure, state=State.APPLIED, reason=reason, nearest=None)
        return Standing(told, structure, intact=True, outdated=True)
    told = _not_intact(codemod, structure, manifest, session)
    return Standing(told, structure, outdated=_is_older(structure))


def _forgotten(codemod: Codemod, held: Held, manifest: Manifest, session: Session) -> Standing:
    """Judge a codemod that this version of the tool does not have, by the manifest alone."""
    if _is_intact(codemod, held, manifest, session):
        reason = f"as {manifest.tool} wrote it; this version does not have it any more"
        told = Verdict(codemod.name, codemod.target, State.APPLIED, reason=reason)
        return Standing(told, told, intact=True)
    reason = "not as it was written, and this version does not have it any more"
    told = Verdict(codemod.name, codemod.target, State.TAMPERED, reason=reason)
    return Standing(told, told)


def _is_intact(codemod: Codemod, held: Held, manifest: Manifest, session: Session) -> bool:
    """Tell whether every file of a codemod is byte for byte what was written."""
    from rewriter.manifest import sha256

    paths = {*codemod.files(), *held.companions}
    known = paths & manifest.files.keys()
    if not known or not held.companions.keys() <= known:
        return False
    for path in known:
        raw = session.target.read(path)
        if raw is None or sha256(raw) != manifest.files[path].after:
            return False
    return True


def _not_intact(
    codemod: Codemod, structure: Verdict, manifest: Manifest, session: Session
) -> Verdict:
    """Say what a codemod is whose files are not as the manifest says."""
    if structure.state is State.APPLIED and not structure.reason:
        return replace(structure, reason="the file was edited elsewhere since; our lines are whole")
    if structure.state in MARKED:
        return structure
    stale = getattr(session.target, "stale", "")  # of an overlay
    if structure.state is State.ABSENT or stale or _has_moved_on(codemod, manifest, session):
        reason = stale or (
            "the package was changed since; the record of what was applied is left over"
        )
        return replace(structure, state=State.ORPHANED, reason=reason, nearest=None)
    reason = f"{codemod.target} is neither what was found nor what was written"
    return replace(structure, state=State.TAMPERED, reason=reason)


def _has_moved_on(codemod: Codemod, manifest: Manifest, session: Session) -> bool:
    """Tell whether files that hold nothing of ours are those of another release, or restored."""
    from rewriter.manifest import sha256
    from rewriter.witness import take

    target = session.target
    if target.version != manifest.version:
        return True
    for path in codemod.files():
        raw, entry = target.read(path), manifest.files.get(path)
        if raw is None or entry is None or sha256(raw) == entry.before:
            continue
        if take(target, path, raw, [codemod.name]) is None:
            return False
    return True


def _is_older(structure: Verdict) -> bool:
    """Tell whether all sites are ours and only the companion is another version of ours."""
    left = [site for site in structure.sites if site.state is not State.APPLIED]
    return (
        structure.state is State.PARTIAL
        and bool(left)
        and all(s.kind == "companion" and s.state is State.PARTIAL for s in left)
    )


def _shared(standing: Standing, codemod: Codemod, session: Session) -> Standing:
    """Leave out a companion that is there for another codemod: it makes no orphan."""
    verdict = standing.structure
    if standing.verdict.state is not State.ORPHANED or verdict.state is not State.ORPHANED:
        return standing
    if standing.verdict.reason == getattr(session.target, "stale", None):
        return standing
    paths = {c.path for c in codemod.companions}
    raws = layers.seen_by(codemod, session)
    for name in catalog.names():
        other = catalog.load(name)
        if name == codemod.name or not paths & {c.path for c in other.companions}:
            continue
        if session.judge(other, layers.seen_by(other, session)).state in MARKED:
            hidden = {path: None if path in paths else raw for path, raw in raws.items()}
            alone = session.judge(codemod, hidden)
            return Standing(alone, alone)
    return standing
