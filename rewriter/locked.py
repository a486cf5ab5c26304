"""``rewriter.lock``: what the codemods of a configuration make of one very install.

A later difference is told with its cause: another release of sglang, another original file,
another version of a codemod, another list of codemods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rewriter import catalog, config, syncing
from rewriter.carried import CarriedPatch
from rewriter.errors import UsageError
from rewriter.manifest import TOOL, Manifest
from rewriter.model import State
from rewriter.session import Session

NAME = "rewriter.lock"


class Entry(NamedTuple):
    """One codemod.

    Attributes:
        name: its name.
        effect: ``applied``; ``upstream`` where sglang has it, ``absent`` where there is no such
            file.
        digest: over everything of the tool that decides what it writes.
        companions: path → name and version.
    """

    name: str
    effect: str
    digest: str
    companions: Mapping[str, str]


class Lock(NamedTuple):
    """What was locked, or is now.

    Attributes:
        tool: the tool and its version.
        version: of sglang; empty where it is unknown.
        codemods: by name.
        files: path → SHA-256 of the original (empty for a new file) and of the patched file
            (empty for one that a patch deletes).
    """

    tool: str
    version: str
    codemods: Mapping[str, Entry]
    files: Mapping[str, tuple[str, str]]


class Difference(NamedTuple):
    """One thing that is not as locked.

    Attributes:
        what: told in one line, with the cause.
        matters: whether other bytes come of it.
    """

    what: str
    matters: bool = True


def of_session(session: Session, *, accept_unproven: bool = False) -> Lock:
    """Return what a target is, or would be, with exactly the codemods of a session. Writes nothing.

    Raises:
        UsageError: the target is of a kind that is never written.
        RefusedError: they cannot be applied there.
    """
    survey = session.survey
    if survey.home is None:
        raise UsageError(
            f"{session.target.location}: a {session.target.kind} is never written, so there is "
            "nothing to lock; name an installed package, a checkout or an overlay"
        )
    found = syncing.way(session)
    whole = all(s.intact and not s.outdated for s in survey.standings)
    if whole and survey.standings and syncing.is_reached(survey, found):
        return _lock(session, survey.manifest)
    return _lock(session, syncing.plan(session, found, accept_unproven=accept_unproven).made)


def _lock(session: Session, made: Manifest | None) -> Lock:
    entries: dict[str, Entry] = {}
    for codemod, verdict in zip(session.codemods, session.verdicts(), strict=True):
        held = made.held(codemod.name) if made is not None else None
        gone = State.ABSENT if verdict.state is State.ABSENT else State.UPSTREAM
        entries[codemod.name] = Entry(
            codemod.name,
            (State.APPLIED if held else gone).value,
            codemod.sha256 if isinstance(codemod, CarriedPatch) else catalog.digest(codemod.name),
            dict(held.companions) if held else {},
        )
    files = made.files if made is not None else {}
    return Lock(
        TOOL,
        session.target.version or "",
        entries,
        {path: (entry.before or "", entry.after or "") for path, entry in sorted(files.items())},
    )


# --- the file ------------------------------------------------------------------------------


def dump(lock: Lock) -> str:
    """Return a lock as TOML; the same for the same lock."""
    import tomli_w

    value: dict[str, Any] = {
        "schema": 1,
        "tool": lock.tool,
        "sglang": lock.version,
        "codemods": [
            {**entry._asdict(), "companions": dict(entry.companions)}
            for entry in lock.codemods.values()
        ],
        "files": [
            {"path": path, "before": before, "after": after}
            for path, (before, after) in lock.files.items()
        ],
    }
    return "# Written by `rewriter lock`; do not edit.\n" + tomli_w.dumps(value)


def load(path: Path) -> Lock:
    """Read a lock.

    Raises:
        UsageError: there is none, or it is malformed.
    """
    if not path.is_file():
        raise UsageError(f"{path}: no such file; `rewriter lock` writes it")
    value = config.read_toml(path)
    try:
        if value["schema"] != 1:
            raise UsageError(
                f"{path}: schema {value['schema']!r}, which this version does not know"
            )
        codemods = [
            Entry(str(c["name"]), str(c["effect"]), str(c["digest"]), dict(c["companions"]))
            for c in value["codemods"]
        ]
        files = {str(f["path"]): (str(f["before"]), str(f["after"])) for f in value["files"]}
        return Lock(str(value["tool"]), str(value["sglang"]), {c.name: c for c in codemods}, files)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{path}: expected what `rewriter lock` writes, found none of it: {error!r}"
        ) from error


# --- comparing -----------------------------------------------------------------------------


def differences(then: Lock, now: Lock) -> list[Difference]:
    """Return what is not as locked, causes before what comes of them."""
    found: list[Difference] = []
    if then.version != now.version:
        found.append(Difference(
            f"sglang {now.version or 'of unknown version'} is here, locked was "
            f"{then.version or 'one of unknown version'}"
        ))  # fmt: skip
    found += _of_codemods(then, now)
    found += _of_files(then, now)
    matters = any(difference.matters for difference in found)
    if then.tool != now.tool:
        found.append(Difference(f"this is {now.tool}, locked with {then.tool}", matters))
    return found


def _of_codemods(then: Lock, now: Lock) -> Iterator[Difference]:
    for name in then.codemods.keys() - now.codemods.keys():
        yield Difference(f"{name} is locked, and the configuration does not name it any more")
    for name, entry in now.codemods.items():
        locked = then.codemods.get(name)
        if locked is None:
            yield Difference(f"{name} is in the configuration, and was not when it was locked")
            continue
        if locked.effect != entry.effect:
            yield Difference(f"{name} is {entry.effect} here, locked was {locked.effect}")
        for path, version in entry.companions.items():
            before = locked.companions.get(path, version)
            if before != version:
                yield Difference(f"{name} brings {version}, locked was {before}")
        if locked.digest != entry.digest:
            what = f"{name} is not the version that was locked"
            yield Difference(what, matters=any(_written(then, now, entry)))


def _written(then: Lock, now: Lock, entry: Entry) -> Iterator[bool]:
    """Yield, for the files of a codemod, whether it makes other bytes of the same original."""
    files = catalog.load(entry.name).files() if catalog.knows(entry.name) else ()
    for path in (*files, *entry.companions):
        old, new = then.files.get(path), now.files.get(path)
        yield old is not None and new is not None and old[0] == new[0] and old[1] != new[1]


def _of_files(then: Lock, now: Lock) -> Iterator[Difference]:
    for path in sorted(then.files.keys() | now.files.keys()):
        old, new = then.files.get(path), now.files.get(path)
        if old == new:
            continue
        if old is None or new is None:
            where = "here, and not locked" if old is None else "locked, and not here"
            yield Difference(f"{path} is patched {where}")
        elif old[0] != new[0]:
            why = (
                "it is of another release" if then.version != now.version
                else "it was edited or rebuilt since"
            )  # fmt: skip
            yield Difference(f"{path}: another original file than the locked one: {why}")
        else:
            yield Difference(f"{path}: would be patched otherwise than it was locked")
