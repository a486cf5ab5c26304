"""``status``, and ``check`` as a gate: the true state, what it rests on, and nothing written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from installing import (
    MIXER,
    MIXER_SOURCE,
    PACKAGE,
    TOOLS,
    FakeCodemods,
    codemods,
    rewriter,
    sealed_state,
    site_packages,
    states,
    tree,
)

from rewriter import processes

__all__ = ["codemods", "sealed_state", "site_packages"]

pytestmark = pytest.mark.usefixtures("codemods")

MANIFEST = "sglang-0.5.2.dist-info/REWRITER.json"


def test_ready(site_packages: Path) -> None:
    done = rewriter("status", "alpha", "--site-packages", site_packages)
    assert done.code == 0
    assert done.out.splitlines()[:2] == [
        f"{site_packages}/sglang (sglang 0.5.2)",
        "rewriter 0.1.0; no record: nothing was applied here by this tool, or the record is lost",
    ]
    assert "alpha: ready" in done.out
    assert "  proof: as shipped: sglang-0.5.2.dist-info/RECORD (sha256=" in done.out


def test_applied(site_packages: Path) -> None:
    rewriter("apply", "alpha", "--site-packages", site_packages)
    done = rewriter("status", "alpha", "--site-packages", site_packages)
    assert f"record: {MANIFEST}, by rewriter 0.1.0, to sglang 0.5.2" in done.out
    assert "every file has the hash that the record holds; the original was proved by " in done.out
    assert f"ours: {TOOLS} (companion tools 1)" in done.out
    assert f"ours: {MANIFEST} (the record)" in done.out
    assert "left over" not in done.out


def test_every_codemod_there_is(site_packages: Path) -> None:
    rewriter("apply", "alpha", "--site-packages", site_packages)
    assert states("--site-packages", site_packages) == {
        "alpha": "applied", "beta": "ready", "delta": "ready", "gamma": "ready",
    }  # fmt: skip


def test_reads_and_writes_nothing(site_packages: Path, sealed_state: Path) -> None:
    rewriter("apply", "alpha", "--site-packages", site_packages)
    before = tree(site_packages, byte_code=True)
    locks = list(sealed_state.rglob("*"))
    for verb in ("status", "check", "diff"):
        rewriter(verb, "--site-packages", site_packages)
        rewriter(verb, "alpha", "gamma", "--site-packages", site_packages)
    assert tree(site_packages, byte_code=True) == before
    assert list(sealed_state.rglob("*")) == locks


def test_json(site_packages: Path) -> None:
    rewriter("apply", "alpha", "--site-packages", site_packages)
    told = rewriter("status", "alpha", "--site-packages", site_packages, "--json").json
    assert told["exit"] == 0
    assert told["record"]["path"] == MANIFEST
    assert told["record"]["codemods"] == [{"name": "alpha", "companions": {TOOLS: "tools 1"}}]
    assert told["proofs"]["alpha"].startswith("every file has the hash")
    assert told["left_over"] == []
    assert told["target"]["version"] == "0.5.2"


@pytest.mark.parametrize(
    ("change", "state"),
    [
        (lambda raw: raw + b"# mine\n", "applied"),
        (lambda raw: raw.replace(b"_tools.note(y)", b"_tools.note(y, 1)"), "partial"),
        (lambda raw: raw.replace(b"        y = _tools.note(y)\n", b""), "partial"),
        (lambda raw: b"x = 1\n", "tampered"),
        (lambda raw: b"def broken(:\n", "tampered"),
        (lambda raw: MIXER_SOURCE, "orphaned"),
        (lambda raw: raw.replace(b"y = _tools.note(y)", b"y = _tools.note( y )"), "applied"),
    ],
    ids=["own line", "our line", "our line gone", "other file", "broken", "restored", "layout"],
)
def test_changed_after_apply(
    change: Callable[[bytes], bytes], state: str, site_packages: Path
) -> None:
    rewriter("apply", "alpha", "--site-packages", site_packages)
    path = site_packages / MIXER
    path.write_bytes(change(path.read_bytes()))
    assert states("alpha", "--site-packages", site_packages) == {"alpha": state}
    gate = rewriter("check", "alpha", "--site-packages", site_packages, "--require", "applied")
    assert gate.code == (0 if state == "applied" else 1)


def test_companion_gone_or_edited(site_packages: Path) -> None:
    rewriter("apply", "alpha", "--site-packages", site_packages)
    raw = (site_packages / TOOLS).read_bytes()
    (site_packages / TOOLS).write_bytes(raw + b"# more\n")
    assert states("alpha", "--site-packages", site_packages) == {"alpha": "tampered"}
    (site_packages / TOOLS).unlink()
    assert states("alpha", "--site-packages", site_packages) == {"alpha": "partial"}


def test_unpatched_file_that_does_not_parse(site_packages: Path) -> None:
    """One codemod's file must not keep the others' states from being told."""
    (site_packages / MIXER).write_bytes(b"def broken(:\n")
    found = states("--site-packages", site_packages)
    assert found["alpha"] == "drifted"
    assert found["delta"] == "ready"
    assert rewriter("check", "alpha", "--site-packages", site_packages).code == 2


def test_proof_by_head_and_by_nothing(tmp_path: Path, write_files: Callable[..., Path]) -> None:
    bare = write_files(tmp_path / "bare", PACKAGE)
    told = rewriter("status", "alpha", "--site-packages", bare).out
    assert "structure alone, and not as shipped: there is no RECORD" in told


def test_release_and_revision_have_a_status_too(fake_wheel: Callable[..., Path]) -> None:
    from fake_sglang import installed_files

    wheel = fake_wheel(installed_files("0.5.2", PACKAGE))
    told = rewriter("status", "alpha", "--wheel", wheel)
    assert told.code == 0
    assert "alpha: ready" in told.out


# --- precedence ----------------------------------------------------------------------------


def test_unsupported_comes_before_drifted_and_after_applied(
    site_packages: Path, codemods: FakeCodemods
) -> None:
    at = ("--site-packages", site_packages)
    rewriter("apply", "alpha", *at)
    codemods.edit("alpha.py", ">=0.5,<0.6", ">=0.6,<0.7")
    assert states("alpha", *at) == {"alpha": "applied"}
    rewriter("revert", "alpha", *at)
    assert states("alpha", *at) == {"alpha": "unsupported"}
    (site_packages / MIXER).write_bytes(b"import os\n")
    assert states("alpha", *at) == {"alpha": "unsupported"}
    (site_packages / MIXER).unlink()
    assert states("alpha", *at) == {"alpha": "absent"}


def test_interrupted_comes_first(site_packages: Path) -> None:
    from test_transaction import leave_half

    leave_half(site_packages)
    (site_packages / MIXER).write_bytes(b"x = 1\n")
    assert states("alpha", "--site-packages", site_packages) == {"alpha": "interrupted"}


# --- speed, and running servers ------------------------------------------------------------


def test_gate_loads_no_parser(site_packages: Path) -> None:
    """Nothing changed since the last run: hashes alone answer."""
    rewriter("apply", "alpha", "--site-packages", site_packages)
    rewriter("check", "alpha", "--site-packages", site_packages)
    script = (
        "import sys\n"
        "from rewriter import catalog, cli\n"
        f"sys.path.insert(0, {str(Path(catalogued()).parent)!r})\n"
        f"catalog.PACKAGE = {Path(catalogued()).name!r}\n"
        "try:\n    cli.main(sys.argv[1:])\n"
        "finally:\n    print([n for n in ('libcst', 'git', 'filelock') if n in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "check", "alpha", "--site-packages", site_packages,
         "--require", "applied"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def catalogued() -> str:
    from rewriter import catalog

    return os.fspath(catalog.directory())


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="Linux only")
def test_servers_that_started_before_are_told(site_packages: Path) -> None:
    """They run the old code until they are started again."""
    server = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)", "sglang", str(site_packages)]
    )
    try:
        time.sleep(1.2)  # start times are told in hundredths of a second since a full second
        done = rewriter("apply", "alpha", "--site-packages", site_packages)
        hint = f"process {server.pid} started before the change and seems to run this sglang"
        assert hint in done.out
        gate = ("check", "alpha", "--site-packages", site_packages, "--require", "applied")
        assert hint in rewriter(*gate).out
        assert rewriter(*gate).code == 0
        assert rewriter(*gate, "--json").json["running"][0]["pid"] == server.pid
        assert hint in rewriter("status", "alpha", "--site-packages", site_packages).out
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait()
    assert "started before" not in rewriter(*gate).out


def test_hint_fails_nowhere(site_packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "PROC", site_packages / "none")
    assert rewriter("apply", "alpha", "--site-packages", site_packages).code == 0
