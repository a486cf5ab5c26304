"""On what a state rests: the record's hashes, a witness, a pin, or the structure alone."""

from __future__ import annotations

from rewriter.manifest import Manifest, sha256
from rewriter.model import State
from rewriter.session import Session
from rewriter.states import Standing, Survey
from rewriter.targets.home import home_of
from rewriter.witness import doubts, named, take


def proof_of(session: Session, survey: Survey, standing: Standing) -> str:
    """Return in words what a codemod's state rests on."""
    state, name = standing.verdict.state, standing.verdict.codemod
    if state is State.INTERRUPTED:
        return "the journal of that run"
    if standing.intact and survey.manifest is not None:
        return f"every file has the hash that the record holds; {_witnesses(survey.manifest, name)}"
    if state is State.APPLIED:
        return _by_pin(session, name) or "structure: every place is ours"
    if state in (State.READY, State.UPSTREAM, State.DRIFTED, State.UNSUPPORTED):
        return _as_shipped(session, standing)
    if state is State.ABSENT:
        return "no such file"
    return "structure" + ("" if survey.manifest is None else ", and the record's hashes differ")


def _witnesses(manifest: Manifest, name: str) -> str:
    held = manifest.held(name)
    paths = held.files if held is not None else ()
    found = [manifest.files[p].witness for p in paths if p in manifest.files]
    told = dict.fromkeys(str(witness) for witness in found if witness is not None)
    return "the original was proved by " + ", ".join(told) if told else "no witness is on record"


def _by_pin(session: Session, name: str) -> str:
    """Return which releases' patched files these are, where a pin knows them all."""
    from rewriter import pins

    codemod = next(c for c in session.codemods if c.name == name)
    releases: dict[str, None] = {}
    for path in codemod.files():
        raw = session.target.read(path)
        pin = pins.lookup(name, path, raw) if raw is not None else None
        if pin is None or raw is None or pin.patched != sha256(raw):
            return ""
        releases |= dict.fromkeys(pin.releases)
    return f"the pin of sglang {named(list(releases), session.target.version)}, patched"


def _as_shipped(session: Session, standing: Standing) -> str:
    codemod = next(c for c in session.codemods if c.name == standing.verdict.codemod)
    told: dict[str, None] = {}
    witnesses: dict[str, None] = {}
    for path in codemod.files():
        raw = session.target.read(path)
        if raw is None:
            continue
        witness = take(session.target, path, raw, [codemod.name])
        if witness is not None:
            witnesses[str(witness)] = None
            continue
        home = home_of(getattr(session.target, "base", session.target))
        why = doubts(home, path, raw) if home is not None else "no pin knows it"
        told[f"structure alone, and not as shipped: {why}"] = None
    shipped = [f"as shipped: {', '.join(witnesses)}"] if witnesses else []
    return "; ".join([*shipped, *told])
