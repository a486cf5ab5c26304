"""Hostile files, archives, directories and plug-ins: one message, nothing written, bounded.

Run with ``-s`` to print the table: what it was, exit code, seconds, memory and the message.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile import CASES, GOOD, MEGABYTES, SECONDS, Case, Ran, plugin, run
from installing import rewriter, tree
from sources import PATH
from targets import installed


@pytest.fixture(scope="module")
def table() -> Iterator[list[tuple[str, Ran]]]:
    """Collect the runs and print them at the end."""
    rows: list[tuple[str, Ran]] = []
    yield rows
    print("\n\nwhat | exit | seconds | MB | message")
    for what, ran in rows:
        message = (ran.err or ran.out).strip().partition("\n")[0]
        print(f"{what} | {ran.code} | {ran.seconds:.1f} | {ran.megabytes:.0f} | {message[:110]}")
    if rows:
        longest, largest = max(r.seconds for _, r in rows), max(r.megabytes for _, r in rows)
        print(f"{len(rows)} cases: at most {longest:.1f} s and {largest:.0f} MB")


@pytest.mark.parametrize("case", CASES, ids=[case.what for case in CASES])
def test_hostile(case: Case, tmp_path: Path, table: list[tuple[str, Ran]]) -> None:
    if case.what == "locks of another user" and os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    arguments = case.make(tmp_path)
    site = tmp_path / "site"
    before = _seen(site)
    ran = run(tmp_path, *arguments)
    table.append((case.what, ran))
    assert ran.code in case.codes, ran
    assert case.says in ran.out + ran.err, ran
    assert "Traceback" not in ran.err, ran
    assert not {c for c in ran.err if c < " " and c != "\n"}, "control characters in a message"
    if case.codes != (0,):
        assert _seen(site) == before, "something was written"
    assert ran.seconds < SECONDS, ran.seconds
    assert ran.megabytes < MEGABYTES, ran.megabytes


def _seen(site: Path) -> list[tuple[str, int, int]]:
    """Return what a tree holds without reading it: some files have no end."""
    places = sorted(site.rglob("*")) if site.is_dir() else []
    return [
        (str(p.relative_to(site)), p.lstat().st_ino, p.lstat().st_mtime_ns)
        for p in places
        if "__pycache__" not in p.parts
    ]


def test_a_plug_in_that_ends_well_is_tried_once(tmp_path: Path) -> None:
    arguments = plugin("    open('tried', 'a').write('x')\n    return []")(tmp_path)
    first, second = run(tmp_path, *arguments), run(tmp_path, *arguments)
    assert first.code == second.code == 2
    assert "found 0 places" in first.out + first.err
    assert (tmp_path / "tried").read_text() == "xx", "once apart and once here; then it is kept"


def test_a_gate_is_not_passed_by_a_plug_in_that_exits(tmp_path: Path) -> None:
    site = str(installed(tmp_path / "site"))
    plugin("    os._exit(0)")(tmp_path / "other")
    os.rename(tmp_path / "other" / "plugins", tmp_path / "plugins")  # noqa: PTH104
    ran = run(tmp_path, "check", "theirs", "--require", "applied", "--site-packages", site)
    assert ran.code == 2
    assert "ended the process" in ran.err


def test_hard_links_keep_what_they_were(tmp_path: Path) -> None:
    site = installed(tmp_path / "site")
    shared = tmp_path / "shared.py"
    os.link(site / PATH, shared)
    assert run(tmp_path, "apply", "--site-packages", str(site)).code == 0
    assert shared.read_text() == GOOD
    assert run(tmp_path, "revert", "--site-packages", str(site)).code == 0
    assert (site / PATH).read_text() == shared.read_text() == GOOD


SWAPS = 40


def test_a_folder_swapped_for_a_link_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A thread swaps the folder for a link to another tree, over and over, while runs go on."""
    monkeypatch.setenv("REWRITER_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("REWRITER_CACHE_DIR", str(tmp_path / "cache"))
    site, other = installed(tmp_path / "site"), installed(tmp_path / "other")
    folder, aside = (site / PATH).parent, tmp_path / "aside"
    untouched = tree(other)
    done, swaps = threading.Event(), 0

    def swap() -> None:
        nonlocal swaps
        while not done.is_set():
            folder.rename(aside)
            folder.symlink_to((other / PATH).parent)
            folder.unlink()
            aside.rename(folder)
            swaps += 1

    racer = threading.Thread(target=swap)
    racer.start()
    codes, bugs = [], []
    try:
        for number in range(SWAPS):
            verb = "revert" if number % 2 else "apply"
            ran = rewriter(verb, "--site-packages", site)
            codes.append(ran.code)
            bugs += [ran.err] if ran.code not in (0, 1, 2) else []
    finally:
        done.set()
        racer.join()
    assert tree(other) == untouched, "something was written through the link"
    assert bugs == []
    assert rewriter("revert", "--site-packages", site).code in (0, 2)
    told = {code: codes.count(code) for code in sorted(set(codes))}
    with capsys.disabled():
        print(f"\n{SWAPS} runs against {swaps} swaps: exit codes {told}; nothing behind the link")
    assert swaps > SWAPS
