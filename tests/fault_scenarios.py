"""What the faults are tried on: a tree as it is, a writing command, and the one that undoes it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import patching
from fake_sglang import installed_files
from installing import MIXER, MIXER_SOURCE, PACKAGE, SCALER, FakeCodemods, rewriter

from rewriter.transaction import durable, folder

SITE, CLONE, OVERLAY, OUT = "site-packages", "clone", "overlay", "out"
OLDER, PATCH = "older", "./team.patch"


class Stage(NamedTuple):
    """Where a scenario is played.

    Attributes:
        work: holds all that a command may change, and nothing else.
        state: the user's state directory, with the locks.
        codemods: the fake ones.
    """

    work: Path
    state: Path
    codemods: FakeCodemods

    def words(self, text: str) -> list[str]:
        """Return a command line: names of directories here stand for their paths."""
        places = {name: str(self.work / name) for name in (SITE, CLONE, OVERLAY, OUT, OLDER, PATCH)}
        return [places.get(word, word) for word in text.split()]

    def run(self, text: str) -> None:
        """Run a command that must go well."""
        done = rewriter(*self.words(text))
        assert done.code == 0, done.err


class Scenario(NamedTuple):
    """One command on one kind of tree.

    Attributes:
        name: for tables.
        prepare: makes the tree, before the command.
        command: what is disturbed.
        back: the command that undoes it; empty where there is none.
        at: the target, for ``status``.
        lacks: takes something from the process that some systems lack, or makes few names many.
        done: words of the refusal where there is nothing left to do: only a record knows a patch.
    """

    name: str
    prepare: Callable[[Stage], object]
    command: str
    back: str
    at: str
    lacks: Callable[[], object] | None = None
    done: str = ""


def written(root: Path, contents: Mapping[str, bytes]) -> None:
    for path, raw in contents.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(raw)


def compile_all(work: Path) -> None:
    """Put byte code beside each module that codemods change, which names its source."""
    for place in [p for name in (MIXER, SCALER) for p in work.rglob(Path(name).name)]:
        for tag in ("cpython-310", "cpython-311.opt-1"):
            cached = place.parent / "__pycache__" / f"{place.stem}.{tag}.pyc"
            cached.parent.mkdir(exist_ok=True)
            cached.write_bytes(byte_code(place.read_bytes()))


def byte_code(source: bytes) -> bytes:
    """Return what stands for the byte code of a source."""
    return b"of " + hashlib.sha256(source).hexdigest().encode()


# --- trees ---------------------------------------------------------------------------------


def installed(stage: Stage) -> None:
    written(stage.work / SITE, installed_files("0.5.2", PACKAGE))


def linked(stage: Stage) -> None:
    """As ``uv --link-mode symlink`` leaves a package: its modules are links into a cache."""
    installed(stage)
    for path in (MIXER, SCALER):
        place, kept = stage.work / SITE / path, stage.work / "cache" / Path(path).name
        kept.parent.mkdir(exist_ok=True)
        place.rename(kept)
        place.symlink_to(os.path.relpath(kept, place.parent))


def bare(stage: Stage) -> None:
    written(stage.work / SITE, PACKAGE)


def cloned(stage: Stage) -> None:
    """A repository with the package under ``python/``, committed."""
    top = stage.work / CLONE
    written(top / "python", PACKAGE)
    (top / ".gitignore").write_text("__pycache__/\n")
    person = ("-c", "user.name=Test", "-c", "user.email=test@example.invalid")
    for words in (("init", "-q"), ("add", "."), (*person, "commit", "-qm", "one")):
        subprocess.run(["git", *words], cwd=top, check=True)


def upgraded(stage: Stage) -> None:
    """Another release over a patched one, as a cached environment or a layer does it."""
    installed(stage)
    stage.run(f"apply alpha --site-packages {SITE}")
    site = stage.work / SITE
    for name in ("METADATA", "RECORD", "WHEEL"):
        (site / "sglang-0.5.2.dist-info" / name).unlink()
    newer = {**PACKAGE, MIXER: MIXER_SOURCE.replace(b'"1"', b'"2"')}
    written(
        site, installed_files("0.5.3", {**newer, "sglang/version.py": b'__version__="0.5.3"\n'})
    )


def older(stage: Stage) -> None:
    """Applied by a version of the tool that wrote other lines and another companion."""
    installed(stage)
    stage.run(f"apply alpha delta --site-packages {SITE}")
    stage.codemods.edit("runtime/tools.py", 'VERSION = "1"', 'VERSION = "2"')
    stage.codemods.edit("alpha.py", "_tools.note(y)", "_tools.keep(y)")


def after(prepare: Callable[[Stage], object], *commands: str) -> Callable[[Stage], None]:
    """Return what makes a tree and then runs commands on it."""

    def made(stage: Stage) -> None:
        prepare(stage)
        for command in commands:
            stage.run(command)

    return made


def configured(stage: Stage) -> None:
    """Two codemods are in; the configuration wants one of them and a third."""
    installed(stage)
    stage.run(f"apply alpha gamma --site-packages {SITE}")
    (stage.state.parent / "rewriter.toml").write_text('codemods = ["alpha", "delta"]\n')


def with_a_patch(stage: Stage) -> None:
    """A patch that changes, deletes and adds files, some in a new directory."""

    def git(*words: str, cwd: Path) -> bytes:
        person = ("-c", "user.name=Test", "-c", "user.email=test@example.invalid")
        command = ["git", *person, *words]
        return subprocess.run(command, cwd=cwd, check=True, capture_output=True).stdout

    def write(root: Path, contents: Mapping[str, bytes]) -> Path:
        written(root, contents)
        return root

    written(stage.work / SITE, installed_files("0.5.2", patching.NEWER))
    patching.Team(stage.work, git, write).patch()
    shutil.rmtree(stage.work / OLDER / ".git")


# --- systems -------------------------------------------------------------------------------


def no_swap_and_no_links() -> None:
    """Take away what some network file systems and macOS lack."""

    def link(*_: object, **__: object) -> None:
        raise OSError(1, "Operation not permitted")

    os.link = link
    folder.exchange = lambda *_: False


def few_are_many() -> None:
    """Sync as a run over thousands of names does."""
    durable.MANY = 0


# --- the list ------------------------------------------------------------------------------

_SITE, _CLONE = f"--site-packages {SITE}", f"--checkout {CLONE}"
_OVER = f"--site-packages {SITE} --overlay {OVERLAY}"
_ALPHA = f"apply alpha {_SITE}"
_THREE = (_ALPHA, f"apply delta {_SITE}", f"apply beta {_SITE}")
_CARRY = f"carry {PATCH} --from {OLDER} --apply {_SITE}"
_OUT = f"apply alpha {_SITE} --output {OUT} --full"

SCENARIOS = (
    Scenario("installed: apply", installed, _ALPHA, f"revert alpha {_SITE}", _SITE),
    Scenario("installed: revert", after(installed, _ALPHA), f"revert alpha {_SITE}", _ALPHA, _SITE),
    Scenario("stacked: two more on one", after(installed, _ALPHA), f"apply delta beta {_SITE}",
             f"revert delta beta {_SITE}", _SITE),
    Scenario("stacked: two of three out", after(installed, *_THREE), f"revert delta beta {_SITE}",
             f"apply delta beta {_SITE}", _SITE),
    Scenario("a newer version over an older", older, f"apply alpha delta {_SITE}", "", _SITE),
    Scenario("after an upgrade: revert", upgraded, f"revert alpha {_SITE}", "", _SITE),
    Scenario("after an upgrade: apply", upgraded, _ALPHA, "", _SITE),
    Scenario("sync to another list", configured, f"sync {_SITE}", "", _SITE),
    Scenario("linked modules: apply", linked, f"apply alpha delta {_SITE}",
             f"revert alpha delta {_SITE}", _SITE),
    Scenario("linked modules: revert", after(linked, f"apply alpha delta {_SITE}"),
             f"revert alpha delta {_SITE}", f"apply alpha delta {_SITE}", _SITE),
    Scenario("carry: a patch in", after(with_a_patch, f"apply delta {_SITE}"), _CARRY,
             f"revert team.patch {_SITE}", _SITE, done="patches: none"),
    Scenario("carry: a patch out", after(with_a_patch, f"apply delta {_SITE}", _CARRY),
             f"revert team.patch {_SITE}", _CARRY, _SITE, done="patches: none"),
    Scenario("no swap, no links: apply", installed, _ALPHA, f"revert alpha {_SITE}", _SITE,
             no_swap_and_no_links),
    Scenario("no swap, no links: revert", after(installed, _ALPHA), f"revert alpha {_SITE}",
             _ALPHA, _SITE, no_swap_and_no_links),
    Scenario("checkout: apply", cloned, f"apply alpha {_CLONE}", f"revert alpha {_CLONE}", _CLONE),
    Scenario("checkout: revert", after(cloned, f"apply alpha {_CLONE}"), f"revert alpha {_CLONE}",
             f"apply alpha {_CLONE}", _CLONE),
    Scenario("bare tree: apply", bare, f"{_ALPHA} --accept-unproven", f"revert alpha {_SITE}",
             _SITE),
    Scenario("bare tree: revert", after(bare, f"{_ALPHA} --accept-unproven"),
             f"revert alpha {_SITE}", f"{_ALPHA} --accept-unproven", _SITE),
    Scenario("overlay: apply", installed, f"apply alpha {_OVER}", f"revert alpha {_OVER}", _OVER),
    Scenario("overlay: revert", after(installed, f"apply alpha {_OVER}"), f"revert alpha {_OVER}",
             f"apply alpha {_OVER}", _OVER),
    Scenario("output: a new directory", installed, _OUT, "", f"--site-packages {OUT}"),
    Scenario("output: over an earlier one", after(installed, _OUT),
             f"apply delta {_SITE} --output {OUT}", "", f"--site-packages {OUT}"),
    Scenario("many names: an output", installed, _OUT, "", f"--site-packages {OUT}", few_are_many),
    Scenario("many names: over an earlier output", after(installed, _OUT),
             f"apply delta {_SITE} --output {OUT}", "", f"--site-packages {OUT}", few_are_many),
    Scenario("many names: apply", after(installed, _ALPHA), f"apply delta beta {_SITE}",
             f"revert delta beta {_SITE}", _SITE, few_are_many),
    Scenario("many names: revert", after(installed, *_THREE), f"revert delta beta {_SITE}",
             f"apply delta beta {_SITE}", _SITE, few_are_many),
)  # fmt: skip
