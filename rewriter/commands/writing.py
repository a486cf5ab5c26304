"""What ``apply`` and ``revert`` share: the lock, what an earlier run left, the words around."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rewriter.commands.check import target_line
from rewriter.errors import RefusedError, TargetError, UsageError
from rewriter.targets.home import Home, home_of
from rewriter.targets.overlay import Overlay

if TYPE_CHECKING:
    from rewriter.session import Session
    from rewriter.targets import Target


@contextmanager
def writing(target: Target, instead: str, *, dry_run: bool) -> Iterator[str]:
    """Hold a target for writing, with what an earlier run left recovered; yield what was done.

    A dry run holds nothing and recovers nothing.

    Args:
        instead: what to do where the target is of a kind that is never written.

    Raises:
        UsageError: the target is of a kind that is never written.
        RefusedError: another run is at work on it, or the lock cannot be made.
        Interrupted: what an earlier run left could not be put right.
    """
    home = home_of(target)
    if home is None:
        raise UsageError(f"{target.location}: a {target.kind} is never written; {instead}")
    from rewriter.installing import steady

    if dry_run:
        with steady(target):
            yield ""
        return
    from rewriter.transaction import exclusive, recover

    seen = home.identity()
    with steady(target), exclusive(home):
        if home.identity() != seen:
            raise RefusedError(
                f"{target.location}: the package was installed, upgraded or removed while this "
                "run waited for another one; nothing was written. Try again"
            )
        yield recover(home)


def told(target: Target, recovered: str) -> Iterable[str]:
    """Yield the first lines: the target, and what was recovered."""
    yield target_line(target.location, target.version)
    if recovered:
        yield f"first: {recovered}"


def afterwards(session: Session, changed: Sequence[str]) -> Iterable[str]:
    """Yield what a user should know after a change: git's view, processes that go on as before.

    The change is done by then, so what cannot be read is a hint less and no failure.
    """
    try:
        yield from list(_hints(session, changed))
    except (TargetError, OSError) as error:
        yield f"not looked at for hints: {error}"


def _brought(home: Home, changed: Sequence[str]) -> list[str]:
    """Return which changed files the record has as new: companions, and what patches bring."""
    from rewriter.manifest import load

    known = load(home.manifest_path)
    files = known.files if known is not None else {}
    return [path for path in changed if path in files and files[path].before is None]


def _hints(session: Session, changed: Sequence[str]) -> Iterable[str]:
    home = home_of(session.target)
    if isinstance(session.target, Overlay) and session.target.table():
        place = session.target.root
        yield f"serve it: rewriter run --overlay {place} -- COMMAND, or PYTHONPATH={place} COMMAND"
    if home is not None and home.top is not None:
        new = _brought(home, changed)
        if new:
            names = ", ".join(path.rpartition("/")[2] for path in new)
            what = "modules" if len(changed) > 2 else "module"
            yield f"git lists the {what} as changed and {names} as untracked"
    from rewriter.processes import older_than, sentence

    if home is not None:
        found = older_than(home.root, changed)
        if found:
            yield sentence(found)
