"""Steps, proved in four ways; partial ones; traces without markers, links or layers."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from trace_writer import Recipe, write_trace

from rewriter.probes.trace.diagnosis import diagnose
from rewriter.probes.trace.facts import Verdict
from rewriter.probes.trace.findings import Asked, Diagnosis
from rewriter.probes.trace.known import Known
from rewriter.probes.trace.labels import Label, context_tokens, read_label
from rewriter.probes.trace.period import boundaries, find_period
from rewriter.probes.trace.problems import TraceError
from rewriter.probes.trace.steps import Way


def _written(tmp_path: Path, recipe: Recipe, layers: int | None = None) -> Diagnosis:
    path = tmp_path / "trace.json"
    write_trace(path, recipe)
    (found,) = diagnose(path, Asked(Known(layers=layers)))
    return found


def _answers(found: Diagnosis) -> dict[Way, tuple[float | None, bool | None]]:
    return {proof.way: (proof.steps, proof.agrees) for proof in found.steps.proofs}


def test_four_ways_agree(tmp_path: Path) -> None:
    found = _written(tmp_path, Recipe(steps=5, mode="graph"), layers=6)
    assert found.steps.way is Way.ANNOTATION
    assert _answers(found) == {
        Way.ANNOTATION: (5, True),
        Way.GRAPH: (5, True),
        Way.PERIOD: (5, True),
        Way.COUNT: (5, True),
    }


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_without_annotations(tmp_path: Path, mode: str) -> None:
    """T10: sglang before 0.5.11 marks no steps; replays or names do."""
    found = _written(tmp_path, Recipe(steps=6, mode=mode, annotations=None))
    assert found.steps.way is (Way.GRAPH if mode == "graph" else Way.PERIOD)
    assert len(found.steps.whole) == 6
    assert found.verdict is Verdict.FULL_POOL
    assert found.cause is not None
    assert found.cause.group.calls == (6,) * 6
    assert found.cast_us == pytest.approx(6 * 828.2, rel=0.002)


def test_without_annotations_links_or_launches(tmp_path: Path) -> None:
    """T9: kernels of graphs without operator or correlation go by their names."""
    recipe = Recipe(steps=4, mode="graph", annotations=None, correlations=False)
    found = _written(tmp_path, recipe)
    assert found.steps.way is Way.PERIOD
    assert found.verdict is Verdict.FULL_POOL
    assert len(found.steps.whole) == 4


def test_some_kernels_without_a_link(tmp_path: Path) -> None:
    recipe = Recipe(steps=5, defects=frozenset({"unlinked"}))
    found = _written(tmp_path, recipe)
    assert [len(step.kernels) for step in found.steps.whole] == [106] * 5
    assert found.verdict is Verdict.FULL_POOL


def test_by_the_count_of_layers(tmp_path: Path) -> None:
    """Names shuffled in each step have no period: the calls of a known number of layers do."""
    path = tmp_path / "trace.json"
    rng = random.Random(7)
    events = []
    at = 100.0
    for _ in range(40):
        for name in [*rng.sample([f"gemm_{n}" for n in range(9)], 5), "flash_mla_kernel"]:
            events.append({"ph": "X", "cat": "kernel", "name": name, "pid": 0, "ts": at,
                           "dur": 9.0, "args": {"stream": 7}})  # fmt: skip
            at += 10.0
    path.write_text(json.dumps({"traceEvents": events}))
    (found,) = diagnose(path, Asked(Known(layers=8)))
    assert found.steps.way is Way.COUNT
    # A step starts at its first attention here, so that the last one lacks what stood before.
    assert found.steps.seen == 5
    assert len(found.steps.whole) == 4
    assert found.gpu_us == pytest.approx(8 * 6 * 9.0)
    (unknown,) = diagnose(path, Asked())
    assert unknown.steps.way is None
    assert unknown.gpu_us == pytest.approx(40 * 6 * 9.0)


def test_a_partial_first_step_is_cut(tmp_path: Path) -> None:
    """torch can lose the first kernels of a session (pytorch#192021)."""
    found = _written(tmp_path, Recipe(steps=4, partial=40))
    assert len(found.steps.whole) == 4
    assert found.steps.seen == 5
    assert found.steps.dropped == ("the first step: 40 kernels, others have 106",)
    assert found.cast_us == pytest.approx(6 * 828.2, rel=0.002)


def test_a_truncated_file_loses_its_last_step(tmp_path: Path) -> None:
    """T6: all whole events count; the last step that is marked does not, nor what follows."""
    path = tmp_path / "trace.json.tmp"
    truth = write_trace(path, Recipe(steps=4))
    text = path.read_text()
    path.write_text(text[: int(len(text) * 0.9)])
    (found,) = diagnose(path, Asked())
    assert found.health.truncated
    assert len(found.steps.whole) == 2
    assert found.steps.dropped == ("the last step: the trace ends in it",)
    assert found.kernels_read < truth.kernels
    assert found.verdict is Verdict.FULL_POOL


def test_decoding_counts_before_prefill(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write_trace(path, Recipe(steps=4, annotations="step[EXTEND bs=1 tokens=512]"))
    extend = json.loads(path.read_text())["traceEvents"]
    write_trace(path, Recipe(steps=3))
    decode = json.loads(path.read_text())["traceEvents"]
    for event in decode:
        event["ts"] += 1e6
        if "correlation" in event.get("args", {}):
            event["args"]["correlation"] += 1_000_000
    path.write_text(json.dumps({"traceEvents": extend + decode}))
    (found,) = diagnose(path, Asked())
    assert found.steps.label == Label("DECODE", 1)
    assert len(found.steps.whole) == 3
    assert found.steps.others == {Label("EXTEND", 1): 4}
    annotation = found.steps.proofs[0]
    assert (annotation.steps, annotation.agrees) == (7, True)


def test_annotations_on_the_gpu_alone(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write_trace(path, Recipe(steps=4, correlations=False))
    text = path.read_text().replace('"cat": "user_annotation"', '"cat": "other"')
    path.write_text(text)
    (found,) = diagnose(path, Asked())
    assert found.steps.way is Way.ANNOTATION
    assert len(found.steps.whole) == 4


def test_durations_that_overlap(tmp_path: Path) -> None:
    """T8: sums stay, busy time is the union of intervals on each stream."""
    kernels = [
        {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "ts": 100.0 * n + 1, "dur": 120.0,
         "args": {"stream": 7, "device": 0}}
        for n in range(10)
    ]  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": kernels}))
    (found,) = diagnose(path, Asked())
    assert found.busy.summed == pytest.approx(1200.0)
    assert found.busy.per_stream == pytest.approx(1020.0)
    assert found.busy.overlap == pytest.approx(0.15)


def test_streams_may_overlap(tmp_path: Path) -> None:
    kernels = [
        {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "ts": 1.0, "dur": 100.0,
         "args": {"stream": stream, "device": 0}}
        for stream in (7, 20)
    ]  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": kernels}))
    (found,) = diagnose(path, Asked())
    assert (found.busy.overlap, found.busy.union) == (0.0, 100.0)


_HOST = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 1, "dur": 1,
         "pid": 1, "tid": 1, "args": {"correlation": 5}}  # fmt: skip


@pytest.mark.parametrize(
    ("events", "ending", "said"),
    [
        ([], "]}", "array of events is empty"),
        ([_HOST], "]}", "the host launched 1 and none was recorded"),
        ([{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 1}], "]}",
         "only the host was recorded"),
        ([_HOST], ", ", "the file ends before them"),
        ([{"ph": "X", "cat": "kernel", "name": "k", "ts": 0, "dur": 1}], "]}", "no time stamp"),
    ],
)  # fmt: skip
def test_no_kernels_is_refused_with_the_cause(
    tmp_path: Path, events: list[dict[str, object]], ending: str, said: str
) -> None:
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": [' + ", ".join(map(json.dumps, events)) + ending)
    with pytest.raises(TraceError, match=said) as caught:
        diagnose(path, Asked())
    assert caught.value.exit_code == 2


def test_kernels_beyond_the_bound_count_in_totals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rewriter.probes.trace.recording.MOST_KERNELS", 400)
    found = _written(tmp_path, Recipe(steps=8))
    assert found.kernels_read == 8 * 106
    assert len(found.steps.whole) == 3
    assert found.verdict is Verdict.FULL_POOL


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("step[DECODE bs=1]", Label("DECODE", 1)),
        ("step[DECODE bs=32 g_sq=32 g_sk=4096]", Label("DECODE", 32)),
        ("step[EXTEND]", Label("EXTEND")),
        ("step[TARGET_VERIFY bs=4]", Label("TARGET_VERIFY", 4)),
        ("execute_context_0(0)_generation_3(3)", Label("DECODE", 3)),
        ("execute_context_2(900)_generation_0(0)", Label("EXTEND", 2)),
        ("ProfilerStep#7", Label("STEP")),
    ],
)
def test_labels(name: str, label: Label) -> None:
    assert read_label(name) == label


def test_context_of_detailed_annotations() -> None:
    assert context_tokens("step[DECODE bs=32 g_sq=32 g_sk=4096]") == 4096
    assert context_tokens("step[DECODE bs=1]") is None


def test_a_period_of_layers_is_not_the_steps() -> None:
    step = [100, 101, *([1, 2, 3, 4, 5] * 40), 102]
    found = find_period(step * 6)
    assert found == (len(step), 1.0)
    assert boundaries(step * 6, len(step)) == [n * len(step) for n in range(6)]


def test_a_kernel_more_does_not_shift_the_steps() -> None:
    step = [100, 101, *([1, 2, 3, 4, 5] * 40), 102]
    sequence = [*step, *step, 77, *step, *step, *step]
    found = find_period(sequence)
    assert found is not None
    assert found[0] == len(step)
    assert boundaries(sequence, len(step)) == [0, 203, 407, 610, 813]
    within = [*step, *step[:90], 77, *step[90:], *step, *step]
    found = find_period(within)
    assert found is not None
    assert found[0] == len(step)


def test_no_period_in_noise() -> None:
    rng = random.Random(3)
    assert find_period([rng.randrange(40) for _ in range(3000)]) is None
    assert find_period([]) is None
    assert find_period([1]) is None
