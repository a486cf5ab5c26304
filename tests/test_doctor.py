"""``doctor``: one page about a target; 0 if nothing needs attention, and nothing is written."""

from __future__ import annotations

import importlib.util
import json
import os
import py_compile
from pathlib import Path

import pytest
from installing import Done, rewriter, sealed_state, tree
from sources import PATH, backend
from targets import COMPANION, checkout, installed

__all__ = ["sealed_state"]  # a fixture for all


def doctor(site: Path, *more: str) -> Done:
    """Run it, and check that it reads only and keeps to 80 columns."""
    before = tree(site, byte_code=True)
    done = rewriter("doctor", *more, "--site-packages", site)
    assert tree(site, byte_code=True) == before
    for line in done.out.splitlines():
        assert len(line) <= 80 or line.startswith(("   do: ", "next: ")) or "/" in line, line
    return done


def test_an_untouched_install_is_healthy(tmp_path: Path) -> None:
    done = doctor(installed(tmp_path))
    assert done.code == 0
    assert "sglang:      0.5.9\n" in done.out
    assert "layout:      installed from a wheel, beside its dist-info\n" in done.out
    assert "witness:     sglang-0.5.9.dist-info/RECORD, 10 files\n" in done.out
    assert "writable:    yes\n" in done.out
    assert "record:      none: nothing was applied here, or the record is lost\n" in done.out
    assert "mla_kv_gather: ready\n" in done.out
    assert "healthy: nothing needs attention\n" in done.out
    assert f"next: to apply: rewriter apply mla_kv_gather --site-packages {tmp_path}" in done.out


def test_byte_code_on_record_is_no_witness(tmp_path: Path) -> None:
    """Pip lists what it compiled."""
    site = installed(tmp_path)
    record = next(site.glob("*.dist-info/RECORD"))
    record.write_text(record.read_text() + "sglang/__pycache__/__init__.cpython-311.pyc,,\n")
    assert "RECORD, 10 files\n" in doctor(site).out


def test_what_is_named_and_not_applied_needs_attention(tmp_path: Path) -> None:
    site = installed(tmp_path)
    done = doctor(site, "mla_kv_gather")
    assert done.code == 1
    assert "1. mla_kv_gather is not applied\n" in done.out
    assert f"   do: rewriter apply mla_kv_gather --site-packages {site}\n" in done.out


def test_an_applied_install_is_healthy(tmp_path: Path) -> None:
    site = installed(tmp_path)
    assert rewriter("apply", "--site-packages", site).code == 0
    done = doctor(site)
    assert done.code == 0
    assert "mla_kv_gather: applied\n" in done.out
    assert "by rewriter" in done.out
    assert "next: before each start: rewriter check mla_kv_gather --require applied" in done.out


def test_leftovers_of_all_kinds_are_told_with_the_command(tmp_path: Path) -> None:
    site = installed(tmp_path)
    assert rewriter("apply", "--site-packages", site).code == 0
    (site / PATH).with_suffix(".py.rej").write_text("@@")
    (site / PATH).with_suffix(".py.orig").write_text("x = 1")
    (site / "sglang" / ".x.py.rewriter-0123abcd.new").write_text("")
    done = doctor(site)
    assert done.code == 1
    told = " ".join(done.out.split())
    assert "a hunk that `patch` rejected" in told
    assert "left by `patch`" in told
    assert "temporary file of a run that died" in told
    assert f"   do: rm {(site / PATH).with_suffix('.py.rej')}\n" in done.out
    assert f"   do: rewriter revert --site-packages {site}\n" in done.out


def test_files_left_by_an_upgrade_are_told(tmp_path: Path) -> None:
    site = installed(tmp_path)
    assert rewriter("apply", "--site-packages", site).code == 0
    (site / PATH).write_text(backend())
    (site / "sglang-0.5.9.dist-info").rename(site / "sglang-0.5.10.dist-info")
    (site / "sglang-0.5.10.dist-info" / "METADATA").write_text("Name: sglang\nVersion: 0.5.10\n")
    done = doctor(site)
    assert done.code == 1
    assert "mla_kv_gather is orphaned" in " ".join(done.out.split())
    assert f"   do: rewriter revert --site-packages {site}\n" in done.out
    assert (site / COMPANION).is_file()


def test_our_lines_edited_are_told(tmp_path: Path) -> None:
    site = installed(tmp_path)
    assert rewriter("apply", "--site-packages", site).code == 0
    path = site / PATH
    path.write_text(path.read_text().replace("_kv_gather.attach(self, model_runner)", "pass"))
    done = doctor(site)
    assert done.code == 1
    assert "mla_kv_gather is partial" in done.out
    assert "pip install --force-reinstall --no-deps sglang==0.5.9" in done.out


@pytest.mark.parametrize("mode", ["unchecked", "time"])
def test_byte_code_of_other_source_is_told(tmp_path: Path, mode: str) -> None:
    site = installed(tmp_path)
    source = site / PATH
    cached = Path(importlib.util.cache_from_source(str(source)))
    if mode == "unchecked":
        py_compile.compile(
            str(source),
            str(cached),
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
        said = "is never compared with its source"
    else:
        py_compile.compile(str(source), str(cached))
        status = source.stat()
        source.write_text(source.read_text() + "# more\n")
        os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns))
        said = "has the time of its source, and another size"
    done = doctor(site)
    assert done.code == 1
    assert said in " ".join(done.out.split())
    assert f"   do: rm {cached}\n" in done.out


def test_fresh_byte_code_is_none(tmp_path: Path) -> None:
    site = installed(tmp_path)
    py_compile.compile(str(site / PATH))
    assert doctor(site).code == 0


def test_a_record_that_cannot_be_read_still_gives_a_page(tmp_path: Path) -> None:
    site = installed(tmp_path)
    (site / "sglang-0.5.9.dist-info" / "REWRITER.json").write_text("{")
    done = doctor(site)
    assert done.code == 1
    assert "sglang:      0.5.9\n" in done.out
    assert "expected the manifest of an applied codemod" in " ".join(done.out.split())


def test_a_file_that_does_not_parse_is_told(tmp_path: Path) -> None:
    done = doctor(installed(tmp_path, "def (:\n"), "mla_kv_gather")
    assert done.code == 1
    assert "does not parse at line 1" in " ".join(done.out.split())


def test_a_checkout_and_a_wheel_that_is_only_read(tmp_path: Path) -> None:
    done = rewriter("doctor", "--checkout", checkout(tmp_path / "fork"))
    assert done.code == 0
    assert "layout:      a working tree\n" in done.out
    assert "pins alone: no RECORD, no commit" in done.out


def test_json(tmp_path: Path) -> None:
    site = installed(tmp_path)
    done = doctor(site, "mla_kv_gather", "--json")
    found = json.loads(done.out)
    assert found["exit"] == done.code == 1
    assert found["facts"]["witness"] == "sglang-0.5.9.dist-info/RECORD, 10 files"
    assert found["findings"] == [
        {"what": "mla_kv_gather is not applied",
         "do": f"rewriter apply mla_kv_gather --site-packages {site}"}
    ]  # fmt: skip
    assert found["results"][0]["state"] == "ready"


@pytest.mark.skipif(os.name != "posix", reason="modes of directories")
def test_a_place_that_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = installed(tmp_path)
    monkeypatch.setattr(os, "access", lambda place, mode, **more: not mode & os.W_OK)
    told = rewriter("doctor", "--site-packages", site).out
    assert f"writable:    no: this user cannot write in {site}" in told.replace(
        "\n             ", " "
    )
    assert f"next: to apply: rewriter apply mla_kv_gather --site-packages {site} --overlay" in told
    named = rewriter("doctor", "mla_kv_gather", "--site-packages", site).out
    assert f"do: rewriter apply mla_kv_gather --site-packages {site} --overlay DIR\n" in named
