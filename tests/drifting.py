"""What becomes of a patched package: edits, other patches, formatters, upgrades, git."""

from __future__ import annotations

import difflib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from fake_sglang import installed_files
from installing import MIXER, MIXER_SOURCE, PACKAGE, TOOLS, Done, rewriter, states, tree

from rewriter.transaction.folder import content_of

MINE = MIXER_SOURCE.replace(b"self.width = width", b"self.width = width  # mine")
"""The file with a line of the user's own, far from our sites."""

NEWER = MIXER_SOURCE.replace(b"# spread", b"# spreads").replace(b'"1"', b'"2"')
"""The file as a later commit or release has it."""


class Place(NamedTuple):
    """A package that is written to.

    Attributes:
        root: the package's parent.
        top: the top of the repository, or the site-packages.
        at: the target on a command line.
    """

    root: Path
    top: Path
    at: tuple[str, ...]

    @property
    def mixer(self) -> Path:
        return self.root / MIXER

    def run(self, verb: str, *more: str) -> Done:
        return rewriter(verb, "alpha", *self.at, *more)

    def apply(self, *more: str) -> None:
        done = self.run("apply", *more)
        assert done.code == 0, done.err

    def state(self) -> str:
        return states("alpha", *self.at)["alpha"]

    def edit(self, old: bytes, new: bytes, path: str = MIXER) -> None:
        raw = (self.root / path).read_bytes()
        assert old in raw
        (self.root / path).write_bytes(raw.replace(old, new))

    def git(self, *words: str) -> None:
        person = ("-c", "user.name=Test", "-c", "user.email=test@example.invalid")
        subprocess.run(["git", *person, *words], cwd=self.top, check=True, capture_output=True)

    def patch(self, before: bytes, after: bytes, program: tuple[str, ...]) -> None:
        """Let a program apply a text patch; it takes the patch on its standard input."""
        lines = difflib.diff_bytes(
            difflib.unified_diff,
            before.splitlines(keepends=True), after.splitlines(keepends=True),
            b"a/" + MIXER.encode(), b"b/" + MIXER.encode(),
        )  # fmt: skip
        subprocess.run(
            program, cwd=self.root, input=b"".join(lines), check=True, capture_output=True
        )


class Drift(NamedTuple):
    """One way in which a package goes on.

    Attributes:
        name: for the table.
        act: does it; what it is given is applied already, unless ``before``.
        status: what ``status`` must say then.
        apply: what ``apply`` must come to: the state afterwards, or ``refused``. What is partial is
            an error until somebody has looked at it.
        revert: the same of ``revert``.
        left: the module's bytes after ``revert``; None for none.
        before: whether it happens to the package as shipped.
        clone: whether it happens in a working tree of git.
        unproven: whether ``apply`` is given ``--accept-unproven``.
    """

    name: str
    act: Callable[[Place], object]
    status: str
    apply: str
    revert: str
    left: bytes | None
    before: bool = False
    clone: bool = False
    unproven: bool = False


# --- edits ---------------------------------------------------------------------------------


def own_line_far(place: Place) -> None:
    place.edit(b"self.width = width", b"self.width = width  # mine")


def own_line_behind(place: Place) -> None:
    place.edit(b"y = _tools.note(y)\n", b"y = _tools.note(y)\n        y = abs(y)\n")


def own_line_in_front(place: Place) -> None:
    place.edit(b"        y = _tools.note(y)\n", b"        y = abs(y)\n        y = _tools.note(y)\n")


def our_line_edited(place: Place) -> None:
    place.edit(b"_tools.note(y)", b"_tools.note(y + 1)")


def our_line_gone(place: Place) -> None:
    place.edit(b"        y = _tools.note(y)\n", b"")


def our_place_edited(place: Place) -> None:
    place.edit(b"y = x * SCALE", b"y = SCALE * x")


def companion_edited(place: Place) -> None:
    place.edit(b"return value", b"return value + 0", TOOLS)


def companion_gone(place: Place) -> None:
    (place.root / TOOLS).unlink()


def module_gone(place: Place) -> None:
    place.mixer.unlink()


def module_replaced(place: Place) -> None:
    place.mixer.write_bytes(b"x = 1\n")


def module_as_shipped(place: Place) -> None:
    place.mixer.write_bytes(MIXER_SOURCE)


def carriage_returns(place: Place) -> None:
    place.mixer.write_bytes(place.mixer.read_bytes().replace(b"\n", b"\r\n"))


def mode(place: Place) -> None:
    place.mixer.chmod(0o600)


def touched(place: Place) -> None:
    os.utime(place.mixer)


# --- other patches and formatters ----------------------------------------------------------

GIT_APPLY = ("git", "apply", "-")


def gnu_patch() -> tuple[str, ...]:
    """Return GNU patch, or git where that is not installed."""
    return ("patch", "-p1", "--quiet") if shutil.which("patch") else GIT_APPLY


def patched_far(place: Place) -> None:
    """A patch made for the shipped file, put in over ours."""
    place.patch(MIXER_SOURCE, MINE, GIT_APPLY)


def patched_far_with_patch(place: Place) -> None:
    place.patch(MIXER_SOURCE, MINE, gnu_patch())


def ours_as_text(place: Place) -> None:
    """``rewriter diff | git apply``, as one does where the tool is not installed."""
    diff = place.run("diff").out.encode()
    subprocess.run(GIT_APPLY, cwd=place.root, input=diff, check=True, capture_output=True)


def ours_out_as_text(place: Place) -> None:
    before = place.mixer.read_bytes()
    place.patch(before, MIXER_SOURCE, GIT_APPLY)
    (place.root / TOOLS).unlink()


def formatted(*command: str) -> Callable[[Place], None]:
    def act(place: Place) -> None:
        subprocess.run([*command, place.mixer], check=True, capture_output=True)

    return act


BLACK = (sys.executable, "-m", "black", "--quiet")
RUFF = (sys.executable, "-m", "ruff", "format", "--quiet", "--isolated")


def as_formatted(command: tuple[str, ...], raw: bytes = MIXER_SOURCE) -> bytes:
    """Return what a formatter makes of a file."""
    done = subprocess.run([*command, "-"], input=raw, check=True, capture_output=True)
    return done.stdout


# --- the installer -------------------------------------------------------------------------


def _write(place: Place, files: Mapping[str, bytes]) -> None:
    for path, raw in files.items():
        (place.root / path).parent.mkdir(parents=True, exist_ok=True)
        (place.root / path).write_bytes(raw)


def _release() -> dict[str, bytes]:
    version = {"sglang/version.py": b'__version__ = "0.5.3"\n'}
    return installed_files("0.5.3", {**PACKAGE, MIXER: NEWER, **version})


def upgraded(place: Place) -> None:
    """As pip does it: what RECORD lists goes, the other release comes."""
    from rewriter.targets.record import parse_record

    record = place.root / "sglang-0.5.2.dist-info" / "RECORD"
    for path in parse_record(record.read_bytes()):
        (place.root / path).unlink(missing_ok=True)
    record.parent.rmdir()
    _write(place, _release())


def overlaid(place: Place) -> None:
    """As a layer or a cached environment does it: over what is there, METADATA replaced."""
    for name in ("METADATA", "RECORD", "WHEEL"):
        (place.root / "sglang-0.5.2.dist-info" / name).unlink()
    _write(place, _release())


def record_stripped(place: Place) -> None:
    (place.root / "sglang-0.5.2.dist-info" / "RECORD").unlink()


def manifest_lost(place: Place) -> None:
    (place.root / "sglang-0.5.2.dist-info" / "REWRITER.json").unlink()


def dist_info_renamed(place: Place) -> None:
    """As a rebuild with a local version does it to an environment that is copied."""
    (place.root / "sglang-0.5.2.dist-info").rename(place.root / "sglang-0.5.2+cu130.dist-info")


# --- git -----------------------------------------------------------------------------------


def other_branch(place: Place) -> None:
    """To a branch on which the file is the same: git takes the changes along."""
    place.git("checkout", "-qb", "other")
    (place.top / "note").write_text("x")
    place.git("add", "note")
    place.git("commit", "-qm", "two")


def stashed(place: Place) -> None:
    place.git("stash", "-q")


def stashed_and_back(place: Place) -> None:
    place.git("stash", "-q")
    place.git("stash", "pop", "-q")


def stashed_whole(place: Place) -> None:
    place.git("stash", "-q", "--include-untracked")


def reset(place: Place) -> None:
    place.git("reset", "-q", "--hard")


def cleaned(place: Place) -> None:
    place.git("clean", "-qfd")


def committed(place: Place) -> None:
    place.git("add", ".")
    place.git("commit", "-qm", "patched")


def _upstream(place: Place) -> None:
    """Make a branch on which the file has moved on, and come back."""
    place.git("stash", "-q", "--include-untracked")
    place.git("checkout", "-qb", "upstream")
    place.mixer.write_bytes(NEWER)
    place.git("commit", "-qam", "newer")
    place.git("checkout", "-q", "main")
    place.git("stash", "pop", "-q")


def rebased(place: Place) -> None:
    """Committed with our edits in it, and rebased onto a file that has moved on."""
    _upstream(place)
    committed(place)
    place.git("rebase", "-q", "upstream")


def merged_beneath(place: Place) -> None:
    """As ``git pull --autostash`` does it: the file moves on beneath our uncommitted edits."""
    _upstream(place)
    place.git("merge", "-q", "--autostash", "upstream")


def switched_to_newer(place: Place) -> None:
    """The edits stay behind in the stash; the companion and the record do not."""
    _upstream(place)
    place.git("stash", "-q")
    place.git("checkout", "-q", "upstream")


# --- all of them, and what must come of each -----------------------------------------------

DRIFTS = (
    Drift("nothing", lambda place: None, "applied", "applied", "ready", MIXER_SOURCE),
    Drift("a line of the user's own, far away", own_line_far, "applied", "applied", "ready", MINE),
    Drift(
        "… right behind our line",
        own_line_behind,
        "applied",
        "applied",
        "ready",
        MIXER_SOURCE.replace(
            b"SCALE\n        return", b"SCALE\n        y = abs(y)\n        return"
        ),
    ),
    Drift(
        "… between the place and our line", own_line_in_front, "partial", "refused", "refused", None
    ),
    Drift("our line edited", our_line_edited, "partial", "refused", "refused", None),
    Drift("our line taken out", our_line_gone, "partial", "refused", "ready", MIXER_SOURCE),
    Drift("the place of our line edited", our_place_edited, "partial", "refused", "refused", None),
    Drift("the companion edited", companion_edited, "tampered", "refused", "refused", None),
    Drift("the companion gone", companion_gone, "partial", "refused", "ready", MIXER_SOURCE),
    Drift("the module gone", module_gone, "orphaned", "orphaned", "absent", None),
    Drift(
        "the module replaced by another",
        module_replaced,
        "tampered",
        "refused",
        "drifted",
        b"x = 1\n",
    ),
    Drift(
        "the module as shipped again",
        module_as_shipped,
        "orphaned",
        "applied",
        "ready",
        MIXER_SOURCE,
    ),
    Drift(
        "line ends of Windows",
        carriage_returns,
        "applied",
        "applied",
        "ready",
        MIXER_SOURCE.replace(b"\n", b"\r\n"),
    ),
    Drift("another mode", mode, "applied", "applied", "ready", MIXER_SOURCE),
    Drift("another time", touched, "applied", "applied", "ready", MIXER_SOURCE),
    Drift("`git apply` over ours", patched_far, "applied", "applied", "ready", MINE),
    Drift("`patch` over ours", patched_far_with_patch, "applied", "applied", "ready", MINE),
    Drift("`git apply` before ours", patched_far, "ready", "refused", "ready", MINE, before=True),
    Drift(
        "… and accepted as it is",
        patched_far,
        "ready",
        "applied",
        "ready",
        MINE,
        before=True,
        unproven=True,
    ),
    Drift(
        "ours as a text patch",
        ours_as_text,
        "applied",
        "applied",
        "ready",
        MIXER_SOURCE,
        before=True,
    ),
    Drift(
        "ours taken out as a text patch",
        ours_out_as_text,
        "orphaned",
        "applied",
        "ready",
        MIXER_SOURCE,
    ),
    Drift("black", formatted(*BLACK), "applied", "applied", "ready", as_formatted(BLACK)),
    Drift("ruff format", formatted(*RUFF), "applied", "applied", "ready", as_formatted(RUFF)),
    Drift(
        "black before ours",
        formatted(*BLACK),
        "ready",
        "refused",
        "ready",
        as_formatted(BLACK),
        before=True,
    ),
    Drift("upgrade by pip", upgraded, "ready", "applied", "ready", NEWER),
    Drift("upgrade by a layer over it", overlaid, "orphaned", "applied", "ready", NEWER),
    Drift("RECORD stripped", record_stripped, "applied", "applied", "ready", MIXER_SOURCE),
    Drift("the record lost", manifest_lost, "applied", "applied", "ready", MIXER_SOURCE),
    Drift("the dist-info renamed", dist_info_renamed, "applied", "applied", "ready", MIXER_SOURCE),
    Drift(
        "git: another branch, same file",
        other_branch,
        "applied",
        "applied",
        "ready",
        MIXER_SOURCE,
        clone=True,
    ),
    Drift("git: stash", stashed, "orphaned", "applied", "ready", MIXER_SOURCE, clone=True),
    Drift(
        "git: stash, pop", stashed_and_back, "applied", "applied", "ready", MIXER_SOURCE, clone=True
    ),
    Drift(
        "git: stash --include-untracked",
        stashed_whole,
        "orphaned",
        "applied",
        "ready",
        MIXER_SOURCE,
        clone=True,
    ),
    Drift("git: reset --hard", reset, "orphaned", "applied", "ready", MIXER_SOURCE, clone=True),
    Drift("git: clean -fd", cleaned, "partial", "refused", "ready", MIXER_SOURCE, clone=True),
    Drift("git: commit", committed, "applied", "applied", "ready", MIXER_SOURCE, clone=True),
    Drift(
        "git: commit, rebase onto a newer file",
        rebased,
        "applied",
        "applied",
        "ready",
        NEWER,
        clone=True,
    ),
    Drift(
        "git: pull beneath ours", merged_beneath, "applied", "applied", "ready", NEWER, clone=True
    ),
    Drift(
        "git: stash, switch to a newer file",
        switched_to_newer,
        "orphaned",
        "applied",
        "ready",
        NEWER,
        clone=True,
    ),
)


class Played(NamedTuple):
    """What came of a drift.

    Attributes:
        status: what ``status`` said.
        apply, revert: the state afterwards, or ``refused``.
        kept: whether the module's bytes are right after ``revert``, or untouched where refused;
            and its mode.
        left: files of ours that are there after ``revert``, and a RECORD that is not as shipped.
        said: all output, for messages.
    """

    status: str
    apply: str
    revert: str
    kept: bool
    left: list[str]
    said: str


def play(drift: Drift, place: Place) -> Played:
    """Let it happen, and see what each command does about it, each from the same tree."""
    if not drift.before:
        place.apply()
    drift.act(place)
    drifted, bits, mode = place.mixer, content_of(place.mixer), _mode(place.mixer)
    status = place.state()
    kept = place.top.with_name("kept")
    shutil.copytree(place.top, kept, symlinks=True)
    more = ("--accept-unproven",) if drift.unproven else ()
    done = place.run("apply", *more)
    applied = "refused" if done.code == 2 else place.state()
    said = done.out + done.err
    if not (drift.unproven and drift.before):
        shutil.rmtree(place.top)
        shutil.copytree(kept, place.top, symlinks=True)
    done = place.run("revert")
    reverted = "refused" if done.code == 2 else place.state()
    now = content_of(drifted)
    whole = now == (bits if reverted == "refused" else drift.left) and _mode(drifted) == mode
    left = [] if reverted == "refused" else [*_ours(place), *_untrue(place)]
    return Played(status, applied, reverted, whole, left, said + done.out + done.err)


def _mode(path: Path) -> int | None:
    return path.stat().st_mode if path.exists() else None


def _untrue(place: Place) -> list[str]:
    """Return the RECORDs that are not as they were shipped."""
    shipped = [installed_files("0.5.2", PACKAGE)["sglang-0.5.2.dist-info/RECORD"],
               _release()["sglang-0.5.3.dist-info/RECORD"]]  # fmt: skip
    found = place.root.glob("*.dist-info/RECORD")
    return [str(record) for record in found if record.read_bytes() not in shipped]


def _ours(place: Place) -> list[str]:
    return [
        path
        for path in tree(place.top)
        if "rewriter" in Path(path).name.lower() and "__pycache__" not in path
    ]


HEAD = "| what happened | `status` | `apply` | `revert` | the user's work |\n" + "| --- " * 5 + "|"


def row(drift: Drift, played: Played) -> str:
    """Return a row of the table."""
    kept = "as it was" if played.revert == "refused" else "kept"
    words = (
        drift.name,
        played.status,
        played.apply,
        played.revert,
        kept if played.kept else "LOST",
    )
    return "| " + " | ".join(words) + " |"
