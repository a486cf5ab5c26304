"""One writing command at a time on one package, by a lock in the user's state directory."""

from __future__ import annotations

import hashlib
import os
import signal
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rewriter.errors import RefusedError
from rewriter.targets.disk import PACKAGE
from rewriter.targets.home import Home
from rewriter.transaction.steps import Step, StepFailed, perform

VARIABLE = "REWRITER_STATE_DIR"
"""Environment variable that replaces the state directory."""

PATIENCE = 60.0
"""Seconds to wait for another run. One takes about a second."""


def state_directory() -> Path:
    """Return where locks lie; nothing else is kept there."""
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen).expanduser().absolute()
    from platformdirs import user_state_path

    return user_state_path("sglang-rewriter", appauthor=False)


@contextmanager
def exclusive(home: Home) -> Iterator[None]:
    """Hold the lock of the package that really lies at a home's root.

    Raises:
        RefusedError: another run holds it for too long, or the lock cannot be made.
    """
    if os.name != "posix":
        raise RefusedError(
            "writing into a package needs Linux or macOS; use `apply --output DIR` here"
        )
    from filelock import FileLock, Timeout

    real = os.path.realpath(home.root / PACKAGE)
    name = hashlib.sha256(os.fsencode(real)).hexdigest()[:32]
    path = state_directory() / "locks" / f"{name}.lock"
    lock = FileLock(path, timeout=PATIENCE)

    def take() -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        _check_own(path)
        lock.acquire()

    try:
        perform(Step("lock", str(path), take))
    except StepFailed as error:
        if isinstance(error.error, Timeout):
            raise RefusedError(
                f"{real}: another run has been at work for {PATIENCE:.0f} s (lock {path}); "
                "nothing was written"
            ) from None
        raise RefusedError(
            f"{error}; nothing was written. Set {VARIABLE} to a directory that can be written"
        ) from error
    try:
        with _ends_by_exceptions():
            yield
    finally:
        lock.release()


def _check_own(lock: Path) -> None:
    """Refuse a lock that somebody else could have put there: taking it empties what it leads to.

    Raises:
        RefusedError: it, or its directory, is a link, another user's, or open to everybody.
    """
    folder = lock.parent
    for place, kind in ((folder.parent, None), (folder, stat.S_IFDIR), (lock, stat.S_IFREG)):
        try:  # the user's own state directory may be a link
            status = place.stat() if kind is None else place.lstat()
        except FileNotFoundError:
            continue
        reason = ""
        if kind is not None and stat.S_IFMT(status.st_mode) != kind:
            reason = "is a link, or something else than it should be"
        elif status.st_uid not in (os.geteuid(), 0):
            reason = f"belongs to another user (id {status.st_uid})"
        elif status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            reason = "can be written by everybody"
        if reason:
            raise RefusedError(
                f"{place}: {reason}, so a lock there proves nothing; nothing was written. Set "
                f"{VARIABLE} to a directory of your own"
            )


@contextmanager
def _ends_by_exceptions() -> Iterator[None]:
    """Let a polite request to end undo what was begun; only the main thread can arrange that."""

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
