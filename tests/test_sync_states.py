"""``sync`` from every state that can be made: by commands, edits, installers and kills."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import Git
from fake_sglang import installed_files
from faults import KILL, watched
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from installing import (
    MIXER,
    MIXER_SOURCE,
    PACKAGE,
    SCALER,
    SCALER_SOURCE,
    TOOLS,
    FakeCodemods,
    codemods,
    record_faults,
    rewriter,
    sealed_state,
    states,
    tree,
)
from test_sync import NAMES, configure

from rewriter.targets.overlay import START

__all__ = ["codemods", "sealed_state"]


class Ground(NamedTuple):
    """What a sequence works on.

    Attributes:
        kind: ``installed``, ``overlay`` or ``checkout``.
        packages: where the package lies.
        place: what the commands write.
        options: that name it.
    """

    kind: str
    packages: Path
    place: Path
    options: tuple[str, ...]


@contextmanager
def ground(kind: str, write: Callable[..., Path], git: Git) -> Iterator[Ground]:
    """Make a package of its own in a scratch directory."""
    scratch = Path(tempfile.mkdtemp())
    try:
        if kind == "checkout":
            packages = write(scratch / "tree" / "python", PACKAGE)
            commit(packages.parent, git)
            options = ("--checkout", str(packages.parent))
            yield Ground(kind, packages, packages, options)
            return
        packages = write(scratch / "site-packages", installed_files("0.5.2", PACKAGE))
        options = ("--site-packages", str(packages))
        over = scratch / "overlay"
        if kind == "overlay":
            yield Ground(kind, packages, over, (*options, "--overlay", str(over)))
        else:
            yield Ground(kind, packages, packages, options)
    finally:
        shutil.rmtree(scratch)


def commit(top: Path, git: Git) -> None:
    if not (top / ".git").exists():
        git("init", "-q", cwd=top)
    git("add", f"python/{MIXER}", f"python/{SCALER}", cwd=top)
    git("commit", "-q", "--allow-empty", "-m", "x", cwd=top)


class Actor:
    """Does one thing to a ground, whether or not that succeeds."""

    def __init__(
        self, on: Ground, write: Callable[..., Path], git: Git, codemods: FakeCodemods
    ) -> None:
        self.on, self.write, self.git, self.codemods = on, write, git, codemods
        self.release = 2

    def __call__(self, kind: str, name: str, number: int) -> None:
        getattr(self, kind)(name, number)

    def apply(self, name: str, _: int) -> None:
        rewriter("apply", name, *self.on.options)

    def revert(self, name: str, _: int) -> None:
        rewriter("revert", name, *self.on.options)

    def sync(self, name: str, _: int) -> None:
        configure(*(["alpha"] if name == "beta" else []), name)
        rewriter("sync", *self.on.options)

    def kill(self, name: str, number: int) -> None:
        """Kill a run at one of its system calls."""
        verb = ("apply", "revert", "sync")[number % 3]
        configure(name) if verb == "sync" else None
        words = () if verb == "sync" else (name,)
        watched([self.on.place], (verb, *words, *self.on.options), {4 * number: KILL})

    def edit(self, *_: object) -> None:
        self._rewrite(MIXER, lambda raw: raw + b"# mine\n")

    def restore(self, *_: object) -> None:
        self._rewrite(MIXER, lambda _: MIXER_SOURCE)
        self._rewrite(SCALER, lambda _: SCALER_SOURCE)

    def half(self, *_: object) -> None:
        self._rewrite(MIXER, lambda _: MIXER_SOURCE)

    def spoil(self, *_: object) -> None:
        self._rewrite(MIXER, lambda raw: raw.replace(b"note(y)", b"note(y, 1)"))

    def companion(self, *_: object) -> None:
        (self.on.place / TOOLS).unlink(missing_ok=True)

    def record(self, *_: object) -> None:
        """Lose the record, wherever it lies."""
        top = self.on.place.parent if self.on.kind == "checkout" else self.on.place
        for place in [*top.rglob("REWRITER.json"), *top.rglob("manifest.json")]:
            place.unlink()
            if place.parent.name == ".rewriter":
                with suppress(OSError):  # there is a journal as well
                    place.parent.rmdir()  # as a run does where it is empty

    def leave(self, *_: object) -> None:
        """Leave a copy of a companion where an older version of the tool would have had it."""
        place = self.on.place / TOOLS
        if place.exists():
            place.with_name("_rewriter_older.py").write_bytes(place.read_bytes())

    def start(self, *_: object) -> None:
        """Lose the start-up file of an overlay."""
        (self.on.place / START).unlink(missing_ok=True)

    def upgrade(self, *_: object) -> None:
        """Do as an installer: the old record goes, new files come, what is ours stays."""
        self.release = 5 - self.release
        fresh = {**PACKAGE, MIXER: MIXER_SOURCE.replace(b'"""Mixes."""', b'"""Mixes, 0.5.3."""')}
        files = fresh if self.release == 3 else PACKAGE
        if self.on.kind == "checkout":
            self.write(self.on.packages, files)
            commit(self.on.packages.parent, self.git)
            return
        for info in self.on.packages.glob("*.dist-info"):
            shutil.rmtree(info)
        self.write(self.on.packages, installed_files(f"0.5.{self.release}", files))

    def tool(self, *_: object) -> None:
        """Go on with another version of the tool: a companion is another one."""
        self.codemods.edit("runtime/tools.py", 'VERSION = "', 'VERSION = "1')

    def package(self, *_: object) -> None:
        """Edit the package itself, which for an overlay lies beneath."""
        file = self.on.packages / SCALER
        file.write_bytes(file.read_bytes() + b"# rebuilt\n")

    def _rewrite(self, path: str, change: Callable[[bytes], bytes]) -> None:
        file = self.on.place / path
        if file.exists():
            file.write_bytes(change(file.read_bytes()))


KINDS = ["apply", "apply", "apply", "revert", "sync", "kill", "edit", "restore", "half", "spoil",
         "companion", "record", "leave", "start", "upgrade", "tool", "package"]  # fmt: skip
UNPROVABLE = {"edit", "spoil", "record", "package", "upgrade", "half", "restore", "tool"}
"""After these it may be refused: nothing says any more what the original was."""

STEPS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from(NAMES), st.integers(2, 40)), max_size=6
)
WANTED = st.sets(st.sampled_from(NAMES)).map(
    lambda names: sorted(names | ({"alpha"} if "beta" in names else set()))
)


@pytest.mark.parametrize("kind", ["installed", "overlay", "checkout"])
@settings(
    max_examples=15, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(steps=STEPS, wanted=WANTED)
def test_idempotent_from_every_state(
    kind: str, steps: list[tuple[str, str, int]], wanted: list[str], codemods: FakeCodemods,
    write_files: Callable[..., Path], sealed_git: Git,
) -> None:  # fmt: skip
    """It reaches what is wanted, and then writes nothing; or refuses, and wrote nothing.

    Run with 250 examples for each kind before it was committed.
    """
    codemods.use({})
    with ground(kind, write_files, sealed_git) as on:
        act = Actor(on, write_files, sealed_git, codemods)
        for step in steps:
            act(*step)
        did = {step[0] for step in steps}
        configure(*wanted)
        beneath = tree(on.packages)
        before = tree(on.place)
        done = rewriter("sync", *on.options)
        assert done.code in (0, 2), done
        if done.code == 2:
            assert did & UNPROVABLE, done.err
            assert "nothing was written" in done.err
            assert "kill" in did or tree(on.place) == before
            return
        found = states(*on.options)
        assert {name for name, state in found.items() if state == "applied"} == set(wanted)
        after = tree(on.place)
        again = rewriter("sync", *on.options)
        assert (again.code, "nothing to write" in again.out) == (0, True), again
        assert tree(on.place) == after
        if kind == "overlay":
            assert tree(on.packages) == beneath
            edited = did & {"edit", "spoil", "half", "restore"}  # somebody's, and served no more
            assert bool(after) == bool(wanted) or edited
        if kind == "installed" and not did & {"edit", "record", "leave", "package", "upgrade"}:
            assert record_faults(on.place) == []
