"""Codemods × revisions: what each codemod is at each commit, tag and release.

A release's files have blob ids too, so that they are the same cell as the commit that was released.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.blobs import Judge, Read, blob_id
from rewriter.codemod import Codemod
from rewriter.errors import SourceError, TargetError
from rewriter.model import State
from rewriter.rows import Origin, Row
from rewriter.walk import Files, Point, paths_of

if TYPE_CHECKING:
    from rewriter.targets import Target
    from rewriter.targets.history import History

Progress = Callable[[int, int], None]
"""Told how many sources are judged, and how many there are to judge."""


def of_history(
    judge: Judge, history: History, points: Sequence[Point], progress: Progress | None = None
) -> list[Row]:
    """Judge every codemod at every point of a walk.

    Raises:
        TargetError: a blob is missing.
    """
    rows: list[Row] = []
    points = [_placed(judge, history, point) for point in points]
    with history.reader() as read:
        _judge_all(judge, points, read, progress)
        for codemod in judge.codemods:
            made = [(point, _row(judge, codemod, point, read)) for point in points]
            rows += _traced(codemod, made)
    return rows


def _placed(judge: Judge, history: History, point: Point) -> Point:
    def at(files: Files, commit: str) -> Files:
        def opened() -> Target:
            from rewriter.targets import resolve

            return resolve(repo=history.repository, rev=commit)

        return judge.placed(files, commit, opened)

    before = point.before
    if before is not None and point.commit.parents:
        before = tuple(at(f, c) for f, c in zip(before, point.commit.parents, strict=False))
    return point._replace(files=at(point.files, point.commit.id), before=before)


def _judge_all(
    judge: Judge, points: Sequence[Point], read: Read, progress: Progress | None
) -> None:
    """Judge what no run has judged yet, telling how far that is."""
    todo: dict[tuple[str, ...], tuple[Codemod, Files]] = {}
    for codemod in judge.codemods:
        for point in points:
            for files in (point.files, *(point.before or ())):
                if not judge.known(codemod, files):
                    own = (codemod.name, *_own(codemod, files))
                    todo[own] = codemod, files
    for done, (codemod, files) in enumerate(todo.values()):
        if progress:
            progress(done, len(todo))
        _state(judge, codemod, files, read)
    if progress and todo:
        progress(len(todo), len(todo))


def _own(codemod: Codemod, files: Files) -> tuple[str, ...]:
    """Return the blobs that a codemod reads; equal where it must be the same."""
    return tuple(files.get(path, "") for path in paths_of([codemod]))


def _state(judge: Judge, codemod: Codemod, files: Files, read: Read) -> State | None:
    """Return the state by structure; None where a file does not parse."""
    try:
        return judge.structure(codemod, files, read).state
    except SourceError:
        return None


def _word(judge: Judge, codemod: Codemod, files: Files, read: Read) -> str:
    """Return what a row of these files would be called."""
    try:
        found = judge.structure(codemod, files, read)
    except SourceError:
        return "error"
    return judge.word(found) or found.state.value


def _row(judge: Judge, codemod: Codemod, point: Point, read: Read) -> Row:
    row = Row(
        codemod.name, "tags" if point.kind == "tag" else "commits", point.label, point.kind,
        point.commit, point.version,
        before=tuple(_state(judge, codemod, files, read) for files in point.before or ()),
        was=tuple(_word(judge, codemod, files, read) for files in point.before or ()),
        moved=None if judge.follows_moves else next(
            (point.moved[p] for p in codemod.files() if p in point.moved), None
        ),
        prefix=point.prefix,
    )  # fmt: skip
    return _judged(row, judge, codemod, point.files, read)


def _judged(row: Row, judge: Judge, codemod: Codemod, files: Files, read: Read) -> Row:
    """Add what the codemod is; a file that does not parse is an error of its cell."""
    try:
        found = judge.verdict(codemod, files, read, row.version)
        return row._replace(verdict=found, how=judge.word(found))
    except SourceError as error:
        return row._replace(error=str(error))


def _traced(codemod: Codemod, made: Iterable[tuple[Point, Row]]) -> Iterator[Row]:
    """Add to each row the commit that brought its state.

    Histories branch, so the row above need not be the one before: a state is followed back
    through the contents of the files.
    """
    began: dict[tuple[str, ...], Origin | None] = {}
    linear: list[Row] = []
    for point, row in made:
        if point.kind == "tag":
            linear.append(row)
            continue
        if row.was and row.word not in row.was:
            since: Origin | None = row.label, row.commit
        else:
            earlier = point.before[0] if point.before else point.files
            since = began.get(_own(codemod, earlier))
        began[_own(codemod, point.files)] = since
        yield row._replace(since=since)
    yield from in_line(linear)


def in_line(rows: Iterable[Row]) -> Iterator[Row]:
    """Add to rows that follow each other the one that brought its state."""
    previous: Row | None = None
    for row in rows:
        if previous is not None:
            same = previous.word == row.word
            row = row._replace(since=previous.since if same else (row.label, None))
        yield row
        previous = row


def of_releases(judge: Judge, releases: Iterable[tuple[str, Callable[[], Target]]]) -> list[Row]:
    """Judge every codemod in releases, oldest first.

    Args:
        judge: the codemods.
        releases: each by version, with a function that opens it. One that cannot be read is an
            error of its row.
    """
    rows: dict[str, list[Row]] = {codemod.name: [] for codemod in judge.codemods}
    for version, opened in releases:
        for row in _of_release(judge, version, opened):
            rows[row.codemod].append(row)
    return [row for each in rows.values() for row in in_line(each)]


def _of_release(judge: Judge, version: str, opened: Callable[[], Target]) -> Iterator[Row]:
    rows = [Row(each.name, "releases", version, "release") for each in judge.codemods]
    try:
        target = opened()
        raws = {path: target.read(path) for path in paths_of(judge.codemods)}
    except TargetError as error:
        yield from (row._replace(error=str(error)) for row in rows)
        return
    ids = {path: blob_id(raw) for path, raw in raws.items() if raw is not None}
    blobs = judge.placed(ids, f"{target.kind} {target.location}", lambda: target)
    contents = {blobs[path]: raw for path, raw in raws.items() if raw is not None}
    for codemod, row in zip(judge.codemods, rows, strict=True):
        row = row._replace(version=target.version, prefix=target.diff_prefix)
        yield _judged(row, judge, codemod, blobs, contents.__getitem__)


def of_tree(judge: Judge, target: Target, label: str) -> list[Row]:
    """Judge every codemod in a working tree, its record of what was applied included."""
    rows: list[Row] = []
    for codemod in judge.codemods:
        row = Row(codemod.name, "trees", label, target.kind, None, target.version)
        row = row._replace(prefix=_prefix(target))
        try:
            found = judge.in_tree(codemod, target)
            how = "" if found.state is State.APPLIED else judge.word(found)
            row = row._replace(verdict=found, how=how)
        except SourceError as error:
            row = row._replace(error=str(error))
        rows.append(row)
    return rows


def _prefix(target: Target) -> str:
    """Return what stands before ``sglang/`` in a path that the user can open."""
    root = getattr(target, "root", None)
    if root is None:
        return target.diff_prefix
    try:
        inside = root.resolve().relative_to(Path.cwd().resolve()).as_posix()
    except ValueError:
        return f"{root.as_posix()}/"
    return "" if inside == "." else f"{inside}/"
