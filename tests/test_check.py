"""``check``: every state has its exit code, its words and its JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from installing import Done, rewriter
from sources import EPOCHS, PATH, backend
from targets import COMPANION, companion, files, installed, patched, written

from rewriter import catalog, verdicts
from rewriter.model import FINE, State


def check(root: Path, *arguments: str) -> Done:
    return rewriter("check", "--site-packages", root, *arguments)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "site-packages"


def make(place: Path, state: State) -> Path:
    """Write a package in which mla_kv_gather is in a state."""
    text: dict[State, str] = {
        State.READY: backend(),
        State.APPLIED: patched(),
        State.UPSTREAM: backend(**EPOCHS["E1"]),
        State.DRIFTED: backend(decode="helper method"),
        State.PARTIAL: patched().replace("_kv_gather.attach(self, model_runner)", "pass"),
        State.TAMPERED: patched().replace("model_runner)\n\n", "model_runner)  # mine\n\n"),
        State.UNSUPPORTED: backend(),
        State.ORPHANED: backend(),
        State.ABSENT: "",
    }
    version = "0.6.1" if state is State.UNSUPPORTED else "0.5.9"
    installed(place, text[state], version)
    if state is State.ABSENT:
        (place / PATH).unlink()
    if state in (State.APPLIED, State.PARTIAL, State.TAMPERED, State.ORPHANED):
        (place / COMPANION).write_bytes(companion())
    return place


STATES = [state for state in State if state is not State.INTERRUPTED]


@pytest.mark.parametrize("state", STATES)
def test_the_exit_code_of_every_state(place: Path, state: State) -> None:
    done = check(make(place, state), "--json")
    assert done.json["results"][0]["state"] == state.value
    assert done.code == done.json["exit"] == int(state not in FINE)
    assert done.err == ""


@pytest.mark.parametrize("state", STATES)
def test_requiring_one_state(place: Path, state: State) -> None:
    make(place, state)
    assert check(place, "--require", state.value).code == 0
    other = check(place, "--require", "ready" if state is not State.READY else "applied")
    assert other.code == 1
    assert other.out.splitlines()[-1].startswith("required: ")
    assert other.out.splitlines()[-1].endswith(f"mla_kv_gather is {state}")


def test_the_words_for_ready(place: Path) -> None:
    installed(place)
    assert (
        check(place).out
        == f"""\
{place}/sglang (sglang 0.5.9)
mla_kv_gather: ready
  {PATH}
     10  import      <imports>
     22  constructor FlashInferMLAAttnBackend.__init__
     75  plan        FlashInferMLAIndicesUpdaterDecode.call_begin_forward
     90  plan        FlashInferMLAIndicesUpdaterDecode.call_begin_forward
    127  plan        FlashInferMLAIndicesUpdaterPrefill.call_begin_forward
     34  cast        FlashInferMLAAttnBackend.forward_extend
     48  cast        FlashInferMLAAttnBackend.forward_decode
"""
    )


def test_the_words_for_a_drift_say_what_where_and_the_nearest_thing(place: Path) -> None:
    installed(place, backend(decode="helper method"))
    lines = check(place).out.splitlines()
    assert lines[1] == "mla_kv_gather: drifted"
    assert "      -  cast        FlashInferMLAAttnBackend.forward_decode" in lines
    assert "     34  cast        FlashInferMLAAttnBackend.forward_extend  ready" in lines
    assert lines[-4:] == [
        "  why: cast in `FlashInferMLAAttnBackend.forward_decode`: what `run` reads is",
        "       neither the pool's buffer nor a cast of it (another patch of the same",
        "       idea?)",
        "  nearest: line 47: k_buf = self.keys_of(layer, q.dtype)",
    ]


def test_verbose_says_why_site_by_site(place: Path) -> None:
    installed(place, backend(decode="helper method", extend="another cast left"))
    plain, verbose = check(place).out, check(place, "-v").out
    assert plain.count("why:") == 1
    assert verbose.count("why:") == 2
    assert "nearest: line 35: print(self.token_to_kv_pool.get_key_buffer(" in verbose
    assert check(place).out == plain, "asked for once, told once"


def test_quiet_answers_by_its_exit_code_alone(place: Path) -> None:
    installed(place)
    assert check(place, "-q") == Done(0, "", "")
    assert check(place, "-q", "--require", "applied") == Done(1, "", "")
    assert check(place, "-q", "--json").json["exit"] == 0


@pytest.mark.parametrize("state", STATES)
def test_eighty_columns_but_for_paths(place: Path, state: State) -> None:
    make(place, state)
    for line in check(place, "-v").out.splitlines():
        assert len(line) <= 80 or str(place) in line


def test_the_json_of_a_verdict(place: Path) -> None:
    installed(place, backend(decode="helper method"))
    document = check(place, "--json").json
    assert sorted(document) == ["command", "exit", "results", "schema", "target", "tool", "written"]
    assert document["schema"] == 1
    assert document["command"] == "check"
    assert document["target"] == {
        "kind": "installed", "location": f"{place}/sglang", "version": "0.5.9",
    }  # fmt: skip
    (result,) = document["results"]
    assert sorted(result) == ["codemod", "file", "nearest", "reason", "sites", "state"]
    assert (result["codemod"], result["file"], result["state"]) == (
        "mla_kv_gather", PATH, "drifted",
    )  # fmt: skip
    assert result["nearest"] == {
        "line": 47, "text": "k_buf = self.keys_of(layer, q.dtype)", "differs": "",
    }  # fmt: skip
    assert result["sites"][0] == {
        "definition": "<imports>", "kind": "import", "file": PATH, "line": 10, "state": "ready",
        "reason": "", "nearest": None,
    }  # fmt: skip
    assert [s["state"] for s in result["sites"]].count("drifted") == 1


def test_the_version_range_and_the_way_on(place: Path) -> None:
    """Case 4: refused with the reason; --force-version goes by structure alone."""
    make(place, State.UNSUPPORTED)
    done = check(place)
    assert done.code == 1
    why = " ".join(line.strip() for line in done.out.splitlines()[-2:])
    assert "sglang 0.6.1 is outside the supported range >=0.4.6.post5,<0.6" in why
    assert "--force-version" in why
    assert check(place, "--force-version").code == 0
    (place / PATH).write_text(backend(decode="helper method"))
    assert check(place, "--force-version", "--json").json["results"][0]["state"] == "drifted"


def test_a_version_that_is_unknown_is_judged_by_structure(place: Path) -> None:
    written(place, {k: v for k, v in files().items() if k != "sglang/version.py"})
    done = check(place)
    assert done.code == 0
    assert done.out.startswith(f"{place}/sglang (version unknown)\nmla_kv_gather: ready\n")


def test_a_codemod_by_name(place: Path) -> None:
    installed(place)
    assert check(place, "mla_kv_gather").code == 0
    done = check(place, "mla_kv_gathers")
    assert (done.code, done.out) == (2, "")
    assert "no codemod is called 'mla_kv_gathers'; known: " in done.err
    assert done.err.endswith(". Did you mean 'mla_kv_gather'?\n")
    assert ". Did you mean 'mla_kv_gather'?" in check(place, "mla-kv-gather").err
    assert "Did you mean" not in check(place, "nope").err


def test_the_version_is_told_whatever_the_path_holds(tmp_path: Path) -> None:
    place = tmp_path / "v0.5.9"
    installed(place)
    assert check(place).out.startswith(f"{place}/sglang (sglang 0.5.9)\n")


def test_an_unknown_state_to_require_is_misuse(place: Path) -> None:
    installed(place)
    done = check(place, "--require", "fine")
    assert (done.code, done.out) == (2, "")
    assert "Invalid value for '--require'" in done.err


# --- the cache of verdicts -----------------------------------------------------------------


def test_a_kept_verdict_is_asked_for_by_everything_that_decides(place: Path) -> None:
    installed(place)
    fresh = check(place).out
    kept = list((verdicts.cache_directory() / "verdicts").rglob("*.json"))
    assert len(kept) == 1
    assert check(place).out == fresh
    (place / PATH).write_text(backend(decode="helper method"))
    assert check(place).code == 1
    assert check(place, "--force-version").code == 1
    assert len(list((verdicts.cache_directory() / "verdicts").rglob("*.json"))) == 3


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"codemod": 1}', b"\xff"])
def test_a_damaged_kept_verdict_is_made_again(place: Path, damage: bytes) -> None:
    installed(place)
    fresh = check(place).out
    (kept,) = (verdicts.cache_directory() / "verdicts").rglob("*.json")
    kept.write_bytes(damage)
    assert check(place).out == fresh
    assert json.loads(kept.read_bytes())["state"] == "ready"


def test_a_cache_that_cannot_be_written_is_no_error(
    place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed(place)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REWRITER_CACHE_DIR", str(tmp_path / "file" / "below"))
    assert check(place).code == 0


def test_the_verdict_survives_the_cache() -> None:
    from rewriter.judge import judge

    raw = backend(decode="helper method").encode()
    made = judge(catalog.load("mla_kv_gather"), {PATH: raw}.get, "0.5.9")
    verdicts.save("aa", made)
    assert verdicts.load("aa") == made


def test_keys_tell_parts_apart() -> None:
    keys = {
        verdicts.key(*parts)
        for parts in (("a", "b"), ("ab",), ("ab", None), (b"ab", ""), (None, "ab"), ())
    }
    assert len(keys) == 6


# --- as a process --------------------------------------------------------------------------


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rewriter", *arguments],
        env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_gate_as_a_process_imports_libcst_only_when_it_must(place: Path) -> None:
    installed(place)
    arguments = ("check", "--site-packages", str(place))
    first = process(*arguments, PYTHONPROFILEIMPORTTIME="1")
    assert first.returncode == 0
    assert "| libcst" in first.stderr
    second = process(*arguments, PYTHONPROFILEIMPORTTIME="1")
    assert second.stdout == first.stdout
    assert "libcst" not in second.stderr


def test_the_sglang_of_this_interpreter_is_the_default(place: Path) -> None:
    installed(place)
    done = process("check", PYTHONPATH=str(place))
    assert done.returncode == 0
    assert done.stdout.startswith(f"{place}/sglang (sglang 0.5.9)\n")
