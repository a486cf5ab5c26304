"""A walk through a history: the commits and tags at which a codemod's files differ, kept by tip.

A commit's ancestors never change, so a walk that is kept under the ids of its ends is never wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from rewriter import __version__, verdicts
from rewriter.cache import cache_directory
from rewriter.codemod import Codemod
from rewriter.errors import TargetError
from rewriter.targets import history as history_module
from rewriter.targets.commits import NO_TREE, PREFIXES, Commit, Span, Tree
from rewriter.targets.disk import PACKAGE
from rewriter.targets.history import History
from rewriter.targets.version import VERSION_FILES, source_version

Files = dict[str, str]
"""Blob ids by path, relative to the package's parent; a file that is not there is left out."""

_STATED = ("pyproject.toml", *VERSION_FILES)


class Point(NamedTuple):
    """One commit or tag, and what the files are there.

    Attributes:
        label: what a user knows it by: a tag, the name of the range's end, or a short id.
        kind: ``base`` (where the range starts, itself left out), ``commit`` (changes a file),
            ``tip`` (where the range ends), or ``tag``.
        commit: the commit.
        files: blob ids in it.
        before: the same in each of its parents; None where that is not asked or not known.
        version: of a tag, the version that its tree states; of other commits None, for between
            two releases a tree states the one before it.
        prefix: where the package's parent is in its tree: ``python/`` or empty.
        moved: files that it, or a commit before it, moved away: where to, and which commit did.
    """

    label: str
    kind: str
    commit: Commit
    files: Files
    before: tuple[Files, ...] | None = None
    version: str | None = None
    prefix: str = "python/"
    moved: Mapping[str, tuple[str, str]] = MappingProxyType({})


def paths_of(codemods: Iterable[Codemod]) -> list[str]:
    """Return every path that some codemods read, edited files first, companions after them."""
    known = list(codemods)
    edited = [path for codemod in known for path in codemod.files()]
    return list(dict.fromkeys([*edited, *(c.path for each in known for c in each.companions)]))


def commits(history: History, span: Span, codemods: Sequence[Codemod]) -> list[Point]:
    """Return the range's base, each commit that changes a file of the codemods, and its tip.

    Ancestors come first. Nothing is judged here, and no blob is read.

    Raises:
        TargetError: the range is empty, objects are missing, or there is no sglang at its tip.
    """
    paths = paths_of(codemods)
    return _kept("commits", span, paths, lambda: _commits(history, span, paths))


def tags(history: History, span: Span, codemods: Sequence[Codemod]) -> list[Point]:
    """Return the tags of a range by date; they can be moved, so only their trees are kept.

    Raises:
        TargetError: there are none, or objects are missing.
    """
    paths = paths_of(codemods)
    named = history.tags(span)
    ids = [f"{name}\0{commit.id}" for name, commit in named]
    return _kept("tags", span, [*paths, *ids], lambda: _tags(history, named, paths))


def _commits(history: History, span: Span, paths: list[str]) -> list[Point]:
    ends = history.commits([span.tip] if span.base is None else [span.tip, span.base])
    trees = history.trees(ends, paths)
    if span.tip not in trees:
        raise TargetError(
            f"{span.name} ({span.tip[:10]}) of {history.repository}: expected "
            f"python/{PACKAGE}/__init__.py or {PACKAGE}/__init__.py in its tree, found neither; "
            f"is it a repository of {PACKAGE}?"
        )
    touching, trees = _touching(history, span, paths, trees)
    points: list[Point] = []
    if span.base is not None and touching:
        points.append(_point(span.base_name, "base", ends[span.base], trees))
    moved: dict[str, tuple[str, str]] = {}
    for commit in touching:
        point = _point(commit.short, "commit", commit, trees)
        if commit.id not in span.cut:
            before = tuple(trees.get(parent, NO_TREE).blobs for parent in commit.parents) or ({},)
            moved = moved | dict(_moves(history, commit, point.files, before))
            point = point._replace(before=before)
        moved = {path: to for path, to in moved.items() if path not in point.files}
        points.append(point._replace(moved=moved))
    if touching and touching[-1].id == span.tip:
        return [*points[:-1], points[-1]._replace(label=span.name)]
    return [*points, _point(span.name, "tip", ends[span.tip], trees)._replace(moved=moved)]


def _touching(
    history: History, span: Span, paths: list[str], trees: dict[str, Tree]
) -> tuple[list[Commit], dict[str, Tree]]:
    """Return the commits that change a file, and the trees of these and of their parents.

    Looked for where the package is at the tip; in both places only if it ever was elsewhere.
    """
    prefix = trees[span.tip].prefix
    for prefixes in ((prefix,), PREFIXES):
        touching = history.touching(span, paths, prefixes)
        wanted = [each for c in touching for each in (c.id, *c.parents) if each not in trees]
        found = trees | history.trees(wanted, paths)
        if all(tree.prefix == prefix for tree in found.values()):
            break
    return touching, found


def _point(label: str, kind: str, commit: Commit, trees: dict[str, Tree]) -> Point:
    tree = trees.get(commit.id, NO_TREE)
    return Point(label, kind, commit, tree.blobs, prefix=tree.prefix)


def _moves(
    history: History, commit: Commit, here: Files, before: Iterable[Files]
) -> Iterator[tuple[str, tuple[str, str]]]:
    for parent, there in zip(commit.parents, before, strict=False):
        for path in there:
            if path not in here:
                to = history.moved(parent, commit.id, path)
                if to is not None:
                    yield path, (to, commit.short)


def _tags(history: History, named: list[tuple[str, Commit]], paths: list[str]) -> list[Point]:
    trees = history.trees([commit.id for _, commit in named], [*paths, *_STATED])
    points: list[Point] = []
    stated: dict[tuple[str | None, ...], str | None] = {}
    with history.reader() as read:
        for name, commit in named:
            point = _point(name, "tag", commit, trees)
            blobs = point.files
            asked = tuple(blobs.get(path) for path in _STATED)
            if asked not in stated:
                stated[asked] = source_version(partial(_read, read, blobs))
            files = {path: oid for path, oid in blobs.items() if path in paths}
            points.append(point._replace(files=files, version=stated[asked]))
    return points


def _read(read: Callable[[str], bytes], blobs: Files, path: str) -> bytes | None:
    return read(blobs[path]) if path in blobs else None


# --- kept between runs -----------------------------------------------------------------------


def _kept(kind: str, span: Span, parts: list[str], make: Callable[[], list[Point]]) -> list[Point]:
    name = verdicts.key(
        "walk 1", __version__, _own_code(), kind, span.tip, span.name, span.base, span.base_name,
        str(span.after), *sorted(span.cut), "paths", *parts,
    )  # fmt: skip
    path = cache_directory() / "walks" / f"{name}.json"
    points = _load(path)
    if points is None:
        points = make()
        _save(path, points)
    return points


def _own_code() -> bytes:
    """Return the code that makes walks: another version of it might make another walk."""
    return b"".join(Path(file).read_bytes() for file in (__file__, history_module.__file__))


def _load(path: Path) -> list[Point] | None:
    try:
        points = [_read_point(value) for value in json.loads(path.read_bytes())]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return points or None


def _read_point(value: dict[str, Any]) -> Point:
    commit = value.pop("commit")
    before = value.pop("before")
    moved = {path: (to, by) for path, (to, by) in value.pop("moved").items()}
    return Point(
        commit=Commit(commit["id"], commit["date"], commit["subject"], tuple(commit["parents"])),
        before=None if before is None else tuple(before), moved=moved, **value,
    )  # fmt: skip


def _save(path: Path, points: list[Point]) -> None:
    """Keep a walk; it appears by one rename. A cache that cannot be written is no error."""
    import tempfile

    values = [{**p._asdict(), "commit": p.commit._asdict(), "moved": dict(p.moved)} for p in points]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            file.write(json.dumps(values))
        Path(file.name).replace(path)
    except OSError:
        return
