"""``apply`` into an installed package: what it writes, what it tells, what it refuses."""

from __future__ import annotations

import os
import resource
import sys
from functools import partial
from pathlib import Path

import pytest
from faults import watched
from installing import (
    MIXER,
    MIXER_SOURCE,
    SCALER,
    TOOLS,
    FakeCodemods,
    codemods,
    record_faults,
    result_of,
    rewriter,
    sealed_state,
    site_packages,
    states,
    tree,
)

from rewriter.transaction import folder

__all__ = ["codemods", "sealed_state", "site_packages"]

pytestmark = pytest.mark.usefixtures("codemods")

DIST_INFO = "sglang-0.5.2.dist-info"


def test_applies_and_tells_site_by_site(site_packages: Path) -> None:
    before = tree(site_packages)
    done = rewriter("apply", "alpha", "--site-packages", site_packages)
    assert done.code == 0, done.err
    assert done.out.splitlines() == [
        f"{site_packages}/sglang (sglang 0.5.2)",
        "alpha: applied",
        f"  {MIXER}",
        "      5  import      <imports>",
        "     16  note        Mixer.mix",
        "      1  companion   _rewriter_tools.py",
        f"proof: mixer.py was as shipped: {DIST_INFO}/RECORD ({_row(site_packages, MIXER)}…)",
        f"wrote {TOOLS} (new file)",
        f"wrote {MIXER} (+2 lines)",
        f"wrote {DIST_INFO}/RECORD (the installer's list of files and hashes)",
        f"wrote {DIST_INFO}/REWRITER.json (the record; `rewriter revert` reads it)",
        "all files were read back; their hashes are right",
    ]
    changed = {path for path, seen in tree(site_packages).items() if before.get(path) != seen}
    assert changed == {MIXER, TOOLS, f"{DIST_INFO}/RECORD", f"{DIST_INFO}/REWRITER.json"}
    assert record_faults(site_packages) == []
    assert result_of(site_packages, "Mixer(2).mix(9)") == "3.0"


def _row(site_packages: Path, path: str) -> str:
    """Return the start of a file's hash as RECORD had it, for the file as it was."""
    from rewriter.targets.record import digest

    assert path == MIXER
    assert (site_packages / path).exists()
    return digest(MIXER_SOURCE)[:19]


def test_apply_on_applied_writes_nothing(site_packages: Path) -> None:
    assert rewriter("apply", "alpha", "--site-packages", site_packages).code == 0
    before = {p: p.stat().st_ino for p in site_packages.rglob("*")}
    again = rewriter("apply", "alpha", "--site-packages", site_packages)
    assert again.code == 0
    assert "alpha was applied already; nothing to write for it" in again.out
    assert "wrote" not in again.out
    assert {p: p.stat().st_ino for p in site_packages.rglob("*")} == before


def test_dry_run_writes_nothing(site_packages: Path, sealed_state: Path) -> None:
    before = tree(site_packages, byte_code=True)
    done = rewriter("apply", "alpha", "--site-packages", site_packages, "--dry-run")
    assert done.code == 0
    assert f"would write {MIXER} (+2 lines)" in done.out
    assert f"would write {TOOLS} (new file)" in done.out
    assert tree(site_packages, byte_code=True) == before
    assert not sealed_state.exists()


def test_json(site_packages: Path) -> None:
    done = rewriter("apply", "alpha", "--site-packages", site_packages, "--json")
    told = done.json
    assert (told["command"], told["exit"], done.code) == ("apply", 0, 0)
    assert told["results"][0]["state"] == "applied"
    record, manifest = f"{DIST_INFO}/RECORD", f"{DIST_INFO}/REWRITER.json"
    assert told["written"] == [TOOLS, MIXER, record, manifest]
    assert told["proofs"][0]["holds"] is True
    assert told["proofs"][0]["witness"]["kind"] == "RECORD"
    planned = rewriter("revert", "alpha", "--site-packages", site_packages, "--json", "--dry-run")
    assert planned.json["written"] == []
    assert planned.json["planned"] == [manifest, record, MIXER, TOOLS]


def test_all_or_none(site_packages: Path) -> None:
    """One that cannot be applied refuses the set."""
    (site_packages / SCALER).write_bytes(b"import os\n")
    before = tree(site_packages)
    done = rewriter("apply", "alpha", "delta", "--site-packages", site_packages)
    assert done.code == 2
    assert "nothing was written: delta is drifted" in done.err
    assert tree(site_packages) == before


def test_keep_going_says_what_it_left_out(site_packages: Path) -> None:
    (site_packages / SCALER).write_bytes(b"import os\n")
    done = rewriter("apply", "alpha", "delta", "--site-packages", site_packages, "--keep-going")
    assert done.code == 0
    assert "delta is drifted: left out" in done.out
    assert states("alpha", "delta", "--site-packages", site_packages) == {
        "alpha": "applied", "delta": "drifted",
    }  # fmt: skip


def test_satisfied_ones_do_not_stop_the_rest(site_packages: Path) -> None:
    rewriter("apply", "alpha", "--site-packages", site_packages)
    done = rewriter("apply", "alpha", "delta", "--site-packages", site_packages)
    assert done.code == 0
    assert "alpha was applied already" in done.out
    assert states("alpha", "delta", "--site-packages", site_packages) == {
        "alpha": "applied", "delta": "applied",
    }  # fmt: skip
    assert record_faults(site_packages) == []


def test_where_nothing_is_to_be_applied(site_packages: Path) -> None:
    (site_packages / MIXER).unlink()
    done = rewriter("apply", "alpha", "--site-packages", site_packages)
    assert done.code == 1
    assert "alpha is absent" in done.out


def test_version_out_of_range(site_packages: Path, codemods: FakeCodemods) -> None:
    codemods.edit("alpha.py", ">=0.5,<0.6", ">=0.6,<0.7")
    done = rewriter("apply", "alpha", "--site-packages", site_packages)
    assert done.code == 2
    assert "sglang 0.5.2 is outside the supported range >=0.6,<0.7; --force-version" in done.err
    done = rewriter("apply", "alpha", "--site-packages", site_packages, "--force-version")
    assert done.code == 0, done.err


def test_configuration_names_codemods_order_and_options(
    site_packages: Path, sealed: Path, codemods: FakeCodemods
) -> None:
    codemods.edit("gamma.py", ">=0.5,<0.6", ">=0.6,<0.7")
    (sealed / "rewriter.toml").write_text('codemods = ["gamma", "alpha"]\nforce-version = true\n')
    assert rewriter("apply", "--site-packages", site_packages).code == 0
    manifest = (site_packages / DIST_INFO / "REWRITER.json").read_text()
    assert manifest.index('"gamma"') < manifest.index('"alpha"')
    (sealed / "rewriter.toml").write_text("force-version = 1\n")
    done = rewriter("apply", "--site-packages", site_packages)
    assert done.code == 2
    assert "`force-version` must be true or false, not 1" in done.err


def test_a_kind_that_is_never_written(fake_wheel: object, tmp_path: Path) -> None:
    wheel = fake_wheel()  # type: ignore[operator]
    done = rewriter("apply", "alpha", "--wheel", wheel)
    assert done.code == 2
    assert "a wheel is never written; give --output DIR for a copy, or --overlay" in done.err


def test_output_is_a_target_of_its_own(site_packages: Path, tmp_path: Path) -> None:
    """Its record is the same, so its state can be told and it can be reverted."""
    before = tree(site_packages)
    out = tmp_path / "out"
    arguments = ("--site-packages", site_packages, "--output", out, "--full")
    assert rewriter("apply", "alpha", "gamma", *arguments).code == 0
    assert tree(site_packages) == before
    assert states("alpha", "--site-packages", out) == {"alpha": "applied"}
    assert rewriter("revert", "--site-packages", out).code == 0
    assert tree(out) == {
        path: seen for path, seen in before.items() if Path(path).parts[0] == "sglang"
    }


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each name is synced by itself")
def test_many_names_are_synced_together(
    site_packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first change, before the journal goes, and after what is left over went."""
    for number in range(100):
        (site_packages / f"sglang/more_{number}.py").write_text(f"NUMBER = {number}\n")
    fsync, sync_all = os.fsync, folder.sync_all
    one_by_one: list[int] = []
    together: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: (one_by_one.append(fd), fsync(fd)))
    monkeypatch.setattr(folder, "sync_all", lambda fd: (together.append(fd), sync_all(fd)))
    out = tmp_path / "out"
    done = rewriter("apply", "alpha", "--site-packages", site_packages, "--output", out, "--full")
    assert done.code == 0, done.err
    assert (out / "sglang/more_99.py").read_text() == "NUMBER = 99\n"
    assert len(together) == 3
    assert len(one_by_one) < 10, "only directories and the journal"


@pytest.mark.parametrize(("soft", "hard", "code"), [(100, 1000, 0), (100, 100, 2)])
def test_more_directories_than_may_be_open(
    site_packages: Path, tmp_path: Path, soft: int, hard: int, code: int
) -> None:
    for number in range(100):
        place = site_packages / f"sglang/more_{number}/a.py"
        place.parent.mkdir()
        place.write_text("")
    out = tmp_path / "out"
    command = f"apply alpha --site-packages {site_packages} --output {out} --full".split()
    few = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
    done = watched([out], command, prepare=few).done
    assert done is not None
    assert done.code == code, done.err
    if code:
        assert " have to be open at a time, and this process may open " in done.err
        assert "Raise the limit: ulimit -n " in done.err
        assert not out.exists()


def test_full_needs_output(site_packages: Path) -> None:
    done = rewriter("apply", "alpha", "--site-packages", site_packages, "--full")
    assert (done.code, "--full goes with --output DIR" in done.err) == (2, True)


def test_an_output_says_what_it_leaves_out(site_packages: Path, tmp_path: Path) -> None:
    """As an install does; without anything to write there is no directory."""
    at, out = ("--site-packages", site_packages), tmp_path / "out"
    assert rewriter("apply", "alpha", *at).code == 0
    done = rewriter("apply", "alpha", *at, "--output", out)
    told = ["alpha was applied already; nothing to write for it", f"nothing was written to {out}"]
    assert (done.code, done.out.splitlines()[-2:]) == (0, told)
    assert not out.exists()
    (site_packages / SCALER).unlink()
    done = rewriter("apply", "gamma", "delta", *at, "--output", out)
    assert (done.code, done.out.splitlines()[-1]) == (0, "delta is absent: left out")
    again = rewriter("apply", "gamma", "delta", *at, "--output", tmp_path / "other", "--json")
    assert again.json["left_out"] == ["delta"]
    dry = rewriter("apply", "gamma", *at, "--output", out, "--dry-run", "--json")
    assert (dry.json["written"], dry.json["planned"]) == ([], again.json["written"])
