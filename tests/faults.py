"""Faults in a run, at each of its system calls: told by the interpreter, not by a list of ours.

A run goes on in a child process in which every call that changes or reads a watched directory is
numbered: by Python's audit events, which nothing in the process can go round, and by ``os.write``,
``os.fsync``, the sync of a file system and the swap of two names, which have no event. One of them
then fails, is done by half, or is the last that the process lives to make.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import signal
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, NoReturn

from installing import Done, rewriter

from rewriter.transaction import exchange, steps
from rewriter.transaction import folder as folders


class Call(NamedTuple):
    """One system call on a watched directory.

    Attributes:
        number: from 0, in the order of the run.
        step: the name of the step that it belongs to; empty outside of one.
        what: what it does, e.g. ``rename``; ``read`` and ``list`` change nothing, and a program
            that is started (``spawn``) is told, so that a test can look at which.
        place: the path.
    """

    number: int
    step: str
    what: str
    place: str

    @property
    def changes(self) -> bool:
        """Whether it changes something."""
        return self.what not in READING


READING = ("read", "list", "spawn")

HALF = "half"
"""A fault: half of the bytes are written, and the process is killed."""

KILL = "kill"
"""A fault: the process is killed before the call."""

CUT = "cut"
"""A fault: as ``KILL``, and files that were not synced are empty, as after a power cut."""

FULL = "full"
"""A fault: half of the bytes are written, and the disk is full."""

Faults = Mapping[int, str | int]
"""Number of a call → an error number that it fails with, or one of the words above."""


class Ended(NamedTuple):
    """How a run ended.

    Attributes:
        done: its exit code and output; None if it was killed.
        calls: those that it made; of a killed one they are not known.
    """

    done: Done | None
    calls: tuple[Call, ...]


_EVENTS: Mapping[str, tuple[str, int, int | None]] = {
    "os.rename": ("rename", 1, 3),
    "os.link": ("link", 1, 3),
    "os.symlink": ("symlink", 1, 2),
    "os.remove": ("unlink", 0, 1),
    "os.mkdir": ("mkdir", 0, 2),
    "os.rmdir": ("rmdir", 0, 1),
    "os.chmod": ("chmod", 0, 2),
    "os.chown": ("chown", 0, 3),
    "os.utime": ("utime", 0, 3),
    "os.truncate": ("truncate", 0, None),
    "os.setxattr": ("setxattr", 0, None),
    "os.removexattr": ("removexattr", 0, None),
    "os.listdir": ("list", 0, None),
    "os.scandir": ("list", 0, None),
    "fcntl.flock": ("lock", 0, None),
}
"""Audit event → what it is, and which arguments are the path and the directory handle."""

_SPAWNING = ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.system")

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class _Watch:
    """Numbers the calls of this process, and lets the faults happen."""

    def __init__(self, places: Sequence[Path], faults: Faults) -> None:
        self.places = tuple(os.path.realpath(place) for place in places)
        self.faults = faults
        self.calls: list[Call] = []
        self._unsynced: set[str] = set()
        self._open, self._write, self._fsync = os.open, os.write, os.fsync
        self._swap, self._sync_all = folders.exchange, folders.sync_all
        self._busy = False

    def start(self) -> None:
        """Watch from here on. There is no way back: audit hooks stay."""
        os.open = self.open
        os.write = self.write
        os.fsync = self.fsync
        folders.sync_all = self.sync_all
        if self._swap is exchange.exchange:  # else the system is to lack it
            folders.exchange = self.swap
        sys.addaudithook(self.event)

    def event(self, name: str, arguments: tuple[Any, ...]) -> None:
        if self._busy:
            return
        if name == "open":
            path, _, flags = arguments
            if not isinstance(path, int) and Path(os.fsdecode(path)).is_absolute():
                self.told("open" if flags & _WRITING else "read", os.fsdecode(path))
        elif name in _SPAWNING:
            self.calls.append(Call(len(self.calls), "", "spawn", str(arguments[:2])))
        elif name == "fcntl.flock" and arguments[1] & fcntl.LOCK_UN:
            return  # giving a lock back needs nothing, and dying does it
        elif name in _EVENTS:
            what, at, handle = _EVENTS[name]
            path = arguments[at]
            around = arguments[handle] if handle is not None else -1
            self.told(what, self._whole(path, around))

    def told(self, what: str, place: str) -> str | int | None:
        """Note a call; let its fault happen, or return one that only the caller can bring about."""
        if not place.startswith(self.places):
            return None
        call = Call(len(self.calls), _step(sys._getframe(1)), what, place)
        self.calls.append(call)
        fault = self.faults.get(call.number)
        if fault in (KILL, CUT):
            self._die(cut=fault == CUT)
        if isinstance(fault, int):
            raise OSError(fault, os.strerror(fault), place)
        return fault

    def _die(self, *, cut: bool = False) -> NoReturn:
        self._busy = True
        for place in self._unsynced if cut else ():
            os.truncate(place, 0)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("killed")

    def _whole(self, path: Any, around: int = -1) -> str:
        """Return the absolute path of what a call names."""
        self._busy = True
        try:
            if isinstance(path, int):
                return os.fspath(Path(f"/proc/self/fd/{path}").readlink())
            base = Path(f"/proc/self/fd/{around}").readlink() if around >= 0 else Path.cwd()
            return os.fspath(base / os.fsdecode(path))
        finally:
            self._busy = False

    # --- what has no audit event, or one that does not name its directory ------------------

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if dir_fd is not None:
            what = "create" if flags & os.O_CREAT else "open" if flags & _WRITING else "read"
            self.told(what, self._whole(path, dir_fd))
        return self._open(path, flags, mode, dir_fd=dir_fd)

    def write(self, descriptor: int, raw: Any) -> int:
        place = self._whole(descriptor)
        fault = self.told("write", place)
        if fault in (HALF, FULL):
            self._write(descriptor, bytes(raw)[: len(raw) // 2])
            if fault == HALF:
                self._die()
            raise OSError(28, os.strerror(28))
        self._unsynced.add(place)
        return self._write(descriptor, raw)

    def fsync(self, descriptor: int) -> None:
        what = "fsync directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "fsync"
        place = self._whole(descriptor)
        self.told(what, place)
        self._unsynced.discard(place)
        self._fsync(descriptor)

    def sync_all(self, descriptor: int) -> None:
        self.told("sync all", self._whole(descriptor))
        self._unsynced.clear()
        self._sync_all(descriptor)

    def swap(self, folder: int, name: str, other: str) -> bool:
        self.told("swap", self._whole(other, folder))
        return self._swap(folder, name, other)


def _step(frame: FrameType | None) -> str:
    """Return the name of the step that is being carried out, found on the stack."""
    while frame is not None:
        if frame.f_code is steps.perform.__code__:
            return str(frame.f_locals["step"].name)
        frame = frame.f_back
    return ""


def watched(
    places: Sequence[Path],
    command: Sequence[str],
    faults: Faults | None = None,
    prepare: Callable[[], object] | None = None,
) -> Ended:
    """Run a command in a child process, with faults.

    Args:
        places: the directories whose calls count.
        faults: none, to see which calls there are.
        prepare: done in the child before, e.g. to take something from it that systems lack.
    """
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reading)
        _in_child(writing, places, command, faults or {}, prepare)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        raw = pipe.read()
    _, status = os.waitpid(process, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return Ended(None, ())
    assert os.waitstatus_to_exitcode(status) == 0, "the child of the harness itself failed"
    found: Ended = pickle.loads(raw)
    return found


def _in_child(
    writing: int,
    places: Sequence[Path],
    command: Sequence[str],
    faults: Faults,
    prepare: Callable[[], object] | None,
) -> NoReturn:
    code = 1
    try:
        if prepare is not None:
            prepare()
        watch = _Watch(places, faults)
        watch.start()
        done = rewriter(*command)
        calls, watch.places = tuple(watch.calls), ()
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(Ended(done, calls), pipe)
        code = 0
    finally:
        os._exit(code)
