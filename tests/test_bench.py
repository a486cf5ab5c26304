"""What a bench measures, keeps, compares and concludes; without a server."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from simulated_server import SERVER, Simulated, bench

from rewriter.errors import UsageError
from rewriter.probes.load.compare import compare, same_tokens, unlike
from rewriter.probes.load.failures import LoadError
from rewriter.probes.load.identity import described, differences, local_gpu
from rewriter.probes.load.measure import METRICS, Plan, prompt_ids
from rewriter.probes.load.realised import diagnosed, expected_cast, realised
from rewriter.probes.load.record import Record, load, save
from rewriter.probes.load.reply import Reply
from rewriter.probes.load.running import Driver, observations, run, wrong
from rewriter.probes.load.sweep import sweep
from rewriter.probes.models import MODELS
from rewriter.report.benchmark import Outcome, lines, realised_words, tokens_words

GLM = MODELS["GLM-5"]


def tpot_holds(seed: int, plan: Plan) -> bool:
    """Whether a bench's own interval holds the delay that the server has."""
    found = bench(Simulated(74.0, seed=seed), plan).points[0].summary("tpot_ms")
    assert found is not None
    return found.low is not None and found.high is not None and found.low <= 74.0 <= found.high


def test_known_delays_are_recovered_in_95_of_100_runs() -> None:
    plan = Plan(warmups=0, tokens=40, check_lengths=())
    held = [tpot_holds(seed, plan) for seed in range(2000)]
    assert sum(held[:100]) >= 95
    assert sum(held) / 2000 == pytest.approx(0.95, abs=0.015)  # and not by being too wide


def test_every_metric_is_that_of_its_definition() -> None:
    point = bench(Simulated(10.0, first=110.0, token_sd=0.0, trial_sd=0.0)).points[0]
    means = {name: found.mean for name in METRICS if (found := point.summary(name))}
    assert means == {
        "e2e_ms_per_token": pytest.approx((110 + 199 * 10) / 200),
        "tpot_ms": pytest.approx(10.0),
        "itl_p50_ms": pytest.approx(10.0),
        "itl_p90_ms": pytest.approx(10.0),
        "itl_p99_ms": pytest.approx(10.0),
        "ttft_ms": pytest.approx(110.0),
        "tokens_per_s": pytest.approx(200 / 2.1),
    }


def test_a_bench_warms_up_flushes_and_repeats() -> None:
    asked: list[tuple[int, int]] = []
    simulated = Simulated(1.0)

    def send(prompt: tuple[int, ...], tokens: int) -> Reply:
        asked.append((len(prompt), tokens))
        return simulated.send(prompt, tokens)

    record = run(Record(SERVER, Plan(contexts=(15, 64)), ""), Driver(send, send, simulated.flush))  # type: ignore[arg-type]
    once = [20, 20, 20, 200, 200, 200]
    assert asked == [*((15, n) for n in once), *((64, n) for n in once), (33, 64), (257, 64)]
    assert simulated.flushed == 8
    assert record.complete
    assert record.trials_missing == 0


def test_streams_run_together_with_prompts_of_their_own() -> None:
    record = bench(Simulated(1.0), Plan(concurrency=4, check_lengths=()))
    assert all(len(trial.replies) == 4 for trial in record.points[0].trials)
    prompts = {prompt_ids(15, stream)[0] for stream in range(8)}
    assert len(prompts) == 8
    assert max(prompt_ids(32_768)) < 4096


def failing(after: int) -> Driver:
    simulated = Simulated(5.0)
    seen = []

    def send(prompt: object, tokens: int) -> Reply:
        seen.append(tokens)
        reply = simulated.send(prompt, tokens)  # type: ignore[arg-type]
        if len(seen) > after:
            part = replace(reply, completion_tokens=7, arrivals=reply.arrivals[:7])
            raise LoadError("broken", "it went away", reply=part)
        return reply

    return Driver(send, send, simulated.flush)


@pytest.mark.parametrize(("after", "trials"), [(0, 0), (3, 0), (4, 1), (5, 2), (6, 3), (7, 3)])
def test_what_was_measured_before_a_failure_is_kept(
    after: int, trials: int, tmp_path: Path
) -> None:
    states: list[Record] = []
    driver = replace(failing(after), keep=states.append)
    record = run(Record(SERVER, Plan(), "now"), driver)
    assert not record.complete
    assert record.failure == "it went away"
    assert sum(len(point.trials) for point in record.points) == trials
    assert record.trials_missing == 3 - trials
    assert record.partial[0].completion_tokens == 7
    assert states[-1] == record
    save(record, tmp_path / "kept.json")
    assert load(tmp_path / "kept.json") == record
    assert "BROKE OFF: it went away" in "\n".join(lines(Outcome(record)))


def test_a_failing_stream_ends_a_trial_after_the_others() -> None:
    def send(prompt: tuple[int, ...], tokens: int) -> Reply:
        if prompt[0] == prompt_ids(15, 2)[0]:
            raise LoadError("refused", "no")
        return Simulated(1.0).send(prompt, tokens)

    driver = Driver(send, send, lambda: None)  # type: ignore[arg-type]
    record = run(Record(SERVER, Plan(concurrency=4), ""), driver)
    assert record.failure == "no"


# Files.


def test_a_file_holds_all_that_a_comparison_needs(tmp_path: Path) -> None:
    record = bench(Simulated(3.0), Plan(contexts=(15, 40)))
    save(record, tmp_path / "a.json")
    assert load(tmp_path / "a.json") == record
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "not a file of"),
        (b"{}", "missing required field"),
        (b'{"schema": 1}', "not a file of"),
        (b"\xff\xfe", "not a file of"),
    ],
)
def test_a_file_that_is_none_of_ours(raw: bytes, words: str, tmp_path: Path) -> None:
    place = tmp_path / "a.json"
    place.write_bytes(raw)
    with pytest.raises(UsageError, match=words):
        load(place)


def test_files_that_are_not_there_or_too_new(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load(tmp_path / "none.json")
    with pytest.raises(UsageError, match="cannot be written"):
        save(bench(Simulated(1.0)), tmp_path / "none" / "a.json")
    save(replace(bench(Simulated(1.0)), schema=2), tmp_path / "b.json")
    with pytest.raises(UsageError, match="schema 2"):
        load(tmp_path / "b.json")


# Servers.

INFO = {
    "version": "0.5.9",
    "model_path": "/models/GLM-5/",
    "attention_backend": "fa3",
    "decode_attention_backend": "flashmla",
    "kv_cache_dtype": "fp8_e4m3",
    "tp_size": 8,
    "port": 1,
    "random_seed": 5,
    "api_key": "secret",
    "ssl_keyfile_password": "secret",
    "log_level": "info",
    "internal_states": [{"memory_usage": {"token_capacity": 1000}}],
}


def test_a_servers_identity_has_no_secrets_and_nothing_of_the_moment() -> None:
    server = described(INFO, "")
    assert set(server.args) == {
        "attention_backend", "decode_attention_backend", "kv_cache_dtype", "tp_size"
    }  # fmt: skip
    assert (server.model, server.backend, server.pool) == ("GLM-5", "flashmla", 1000)
    assert described({}, "").pool == 0


def test_unlike_servers_are_named_by_their_difference() -> None:
    other = described({**INFO, "tp_size": 4, "port": 2, "max_total_num_tokens": 1021}, "H200")
    named = {each.name: str(each) for each in differences(described(INFO, "B200"), other)}
    assert set(named) == {"GPU", "KV pool", "tp_size"}
    assert named["tp_size"] == "tp_size: 8 before, 4 now"
    near = described({**INFO, "max_total_num_tokens": 1019}, "H200")
    assert not differences(described(INFO, ""), near)  # GPU not known on one side


def test_another_release_is_no_difference_by_itself() -> None:
    newer = described({**INFO, "version": "0.5.10", "new_flag": 1, "tp_size": 4}, "")
    assert [d.name for d in differences(described(INFO, ""), newer)] == ["tp_size"]
    same = described({**INFO, "new_flag": 1}, "")
    assert [d.name for d in differences(described(INFO, ""), same)] == ["new_flag"]


def test_unlike_plans_are_refused() -> None:
    one = bench(Simulated(1.0))
    for changes, name in (
        ({"contexts": (15, 64)}, "context"),
        ({"concurrency": 2}, "concurrency"),
        ({"tokens": 100}, "tokens a reply"),
        ({"endpoint": "openai"}, "endpoint"),
    ):
        other = replace(one, plan=replace(one.plan, **changes))  # type: ignore[arg-type]
        assert [each.name for each in unlike(one, other)] == [name]
        assert not unlike(one, other, {name})


def test_the_gpus_of_this_machine_are_for_a_server_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho NVIDIA H200\necho NVIDIA H200\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert local_gpu("127.0.0.1") == "2 x NVIDIA H200"
    assert local_gpu("server") == ""
    program.write_text("#!/bin/sh\nexit 9\n")
    assert local_gpu("localhost") == ""


# Comparisons.


def test_the_reports_ratio_and_what_came_of_its_prediction() -> None:
    """10.5 to 13.5 tokens a second: x1.29, a third of the 64.6 ms that were predicted."""
    before = bench(Simulated(95.6, first=95.6, token_sd=0, trial_sd=0.2))
    after = bench(Simulated(74.03, first=74.03, token_sd=0, trial_sd=0.2, seed=1))
    compared = compare(before, after)
    gain = compared.gain("tpot_ms")
    assert gain is not None
    assert gain.better.value == pytest.approx(1.291, abs=0.005)
    assert gain.change == pytest.approx(-0.226, abs=0.004)
    assert gain.real
    found = realised(compared, 31.0, GLM)
    assert found is not None
    assert found.share.value == pytest.approx(0.334, abs=0.01)
    assert found.short
    assert "33% realised" in realised_words(found)
    told = " ".join(found.hypotheses())
    assert "202,752, one longest context, fits" in told
    assert "228,096 blocks" in told
    assert "host" in told


def test_a_prediction_is_made_from_what_the_server_says() -> None:
    after = bench(Simulated(31.0, seed=2))
    found = realised(compare(bench(Simulated(95.6)), after), None, GLM)
    assert found is not None
    assert found.prediction.saved_ms == pytest.approx(65.5, abs=0.1)
    assert found.share.value == pytest.approx(0.987, abs=0.01)
    assert not found.short
    assert found.hypotheses() == []


def test_the_prediction_of_a_diagnosis(tmp_path: Path) -> None:
    place = tmp_path / "diagnosis.json"
    prediction = {"step_ms": 93.2, "predicted_ms": 28.6}
    place.write_text(json.dumps({"ranks": [{"prediction": None}, {"prediction": prediction}]}))
    compared = compare(bench(Simulated(95.6)), bench(Simulated(31.0, seed=1)))
    found = realised(compared, diagnosed(place, GLM), GLM)
    assert found is not None
    assert found.prediction.saved_ms == pytest.approx(64.6)
    assert found.share.value == pytest.approx(1.0, abs=0.01)
    assert "diagnosis.json: 93.2 ms to 28.6" in realised_words(found)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"ranks": []}', '{"ranks": [{}]}'])
def test_a_diagnosis_without_a_prediction(text: str, tmp_path: Path) -> None:
    (tmp_path / "d.json").write_text(text)
    with pytest.raises(UsageError, match="holds no prediction"):
        diagnosed(tmp_path / "d.json", GLM)
    with pytest.raises(UsageError, match="cannot be read"):
        diagnosed(tmp_path / "none.json", GLM)


def test_no_prediction_where_there_was_no_cast() -> None:
    short = compare(bench(Simulated(9.0)), bench(Simulated(8.0)))
    assert realised(short, None, GLM) is None  # a step shorter than the cast
    assert realised(short, None, None) is None  # a model that is not known
    assert realised(short, 10.0, GLM) is None  # nothing was to be gained
    bf16 = replace(SERVER, args={**SERVER.args, "kv_cache_dtype": "bfloat16"})
    assert expected_cast(bf16, GLM) is None
    triton = replace(SERVER, args={**SERVER.args, "attention_backend": "triton"})
    slow = bench(Simulated(95.0), server=triton)
    assert realised(compare(slow, bench(Simulated(90.0), server=triton)), None, GLM) is None


def test_issue_35291_realised_all_of_it() -> None:
    r1 = replace(SERVER, model="DeepSeek-R1", pool=131_072)
    before = bench(Simulated(31.52, trial_sd=0.02, token_sd=0.1), server=r1)
    after = bench(Simulated(17.68, trial_sd=0.02, token_sd=0.1, seed=3), server=r1)
    found = realised(compare(before, after), 17.75, MODELS["DeepSeek-R1"])
    assert found is not None
    assert found.share.value == pytest.approx(1.005, abs=0.01)


def test_noise_is_no_gain() -> None:
    before = bench(Simulated(50.0, trial_sd=1.0))
    compared = compare(before, bench(Simulated(50.0, trial_sd=1.0, seed=9)))
    gain = compared.gain("tpot_ms")
    assert gain is not None
    assert not gain.real
    assert "~" in "\n".join(lines(Outcome(before, comparison=compared)))


def reply(ids: tuple[int, ...] | None, text: str = "", logprobs: tuple[float, ...] = ()) -> Reply:
    count = len(ids) if ids is not None else len(text)
    return Reply(1, count, ids, logprobs or None, text, "length", 0, 0.0, (1.0,))


@pytest.mark.parametrize(
    ("before", "after", "first", "words"),
    [
        ((1, 2, 3), (1, 2, 3), None, "all 3 tokens equal"),
        ((1, 2, 3), (1, 9, 3), 1, "equal up to token 1 of 3, there 2 before and 9 now"),
        ((1, 2, 3), (1, 2), 2, "there 3 before and the end now"),
    ],
)
def test_tokens_are_compared_to_their_first_difference(
    before: tuple[int, ...], after: tuple[int, ...], first: int | None, words: str
) -> None:
    found = same_tokens("p", reply(before), reply(after))
    assert found.first == first
    assert words in tokens_words(found)


def test_text_is_compared_where_there_are_no_ids() -> None:
    found = same_tokens("p", reply(None, "abcd"), reply(None, "abxd"))
    assert (found.first, found.unit, found.before, found.after) == (2, "character", "c", "x")


def test_logprobs_there_and_the_drift_before() -> None:
    before = reply((1, 2, 3), logprobs=(-0.5, -0.25, -1.0))
    after = reply((1, 2, 4), logprobs=(-0.5, -0.26, -1.5))
    found = same_tokens("p", before, after)
    assert found.logprobs == (-1.0, -1.5)
    assert found.drift == pytest.approx(0.01)
    assert "-1.0000 and -1.5000, -0.5000" in tokens_words(found)


def test_other_tokens_are_seen_in_trials_and_checks() -> None:
    compared = compare(bench(Simulated(5.0)), bench(Simulated(5.0, twist=1)))
    assert not compared.same_tokens
    assert [each.first for each in compared.tokens] == [0, 0, 0]
    assert compare(bench(Simulated(5.0)), bench(Simulated(4.0, seed=3))).same_tokens


# What else is told.


def test_a_sweep_tells_a_cast_from_none() -> None:
    contexts = Plan(contexts=(15, 4096, 32_768), check_lengths=())
    quiet = {"token_sd": 0.0, "trial_sd": 0.01, "per_1k": 0.09}
    cast = expected_cast(SERVER, GLM)
    with_cast = sweep(bench(Simulated(95.6, **quiet), contexts).points, cast)  # type: ignore[arg-type]
    without = sweep(bench(Simulated(31.0, **quiet), contexts).points, cast)  # type: ignore[arg-type]
    assert with_cast is not None
    assert without is not None
    assert with_cast.at_zero_ms == pytest.approx(95.6, abs=0.05)
    assert with_cast.us_per_1k == pytest.approx(90, abs=2)
    assert with_cast.growth.value == pytest.approx(1.031, abs=0.002)
    assert not with_cast.refuted
    assert with_cast.cast_share == pytest.approx(0.685, abs=0.01)
    assert without.refuted
    assert sweep(bench(Simulated(9.0)).points) is None


def test_replies_that_are_wrong() -> None:
    record = bench(Simulated(5.0), Plan(trials=2, check_lengths=(33,)))
    assert wrong(record) == []
    trial = record.points[0].trials[0]
    bad = replace(
        trial.replies[0],
        finish_reason="stop",
        completion_tokens=199,
        logprobs=(-0.1, None),
    )
    point = replace(record.points[0], trials=(replace(trial, replies=(bad,)),))
    assert [each.split(": ", 1)[1] for each in wrong(replace(record, points=(point,)))] == [
        "finish_reason is 'stop', expected 'length'",
        "199 tokens came, 200 were asked for",
        "200 token ids came with a count of 199",
        "the log-probability of token 1 is NaN",
    ]


def test_what_a_reader_has_to_know() -> None:
    record = bench(Simulated(5.0))
    assert observations(record) == []
    point = record.points[0]
    odd = [
        replace(
            trial.replies[0],
            cached_tokens=14,
            prompt_tokens=16,
            output_ids=(number, number),
            arrivals=trial.replies[0].arrivals[:100],
        )
        for number, trial in enumerate(point.trials)
    ]
    trials = tuple(replace(t, replies=(r,)) for t, r in zip(point.trials, odd, strict=True))
    told = " ".join(observations(replace(record, points=(replace(point, trials=trials),))))
    assert "14 tokens of a prompt came from the prefix cache" in told
    assert "the server counts 16 tokens in a prompt of 15" in told
    assert "chunks held several tokens" in told
    assert "not deterministic" in told
    assert "two distinct tokens" in told


def test_the_report_fits_80_columns() -> None:
    before = bench(Simulated(95.6), Plan(contexts=(15, 4096)))
    after = bench(Simulated(74.0, twist=1, seed=1), Plan(contexts=(15, 4096)))
    compared = compare(before, after)
    outcome = Outcome(
        after, ("odd",), sweep(after.points, 65.5), 65.5, compared, realised(compared, 31.0, GLM)
    )
    text = list(lines(outcome))
    assert max(map(len, text)) <= 80
    assert "WRONG: odd" in text
