"""A patch out of its file, and what carrying it to a target gives."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from rewriter.carried import CarriedPatch, Delta, first_changed, name_of
from rewriter.carry.steps import Fate, Step
from rewriter.codemod import Site
from rewriter.manifest import Hunk
from rewriter.model import Nearest, SiteResult, State, Verdict

if TYPE_CHECKING:
    from rewriter.carry.carrying import Carried, HunkResult
    from rewriter.targets import Target

_STATES = {Fate.UPSTREAM: State.UPSTREAM, Fate.EXACTLY: State.READY, Fate.STRUCTURE: State.READY}
"""All other fates are in the way of an application."""


class FreshPatch(CarriedPatch):
    """A patch out of its file, and what carrying it to a target gives."""

    def __init__(
        self, file: tuple[str, bytes], origin: str, ends: tuple[Target, Target], rival: str = ""
    ) -> None:
        """Note what is to be carried; that is done when somebody asks for it.

        Args:
            file: the name and the bytes of the patch.
            origin: what it is for, in the user's word.
            ends: the target that it is for, and the one that it is wanted in.
            rival: another version of the patch that is in there.
        """
        self.file = file
        self.name = name_of(*file)
        self.sha256 = hashlib.sha256(file[1]).hexdigest()
        self.origin = origin
        self._ends, self.rival = ends, rival

    @cached_property
    def carried(self) -> Carried:
        """What became of it hunk by hunk, and the files.

        Raises:
            UsageError, RefusedError: the patch is none, or none of what it is for.
        """
        from rewriter.carry.carrying import carry

        return carry([self.file], *self._ends)

    @cached_property
    def deltas(self) -> Mapping[str, Delta]:
        """Its files without and with it; none while a hunk is a conflict."""
        return {c.path: Delta(c.before, c.after) for c in self.carried.changes}

    @property
    def target(self) -> str:  # type: ignore[override]
        """The first of its files."""
        return next(iter(self.files()), "")

    @property
    def executable(self) -> frozenset[str]:
        """Those of the files that it brings that are to be run."""
        return frozenset(change.path for change in self.carried.changes if change.executable)

    @property
    def new(self) -> tuple[str, ...]:
        """The files that it brings."""
        return tuple(path for path, delta in self.deltas.items() if delta.before is None)

    def files(self) -> dict[str, list[Site]]:
        """Return the files that it changes, or would."""
        paths = [*self.deltas, *(result.onto for result in self.carried.results)]
        return {path: [] for path in dict.fromkeys(paths)}

    @cached_property
    def hunks(self) -> Sequence[Hunk]:  # type: ignore[override]
        """Where it is written, file by file."""
        return [hunk for path in self.deltas for hunk in self._hunks(path)]

    def _hunks(self, path: str) -> Iterator[Hunk]:
        delta = self.deltas[path]
        if delta.before is None or delta.after is None:
            new = delta.before is None
            yield Hunk(path, "new file" if new else "deleted", "", 1 if new else None)
            return
        told = False
        for result in self.carried.results:
            if result.onto == path and result.fate not in (Fate.UPSTREAM, Fate.CONFLICT):
                step = placed(result)
                at = step.line if step is not None else None
                line = None if at is None else first_changed(delta, at)
                name = step.definition if step is not None else ""
                yield Hunk(path, kind_of(result), name, line, None, how(result))
                told = True
        if not told:  # what the patch changes was moved here
            yield Hunk(path, "moved here", "", None)

    def afresh(self) -> Verdict:
        """Return what it would be where nothing of it is."""
        if self.rival:
            reason = (
                f"another version of it, {self.rival}, is applied here; `rewriter sync` replaces "
                f"it, or: rewriter revert {self.rival}"
            )
            return Verdict(self.name, "", State.DRIFTED, reason=reason)
        return verdict_of(self.name, self.carried)


def verdict_of(name: str, carried: Carried) -> Verdict:
    """Return what carrying a patch came to, as a verdict: its sites are the hunks."""
    sites = tuple(_site(result) for result in carried.results)
    states = {site.state for site in sites}
    state = State.READY if State.READY in states else State.UPSTREAM
    reason = "" if state is State.READY else "all of the patch is there already"
    if State.DRIFTED not in states:
        return Verdict(name, sites[0].file if sites else "", state, sites, reason)
    bad = [n for n, site in enumerate(sites) if site.state is State.DRIFTED]
    at = next((n for n in bad if carried.results[n].fate is Fate.CONFLICT), bad[0])
    about = sites[at]
    reason = f"{about.file}, {about.kind}: {about.reason}"
    return Verdict(name, about.file, State.DRIFTED, sites, reason, about.nearest)


def _site(result: HunkResult) -> SiteResult:
    state, step = _STATES.get(result.fate, State.DRIFTED), placed(result)
    line, definition, nearest = None, "", None
    if step is not None:
        line, definition = step.line, step.definition
        text = (step.theirs.splitlines() or [""])[0]
        if state is State.DRIFTED and line and text:
            nearest = Nearest(line, text, "")
    return SiteResult(definition, kind_of(result), line, state, how(result), nearest, result.onto)


def kind_of(result: HunkResult) -> str:
    """Return what a hunk is called in a report."""
    return f"hunk {result.number}" if result.number else "file"


def placed(result: HunkResult) -> Step | None:
    """Return the step that stands for a hunk: the worst, which its fate tells."""
    return next((step for step in result.steps if step.fate is result.fate), None)


def how(result: HunkResult) -> str:
    """Return how a hunk was placed, or why it is a conflict; empty where exactly."""
    whys = dict.fromkeys(s.reason for s in result.steps if s.fate is result.fate and s.reason)
    told = "; ".join(whys)
    if result.fate in (Fate.EXACTLY, Fate.UPSTREAM):
        return ""
    if result.fate is Fate.CONFLICT:
        return told
    return f"{result.fate}: {told}" if told else str(result.fate)
