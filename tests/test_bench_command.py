"""The command against a real server on the loopback address: numbers, files, refusals, failures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from fake_sglang_server import INFO, Behaviour, Served, serving

from rewriter import cli
from rewriter.errors import RefusedError, RewriterError, UsageError
from rewriter.probes.load.client import LoadError

QUICK = ("--tokens", "20", "--warmups", "1", "--warmup-tokens", "4", "--check-tokens", "8")


def bench(served: Served, *arguments: str) -> int:
    command = ["bench", "--url", served.url, *QUICK, *arguments]
    code = cli.build(("advise", "bench"))(command, standalone_mode=False)
    assert isinstance(code, int)
    return code


def measured(
    served: Served, capsys: pytest.CaptureFixture[str], *arguments: str
) -> dict[str, object]:
    assert bench(served, "--json", *arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["command"] == "bench"
    assert found["exit"] == 0
    return found["bench"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("endpoint", ["native", "openai"])
def test_the_servers_own_delays_are_in_the_interval(
    endpoint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(Behaviour(first=0.02, gap=0.004)) as served:
        found = measured(
            served, capsys, "--tokens", "60", "--endpoint", endpoint, "--check-tokens", "0"
        )
        trials = served.sent[1:]
    truth = sum(1e3 * (sent[-1] - sent[0]) / 59 for sent in trials) / len(trials)
    metrics = found["points"][0]["metrics"]  # type: ignore[index]
    tpot = metrics["tpot_ms"]
    assert len(trials) == 3
    # The way over the loopback is some 0.1 ms, and as long for the first token as for the last.
    assert tpot["low"] - 0.02 <= truth <= tpot["high"] + 0.02
    assert metrics["ttft_ms"]["mean"] > 20
    assert metrics["e2e_ms_per_token"]["mean"] > tpot["mean"]


def test_defaults_are_the_reports(capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as served:
        command = ["bench", "--url", served.url, "--json"]
        assert cli.build(("advise", "bench"))(command, standalone_mode=False) == 0
        found = json.loads(capsys.readouterr().out)["bench"]
        bodies = served.bodies("/generate")
        flushes = len(served.bodies("/flush_cache"))
    lengths = [body["sampling_params"]["max_new_tokens"] for body in bodies]
    assert lengths == [20, 20, 20, 200, 200, 200, 64, 64]
    assert {len(body["input_ids"]) for body in bodies[:6]} == {15}
    assert all(body["sampling_params"]["temperature"] == 0 for body in bodies)
    assert flushes == 1 + 3 + 2
    assert found["complete"]
    assert found["server"]["pool"] == 495_552
    assert "hidden" not in json.dumps(found)


def test_a_faster_server_against_the_slower_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "before.json"
    with serving(Behaviour(gap=0.006)) as served:
        measured(served, capsys, "--save", str(place), "--logprobs")
        served.behaviour.gap = 0.002
        found = measured(served, capsys, "--against", str(place), "--logprobs")
    assert json.loads(place.read_text())["complete"] is True
    comparison = found["comparison"]
    gains = {gain["metric"]: gain for gain in comparison["gains"]}  # type: ignore[index]
    assert gains["tpot_ms"]["real"]
    # How fast the server really was is the machine's affair; what is told must be its quotient.
    slow, fast = gains["tpot_ms"]["before"], gains["tpot_ms"]["after"]
    assert gains["tpot_ms"]["better"]["value"] == pytest.approx(slow / fast)
    assert slow / fast > 1.3
    assert gains["tokens_per_s"]["change"] > 0.3
    assert comparison["same_tokens"]  # type: ignore[index]
    assert [t["drift"] for t in comparison["tokens"]] == [None, 0.0, 0.0]  # type: ignore[index]
    assert "realised" not in found  # 6 ms hold no cast of the whole pool


def test_other_tokens_are_a_no_unless_expected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "before.json"
    with serving() as served:
        assert bench(served, "--save", str(place)) == 0
        served.behaviour.twist, served.behaviour.twist_from = 1, 5
        assert bench(served, "--against", str(place)) == 1
        out = " ".join(capsys.readouterr().out.split())
        assert "equal up to token 5 of 20" in out
        assert bench(served, "--against", str(place), "--tokens-may-differ") == 0


def test_unlike_servers_are_refused_before_anything_is_measured(tmp_path: Path) -> None:
    place = tmp_path / "before.json"
    with serving() as served:
        assert bench(served, "--save", str(place)) == 0
        served.behaviour.info = {**INFO, "attention_backend": "triton", "max_total_num_tokens": 9}
        before = len(served.sent)
        with pytest.raises(RefusedError) as caught:
            bench(served, "--against", str(place))
        assert caught.value.exit_code == 2
        assert "attention_backend: flashinfer before, triton now" in str(caught.value)
        assert "KV pool: 495,552 tokens before, 9 tokens now" in str(caught.value)
        assert len(served.sent) == before
        changes = ("--changed", "attention_backend", "--changed", "KV pool")
        assert bench(served, "--against", str(place), *changes) == 0
        with pytest.raises(RefusedError, match="concurrency: 1 before, 2 now"):
            bench(served, "--against", str(place), *changes, "--concurrency", "2")


def test_a_context_sweep_tells_whether_a_cast_fits(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Behaviour(gap=0.001)) as served:
        found = measured(served, capsys, "--context-sweep", "15,1K,15")
        assert [point["context"] for point in found["points"]] == [15, 1024]  # type: ignore[attr-defined]
        assert found["sweep"]["full_pool_cast"] is False  # type: ignore[index]
        assert found["sweep"]["whole_cast_ms"] == pytest.approx(65.5, abs=0.1)  # type: ignore[index]
        assert bench(served) == 0
        assert "No full-pool cast" in capsys.readouterr().out
        assert bench(served, "--model", "Kimi-K2", "--context-sweep", "15,64") == 0


def test_streams_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Behaviour(gap=0.002)) as served:
        one = measured(served, capsys)
        four = measured(served, capsys, "--concurrency", "4")
    rates = [
        b["points"][0]["metrics"]["tokens_per_s"]["mean"]  # type: ignore[index]
        for b in (one, four)
    ]
    assert rates[1] > 1.5 * rates[0]


FAULTS = [
    ({"vanish_after": 10}, "connection ended|closed the connection"),
    ({"stall_after": 10}, "nothing came for 0.3 s"),
    ({"garbage_after": 10}, "no JSON"),
    ({"report_after": 10}, "CUDA out of memory"),
    ({"abort_after": 10}, "NaN detected"),
]


@pytest.mark.parametrize(("fault", "words"), FAULTS)
def test_a_server_that_fails_is_told_once_and_what_was_measured_is_kept(
    fault: dict[str, int], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "kept.json"
    with serving(Behaviour(**fault, faulty_from=3)) as served:  # type: ignore[arg-type]
        assert bench(served, "--save", str(place), "--stall", "0.3") == 1
        out = capsys.readouterr().out
        with pytest.raises(RefusedError, match="incomplete"):
            bench(served, "--against", str(place))
    assert out.count("BROKE OFF") == 1
    assert "2 trials measured, 1 missing, and 10 tokens of a reply" in " ".join(out.split())
    kept = json.loads(place.read_text())
    assert kept["complete"] is False
    assert len(kept["points"][0]["trials"]) == 2
    assert len(kept["partial"][0]["arrivals"]) == 10
    assert any(part in kept["failure"] for part in words.split("|"))


def test_a_server_that_is_away_or_refuses_leaves_no_file(tmp_path: Path) -> None:
    place = tmp_path / "none.json"
    with serving() as served:
        url = served.url
    with pytest.raises(LoadError, match="is it running"):
        cli.build(("advise", "bench"))(
            ["bench", "--url", url, "--save", str(place)], standalone_mode=False
        )
    assert not place.exists()


def test_a_request_that_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Behaviour(status=400)) as served:
        assert bench(served) == 1
    assert "HTTP 400: no such thing" in " ".join(capsys.readouterr().out.split())


def test_replies_that_are_wrong_are_a_no(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Behaviour(short=1, finish="stop", nan=True)) as served:
        assert bench(served, "--logprobs") == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "WRONG: prompt of 15, trial 1: finish_reason is 'stop'" in out
    assert "19 tokens came, 20 were asked for" in out
    assert "the log-probability of token 0 is NaN" in out


@pytest.mark.parametrize("status", [401, 403, 404, 405])
def test_a_cache_that_cannot_be_emptied_is_noted(
    status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(Behaviour(flush_status=status, cached=14)) as served:
        found = measured(served, capsys)
        assert len(served.bodies("/flush_cache")) == 1
    assert "cannot be emptied" in found["notes"][0]  # type: ignore[index]
    assert "14 tokens of a prompt came from the prefix cache" in found["notes"][1]  # type: ignore[index]


def test_a_cache_that_is_left_alone_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as served:
        found = measured(served, capsys, "--no-flush")
        assert served.bodies("/flush_cache") == []
    assert "--no-flush" in found["notes"][0]  # type: ignore[index]


def test_a_key_goes_with_every_request(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Behaviour(key="secret")) as served:
        assert bench(served, "--api-key", "secret") == 0
    assert "secret" not in capsys.readouterr().out


def test_pages_with_plots(tmp_path: Path) -> None:
    before, page = tmp_path / "before.json", tmp_path / "bench.html"
    with serving() as served:
        assert bench(served, "--save", str(before), "--context-sweep", "15,64") == 0
        command = ("--against", str(before), "--context-sweep", "15,64", "--html", str(page))
        assert bench(served, *command, "--predicted-ms", "0.01") == 0
        text = page.read_text(encoding="utf-8")
        assert "<script" not in text
        assert text.count("<svg") == 4
        for part in text.split("<svg")[1:]:
            ElementTree.fromstring("<svg" + part[: part.index("</svg>") + 6])
        served.behaviour.vanish_after, served.behaviour.faulty_from = 0, 0
        assert bench(served, "--html", str(page)) == 1
        assert "Broke off" in page.read_text(encoding="utf-8")
        with pytest.raises(UsageError, match="cannot be written"):
            bench(served, "--html", str(tmp_path / "none" / "a.html"))


@pytest.mark.parametrize(
    "arguments",
    [
        ("--model", "GLM-6"),
        ("--config", "none.json"),
        ("--diagnosis", "none.json"),
        ("--against", "none.json"),
        ("--save", "none/a.json"),
        ("--html", "none/a.html"),
    ],
)
def test_misuse_is_told_before_anything_is_measured(arguments: tuple[str, ...]) -> None:
    with serving() as served:
        with pytest.raises(RewriterError) as caught:
            bench(served, *arguments)
        assert caught.value.exit_code in (1, 2)
        assert served.sent == []


@pytest.mark.parametrize("sweep", ["", "15,x", "0", "15,,16", "-4"])
def test_contexts_that_are_no_numbers(sweep: str) -> None:
    with serving() as served, pytest.raises(UsageError, match="no number of tokens"):
        bench(served, "--context-sweep", sweep)


def test_stopping_by_hand_leaves_what_was_measured(tmp_path: Path) -> None:
    """A file exists from the first trial on, and says that it is not complete."""
    place = tmp_path / "kept.json"
    with serving(Behaviour(stall_after=0, faulty_from=2)) as served:
        command = [sys.executable, "-m", "rewriter", "bench", "--url", served.url, *QUICK]
        process = subprocess.Popen(
            [*command, "--save", str(place)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        assert process.stderr is not None
        for line in process.stderr:
            if b"trial 1 of 3" in line:
                break
        process.terminate()
        process.communicate(timeout=20)
    kept = json.loads(place.read_text())
    assert kept["complete"] is False
    assert len(kept["points"][0]["trials"]) == 1
