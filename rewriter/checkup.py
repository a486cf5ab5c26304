"""One page about a target: what it is, what stands in it, what is left over, and what to do."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from rewriter import __version__, proving
from rewriter.catalog import DEFAULT
from rewriter.errors import RewriterError
from rewriter.leftovers import Leftover
from rewriter.model import State, Verdict
from rewriter.processes import older_than, sentence
from rewriter.session import Session
from rewriter.states import Survey
from rewriter.targets import Target
from rewriter.targets.disk import PACKAGE
from rewriter.targets.home import Home, home_of
from rewriter.transaction.bytecode import caches


class Finding(NamedTuple):
    """Something that needs attention.

    Attributes:
        what: where it is and what, in a few words.
        do: the command that mends it; empty where there is none.
    """

    what: str
    do: str = ""


class Standing(NamedTuple):
    """One codemod: what it is there, why, and on what that rests."""

    verdict: Verdict
    proof: str


class Checkup(NamedTuple):
    """What is known of a target.

    Attributes:
        facts: label → what is known, in the order in which it is told.
        standings: one a codemod.
        findings: what needs attention.
        advice: commands that may come next where nothing does.
    """

    facts: dict[str, str]
    standings: tuple[Standing, ...]
    findings: tuple[Finding, ...]
    advice: tuple[str, ...]

    @property
    def healthy(self) -> bool:
        """Whether nothing needs attention."""
        return not self.findings


def examine(
    session: Session,
    survey: Survey | RewriterError,
    wanted: Iterable[str],
    left: Iterable[Leftover],
    named: Mapping[str, str],
) -> Checkup:
    """Look at a target, and write nothing.

    Args:
        session: every codemod that there is, on the target.
        survey: what they are there, or why that cannot be told.
        wanted: names of those that ought to be applied there.
        left: files of ours that nothing uses.
        named: the options that name the target, for the commands to run next.
    """
    home = home_of(session.target)
    on = "".join(f" {option} {shlex.quote(value)}" for option, value in named.items())
    facts = _facts(session.target, home, named)
    findings = [
        Finding(
            f"left over: {one.path} ({one.what})",
            f"rewriter revert{on}" if one.ours else f"rm {shlex.quote(one.path)}",
        )
        for one in left
    ]
    if home is not None:
        findings += [*_stale(session, home), *_of_text_patches(home)]
    if isinstance(survey, RewriterError):
        return Checkup(facts, (), (Finding(str(survey)), *findings), ())
    facts["record"] = _record(survey)
    standings = tuple(
        Standing(s.verdict, proving.proof_of(session, survey, s)) for s in survey.standings
    )
    held = survey.manifest.codemods if survey.manifest is not None else ()
    meant = {*wanted, *(one.name for one in held)}
    # What cannot be written can have an overlay.
    over = on if facts["writable"] == "yes" or "--overlay" in named else f"{on} --overlay DIR"
    findings[:0] = _of_states(survey, meant, on, over, session.target.version)
    if home is not None and survey.manifest is not None:
        running = older_than(home.root, survey.manifest.files)
        findings += [Finding(sentence(running), "restart it")] if running else []
    return Checkup(facts, standings, tuple(findings), _advice(survey, meant, on, over))


def _facts(target: Target, home: Home | None, named: Mapping[str, str]) -> dict[str, str]:
    import libcst

    layout = str(getattr(target, "layout", target.kind))
    facts = {
        "sglang": target.version or "version unknown",
        "where": target.location,
        "layout": _LAYOUTS.get(layout, layout),
        "witness": _witness(target, home),
        "writable": _writable(target, home),
    }
    if "--python" in named or not named:
        facts["interpreter"] = named.get("--python", sys.executable)
    version = getattr(libcst, "__version__", "")
    if not version:
        from importlib.metadata import version as version_of

        version = version_of("libcst")
    facts["tool"] = f"rewriter {__version__}, LibCST {version}, Python {platform.python_version()}"
    overlays = [f.rewriter_overlay for f in sys.meta_path if hasattr(f, "rewriter_overlay")]
    facts["overlays"] = ", ".join(map(str, overlays)) or "none in this interpreter"
    return facts


_LAYOUTS = {
    "wheel": "installed from a wheel, beside its dist-info",
    "editable": "editable: the files are a source tree",
    "bare": "copied: nothing describes its files",
    "checkout": "a working tree",
    "overlay": "an overlay over a package, which stays as it is",
    "release": "a release on the package index; only read",
    "revision": "a commit; only read",
    "installed": "installed",
}


def _witness(target: Target, home: Home | None) -> str:
    """Say what can prove the files to be as shipped."""
    record = getattr(target, "record", None)
    rows = record() if callable(record) else None
    if rows and home is not None:
        sources = sum(not path.endswith(".pyc") for path in rows)
        return f"{home.shown}/RECORD, {sources:,} files"
    if home is not None and home.top is not None:
        return f"the blobs in HEAD of {home.top}"
    if target.kind in ("release", "wheel"):
        return "the wheel's own RECORD"
    if target.kind == "revision":
        return "the commit"
    return "pins alone: no RECORD, no commit"


def _writable(target: Target, home: Home | None) -> str:
    """Say whether this user could write there, without writing."""
    if not target.writable or home is None:
        return "no: this kind of target is only read"
    package = home.root / PACKAGE
    around = home.folder if home.folder.is_dir() else home.root
    for place in (package, around):
        if not place.is_dir():
            continue
        if hasattr(os, "statvfs") and os.statvfs(place).f_flag & getattr(os, "ST_RDONLY", 0):
            return f"no: {place} is on a read-only file system"
        if not os.access(place, os.W_OK | os.X_OK):
            return f"no: this user cannot write in {place}"
    return "yes"


def _record(survey: Survey) -> str:
    if survey.home is None:
        return "none: this kind of target has no record"
    if survey.manifest is None:
        return "none: nothing was applied here, or the record is lost"
    known = survey.manifest
    names = ", ".join(held.name for held in known.codemods)
    return f"{survey.home.shown}/{survey.home.manifest}, by {known.tool}: {names}"


_BAD = frozenset({State.ORPHANED, State.TAMPERED, State.PARTIAL, State.DRIFTED, State.UNSUPPORTED})


def _of_states(
    survey: Survey, chosen: set[str], on: str, over: str, version: str | None
) -> Iterator[Finding]:
    """Yield what is amiss with codemods: with all that left something, and those that are meant."""
    if survey.journal is not None:
        verdict = survey.standings[0].verdict if survey.standings else None
        reason = verdict.reason if verdict is not None else "a run died half-way"
        yield Finding(reason, "" if survey.alive else f"rewriter revert{on}")
        return
    for standing in survey.standings:
        verdict = standing.verdict
        name, state = verdict.codemod, verdict.state
        meant = name in chosen or state in (State.ORPHANED, State.TAMPERED, State.PARTIAL)
        if state in _BAD and meant:
            yield Finding(f"{name} is {state}: {verdict.reason}", _mend(name, state, on, version))
        elif standing.outdated:
            yield Finding(f"{name} was applied by another version", f"rewriter apply {name}{on}")
        elif state is State.READY and name in chosen:
            yield Finding(f"{name} is not applied", f"rewriter apply {name}{over}")


def _mend(name: str, state: State, on: str, version: str | None) -> str:
    if state is State.ORPHANED:
        return f"rewriter revert{on}"
    if state is State.UNSUPPORTED:
        return f"rewriter check {name} --force-version{on}"
    if state is State.DRIFTED:
        return f"rewriter explain {name}{on}"
    again = f"pip install --force-reinstall --no-deps {PACKAGE}=={version or 'VERSION'}"
    return f"rewriter explain {name}{on}; or {again}"


def _stale(session: Session, home: Home) -> Iterator[Finding]:
    """Yield byte code that Python would run though its source is another by now."""
    for path in sorted({path for codemod in session.codemods for path in codemod.files()}):
        source = home.root / path
        if not source.is_file():
            continue
        try:
            for cached in caches(source):
                why = _outdated(cached, source)
                if why:
                    yield Finding(
                        f"byte code {cached.name}: {why}", f"rm {shlex.quote(str(cached))}"
                    )
        except OSError as error:
            yield Finding(f"{source.parent}/__pycache__: {error.strerror or error}")


def _outdated(cached: Path, source: Path) -> str:
    """Say why a cached file may not be of its source's bytes; empty where Python would see that."""
    with cached.open("rb") as file:
        head = file.read(16)
    flags = int.from_bytes(head[4:8], "little")
    if len(head) < 16:
        return "cut short"
    if flags & 1:
        return "" if flags & 2 else "is never compared with its source"
    status = source.stat()
    when, size = int.from_bytes(head[8:12], "little"), int.from_bytes(head[12:16], "little")
    if size != status.st_size & 0xFFFFFFFF and when == int(status.st_mtime) & 0xFFFFFFFF:
        return "has the time of its source, and another size"
    return ""


def _of_text_patches(home: Home) -> Iterator[Finding]:
    """Yield what ``patch`` leaves behind: rejected hunks and saved originals."""
    for folder, folders, names in os.walk(home.root / PACKAGE):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            if name.endswith((".py.rej", ".py.orig")):
                path = Path(folder) / name
                what = "a hunk that `patch` rejected" if name.endswith("rej") else "left by `patch`"
                yield Finding(
                    f"{path.relative_to(home.root).as_posix()}: {what}",
                    f"rm {shlex.quote(str(path))}",
                )


def _advice(survey: Survey, chosen: set[str], on: str, over: str) -> tuple[str, ...]:
    """Return the commands that may come next."""
    verdicts = [s.verdict for s in survey.standings]
    applied = [v.codemod for v in verdicts if v.state is State.APPLIED]
    ready = [v.codemod for v in verdicts if v.state is State.READY and v.codemod not in chosen]
    others = [name for name in ready if name != DEFAULT]
    advice = []
    if applied:
        names = " ".join(applied)
        advice.append(f"before each start: rewriter check {names} --require applied -q{on}")
    if DEFAULT in ready:
        advice.append(f"to apply: rewriter apply {DEFAULT}{over}")
    if others:
        advice.append(f"would fit as well: {', '.join(others)}; `rewriter list` says what for")
    return tuple(advice)
