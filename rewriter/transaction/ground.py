"""The folders that a run writes in, opened once, and what can be told before the first write."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from rewriter.errors import RefusedError
from rewriter.targets.disk import PACKAGE
from rewriter.targets.home import Home
from rewriter.transaction import attributes, bytecode
from rewriter.transaction.folder import Folder
from rewriter.transaction.journal import Noted, Write
from rewriter.transaction.steps import Step


class Ground:
    """The open folders of one run. Close it, or use it in a ``with``."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self._folders: dict[tuple[str, str], Folder] = {}

    def __enter__(self) -> Ground:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for folder in self._folders.values():
            folder.close()
        self._folders.clear()

    def folder(self, at: str, path: str) -> Folder:
        """Return the folder that holds a path, opened without following links below its base.

        The package's own directory may be a link: then the package is where it leads.

        Raises:
            RefusedError: a link leads out on the way.
            OSError: it is not there or cannot be entered.
        """
        above = path.rpartition("/")[0] if at == "root" else ""
        if (at, above) not in self._folders:
            first, *rest = above.split("/") if above else [""]
            if at == "home":
                opened = Folder.open(self.home.folder)
            elif first == PACKAGE:
                opened = Folder.open(self.package_directory(), rest)
            else:
                opened = Folder.open(self.home.root, [first, *rest] if first else [])
            self._folders[at, above] = opened
        return self._folders[at, above]

    def lacking(self, write: Write | Noted) -> list[Path]:
        """Return the directories to make for a new file, outer ones first."""
        if write.at == "home" or write.before is not None or write.after is None:
            return []
        if (write.at, write.path.rpartition("/")[0]) in self._folders:
            return []
        place = self.place(write)
        return [above for above in reversed(place.parents) if not above.is_dir()]

    def above_home(self) -> list[Path]:
        """Return the directories to make for the record, outer ones first."""
        folder = self.home.folder
        if not self.home.own:
            return []
        return [place for place in (*reversed(folder.parents), folder) if not place.is_dir()]

    def make(self, place: Path) -> None:
        """Make a directory, without following links below the root.

        Raises:
            RefusedError: a link leads out on the way.
            OSError: it cannot be made.
        """
        if self.home.root in place.parents and place != self.home.folder:
            self.folder("root", place.relative_to(self.home.root).as_posix()).make(place.name)
            return
        around = Folder.open(place.parent)
        try:
            around.make(place.name)
        finally:
            around.close()

    def sync(self, place: Path) -> None:
        """Make the entries of any directory durable.

        Raises:
            OSError: they cannot be.
        """
        folder = Folder.open(place)
        try:
            folder.sync()
        finally:
            folder.close()

    def sync_step(self) -> Step:
        """Return the step that makes all durable that was written where the open folders lie."""

        def sync() -> None:
            devices = {folder.own_status().st_dev: folder for folder in self._folders.values()}
            for folder in devices.values():
                folder.sync_all()

        return Step("sync all", os.fspath(self.home.root), sync)

    def package_directory(self) -> Path:
        """Return where the package really lies.

        Raises:
            RefusedError: it is linked in beside a dist-info: other installs may share it.
        """
        package = self.home.root / PACKAGE
        if package.is_symlink() and self.home.record is not None:
            raise RefusedError(
                f"{package}: installed as a link to {os.fspath(package.readlink())}, which other "
                "environments may share; reinstall it with copied or hard-linked files"
            )
        return Path(os.path.realpath(package))

    def shown(self, write: Write | Noted) -> str:
        """Return the path of a write as messages show it."""
        return os.fspath(self.place(write))

    def place(self, write: Write | Noted) -> Path:
        """Return the path under which a write's file is read and imported."""
        base = self.home.folder if write.at == "home" else self.home.root
        return base / write.path

    def sources(self, write: Write | Noted) -> list[Path]:
        """Return the paths under which a module may have been compiled: as named, and real."""
        if write.at != "root" or not write.path.endswith(".py"):
            return []
        place = self.place(write)
        real = Path(os.path.realpath(place.parent)) / place.name
        return [place] if place == real else [place, real]


_SPARE = 64
"""Open files beside the folders: the journal, the lock, pipes to git, the interpreter's own."""


def allow(writes: Sequence[Write] | Sequence[Noted]) -> None:
    """Let this process hold the folders of so many writes open at a time.

    Raises:
        RefusedError: the system does not let it.
    """
    import resource

    needed = len({(write.at, write.path.rpartition("/")[0]) for write in writes}) + _SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    except (OSError, ValueError) as error:
        raise RefusedError(
            f"{needed} files and directories have to be open at a time, and this process may open "
            f"{hard}; nothing was written. Raise the limit: ulimit -n {needed}"
        ) from error


def check(ground: Ground, writes: tuple[Write, ...]) -> None:
    """Refuse, before anything is written, what could not be written whole.

    Raises:
        RefusedError: a directory cannot be written, or an owner could not be kept.
    """
    _check_home(ground.home)
    for write in writes:
        if write.at == "home" and not ground.home.folder.is_dir():
            continue
        place = ground.shown(write)
        if lacking := ground.lacking(write):
            _check_around(ground.home, lacking[0])
            continue
        try:
            folder = ground.folder(write.at, write.path)
        except OSError as error:
            raise RefusedError(
                f"{place}: {error.strerror or error}; is an installer at work? Nothing was written"
            ) from error
        if reason := folder.refuses():
            raise RefusedError(
                f"{folder.path}: {reason}; nothing was written. {_way_on(ground.home)}"
            )
        if write.before is not None and (
            reason := attributes.foreign(attributes.of(folder, write.name))
        ):
            raise RefusedError(
                f"{place}: {reason}, so its owner could not be kept; nothing was written. "
                "Run rewriter as that user, or as root"
            )
        for source in ground.sources(write):
            if (stuck := bytecode.stuck(source)) is not None:
                raise RefusedError(
                    f"{stuck}: byte code that this user cannot remove, so the old code might go "
                    "on running; nothing was written"
                )


def _way_on(home: Home) -> str:
    """Say what can be done where this user may not write."""
    if home.own:
        return "Run rewriter as a user who can, or give another directory"
    return (
        "Run rewriter as a user who can, or leave the package as it is: "
        "`rewriter apply --overlay DIR`"
    )


def _check_around(home: Home, place: Path) -> None:
    """Refuse where a directory would have to be made and cannot be."""
    there = next(p for p in (place, *place.parents) if p.exists() or p.is_symlink())
    if not there.is_dir():
        raise RefusedError(
            f"{place}: cannot be made, because {there} is no directory; nothing was written"
        )
    if not os.access(there, os.W_OK | os.X_OK):
        raise RefusedError(
            f"{place}: cannot be made, because this user cannot write in {there}; "
            f"nothing was written. {_way_on(home)}"
        )


def _check_home(home: Home) -> None:
    """Refuse where the record's directory would have to be made and cannot be."""
    if home.folder.is_dir():
        if not os.access(home.folder, os.W_OK | os.X_OK):
            raise RefusedError(
                f"{home.folder}: the manifest belongs there, and this user cannot write there; "
                f"nothing was written. {_way_on(home)}"
            )
        return
    if not home.own:
        raise RefusedError(
            f"{home.folder}: gone by now; is an installer at work? Nothing was written"
        )
    if home.folder.exists() or home.folder.is_symlink():
        raise RefusedError(f"{home.folder}: the manifest belongs there, but it is no directory")
    _check_around(home, home.folder)
