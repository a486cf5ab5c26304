"""The command line: exit codes, ranks, settings beside the trace, JSON, HTML, 80 columns."""

from __future__ import annotations

import gzip
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from trace_writer import Recipe, write_trace
from typer.testing import CliRunner

from rewriter.cli import build
from rewriter.errors import UsageError
from rewriter.probes.trace.problems import TraceError

TRACES = Path(__file__).parent / "data" / "traces"
REAL = str(TRACES / "trace-graphs-dummy.json.gz")
CURED = str(TRACES / "trace-graphs-random-triton.json.gz")


def _run(*arguments: str | Path, code: int = 0) -> str:
    done = CliRunner().invoke(build(("diagnose", "list")), ["diagnose", *map(str, arguments)])
    if isinstance(done.exception, Exception):
        raise done.exception
    assert done.exit_code == code, done.output
    return done.stdout


def _json(*arguments: str | Path, code: int = 0) -> dict[str, Any]:
    document = json.loads(_run(*arguments, "--json", code=code))
    assert document["exit"] == code
    assert (document["schema"], document["command"]) == (1, "diagnose")
    return dict(document)


def test_a_page_of_eighty_columns(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write_trace(path, Recipe(stack=2, shapes=True, defects=frozenset({"backslash", "negative"})))
    table = TRACES / "key_averages.txt"
    for page in (
        _run(REAL, "-v"),
        _run(CURED),
        _run(path, "--model", "GLM-5", "--layers", "6", "--pool", "495552", "--page", "64"),
        _run(path, "--tpot", "95.6", "--tpot-after", "74"),
        _run("--compare", REAL, CURED, "-v"),
        _run(table),
        _run(REAL, CURED),
    ):
        assert max(map(len, page.splitlines())) <= 80
        assert "\033" not in page


def test_what_a_page_says() -> None:
    page = _run(REAL)
    assert page.startswith("trace-graphs-dummy.json.gz [rank 0]: full-pool KV cast\n")
    for said in (
        "89.5% of the GPU time, 6.93 of 7.74 ms a step",
        "5 whole, DECODE bs=1 (by annotations)",
        "557,498 blocks -> 285,438,528 values = 495,553 rows",
        "988 GB/s counted = 21% of 4,800",
        "rewriter apply mla_kv_gather",
        "no operator names for kernels of graphs",
    ):
        assert said in re.sub(r"\s+", " ", page)


def test_a_healthy_trace_exits_0_without_a_verdict() -> None:
    page = _run(CURED)
    assert "no full-pool KV cast" in page
    assert "Prediction" not in page
    assert "the host sets the pace" in re.sub(r"\s+", " ", page)


def test_settings_beside_the_trace(tmp_path: Path) -> None:
    """``python -m sglang.profiler`` writes server_args.json there."""
    path = tmp_path / "1-TP-0.trace.json.gz"
    write_trace(path, Recipe(layers=78, dense=3, steps=2, step_ms=95.6, other_ms=28.63))
    settings = {
        "model_path": "zai-org/GLM-5-FP8",
        "kv_cache_dtype": "fp8_e4m3",
        "attention_backend": "flashinfer",
        "page_size": 64,
        "version": "0.5.9",
        "internal_states": [{"memory_usage": {"token_capacity": 495552}}],
    }
    (tmp_path / "server_args.json").write_text(json.dumps(settings))
    (rank,) = _json(path)["ranks"]
    assert rank["known"] == {
        "model": "GLM-5", "layers": 78, "pool_tokens": 495552, "page": 64,
        "kv_cache_dtype": "fp8_e4m3", "attention_backend": "flashinfer", "sglang": "0.5.9",
        "source": "server_args.json",
    }  # fmt: skip
    facts = {fact["fact"]: fact for fact in rank["cast"]["facts"]}
    assert facts["F3"]["number"].endswith("pool 495,552 + 64")
    assert facts["F9"]["holds"] is True
    assert rank["pool"]["index_bytes"] == 495_552 * 10_296
    assert rank["prediction"]["predicted_ms"] == pytest.approx(31.0, abs=0.05)
    assert _json(tmp_path)["ranks"][0]["verdict"] == "full-pool"
    # The command line counts before the file; a wrong pool refutes the size.
    (other,) = _json(path, "--pool", "100000")["ranks"]
    assert other["known"]["pool_tokens"] == 100_000
    assert other["verdict"] == "none"


def test_several_ranks_and_a_merged_trace(tmp_path: Path) -> None:
    """Merged traces: text for pid, correlations that collide; keyed by (rank, id)."""
    files = []
    merged: list[dict[str, Any]] = []
    for rank in range(3):
        path = tmp_path / f"1-TP-{rank}.trace.json.gz"
        write_trace(path, Recipe(rank=rank, seed=rank, merged=True, steps=3))
        files.append(path)
        merged += json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    single = [one["cast"]["ms_a_step"] for one in _json(*files)["ranks"]]
    whole = tmp_path / "merged-1.trace.json"
    whole.write_text(json.dumps({"traceEvents": merged}))
    ranks = _json(whole)["ranks"]
    assert [one["rank"] for one in ranks] == ["TP00", "TP01", "TP02"]
    assert [one["cast"]["ms_a_step"] for one in ranks] == pytest.approx(single)
    assert {one["verdict"] for one in ranks} == {"full-pool"}
    assert {one["steps"]["whole"] for one in ranks} == {3}
    page = _run(whole)
    assert page.startswith("Ranks (ms a step)")
    assert page.count(": full-pool KV cast") == 1
    assert _run(whole, "-v").count(": full-pool KV cast") == 3


def test_strict_exits_1_after_the_page(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write_trace(path, Recipe(stack=2, defects=frozenset({"backslash"})))
    assert "repaired" in _run(path)
    assert "full-pool KV cast" in _run(path, "--strict", code=1)
    assert _json(path, "--strict", code=1)["ranks"][0]["recorded"]["repaired"] > 0
    _run(REAL, "--strict")
    write_trace(path, Recipe(defects=frozenset({"cut"})))
    assert "TRUNCATED" in _run(path)
    _run(path, "--strict", code=1)


def test_a_comparison_in_json() -> None:
    document = _json("--compare", REAL, CURED)
    assert [one["verdict"] for one in document["ranks"]] == ["full-pool", "none"]
    found = document["comparison"]
    assert found["realised_gpu_over_cast"] == pytest.approx(1.006, abs=0.001)
    assert [one["hypothesis"] for one in found["hypotheses"] if one["fits"]] == [
        "the host sets the pace"
    ]


def test_measured_steps_count_before_the_traces() -> None:
    """Without the profiler, 8 layers on an H200: 7.53 ms before, 1.28 after."""
    found = _json("--compare", REAL, CURED, "--tpot", "7.53", "--tpot-after", "1.28")
    assert found["comparison"]["measured_without_profiler"] is True
    assert found["comparison"]["realised_saving_ms"] == pytest.approx(6.25)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give traces, or --compare"),
        ((REAL, "--compare", REAL, CURED), "give traces, or --compare"),
        ((REAL, "--tpot-after", "3"), "needs --tpot"),
        ((REAL, "--tpot", "-1"), "expected a number above 0"),
        ((REAL, "--model", "Llama-3"), "not one of GLM-5"),
        ((REAL, "--html", "/nowhere/page.html"), "cannot be written"),
        (("--compare", REAL, str(TRACES / "key_averages.txt")), "needs two traces"),
        ((str(TRACES / "nothing.json"),), "cannot be read"),
    ],
)
def test_misuse_is_refused(arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        _run(*arguments)
    assert caught.value.exit_code == 2


def test_an_empty_folder_and_an_empty_trace_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no trace in this folder"):
        _run(tmp_path)
    (tmp_path / "trace.json").write_text('{"traceEvents": []}')
    with pytest.raises(TraceError, match="no GPU kernels in 0 events"):
        _run(tmp_path)


class _Page(HTMLParser):
    """Checks that tags are balanced, and collects what a page would load."""

    void = frozenset({"meta", "br", "line", "rect", "link", "img"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.counts: dict[str, int] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.loads += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in self.void and not self.get_starttag_text().endswith("/>"):  # type: ignore[union-attr]
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.void:
            assert self.open.pop() == tag


@pytest.mark.parametrize(
    "arguments",
    [
        (REAL,),
        (CURED,),
        ("--compare", REAL, CURED),
        (REAL, "--tpot", "7.5", "--tpot-after", "3"),
        (REAL, str(TRACES / "eager-stacks.json"), str(TRACES / "key_averages.txt")),
    ],
)
def test_html_is_whole_and_loads_nothing(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    path = tmp_path / "page.html"
    _run(*arguments, "--html", path)
    text = path.read_text()
    page = _Page()
    page.feed(text)
    page.close()
    assert page.open == []
    assert page.loads == []
    assert "script" not in page.counts
    assert page.counts["svg"] >= 1
    assert page.counts["rect"] >= 5
    assert "http" not in text
    assert "nan" not in re.sub(r"[a-z]{4,}", "", text)


def test_names_cannot_escape_into_page_or_terminal(tmp_path: Path) -> None:
    kernel = "evil<script>alert(1)</script>\x1b[31m\n"
    events = [{"ph": "X", "cat": "kernel", "name": kernel, "ts": float(n + 1), "dur": 1.0,
               "pid": 0, "args": {"stream": 7}} for n in range(4)]  # fmt: skip
    path = tmp_path / "x\x1b[2Jy.json"
    path.write_text(json.dumps({"traceEvents": events}))
    page = tmp_path / "page.html"
    assert "\x1b" not in _run(path, "-v", "--html", page)
    text = page.read_text()
    assert "<script" not in text
    assert "\x1b" not in text


def test_the_help_names_what_it_reads() -> None:
    page = _run("--help")
    for word in ("TRACE", "--compare", "--model", "--pool", "--html", "--strict", "--json"):
        assert word in page
