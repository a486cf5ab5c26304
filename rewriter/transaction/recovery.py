"""After a run that died or failed: finish it where all was done, else undo it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rewriter.errors import Interrupted, RefusedError, TargetError
from rewriter.targets.disk import entries
from rewriter.targets.home import Home
from rewriter.transaction import bytecode, durable, journal
from rewriter.transaction.folder import Folder, fingerprint
from rewriter.transaction.ground import Ground, allow
from rewriter.transaction.journal import LEFT_NAME, Journal, Noted, new_name, old_name
from rewriter.transaction.steps import Step, StepFailed, perform


def recover(home: Home) -> str:
    """Finish or undo the run that died in a target, if one did.

    Returns:
        What was done, in words; empty where no run had died.

    Raises:
        RefusedError: that run is still alive.
        Interrupted: it could neither be finished nor undone.
        TargetError: its journal cannot be read.
    """
    descriptor = _claim(home)
    if descriptor is None:
        _sweep(home)
        return ""
    try:
        found = journal.read(home)
        if found is None:  # an installer has just taken the package away
            return ""
        allow(found.writes)
        with Ground(home) as ground:
            told = settle(ground, found)
    finally:
        os.close(descriptor)
    return f"an interrupted {found.command} ({found.process}): {told}"


def _claim(home: Home) -> int | None:
    """Lock the journal, and so take the dead run's place; return the open file.

    None where there is no journal, or its run has just come to its end.
    """
    try:
        descriptor = os.open(home.journal_path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would wait
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        reason = error.strerror or str(error)
        raise RefusedError(f"{home.journal_path}: cannot be read: {reason}") from error
    if not journal.hold(descriptor):
        os.close(descriptor)
        raise RefusedError(
            f"{home.journal_path}: another run is at work on this package; wait until it is done"
        )
    if os.fstat(descriptor).st_nlink == 0:  # removed between opening and locking
        os.close(descriptor)
        return None
    return descriptor


def settle(ground: Ground, found: Journal) -> str:
    """Finish a published run if all its writes are done, else undo it; say which.

    Raises:
        Interrupted: the operating system refused that as well.
    """
    with _between():
        states = {write: _state(ground, found, write) for write in found.writes}
        if all(state == "new" for state in states.values()) or "closing" in states.values():
            _all(closing_steps(ground, found))
            return "everything had been written; it was finished"
        return _undo(ground, found)


def _state(ground: Ground, found: Journal, write: Noted) -> str:
    """Return ``old``, ``new``, ``closing`` (new, its old content is gone already) or ``other``."""
    name, now, kept = write.path.rpartition("/")[2], None, False
    with suppress(FileNotFoundError, NotADirectoryError):
        folder = ground.folder(write.at, write.path)
        now = fingerprint(folder.look(name))
        kept = folder.status(old_name(name, found.token)) is not None
    if now == write.before:
        return "old"
    if now != write.after:
        return "other"
    return "new" if kept or write.before is None else "closing"


def put_back(ground: Ground, found: Journal) -> str:
    """Undo the writes of a published run, last one first, and say how that went.

    What another process has changed since is left as it is.

    Raises:
        Interrupted: the operating system refused that as well.
    """
    with _between():
        return _undo(ground, found)


def _undo(ground: Ground, found: Journal) -> str:
    others = [w for w in found.writes if _state(ground, found, w) == "other"]
    needed = _needed(ground, found, others)
    _all(_undoing_steps(ground, found, needed))
    _all(closing_steps(ground, found))
    told = "everything was put back as it was"
    if others:
        told = "what it had written was taken back; changed by somebody else and left alone: "
        told += ", ".join(ground.shown(write) for write in others)
    if needed:
        told += "; still needed by that, and left: "
        told += ", ".join(ground.shown(write) for write in needed)
    return told


def _needed(ground: Ground, found: Journal, others: list[Noted]) -> list[Noted]:
    """Return the new modules that files still name which somebody has changed since.

    Such a file may hold our lines, and would not import without the module that came with them.
    """
    texts = [ground.place(write).read_bytes() for write in others if ground.place(write).is_file()]
    return [
        write
        for write in found.writes
        if write.before is None
        and write.path.endswith(".py")
        and any(os.fsencode(ground.place(write).stem) in text for text in texts)
    ]


def clear(ground: Ground, found: Journal) -> str:
    """Remove what is there of a run that never published its journal, and say how that went."""
    try:
        _all(closing_steps(ground, found))
    except (StepFailed, OSError, TargetError) as error:
        return (
            f"nothing was written, but {error}: a temporary file is left; the next "
            "`rewriter apply` or `rewriter revert` removes it"
        )
    return "nothing was written"


def _all(steps: Iterator[Step]) -> None:
    for step in steps:
        perform(step)


@contextmanager
def _between() -> Iterator[None]:
    """Tell what the system refuses from here on: it leaves the package between two states."""
    try:
        yield
    except (StepFailed, OSError, TargetError) as error:
        raise Interrupted(
            f"{error}; the package is between two states until the next `rewriter apply` or "
            "`rewriter revert` can put that right"
        ) from error


def _undoing_steps(ground: Ground, found: Journal, needed: list[Noted]) -> Iterator[Step]:
    for write in reversed(found.writes):
        if write in needed or _state(ground, found, write) != "new":
            continue
        folder, name = ground.folder(write.at, write.path), write.path.rpartition("/")[2]
        place, old = ground.shown(write), old_name(name, found.token)
        aside = new_name(name, found.token)
        if write.before is None:
            yield Step("unlink", place, _bound(folder.unlink, name))
        elif fingerprint(folder.look(aside)) not in (None, write.before, write.after):
            # A run that died between a swap and the look at what came out of it.
            yield Step("rename", place, _bound(folder.rename, aside, name))
        else:
            yield Step("rename", place, _bound(folder.rename, old, name))
        if not durable.at_once(found.writes):
            yield Step("sync directory", str(folder.path), folder.sync)
        for source in ground.sources(write):
            yield Step("drop byte code", str(source), _bound(bytecode.drop, source))


def closing_steps(ground: Ground, found: Journal) -> Iterator[Step]:
    """Yield the steps that remove a run's temporary files, and its journal last."""
    home, token = ground.home, found.token
    folders: dict[Folder, None] = {}
    for write in found.writes:
        try:
            folder = ground.folder(write.at, write.path)
        except (FileNotFoundError, NotADirectoryError):
            continue  # an installer has removed it
        name = write.path.rpartition("/")[2]
        for left in (new_name(name, token), old_name(name, token)):
            if folder.status(left) is not None:
                folders[folder] = None
                yield Step("unlink", str(folder.path / left), _bound(folder.unlink, left))
    if durable.at_once(found.writes):
        yield ground.sync_step()
    else:
        for folder in folders:
            yield Step("sync directory", str(folder.path), folder.sync)
    for place in _left_empty(ground, found):
        yield Step("remove directory", str(place), _bound(_remove_if_empty, place))
    try:
        at_home = ground.folder("home", "")
    except (FileNotFoundError, NotADirectoryError):
        return
    temporary = new_name(home.journal, token)
    if at_home.status(temporary) is not None:
        yield Step("unlink", str(home.folder / temporary), _bound(at_home.unlink, temporary))
    if _is_ours(home, found):
        yield Step("unlink", str(home.journal_path), _bound(at_home.unlink, home.journal))
        yield Step("sync directory", str(home.folder), at_home.sync)
    if _is_empty(home.folder):  # a dist-info without METADATA keeps pip from installing again
        yield Step("remove directory", str(home.folder), _bound(_remove_if_empty, home.folder))


def _is_ours(home: Home, found: Journal) -> bool:
    """Tell whether the journal on disk is this run's, not that of one which has been quicker."""
    there = journal.read(home)
    return there is not None and there.token == found.token


def _left_empty(ground: Ground, found: Journal) -> Iterator[Path]:
    """Yield the directories of the package that hold nothing any more, inner before outer.

    Those that were made for new files, and those that an installer leaves which takes a package
    away while our files are in it.
    """
    home = ground.home
    places = {ground.place(write).parent for write in found.writes if write.at == "root"}
    for place in sorted(places, key=lambda path: -len(path.parts)):
        if _is_empty(place / "__pycache__"):
            yield place / "__pycache__"
        while home.root in place.parents and (_is_empty(place) or not os.path.lexists(place)):
            if _is_empty(place):
                yield place
            place = place.parent


def _is_empty(place: Path) -> bool:
    try:
        return not place.is_symlink() and not any(place.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return False


def _remove_if_empty(place: Path) -> None:
    """Remove a directory; one that is in use again, or a link by now, stays."""
    try:
        place.rmdir()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def _sweep(home: Home) -> None:
    """Remove what runs leave that died before their first change, or after their last.

    That is a journal that was never finished, and a directory for the record with nothing in it.
    """
    try:
        for path in entries(home.folder):
            left = LEFT_NAME.fullmatch(path.name)
            if left is not None and left["name"] == home.journal:
                _remove_unfinished(path)
        if home.own and _is_empty(home.folder):
            remove = _bound(_remove_if_empty, home.folder)
            perform(Step("remove directory", str(home.folder), remove))
    except (StepFailed, OSError) as error:
        raise RefusedError(f"{error}; nothing was written") from error


def _remove_unfinished(path: Path) -> None:
    """Remove a journal that was never finished, unless its run is about to."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        if journal.hold(descriptor):
            perform(Step("unlink", str(path), _bound(path.unlink, missing_ok=True)))
    finally:
        os.close(descriptor)


def _bound(act: Callable[..., object], *arguments: object, **named: object) -> Callable[[], object]:
    return lambda: act(*arguments, **named)
