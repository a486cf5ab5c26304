"""Cases out of a repository's own history: a commit, and the commit it became on another line.

A patch that was rebased, landed in another branch, or reverted and landed again is there twice
under one subject. The first is the patch and its parent is A; the parent of the second is B, and
the second itself is its authors' own port.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cases import Case, changed_lines, definitions, git

_TELLING = 15
"""The least length of a subject that tells one change from another."""

_ALIKE = 0.5
"""The share of common lines from which two commits of one subject are the same patch."""

_ROOT = "python/"


class _Blob(NamedTuple):
    before: str
    after: str


def cases(clone: Path) -> Iterator[Case]:
    """Yield each file that a commit and its port both modify and that differs between A and B."""
    for one, two in _twice(clone):
        older, newer = _modified(clone, one), _modified(clone, two)
        for path in sorted(older.keys() & newer.keys()):
            if older[path].before == newer[path].before:
                continue
            patches = [_patch(clone, commit, path) for commit in (one, two)]
            if (same := _same(*map(changed_lines, patches))) is None:
                continue
            blobs = (*_pair(clone, older[path]), *_pair(clone, newer[path]))
            a, patched, b, truth = blobs
            if _changed(a, patched).isdisjoint(_changed(b, truth)):
                continue
            name = path.removeprefix(_ROOT)
            ends = one[:12] + "^", two[:12] + "^"
            yield Case(*ends, name, patches[0], a, b, patched, truth, same, clone)


def _twice(clone: Path) -> Iterator[tuple[str, str]]:
    """Yield commits of one subject that follow each other in time."""
    listed = git(clone, "log", "--all", "--no-merges", "--format=%ct %H %P%x09%s")
    found: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for line in listed.decode("utf-8", "replace").splitlines():
        commit, _, subject = line.partition("\t")
        time, name, *parents = commit.split()
        key = re.sub(r"\s*\(#\d+\)", "", subject).strip().lower()
        if parents and len(key) > _TELLING:
            found[key].append((int(time), name))
    for key in sorted(found):
        names = [name for _, name in sorted(found[key])]
        yield from itertools.pairwise(names)


def _modified(clone: Path, commit: str) -> dict[str, _Blob]:
    found: dict[str, _Blob] = {}
    listed = git(clone, "diff-tree", "-r", "--no-commit-id", commit, "--", _ROOT + "sglang")
    for line in listed.decode("utf-8", "replace").splitlines():
        values, _, path = line.partition("\t")
        _, _, before, after, kind = values.split()
        if kind == "M" and path.endswith(".py"):
            found[path] = _Blob(before, after)
    return found


def _patch(clone: Path, commit: str, path: str) -> bytes:
    return git(
        clone, "diff", "--src-prefix=a/", "--dst-prefix=b/", f"{commit}^", commit, "--", path
    )


def _pair(clone: Path, blob: _Blob) -> tuple[bytes, bytes]:
    before, after = (git(clone, "cat-file", "blob", name) for name in blob)
    return before, after


def _changed(before: bytes, after: bytes) -> set[str]:
    """Return the definitions that a patch changes: a port of it changes one of them too."""
    found: set[str] = set()
    sides = [raw.decode("utf-8", "replace").splitlines() for raw in (before, after)]
    inside = [definitions(raw) for raw in (before, after)]
    matcher = difflib.SequenceMatcher(None, *sides, autojunk=False)
    for tag, *spans in matcher.get_opcodes():
        if tag != "equal":
            for names, (first, last) in zip(inside, (spans[:2], spans[2:]), strict=True):
                found.update(names[n + 1] for n in range(first, last))
    return found


def _same(one: list[bytes], two: list[bytes]) -> bool | None:
    """Tell whether two patches change the same lines; None where they are two patches."""
    if sorted(one) == sorted(two):
        return True
    shared = sum((Counter(one) & Counter(two)).values())
    return False if 2 * shared >= _ALIKE * (len(one) + len(two)) else None
