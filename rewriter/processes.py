"""Running servers that loaded a module before it was changed. A hint, on Linux only."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple


class Running(NamedTuple):
    """A process that seems to run the package."""

    pid: int
    command: str


PROC = Path("/proc")

_NO_SERVERS = ("pip", "uv", "rewriter", "pytest")
"""Programs that name the package on their command line and do not run it; pip's own runner is
called ``__pip-runner__.py``."""


def older_than(root: Path, changed: Iterable[str]) -> list[Running]:
    """Return processes of this sglang that started before one of its files was changed.

    A process counts if it is a Python with sglang on its command line, and the package's parent,
    or the environment around it, is on the command line or among the files that it maps. That is a
    guess by design: an imported module leaves no trace that could be read from outside. What
    cannot be read, such as other users' processes, is left out.

    Args:
        root: the package's parent.
        changed: paths relative to it.
    """
    times = [_changed_at(root / path) for path in changed]
    newest = max((t for t in times if t is not None), default=None)
    booted = _booted()
    if newest is None or booted is None:
        return []
    places = {os.fspath(root), os.path.realpath(root), *_environment(root)}
    found: list[Running] = []
    for entry in PROC.glob("[0-9]*"):
        if int(entry.name) in (os.getpid(), os.getppid()):
            continue
        running = _running(entry, places, newest - booted)
        if running is not None:
            found.append(running)
    return sorted(found)


def sentence(found: Sequence[Running]) -> str:
    """Return the hint."""
    pids = ", ".join(str(running.pid) for running in found[:5])
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    one = len(found) == 1
    return (
        f"process{'' if one else 'es'} {pids}{more} started before the change and seem"
        f"{'s' if one else ''} to run this sglang: restart {'it' if one else 'them'}"
    )


def _running(entry: Path, places: set[str], since_boot: float) -> Running | None:
    try:
        words = (entry / "cmdline").read_bytes().split(b"\0")
        command = os.fsdecode(b" ".join(words)).strip()
        program = os.fspath((entry / "exe").readlink()).rpartition("/")[2]
        names = [os.fsdecode(word).rpartition("/")[2].lstrip("_") for word in words[:3]]
        if "sglang" not in command or not program.startswith("python"):
            return None
        if any(name.startswith(_NO_SERVERS) for name in names):
            return None
        fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
        if int(fields[19]) / os.sysconf("SC_CLK_TCK") >= since_boot:
            return None
        text = command + "\n" + os.fsdecode((entry / "maps").read_bytes())
    except (OSError, IndexError, ValueError):
        return None
    if not any(place in text for place in places):
        return None
    return Running(int(entry.name), command)


def _environment(root: Path) -> list[str]:
    """Return the ``bin`` directory of the environment that a site-packages belongs to."""
    return [
        os.fspath(above / "bin") + os.sep
        for above in root.parents
        if (above / "pyvenv.cfg").is_file()
    ]


def _changed_at(path: Path) -> float | None:
    """Return when a file, or where it is gone its folder, was last written."""
    for place in (path, path.parent):
        try:
            return place.stat().st_mtime
        except OSError:
            continue
    return None


def _booted() -> float | None:
    try:
        for line in (PROC / "stat").read_text().splitlines():
            if line.startswith("btime "):
                return float(line.split()[1])
    except OSError:
        return None
    return None
