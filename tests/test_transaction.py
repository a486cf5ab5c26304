"""All files or none: every step of a run stopped, starved and killed, and two runs at once."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_sglang import installed_files
from faults import KILL, watched
from installing import (
    MIXER,
    MIXER_SOURCE,
    PACKAGE,
    TOOLS,
    codemods,
    record_faults,
    rewriter,
    sealed_state,
    site_packages,
    states,
    tree,
)

from rewriter.transaction import steps
from rewriter.transaction.steps import Step

__all__ = ["codemods", "sealed_state", "site_packages"]

pytestmark = pytest.mark.usefixtures("codemods")

JOURNAL = "sglang-0.5.2.dist-info/REWRITER.journal"

Tree = dict[str, tuple[int, str | bytes]]


def steps_of(*command: str | os.PathLike[str]) -> list[Step]:
    """Return the steps that a command takes, in order; it is carried out."""
    seen: list[Step] = []
    with steps.observed(seen.append):
        assert rewriter(*command).code == 0
    return seen


def whole(site_packages: Path) -> Tree:
    """Return the tree without what a crash may leave beside it."""
    return tree(site_packages)


def test_every_kind_of_step_has_its_name(site_packages: Path) -> None:
    seen = steps_of("apply", "alpha", "--site-packages", site_packages)
    seen += steps_of("revert", "alpha", "--site-packages", site_packages)
    assert {step.name for step in seen} <= set(steps.NAMES)
    names = [step.name for step in seen]
    assert names[0] == "lock"
    assert names.count("rename") == 8, "two journals, four files in, two files out"


def test_order_of_writes(site_packages: Path) -> None:
    """No reader may see a patched module without its companion; the record comes last."""

    def changes(verb: str) -> list[str]:
        seen = steps_of(verb, "alpha", "--site-packages", site_packages)
        places = [Path(s.place).name for s in seen if s.name in ("rename", "unlink")]
        return [place for place in places if not place.startswith(".")]

    mixer, tools = Path(MIXER).name, Path(TOOLS).name
    journal, manifest = Path(JOURNAL).name, "REWRITER.json"
    assert changes("apply") == [journal, tools, mixer, "RECORD", manifest, journal]
    assert changes("revert") == [journal, manifest, "RECORD", mixer, tools, journal]


def test_journal_is_durable_before_the_first_change(site_packages: Path) -> None:
    seen = steps_of("apply", "alpha", "--site-packages", site_packages)
    names = [(step.name, Path(step.place).name) for step in seen]
    published = names.index(("rename", Path(JOURNAL).name))
    assert names[published - 1] == ("sync", Path(JOURNAL).name)
    assert names[published + 1][0] == "sync directory"
    assert all(name != "rename" for name, _ in names[:published])


def leave_half(site_packages: Path) -> None:
    """Leave what a run leaves that is killed in the middle of its renames."""
    command = ("apply", "alpha", "--site-packages", os.fspath(site_packages))
    calls = watched([site_packages], command).calls
    assert rewriter("revert", *command[1:]).code == 0
    at = next(c.number for c in calls if c.what == "swap" and c.place.endswith("RECORD"))
    assert watched([site_packages], command, {at: KILL}).done is None
    assert (site_packages / JOURNAL).exists()


def test_interrupted_is_told_and_never_touched_by_readers(site_packages: Path) -> None:
    leave_half(site_packages)
    before = whole(site_packages)
    done = rewriter("check", "alpha", "--site-packages", site_packages)
    assert done.code == 1
    assert "alpha: interrupted" in done.out
    assert "died half-way" in done.out
    done = rewriter("apply", "alpha", "--site-packages", site_packages, "--dry-run")
    assert done.code == 1
    assert rewriter("diff", "alpha", "--site-packages", site_packages).code == 0
    assert whole(site_packages) == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_polite_signals_undo_the_run(number: signal.Signals, site_packages: Path) -> None:
    before = whole(site_packages)
    process = os.fork()
    if process == 0:
        # A run in the background inherits SIGINT ignored, and rightly keeps it so.
        signal.signal(signal.SIGINT, signal.default_int_handler)

        def end(step: Step) -> None:
            if step.name == "rename" and step.place.endswith("RECORD"):
                os.kill(os.getpid(), number)

        with steps.observed(end):
            os._exit(rewriter("apply", "alpha", "--site-packages", site_packages).code)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) in (128 + number, 130)
    assert whole(site_packages) == before


def test_own_edit_inside_our_file_after_the_crash(site_packages: Path) -> None:
    """The edited file goes on importing: the companion that it names is left with it."""
    leave_half(site_packages)
    path = site_packages / MIXER
    path.write_bytes(path.read_bytes() + b"# mine\n")
    done = rewriter("check", "alpha", "--site-packages", site_packages)
    assert done.code == 1
    done = rewriter("apply", "alpha", "--site-packages", site_packages)
    assert "_rewriter_tools" in (site_packages / MIXER).read_text()
    assert (site_packages / TOOLS).is_file()
    assert states("alpha", "--site-packages", site_packages) == {"alpha": "applied"}
    done = rewriter("revert", "alpha", "--site-packages", site_packages)
    assert (site_packages / MIXER).read_bytes() == MIXER_SOURCE + b"# mine\n"
    assert not (site_packages / TOOLS).exists()


def test_own_edit_after_the_crash_is_left_alone(site_packages: Path) -> None:
    before = whole(site_packages)
    leave_half(site_packages)
    (site_packages / MIXER).write_bytes(MIXER_SOURCE + b"# mine\n")
    done = rewriter("revert", "alpha", "--site-packages", site_packages)
    assert done.code == 0, done.err
    assert "changed by somebody else and left alone" in done.out
    after = whole(site_packages)
    assert after.pop(MIXER)[1] == MIXER_SOURCE + b"# mine\n"
    before.pop(MIXER)
    assert after == before


def test_upgrade_after_the_crash(site_packages: Path, write_files: Callable[..., Path]) -> None:
    """Another release was installed over it; its files are whole, and ours go."""
    leave_half(site_packages)
    for name in ("METADATA", "RECORD", "WHEEL"):
        (site_packages / "sglang-0.5.2.dist-info" / name).unlink(missing_ok=True)
    newer = {**PACKAGE, "sglang/version.py": b'__version__ = "0.5.3"\n'}
    write_files(site_packages, installed_files("0.5.3", newer))
    told = rewriter("status", "alpha", "--site-packages", site_packages)
    assert "alpha: orphaned" in told.out
    assert "temporary file of a run that died" in told.out
    assert "journal of a former install" in told.out
    assert rewriter("revert", "alpha", "--site-packages", site_packages).code == 0
    assert record_faults(site_packages) == []


@pytest.mark.parametrize(
    "journal",
    [
        b"{",
        b"\x00" * 100,
        json.dumps(
            {"schema": 1, "command": "apply", "token": "01234567", "process": "h:1",
             "writes": [{"at": "root", "path": "../../etc/x", "before": None, "after": "0"}]}
        ).encode(),
        json.dumps(
            {"schema": 1, "command": "apply", "token": "../../x", "process": "h:1", "writes": []}
        ).encode(),
    ],
)  # fmt: skip
def test_damaged_or_hostile_journal(journal: bytes, site_packages: Path) -> None:
    (site_packages / JOURNAL).write_bytes(journal)
    before = whole(site_packages)
    for verb in ("check", "apply", "revert"):
        done = rewriter(verb, "alpha", "--site-packages", site_packages)
        assert done.code == 2
        assert "expected the journal of an interrupted run" in done.err
    assert whole(site_packages) == before


def test_live_run_is_not_recovered(site_packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user's run has another lock; its journal says that it is alive."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        with steps.observed(lambda step: _hold(step, writing)):
            os._exit(rewriter("apply", "alpha", "--site-packages", site_packages).code)
    try:
        os.read(reading, 1)
        monkeypatch.setenv("REWRITER_STATE_DIR", str(site_packages.parent / "other"))
        told = rewriter("check", "alpha", "--site-packages", site_packages)
        assert told.code == 1
        assert "is under way" in told.out
        done = rewriter("revert", "alpha", "--site-packages", site_packages)
        assert done.code == 2
        assert "another run is at work on this package" in done.err
    finally:
        os.kill(process, signal.SIGCONT)
        _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert states("alpha", "--site-packages", site_packages) == {"alpha": "applied"}


def _hold(step: Step, writing: int) -> None:
    """Stop this process before it renames RECORD, and say so."""
    if step.name == "rename" and step.place.endswith("RECORD"):
        os.write(writing, b"x")
        os.kill(os.getpid(), signal.SIGSTOP)


def test_second_run_waits_for_the_first(site_packages: Path) -> None:
    processes = []
    for _ in range(4):
        process = os.fork()
        if process == 0:
            os._exit(rewriter("apply", "alpha", "--site-packages", site_packages).code)
        processes.append(process)
    codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]
    assert codes == [0, 0, 0, 0]
    assert states("alpha", "--site-packages", site_packages) == {"alpha": "applied"}
    assert record_faults(site_packages) == []


def test_waiting_has_an_end(site_packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rewriter.targets import resolve
    from rewriter.targets.home import home_of
    from rewriter.transaction import exclusive, lock

    home = home_of(resolve(site_packages=site_packages))
    assert home is not None
    monkeypatch.setattr(lock, "PATIENCE", 0.1)
    with exclusive(home):
        process = os.fork()
        if process == 0:
            done = rewriter("apply", "alpha", "--site-packages", site_packages)
            os._exit(done.code if "another run has been at work" in done.err else 99)
        _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 2


def test_lock_that_cannot_be_made(
    site_packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REWRITER_STATE_DIR", str(tmp_path / "file"))
    before = whole(site_packages)
    done = rewriter("apply", "alpha", "--site-packages", site_packages)
    assert done.code == 2
    assert "Set REWRITER_STATE_DIR to a directory that can be written" in done.err
    assert whole(site_packages) == before


# --- somebody else changes the package while a run is at work ------------------------------


def during(
    name: str, act: Callable[[], object], *command: str | os.PathLike[str], end: str = "RECORD"
) -> tuple[int, str]:
    """Run a command and do something before its first step of a kind at a place."""
    done_already: list[bool] = []

    def observer(step: Step) -> None:
        if step.name == name and step.place.endswith(end) and not done_already:
            done_already.append(True)
            act()

    with steps.observed(observer):
        done = rewriter(*command)
    assert done_already
    return done.code, done.err


def test_edit_before_the_rename_is_seen(site_packages: Path) -> None:
    before = whole(site_packages)
    code, err = during(
        "compare",
        lambda: (site_packages / MIXER).write_bytes(b"x = 1\n"),
        "apply", "alpha", "--site-packages", site_packages, end="mixer.py",
    )  # fmt: skip
    assert code == 2
    assert "mixer.py: changed by another process while this run was at work" in err
    after = whole(site_packages)
    assert after.pop(MIXER)[1] == b"x = 1\n", "theirs stays"
    before.pop(MIXER)
    assert after == before


@pytest.mark.parametrize("can_swap", [True, False])
def test_edit_between_the_last_look_and_the_rename(
    can_swap: bool, site_packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A swap gives back what it replaced; where the system has none, the window stays."""
    from rewriter.transaction import folder

    if not can_swap:
        monkeypatch.setattr(folder, "exchange", lambda *_: False)
    theirs = MIXER_SOURCE + b"# theirs\n"
    code, _ = during(
        "rename", lambda: (site_packages / MIXER).write_bytes(theirs),
        "apply", "alpha", "--site-packages", site_packages, end="layers/mixer.py",
    )  # fmt: skip
    assert code == (2 if can_swap else 0)
    assert ((site_packages / MIXER).read_bytes() == theirs) == can_swap


def test_edit_between_the_last_look_and_the_removal(site_packages: Path) -> None:
    rewriter("apply", "alpha", "--site-packages", site_packages)
    before = whole(site_packages)
    code, err = during(
        "unlink", lambda: (site_packages / TOOLS).write_bytes(b"theirs"),
        "revert", "alpha", "--site-packages", site_packages, end="layers/_rewriter_tools.py",
    )  # fmt: skip
    assert code == 2
    assert "changed by another process" in err
    after = whole(site_packages)
    assert after.pop(TOOLS)[1] == b"theirs"
    before.pop(TOOLS)
    assert after == before


def test_new_file_never_replaces_one_that_came_in_between(site_packages: Path) -> None:
    code, _ = during(
        "rename", lambda: (site_packages / TOOLS).write_bytes(b"theirs"),
        "apply", "alpha", "--site-packages", site_packages, end="layers/_rewriter_tools.py",
    )  # fmt: skip
    assert code == 2
    assert (site_packages / TOOLS).read_bytes() == b"theirs"
    assert (site_packages / MIXER).read_bytes() == MIXER_SOURCE


def test_case_13_file_that_is_not_what_was_written(site_packages: Path) -> None:
    """ "Applied" is said only of what was read back."""
    before = whole(site_packages)
    code, err = during(
        "verify",
        lambda: (site_packages / TOOLS).write_bytes(b"other"),
        "apply", "alpha", "--site-packages", site_packages, end="_rewriter_tools.py",
    )  # fmt: skip
    assert code == 2
    assert "holds something else than what was just written" in err
    after = whole(site_packages)
    assert after.pop(TOOLS)[1] == b"other"
    assert after == before


def test_upgrade_during_the_run_is_seen_and_undone(
    site_packages: Path, write_files: Callable[..., Path]
) -> None:
    """pip moves the old package away and unpacks the new one, whatever we hold."""
    newer = {**PACKAGE, "sglang/version.py": b'__version__ = "0.5.3"\n'}
    files = installed_files("0.5.3", newer)

    def pip() -> None:
        stash = site_packages / "~glang"
        (site_packages / "sglang").rename(stash)
        (site_packages / "sglang-0.5.2.dist-info").rename(site_packages / "~glang-0.5.2.dist-info")
        write_files(site_packages, files)

    for name in ("compare", "rename", "verify"):
        code, err = during(
            name, pip, "apply", "alpha", "--site-packages", site_packages, end="RECORD"
        )
        assert code == 2, name
        assert "everything was put back" in err or "taken back" in err
        for path, raw in files.items():
            assert (site_packages / path).read_bytes() == raw, (name, path)
        assert not (site_packages / TOOLS).exists()
        for left in ("~glang", "~glang-0.5.2.dist-info", "sglang", "sglang-0.5.3.dist-info"):
            shutil.rmtree(site_packages / left)
        write_files(site_packages, installed_files("0.5.2", PACKAGE))


def test_uninstall_during_the_run_leaves_no_empty_dist_info(site_packages: Path) -> None:
    """pip would take one without METADATA for a package that it cannot remove."""

    def pip() -> None:
        for path in sorted(site_packages.rglob("*"), reverse=True):
            if ".rewriter-" in path.name or path.name == "REWRITER.journal":
                continue
            if path.is_dir():
                if not any(path.iterdir()):
                    path.rmdir()
            else:
                path.unlink()

    for name in ("compare", "rename", "verify"):
        code, err = during(
            name, pip, "apply", "alpha", "--site-packages", site_packages, end="RECORD"
        )
        assert code == 2, err
        assert list(site_packages.iterdir()) == []
        for path, raw in installed_files("0.5.2", PACKAGE).items():
            (site_packages / path).parent.mkdir(parents=True, exist_ok=True)
            (site_packages / path).write_bytes(raw)


def test_package_that_vanishes_while_it_is_read(
    site_packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rewriter import recording

    real = recording._mode

    def gone(*arguments: object) -> int:
        shutil.rmtree(site_packages / "sglang")
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(recording, "_mode", gone)
    done = rewriter("apply", "alpha", "--site-packages", site_packages)
    assert done.code == 2
    assert "while the package was read; is an installer at work? Nothing was written" in done.err


def test_folder_swapped_for_a_link(site_packages: Path, tmp_path: Path) -> None:
    """What is written goes where it was looked at, never where a link leads afterwards."""
    outside = tmp_path / "outside"
    outside.mkdir()
    layers = site_packages / "sglang" / "srt" / "layers"

    def swap() -> None:
        layers.rename(tmp_path / "moved")
        layers.symlink_to(outside)

    code, _ = during(
        "rename", swap, "apply", "alpha", "--site-packages", site_packages, end="mixer.py"
    )
    assert code == 2
    assert list(outside.iterdir()) == []
    assert (tmp_path / "moved" / "mixer.py").read_bytes() == MIXER_SOURCE
