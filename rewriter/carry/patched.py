"""Patches applied to the release that they are for, file by file."""

from __future__ import annotations

from collections.abc import Iterable

from rewriter.carry import hunks, paths
from rewriter.carry.applying import Applied
from rewriter.errors import RefusedError


def applied(
    patches: Iterable[tuple[str, bytes]], older: paths.Tree
) -> tuple[dict[str, Applied], dict[str, str], list[str]]:
    """Return the files as patched, what was renamed to what (new: old), and what is outside.

    Raises:
        UsageError: a patch is no unified diff.
        RefusedError: a patch does not apply to its own release.
    """
    files = [file for name, raw in patches for file in hunks.read(raw, name)]
    states: dict[str, Applied] = {}
    renamed: dict[str, str] = {}
    outside: list[str] = []
    for file in files:
        old = paths.in_package(file.old, older) if file.old is not None else None
        new = paths.in_package(file.new, older) if file.new is not None else None
        if (old or new) is None:
            outside.append(file.name)
        elif file.renamed and old and new:
            states[new] = _renamed(file, old, new, states, older)
            renamed[new] = old
        else:
            # a file made by an earlier patch is not in the release: known by its path
            _one(file, old or new or "", states, older)
    if not states:
        names = ", ".join(dict.fromkeys(file.patch for file in files))
        raise RefusedError(
            f"{names}: none of the files is part of the package: {', '.join(outside[:4])}; is the "
            "patch for another project?"
        )
    return states, renamed, outside


def _one(file: hunks.FilePatch, path: str, states: dict[str, Applied], older: paths.Tree) -> None:
    before = older.read(path)
    state = states.get(path)
    if file.old is None:
        if state is not None or before is not None:
            raise RefusedError(
                f"{file.patch}: {path}: the patch makes this file anew, and the release that it "
                "is for (--from) has it: it is applied already, or the patch is reversed"
            )
        states[path] = state = Applied(path, None)
        state.executable = file.executable
    elif state is None:
        if before is None:
            raise RefusedError(
                f"{file.patch}: {path}: not in the release that the patch is for (--from): is it "
                "for another release or another project?"
            )
        states[path] = state = Applied(path, before)
    state.apply(file)
    if file.new is None:
        if state.lines:
            raise RefusedError(
                f"{file.patch}: {path}: the patch deletes this file, and {len(state.lines)} lines "
                "of it are not in the patch"
            )
        state.gone = True


def _renamed(
    file: hunks.FilePatch, old: str, new: str, states: dict[str, Applied], older: paths.Tree
) -> Applied:
    before = older.read(old)
    if before is None or old in states or new in states or older.read(new) is not None:
        raise RefusedError(
            f"{file.patch}: {old} cannot be renamed to {new} in the release that the patch is "
            "for (--from)"
        )
    state = Applied(new, before)
    state.executable = file.executable
    state.apply(file)
    return state
