"""One run: journal, staging, the changes themselves, reading back; or all of it undone."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rewriter.errors import Interrupted, RefusedError, RewriterError
from rewriter.targets.home import Home
from rewriter.transaction import attributes, bytecode, durable, journal
from rewriter.transaction.attributes import Attributes
from rewriter.transaction.folder import Folder, Link, content_of, fingerprint
from rewriter.transaction.ground import Ground, allow, check
from rewriter.transaction.journal import Journal, Noted, Write, new_name, old_name
from rewriter.transaction.moves import CHANGED, Moved, put, second_name, take_away, write_all
from rewriter.transaction.recovery import clear, closing_steps, put_back
from rewriter.transaction.steps import Step, StepFailed, perform

GRACE = 0.2
"""Seconds before a module is removed: who has just read one that imports it still finds it."""


class Run:
    """All-or-nothing change of some names of one target.

    The order: the journal, durable; every new file under a temporary name, complete and durable;
    a second name for every old file; then only renames, each after a last look at what it
    replaces; reading back; then the second names and the journal go. So a full disk is met
    before the first change, and undoing takes no space.

    Of many names the bytes are made durable together before the first change, and the changes
    together before the journal goes: whatever part of them a power cut leaves, the journal tells.
    """

    def __init__(
        self, home: Home, command: str, writes: tuple[Write, ...], identity: tuple[object, ...]
    ) -> None:
        """Prepare a run; nothing is done yet.

        Args:
            home: where the target's record lies.
            command: ``apply`` or ``revert``.
            writes: in the order in which they are to be done.
            identity: of the home, when the run was planned.
        """
        self.home = home
        self.writes = writes
        self._identity = identity
        self._ground = Ground(home)
        self._held = -1
        self._published = False
        self._closing = False
        self._waited = False
        self._at_once = durable.at_once(writes)
        self.journal = Journal(
            command,
            secrets.token_hex(4),
            journal.describe_process(),
            tuple(Noted(w.at, w.path, fingerprint(w.before), fingerprint(w.after)) for w in writes),
        )

    def carry_out(self) -> None:
        """Do it.

        Raises:
            RefusedError: it could not be done; everything is as before.
            Interrupted: it could not be done, nor be undone; the next writing command will.
        """
        with self._ground:
            allow(self.writes)
            try:
                check(self._ground, self.writes)
            except OSError as error:
                raise RefusedError(
                    f"{error.filename or self.home.root}: {error.strerror or error}; nothing was "
                    "written"
                ) from error
            try:
                for step in self.steps():
                    perform(step)
                for step in closing_steps(self._ground, self.journal):
                    self._closing = True
                    perform(step)
            except (StepFailed, Moved, OSError, RewriterError) as failure:
                told = self._give_up()
                if self._closing:
                    raise Interrupted(f"{failure}; {told}") from failure
                raise RefusedError(f"{failure}; {told}") from failure
            except BaseException:
                self._give_up()
                raise
            finally:
                if self._held >= 0:
                    os.close(self._held)

    def _give_up(self) -> str:
        """Undo what was done and say so; once all was read back there is nothing to undo."""
        if self._closing:
            return (
                "all files are written and right, but temporary ones may be left; the next "
                "`rewriter apply` or `rewriter revert` removes them"
            )
        if self._published:
            return put_back(self._ground, self.journal)
        return clear(self._ground, self.journal)

    def steps(self) -> Iterator[Step]:
        """Yield every step up to the last reading back, in order."""
        yield from self._directory_steps(self._ground.above_home())
        yield from self._journal_steps()
        for write in self.writes:
            lacking = self._ground.lacking(write)
            yield from self._directory_steps(lacking, sync=not self._at_once)
            yield from self._staging_steps(write)
        for write in self.writes:
            yield from self._backup_steps(write)
        yield from self._sync_steps()
        for write in self.writes:
            yield from self._change_steps(write)
        if self._at_once:
            yield self._ground.sync_step()
        yield from self._verify_steps()

    def _directory_steps(self, lacking: Sequence[Path], *, sync: bool = True) -> Iterator[Step]:
        for place in lacking:
            yield Step("make directory", str(place), _bound(self._ground.make, place))
            around = place.parent
            if sync:
                yield Step("sync directory", str(around), _bound(self._ground.sync, around))

    def _journal_steps(self) -> Iterator[Step]:
        home, name = self.home, self.home.journal
        temporary = new_name(name, self.journal.token)
        place = str(home.journal_path)
        held: list[int] = []

        def create() -> None:
            held.append(self._at_home().create(temporary))
            os.fchmod(held[0], 0o644)
            self._held = held[0]  # kept open and locked: it says that the run is alive
            journal.hold(held[0])

        def publish() -> None:
            self._at_home().publish(temporary, name)
            self._published = True
            self._at_home().unlink(temporary)

        yield Step("create", place, create)
        yield Step("write", place, lambda: write_all(held[0], self.journal.dump()))
        yield Step("sync", place, lambda: os.fsync(held[0]))
        yield Step("rename", place, publish)
        yield Step("sync directory", str(home.folder), lambda: self._at_home().sync())

    def _staging_steps(self, write: Write) -> Iterator[Step]:
        folder, name = self._folder(write), new_name(write.name, self.journal.token)
        place, content = str(folder.path / name), write.after
        if content is None:
            return
        if isinstance(content, Link):
            text = content.text
            yield Step("create", place, lambda: folder.symlink(text, name))
            return
        opened: list[int] = []
        raw = content

        def finish() -> None:
            if not self._at_once:
                os.fsync(opened[0])
            os.close(opened.pop())

        yield Step("create", place, lambda: opened.append(folder.create(name)))
        try:
            yield Step("write", place, lambda: write_all(opened[0], raw))
            yield Step(
                "keep attributes",
                place,
                lambda: attributes.keep(opened[0], self._attributes(write)),
            )
            yield Step("close" if self._at_once else "sync", place, finish)
        finally:
            if opened:
                os.close(opened.pop())

    def _backup_steps(self, write: Write) -> Iterator[Step]:
        if write.before is not None:
            folder, old = self._folder(write), old_name(write.name, self.journal.token)
            yield Step(
                "back up", str(folder.path / old), lambda: second_name(folder, write.name, old)
            )

    def _sync_steps(self) -> Iterator[Step]:
        if self._at_once:
            yield self._ground.sync_step()
            return
        for folder in dict.fromkeys(self._folder(write) for write in self.writes):
            yield Step("sync directory", str(folder.path), folder.sync)

    def _change_steps(self, write: Write) -> Iterator[Step]:
        folder, token, place = self._folder(write), self.journal.token, self._ground.shown(write)

        def compare() -> None:
            if folder.look(write.name) != write.before:
                raise Moved(f"{place}: {CHANGED}")

        new = new_name(write.name, token)
        if write.after is None and write.path.endswith(".py") and not self._waited:
            self._waited = True
            yield Step("wait", place, lambda: time.sleep(GRACE))
        yield Step("compare", place, compare)
        if write.before is None:
            yield Step("rename", place, lambda: folder.publish(new, write.name))
        elif write.after is None:
            yield Step("unlink", place, lambda: take_away(folder, write, new, place))
        else:
            yield Step("rename", place, lambda: put(folder, write, new, place))
        if not self._at_once:
            yield Step("sync directory", str(folder.path), folder.sync)
        for source in self._ground.sources(write):
            yield Step("drop byte code", str(source), _bound(bytecode.drop, source))

    def _verify_steps(self) -> Iterator[Step]:
        """Read every file back by the path under which it is imported."""
        for write in self.writes:
            yield Step("verify", self._ground.shown(write), self._verifying(write))

        def same() -> None:
            if self.home.identity() != self._identity:
                raise Moved(
                    f"{self.home.folder}: the package was installed, upgraded or removed while "
                    "this run was at work"
                )

        yield Step("verify", str(self.home.folder), same)

    def _verifying(self, write: Write) -> Callable[[], None]:
        place = self._ground.place(write)

        def verify() -> None:
            if content_of(place) != write.after:
                raise Moved(f"{place}: holds something else than what was just written")

        return verify

    def _attributes(self, write: Write) -> Attributes:
        if write.before is not None:
            return attributes.of(self._folder(write), write.name)
        if write.like is not None:
            folder = self._ground.folder("root", write.like)
            found = attributes.plain(attributes.of(folder, write.like.rpartition("/")[2]))
        else:
            found = attributes.new(self._folder(write))
        return found if write.mode is None else found._replace(mode=write.mode)

    def _folder(self, write: Write) -> Folder:
        return self._ground.folder(write.at, write.path)

    def _at_home(self) -> Folder:
        return self._ground.folder("home", "")


def _bound(act: Callable[[Path], object], place: Path) -> Callable[[], object]:
    return lambda: act(place)
