"""Runs that meet: two of ours, ours and pip's, and readers that import all the while.

``python tests/races.py 100 34`` prints the table of docs/reliability.md; ``test_races.py`` runs a
few.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fake_sglang import installed_files
from fault_outcomes import staged
from installing import MIXER, MIXER_SOURCE, PACKAGE, TOOLS, record_faults, rewriter, tree

from rewriter.transaction.folder import content_of
from rewriter.transaction.journal import LEFT_NAME

NEWER = {
    **PACKAGE,
    MIXER: MIXER_SOURCE.replace(b'"1"', b'"2"'),
    "sglang/version.py": b'__version__ = "0.5.3"\n',
}


class Race(NamedTuple):
    """Two programs that meet.

    Attributes:
        name: for the table.
        patched: whether the package is patched at the start; None for one or the other.
        ours: command lines of this tool, each in a process of its own.
        pip: whether `pip install --upgrade` runs too; ours are then repeated until it is done.
        strangers: whether ours run as if by two users, who share no lock.
    """

    name: str
    patched: bool | None
    ours: tuple[str, ...]
    pip: bool = False
    strangers: bool = False


RACES = (
    Race("apply, apply", False, ("apply", "apply")),
    Race("apply, revert", None, ("apply", "revert")),
    Race("apply, revert, by two users", None, ("apply", "revert"), strangers=True),
    Race("apply, pip install --upgrade", False, ("apply",), pip=True),
    Race("revert, pip install --upgrade", True, ("revert",), pip=True),
    Race("apply, revert, pip install --upgrade", None, ("apply", "revert"), pip=True),
)


class Child:
    """A function in a process of its own."""

    def __init__(self, act: Callable[[], Any]) -> None:
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reading)
            code = 1
            try:
                found = act()
                with os.fdopen(writing, "wb") as pipe:
                    pickle.dump(found, pipe)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(writing)
        self._pipe = os.fdopen(reading, "rb")

    def result(self) -> Any:
        """Wait for it and return what the function returned."""
        raw = self._pipe.read()
        self._pipe.close()
        _, status = os.waitpid(self.pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0, "a racer itself failed"
        return pickle.loads(raw)


# --- readers -------------------------------------------------------------------------------


def read_on(site: Path, stop: Path) -> Counter[str]:
    """Import the patched module and its companion again and again, in one process, until told.

    As a server does that started before the change: the import system keeps what it knows of
    directories.
    """
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.fspath(site))
    seen: Counter[str] = Counter()
    while True:
        last = stop.exists()
        anew = last or seen["imports"] % 7 == 0
        for name in [n for n in sys.modules if n == "sglang" or n.startswith("sglang.")]:
            if anew or name not in ("sglang", "sglang.srt", "sglang.srt.layers"):
                del sys.modules[name]
        seen["imports"] += 1
        seen[_import(site)] += 1
        if last:
            return seen


def _import(site: Path) -> str:
    """Import the module once and say what that gave."""
    try:
        mixer = __import__("sglang.srt.layers.mixer", fromlist=["mixer"])
        value = mixer.Mixer(2).mix(9)
    except ModuleNotFoundError as error:
        if "_rewriter" not in str(error):
            return "no package"  # while pip has taken it away
        return _without(site)
    except ImportError as error:
        return _without(site) if "_rewriter" in str(error) else "no package"
    except OSError as error:  # found in a directory, and gone before it was opened
        return _without(site) if "_rewriter" in str(error) else "no package"
    except (AttributeError, SyntaxError, NameError) as error:
        # pip writes in place, so its readers see halves of files; ours are never among them.
        return f"wrong: {error!r}" if "_tools" in str(error) else "no package"
    if value not in (3.0, 18.0**0.5):
        return f"wrong: {value}"
    return "patched" if hasattr(mixer, "_tools") else "original"


def _without(site: Path) -> str:
    """Tell a module that stands there without its companion from one that has been replaced.

    A reader that takes a patched file just before it is replaced, and looks for the companion
    after that, gets an ImportError: it has read two states, neither of which was mixed.
    """
    with contextlib.suppress(OSError):
        if b"_rewriter_tools" in (site / MIXER).read_bytes() and not (site / TOOLS).exists():
            with contextlib.suppress(OSError):
                if b"_rewriter_tools" in (site / MIXER).read_bytes():
                    return "mixed"
    return "replaced meanwhile"


# --- racers --------------------------------------------------------------------------------


def run_once(verb: str, site: Path, state: Path, wait: float) -> list[tuple[str, int, str]]:
    """Run a command after a while; return verb, exit code and message."""
    os.environ["REWRITER_STATE_DIR"] = os.fspath(state)
    time.sleep(wait)
    done = rewriter(verb, "alpha", "--site-packages", site)
    return [(verb, done.code, done.err)]


def run_on(verb: str, site: Path, state: Path, stop: Path) -> list[tuple[str, int, str]]:
    """Run a command and its opposite in turn until told; always the command last."""
    os.environ["REWRITER_STATE_DIR"] = os.fspath(state)
    found: list[tuple[str, int, str]] = []
    other = {"apply": "revert", "revert": "apply"}[verb]
    while not stop.exists():
        for each in (verb, other):
            done = rewriter(each, "alpha", "--site-packages", site)
            found.append((each, done.code, done.err))
    return found


class Ground(NamedTuple):
    """Where races are run.

    Attributes:
        python, site: of a virtual environment with pip in it.
        wheels: of both releases.
        kept: the environment's site-packages with the older release, original and patched.
    """

    place: Path
    python: Path
    site: Path
    wheels: Mapping[str, Path]
    kept: Mapping[bool, Path]

    def upgrade(self) -> bool:
        """Let pip upgrade; return whether it gave up: a file that it lists had gone meanwhile."""
        done = _pip(self.python, self.wheels["0.5.3"], "--upgrade")
        assert done.returncode == 0 or "due to an OSError" in done.stderr, done.stderr
        return done.returncode != 0


def _pip(python: Path, wheel: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [python, "-m", "pip", "install", "--no-index", "--no-deps", "--no-compile", "-q"]
    quiet = ["--disable-pip-version-check", "--no-input", "--no-cache-dir"]
    return subprocess.run(
        [*command, *quiet, *options, wheel], capture_output=True, check=False, text=True
    )


def made(place: Path) -> Ground:
    """Make a virtual environment with the older release, and wheels of both."""
    python = place / "venv" / "bin" / "python"
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    site = place / "venv" / "lib" / version / "site-packages"
    for folder in (site, python.parent):
        folder.mkdir(parents=True)
    python.symlink_to(sys.executable)
    home = Path(sys.executable).resolve().parent
    (place / "venv" / "pyvenv.cfg").write_text(f"home = {home}\n")
    import pip

    (site / "pip").symlink_to(Path(pip.__file__).parent)  # it starts in half the time from here
    wheels: dict[str, Path] = {}
    for release, files in (("0.5.2", PACKAGE), ("0.5.3", NEWER)):
        wheels[release] = place / f"sglang-{release}-py3-none-any.whl"
        with zipfile.ZipFile(wheels[release], "w") as archive:
            for name, data in installed_files(release, files).items():
                archive.writestr(name, data)
    done = _pip(python, wheels["0.5.2"])
    assert done.returncode == 0, done.stderr
    kept = {False: place / "original", True: place / "patched"}
    shutil.copytree(site, kept[False], symlinks=True)
    assert rewriter("apply", "alpha", "--site-packages", site).code == 0
    shutil.copytree(site, kept[True], symlinks=True)
    return Ground(place, python, site, wheels, kept)


# --- a race --------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """What a race came to.

    Attributes:
        refused: how many of our runs were refused.
        runs: how many there were.
        failed: whether pip gave up; it says so, and puts the older release back.
        end: what ``status`` says afterwards.
        seen: what the readers imported.
        broken: promises that were not kept.
    """

    refused: int
    runs: int
    failed: bool
    end: str
    seen: Counter[str]
    broken: list[str]


def run(race: Race, ground: Ground, chance: random.Random) -> Outcome:
    """Run one race from the start and look at everything that it leaves."""
    patched = chance.random() < 0.5 if race.patched is None else race.patched
    shutil.rmtree(ground.site)
    shutil.copytree(ground.kept[patched], ground.site, symlinks=True)
    stop = ground.place / "stop"
    readers = [Child(lambda: read_on(ground.site, stop)) for _ in range(2)]
    states = [ground.place / f"state-{n if race.strangers else 0}" for n in (0, 1)]
    racers: list[Child] = []
    for verb, state in zip(race.ours, states, strict=False):
        wait = chance.random() * 0.02
        act = run_on if race.pip else run_once
        racers.append(_racer(act, verb, ground.site, state, stop if race.pip else wait))
    failed = False
    if race.pip:
        time.sleep(chance.random() * 0.05)
        failed = ground.upgrade()
        stop.touch()
    told = [line for racer in racers for line in racer.result()]
    stop.touch()
    seen = sum((reader.result() for reader in readers), Counter())
    stop.unlink()
    end, broken = _afterwards("0.5.3" if race.pip and not failed else "0.5.2", ground)
    refused = sum(code == 2 for _, code, _ in told)
    return Outcome(refused, len(told), failed, end, seen, _judged(told, seen) + broken)


def _racer(act: Callable[..., Any], *arguments: object) -> Child:
    return Child(lambda: act(*arguments))


TOLD = ("installer", "was installed, upgraded or removed", "another run", "another process",
        "died half-way", "is not there", "found none", "no such directory", "expected one",
        "nothing was written", "put back", "taken back", "left alone")  # fmt: skip
"""Words of which a refusal has at least one: what happened, or that nothing did."""


def _judged(told: Sequence[tuple[str, int, str]], seen: Counter[str]) -> list[str]:
    broken = [
        f"readers: {times} × {word}"
        for word, times in seen.items()
        if word == "mixed" or word.startswith("wrong")
    ]
    for verb, code, err in told:
        if code not in (0, 1, 2):
            broken.append(f"{verb} ended with {code}: {err}")
        elif code == 2 and not any(word in err for word in TOLD):
            broken.append(f"{verb} was refused without a reason: {err}")
    return broken


def _afterwards(version: str, ground: Ground) -> tuple[str, list[str]]:
    """Compare what ``status`` says with what is there; revert must then leave what was shipped."""
    broken: list[str] = []
    site = ground.site
    done = rewriter("status", "alpha", "--site-packages", site, "--json")
    if done.code != 0:
        return "unreadable", [f"status ends with {done.code}: {done.err}"]
    end = done.json["results"][0]["state"]
    if end != _truth(site):
        broken.append(f"status says {end}, the files are {_truth(site)}")
    done = rewriter("revert", "alpha", "--site-packages", site)
    if done.code != 0:
        broken.append(f"revert afterwards ends with {done.code}: {done.err}")
    files = {"0.5.2": PACKAGE, "0.5.3": NEWER}[version]
    for path, raw in installed_files(version, files).items():
        if not path.endswith("RECORD") and content_of(site / path) != raw:
            broken.append(f"{path} is not as {version} ships it")
    broken += record_faults(site)
    broken += [f"left: {path}" for path in tree(site) if _is_ours(path)]
    return end, broken


def _truth(site: Path) -> str:
    """Return what the state is, by other means than the tool's."""
    if any((f / "REWRITER.journal").exists() for f in site.glob("sglang-*.dist-info")):
        return "interrupted"
    mixer = content_of(site / MIXER)
    patched = isinstance(mixer, bytes) and b"_tools.note" in mixer
    companion, record = (site / TOOLS).exists(), list(site.glob("*.dist-info/REWRITER.json"))
    if patched:
        return "applied" if companion else "partial"
    return "orphaned" if companion or record else "ready"


def _is_ours(path: str) -> bool:
    name = Path(path).name
    return (
        LEFT_NAME.fullmatch(name) is not None or "_rewriter_" in name or name.startswith("REWRITER")
    )


# --- the table -----------------------------------------------------------------------------


def races(count: int, pips: int, place: Path, seed: int) -> Iterator[tuple[Race, list[Outcome]]]:
    """Run every race a number of times, those with pip another number."""
    chance = random.Random(seed)
    ground = made(place)
    for race in RACES:
        yield race, [run(race, ground, chance) for _ in range(pips if race.pip else count)]


HEAD = (
    "| race | times | our runs | refused, and told | pip gave up | ends | imports | "
    "of these patched | replaced meanwhile | mixed | broken |\n" + "| --- " * 11 + "|"
)


def row(race: Race, found: Sequence[Outcome]) -> str:
    """Return a row of the table."""
    seen: Counter[str] = sum((one.seen for one in found), Counter())
    ends = Counter(one.end for one in found)
    cells = (
        race.name, len(found), sum(one.runs for one in found), sum(one.refused for one in found),
        sum(one.failed for one in found),
        ", ".join(f"{state} {times}" for state, times in sorted(ends.items())),
        seen["imports"], seen["patched"], seen["replaced meanwhile"], seen["mixed"],
        sum(bool(one.broken) for one in found),
    )  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


def main(count: int, pips: int) -> int:
    """Run all races, print the table, and return how many broke a promise."""
    bad: list[str] = []
    with tempfile.TemporaryDirectory() as place, staged(Path(place).resolve(), sync=True):
        print(HEAD)
        for race, found in races(count, pips, Path(place).resolve(), 6):
            print(row(race, found), flush=True)
            bad += [f"{race.name}: {line}" for one in found for line in one.broken]
    print(*bad, sep="\n", file=sys.stderr)
    return len(bad)


if __name__ == "__main__":
    sys.exit(min(main(int(sys.argv[1]), int(sys.argv[2])), 1))
