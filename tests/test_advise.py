"""What is advised: ranked by the needs, dominated by nothing; and what the command prints."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version
from simulated_server import Simulated, bench
from test_advise_arithmetic import report

from rewriter import cli
from rewriter.errors import UsageError
from rewriter.probes.load.record import save
from rewriter.probes.memory import backends
from rewriter.probes.memory.advice import Advice, Fate, Needs, advise, as_it_is, ms_of
from rewriter.probes.memory.deployment import Deployment, cell_of
from rewriter.probes.memory.gpus import ARCHITECTURES
from rewriter.probes.memory.ways import Kind
from rewriter.probes.models import MODELS
from rewriter.report.advice import lines

RELEASES = ("0.4.6.post5", "0.4.8.post1", "0.5.2", "0.5.9", "0.5.10", "0.5.13", "0.5.17", "0.5.23")


@st.composite
def deployments(draw: st.DrawFn) -> Deployment:
    model = draw(st.sampled_from(list(MODELS.values())))
    arch = draw(st.sampled_from(ARCHITECTURES))
    release = Version(draw(st.sampled_from(RELEASES)))
    kv = draw(st.sampled_from(["fp8", "bf16"]))
    able = [b for b in backends.BACKENDS if not backends.obstacle(b, model, arch, release, kv)]
    backend = draw(st.sampled_from(able))
    drafts = draw(st.booleans())
    page = draw(st.sampled_from([1, 32, 64]))
    cell = cell_of(model, backend, kv, drafts)
    return Deployment(
        model=model,
        arch=arch,
        release=release,
        memory=float(draw(st.integers(128, 4_000_000)) * cell),
        bandwidth=draw(st.floats(300, 10_000)),
        kv=kv,
        backend=backend,
        page=page,
        drafts=drafts,
        batch=draw(st.integers(1, 64)),
        context=draw(st.integers(0, 200_000)),
        step_ms=draw(st.none() | st.floats(1, 500)),
        host_ms=draw(st.floats(0, 50)),
        codemods=draw(st.sampled_from([(), ("mla_kv_gather",)])),
    )


@given(
    at=deployments(), tokens=st.none() | st.integers(1, 2_000_000), ms=st.none() | st.floats(1, 400)
)
def test_nothing_dominated_is_advised(at: Deployment, tokens: int | None, ms: float | None) -> None:
    advice = advise(at, Needs(tokens, ms if at.step_ms is not None else None))
    rivals = [o.way for o in advice.options if o.fate is not Fate.IMPOSSIBLE and o.way.certain]
    for option in advice.advised:
        way = option.way
        assert way.kind not in (Kind.SHADOW, Kind.NATIVE)
        assert not way.obstacle
        for rival in [*rivals, as_it_is(at)]:
            fewer, slower = way.tokens < rival.tokens, _ms(at, way) > _ms(at, rival)
            as_few, as_slow = way.tokens <= rival.tokens, _ms(at, way) >= _ms(at, rival)
            assert not (as_few and as_slow and (fewer or slower))
        if advice.needs.tokens is not None:
            assert way.tokens >= advice.needs.tokens
        if advice.needs.ms is not None and option.ms is not None:
            assert option.ms <= advice.needs.ms
    list(lines(advice, all_formulas=True))


def _ms(at: Deployment, way: object) -> float:
    found = ms_of(at, way)  # type: ignore[arg-type]
    return way.added_ms if found is None else found  # type: ignore[attr-defined]


def actions(advice: Advice) -> list[str]:
    return [option.way.short for option in advice.advised]


def test_the_reports_case_in_order() -> None:
    assert actions(advise(report(), Needs())) == [
        "triton",
        "trtllm_mla (XQA), 0.5.10",
        "tokenspeed_mla, 0.5.12",
        "dsa flashinfer_sparse_mla, 0.5.17",
        "BF16 KV",
        "mla_kv_gather",
    ]


def test_needed_tokens_drop_bf16_and_say_what_is_missing() -> None:
    advice = advise(report(), Needs(tokens=495_552))
    assert "BF16 KV" not in actions(advice)
    assert "mla_kv_gather" in actions(advice)
    short = next(o for o in advice.options if o.way.kind is Kind.BF16)
    assert short.fate is Fate.SHORT
    assert "49.63 GB (46.22 GiB) of the 27.37 GB (25.49 GiB)" in short.why


def test_needed_ms_rank_by_tokens() -> None:
    advice = advise(report(), Needs(ms=31.2))
    tokens = [option.way.tokens for option in advice.advised]
    assert tokens == sorted(tokens, reverse=True)
    assert "mla_kv_gather" not in actions(advice)  # 31.6 ms


def test_one_context_is_needed_where_nothing_is_said() -> None:
    advice = advise(report(context=200_000, batch=2), Needs())
    assert advice.needs.tokens == 400_000
    assert "BF16 KV" not in actions(advice)


def test_a_smaller_pool_is_advised_where_nothing_better_holds_as_many() -> None:
    at = report(
        arch="sm90", backend=backends.backend_named("fa3"), release=Version("0.5.9"), codemods=()
    )
    advice = advise(at, Needs(tokens=300_000))
    assert "pool 300,000" in actions(advice)
    assert "pool 202,752" not in actions(advise(at, Needs()))  # BF16 holds more


def test_without_a_codemod_the_patch_is_not_possible() -> None:
    advice = advise(report(codemods=()), Needs())
    assert "mla_kv_gather" not in actions(advice)


def test_the_host_sets_a_floor() -> None:
    advice = advise(report(host_ms=80.0), Needs())
    assert all(o.ms is not None and o.ms >= 80.0 for o in advice.options)


@pytest.mark.parametrize("release", ["0.5.17", "0.5.23"])
def test_nothing_need_be_done_where_the_default_reads_fp8(release: str) -> None:
    at = report(
        release=Version(release), backend=backends.backend_named("dsa flashinfer_sparse_mla")
    )
    advice = advise(at, Needs())
    assert advice.idle
    assert "sglang#29580" in advice.healthy
    assert "Nothing need be done" in " ".join(lines(advice))


def test_bf16_is_never_converted() -> None:
    assert advise(report(kv="bf16"), Needs()).idle


def test_a_healthy_server_that_is_too_small_gets_advice() -> None:
    advice = advise(report(kv="bf16"), Needs(tokens=400_000))
    assert not advice.idle
    assert advice.advised
    assert all("--kv-cache-dtype fp8_e4m3" in o.way.action for o in advice.advised)
    assert "not met" in " ".join(lines(advice))


def test_ms_cannot_be_needed_of_an_unknown_step() -> None:
    with pytest.raises(UsageError, match="--step-ms"):
        advise(report(step_ms=None), Needs(ms=40))


def test_a_dense_backend_on_a_sparse_model_needs_plain_rows() -> None:
    found = next(o for o in advise(report(), Needs()).options if o.way.short == "triton")
    assert found.way.action.endswith("--nsa-prefill-backend trtllm --nsa-decode-backend trtllm")
    later = advise(report(release=Version("0.5.17")), Needs())
    assert "--dsa-decode-backend trtllm" in next(
        o.way.action for o in later.options if o.way.short == "triton"
    )
    plain = advise(report(release=Version("0.5.10")), Needs())
    assert "trtllm" not in next(o.way.action for o in plain.options if o.way.short == "triton")


# The command.

ASKED = (
    "advise", "GLM-5", "--gpu", "RTX PRO 6000", "--gpus", "8", "--pool", "495552", "--weights",
    "61GB", "--sglang", "0.5.9", "--attention-backend", "flashinfer", "--step-ms", "95.6",
    "--cast-ms", "64.6",
)  # fmt: skip


def run(*arguments: str) -> int:
    code = cli.build(("advise", "bench"))(list(arguments), standalone_mode=False)
    assert isinstance(code, int)
    return code


def test_text_fits_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*ASKED, "-v", "--need-tokens", "495552", "--need-ms", "60") == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    out = " ".join(out.split())
    assert "27.37 GB (25.49 GiB)" in out
    assert "273,248 tokens, 273,216 in whole pages of 64" in out
    assert "188,629 tokens" in out


def test_json_keeps_bytes_and_certainty(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*ASKED, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["command"] == "advise"
    advice = found["advice"]
    assert advice["now"]["bytes"] == 27_366_363_648
    assert advice["now"]["step_without_cast_ms"] == pytest.approx(31.0)
    assert {option["kind"] for option in advice["advised"]} >= {"backend", "bf16", "patch"}
    assert all(o["formula"] and o["source"] for o in advice["advised"] + advice["not_advised"])
    assert [o["fate"] for o in advice["not_advised"] if o["kind"] == "shadow"] == ["dominated"]


def test_no_way_is_an_answer_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*ASKED, "--need-ms", "5") == 1
    assert "No way gives 5 ms a token" in capsys.readouterr().out


def test_the_page_is_whole_and_loads_nothing(tmp_path: Path) -> None:
    place = tmp_path / "advice.html"
    assert run(*ASKED, "--html", str(place), "--need-tokens", "400000", "--need-ms", "60") == 0
    text = place.read_text(encoding="utf-8")
    assert "<script" not in text
    assert "http:" not in text
    figure = text[text.index("<svg") : text.index("</svg>") + 6]
    assert len(ElementTree.fromstring(figure).findall("circle")) > 5


def test_memory_from_gpu_and_weights(capsys: pytest.CaptureFixture[str]) -> None:
    command = ("advise", "DeepSeek-R1", "--gpu", "H200", "--gpus", "8", "--json")
    assert run(*command, "--model-weights", "688GB", "--mem-fraction", "0.9") == 0
    advice = json.loads(capsys.readouterr().out)["advice"]
    room = 143_771 * 2**20 * 0.9 - 688e9 / 8
    assert advice["now"]["tokens"] == int(room // 35_136)
    assert advice["now"]["backend"] == "fa3"


def test_a_later_release_is_judged_as_the_newest_known(capsys: pytest.CaptureFixture[str]) -> None:
    command = ("advise", "GLM-5", "--gpu", "RTX PRO 6000", "--pool", "400000", "--sglang", "0.6.0")
    assert run(*command) == 0
    told = capsys.readouterr()
    assert "judged as 0.5.23" in told.err
    assert "Nothing need be done" in told.out


def test_a_bench_says_what_is_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "bench.json"
    save(bench(Simulated(95.6, trial_sd=0.0, token_sd=0.0)), place)
    assert run("advise", "--bench", str(place), "--json") == 0
    advice = json.loads(capsys.readouterr().out)["advice"]
    assert (advice["model"]["name"], advice["gpu"]["name"]) == ("GLM-5", "RTX PRO 6000")
    assert (advice["sglang"], advice["now"]["tokens"]) == ("0.5.9", 495_552)
    assert advice["now"]["step_ms"] == pytest.approx(95.6)
    assert (
        run("advise", "--bench", str(place), "--json", "--sglang", "0.5.17", "--step-ms", "9") == 0
    )
    later = json.loads(capsys.readouterr().out)["advice"]
    assert (later["sglang"], later["now"]["step_ms"]) == ("0.5.17", 9)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("GLM-6", "--gpu", "H200", "--pool", "1000"), "GLM-6"),
        (("--gpu", "H200", "--pool", "1000"), "name a model"),
        (("GLM-5", "--pool", "1000"), "name the GPU"),
        (("GLM-5", "--gpu", "H200"), "how large is the pool"),
        (("GLM-5", "--gpu", "H200", "--weights", "61"), "unit"),
        (("GLM-5", "--gpu", "H200", "--weights", "300GB"), "no token fits"),
        (("GLM-5", "--gpu", "RTX 5090", "--pool", "900000"), "do not fit"),
        (("GLM-5", "--gpu", "H200", "--pool", "1000", "--sglang", "new"), "no release"),
        (("GLM-5", "--gpu", "H200", "--pool", "1000", "--sglang", "0.4.0"), "begins with"),
        (("GLM-5", "--gpu", "H200", "--pool", "1000", "--attention-backend", "x"), "not one of"),
        (("GLM-5", "--gpu", "L40S", "--pool", "1000", "--attention-backend", "fa3"), "not on SM89"),
        (("GLM-5", "--gpu", "H200", "--pool", "1000", "--context", "300000"), "202,752 at most"),
        (("GLM-5", "--gpu", "H200", "--pool", "1000", "--html", "/nowhere/a.html"), "written"),
    ],
)
def test_misuse_is_told(arguments: tuple[str, ...], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        run("advise", *arguments)
