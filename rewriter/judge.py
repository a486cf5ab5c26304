"""From one file to a whole target: what a codemod is there, and what applying it would change."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from rewriter import catalog, engine
from rewriter.codemod import Codemod, Companion
from rewriter.errors import CatalogError, RefusedError, SourceError
from rewriter.model import Change, SiteResult, State, Verdict

Reader = Callable[[str], bytes | None]
"""From a path relative to the package's parent to bytes, or None for "no such file"."""


def judge(
    codemod: Codemod, read: Reader, version: str | None, *, force_version: bool = False
) -> Verdict:
    """Say what one codemod is in a target. Pure but for ``read``.

    Args:
        codemod: the codemod.
        read: reads the target.
        version: the target's version, or None where it is unknown: then structure alone decides.
        force_version: judge by structure alone, whatever the version.

    Raises:
        SourceError: a file of the codemod does not parse.
    """
    raws = {path: read(path) for path in codemod.files()}
    companions = _companions(codemod, read)
    present = {path: raw for path, raw in raws.items() if raw is not None}
    if not present:
        return _without_files(codemod, companions)
    examined = {path: engine.examine(codemod, path, raw) for path, raw in present.items()}
    files = codemod.files()
    needed = [p for p in raws if p not in present and not all(s.one_of for s in files[p])]
    verdict = _combine(codemod, examined, needed)
    if verdict.state is State.APPLIED:
        wrong = next((r for r in companions if r.state is not State.APPLIED), None)
        if wrong is not None:
            tampered = wrong.state is State.TAMPERED
            state = State.TAMPERED if tampered else State.PARTIAL
            verdict = replace(verdict, state=state, reason=wrong.reason)
        return replace(verdict, sites=verdict.sites + companions)
    if verdict.state in (State.PARTIAL, State.TAMPERED):
        return replace(verdict, sites=verdict.sites + companions)
    left = _left_behind(companions, "is ours, but no file of this release uses it")
    if left is not None:
        return replace(verdict, state=left.state, reason=left.reason, nearest=None)
    if verdict.state in (State.READY, State.DRIFTED) and not force_version:
        outside = out_of_range(codemod, version)
        if outside:
            return replace(verdict, state=State.UNSUPPORTED, reason=outside)
    return verdict


def changes(codemods: Sequence[Codemod], read: Reader) -> list[Change]:
    """Return what applying codemods, in order, would change. All must be ready or applied.

    Raises:
        RefusedError: two of them want the same place.
        ToolBug: the engine's own result failed a check.
    """
    before: dict[str, bytes | None] = {}
    after: dict[str, bytes] = {}
    for codemod in codemods:
        for path in codemod.files():
            raw = before.setdefault(path, read(path))
            if raw is not None and _has_places(codemod, path, after.get(path, raw)):
                after[path] = engine.apply(codemod, path, after.get(path, raw))
        for companion in codemod.companions:
            before.setdefault(companion.path, read(companion.path))
            after[companion.path] = catalog.companion_bytes(companion)
    _check_all(codemods, after)
    return [Change(p, before[p], after[p]) for p in after if before[p] != after[p]]


def _has_places(codemod: Codemod, path: str, raw: bytes) -> bool:
    """Return False for a file that a codemod leaves alone: its group's place is elsewhere."""
    if not all(site.one_of for site in codemod.files()[path]):
        return True
    return bool(engine.examine(codemod, path, raw).sites)


def _check_all(codemods: Sequence[Codemod], after: dict[str, bytes]) -> None:
    """Look at every file with all codemods in it: a later one may have displaced an earlier."""
    for codemod in codemods:
        for path in codemod.files():
            sharing = [c.name for c in codemods if path in c.files()]
            if len(sharing) < 2 or path not in after:
                continue
            found = engine.examine(codemod, path, after[path])
            if not found.sites:
                continue
            if found.state is not State.APPLIED or not found.exact:
                others = ", ".join(name for name in sharing if name != codemod.name)
                raise RefusedError(
                    f"{codemod.name} and {others} want the same place of {path}: "
                    f"{found.reason or found.state}; nothing was written"
                )


def out_of_range(codemod: Codemod, version: str | None) -> str:
    """Say that a version is outside the supported range; empty where it is inside or unknown."""
    if version is None:
        return ""
    if _is_plainly_inside(version, codemod.supports):
        return ""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        supported = SpecifierSet(codemod.supports)
    except InvalidSpecifier as error:
        reason = f"codemod {codemod.name}: `supports` is no PEP 440 range: {error}"
        raise CatalogError(reason) from error
    if supported.contains(version, prereleases=True):
        return ""
    return (
        f"sglang {version} is outside the supported range {codemod.supports}; "
        "--force-version goes by structure alone"
    )


_PLAIN = re.compile(r"(\d+(?:\.\d+)*)(?:\.post(\d+))?")
_RANGE = re.compile(rf">={_PLAIN.pattern},<{_PLAIN.pattern}")


def _is_plainly_inside(version: str, supports: str) -> bool:
    """Return whether a release, or a post-release, is in a range ``>=A,<B`` of such.

    Nearly all are; packaging, which knows the rest of PEP 440, takes a tenth of a warm check to
    import.
    """
    found, bounds = _PLAIN.fullmatch(version), _RANGE.fullmatch(supports)
    if found is None or bounds is None:
        return False
    low, high = bounds.group(1, 2), bounds.group(3, 4)
    return _order(*low) <= _order(*found.group(1, 2)) < _order(*high)


def _order(release: str, post: str | None) -> tuple[list[int], int]:
    parts = [int(part) for part in release.split(".")]
    while parts and parts[-1] == 0:
        parts.pop()
    return parts, -1 if post is None else int(post)


def _companions(codemod: Codemod, read: Reader) -> tuple[SiteResult, ...]:
    return tuple(_companion(companion, read(companion.path)) for companion in codemod.companions)


_NOT_OURS = "is there, but it is not ours"


def _companion(companion: Companion, raw: bytes | None) -> SiteResult:
    """Judge a companion: READY stands for "not there yet"."""
    path = companion.path
    if raw is None:
        return SiteResult(path, "companion", None, State.READY, f"{path} is missing", file=path)
    wanted = catalog.companion_bytes(companion)
    if raw == wanted:
        return SiteResult(path, "companion", 1, State.APPLIED, file=path)
    known = catalog.companion_version(raw)
    if known is not None and known[2]:
        name, version, _ = known
        reason = f"{path} is another version of ours ({name} {version})"
        return SiteResult(path, "companion", 1, State.PARTIAL, reason, file=path)
    reason = f"{path} was edited" if known else f"{path} {_NOT_OURS}"
    return SiteResult(path, "companion", 1, State.TAMPERED, reason, file=path)


def _left_behind(companions: tuple[SiteResult, ...], reason: str) -> SiteResult | None:
    """Return a companion that is there though nothing uses it, or a file of somebody else's."""
    left = next((r for r in companions if r.state is not State.READY), None)
    if left is None or left.reason.endswith(_NOT_OURS):  # not to be removed, nor written over
        return left
    return left._replace(state=State.ORPHANED, reason=f"{left.definition} {reason}")


def _without_files(codemod: Codemod, companions: tuple[SiteResult, ...]) -> Verdict:
    left = _left_behind(companions, f"was left behind; this release has no {codemod.target}")
    if left is not None:
        return Verdict(codemod.name, codemod.target, left.state, reason=left.reason)
    reason = f"this sglang has no {codemod.target}"
    return Verdict(codemod.name, codemod.target, State.ABSENT, reason=reason)


def _combine(
    codemod: Codemod, examined: dict[str, engine.Examination], absent: list[str]
) -> Verdict:
    """Make one verdict of the files of a codemod."""
    sites = tuple(site for e in examined.values() for site in e.sites)
    reason = _group_amiss(codemod, sites)
    if reason:
        return Verdict(codemod.name, codemod.target, State.DRIFTED, sites, reason)
    examined = {path: e for path, e in examined.items() if e.sites} or examined
    states = {e.state for e in examined.values()}
    if absent:
        reason = f"this sglang has no {absent[0]}, which the codemod edits as well"
        state = State.PARTIAL if states & {State.APPLIED, State.PARTIAL} else State.DRIFTED
        return Verdict(codemod.name, codemod.target, state, sites, reason)
    if State.APPLIED in states and len(states) > 1 and State.TAMPERED not in states:
        first = next(e for e in examined.values() if e.state is not State.APPLIED)
        reason = first.reason or "only some of the files are patched"
        return Verdict(codemod.name, codemod.target, State.PARTIAL, sites, reason, first.nearest)
    worst = min(examined.values(), key=lambda e: _ORDER.index(e.state))
    return Verdict(codemod.name, codemod.target, worst.state, sites, worst.reason, worst.nearest)


def _group_amiss(codemod: Codemod, results: tuple[SiteResult, ...]) -> str:
    """Say that a group of sites was found nowhere, or more than once; empty where all is well."""
    found = {(r.file, r.definition, r.kind) for r in results}
    for group in dict.fromkeys(site.one_of for site in codemod.sites if site.one_of):
        mine = [site for site in codemod.sites if site.one_of == group]
        there = [
            site for site in mine
            if (site.file or codemod.target, site.within, site.kind) in found
        ]  # fmt: skip
        if len(there) != 1:
            names = " or ".join(f"`{site.within}`" for site in there or mine)
            return f"expected one {group} in {names}, found {len(there)}"
    return ""


_ORDER = [
    State.TAMPERED,
    State.PARTIAL,
    State.DRIFTED,
    State.READY,
    State.UPSTREAM,
    State.APPLIED,
]

__all__ = ["Reader", "SourceError", "changes", "judge"]
