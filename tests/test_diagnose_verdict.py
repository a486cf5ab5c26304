"""Verdicts and predictions: the field report, sglang#35291, real traces, near misses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from trace_writer import ISSUE, SEED, Recipe, write_trace

from rewriter.probes.models import MODELS
from rewriter.probes.trace.diagnosis import diagnose
from rewriter.probes.trace.facts import Verdict
from rewriter.probes.trace.families import Family
from rewriter.probes.trace.findings import Asked, Diagnosis
from rewriter.probes.trace.geometry import blocks_of, elements_of
from rewriter.probes.trace.known import Known
from rewriter.probes.trace.pool import GB, GIB, MB, MIB, Pool
from rewriter.probes.trace.prediction import CAST_RATE, cast_ms

TRACES = Path(__file__).parent / "data" / "traces"
GLM5 = Known(model=MODELS["GLM-5"], pool=495_552, page=64)


def _one(path: Path, asked: Asked | None = None) -> Diagnosis:
    (found,) = diagnose(path, asked or Asked(codemods=frozenset({"mla_kv_gather"})))
    return found


def _written(tmp_path: Path, recipe: Recipe, known: Known | None = None) -> Diagnosis:
    path = tmp_path / "trace.json"
    write_trace(path, recipe)
    return _one(path, Asked(known or Known(), codemods=frozenset({"mla_kv_gather"})))


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Diagnosis:
    """Fixture A: the report's profile, with the step that it measured without the profiler."""
    path = tmp_path_factory.mktemp("seed") / "trace.json"
    write_trace(path, SEED)
    return _one(path, Asked(GLM5, tpot_ms=95.6, codemods=frozenset({"mla_kv_gather"})))


def test_the_report_is_reproduced(seed: Diagnosis) -> None:
    assert seed.verdict is Verdict.FULL_POOL
    assert seed.cause is not None
    group = seed.cause.group
    assert group.calls == (78, 78, 78)
    assert group.mean_us == pytest.approx(828.2, abs=0.2)
    assert seed.cast_us / 1e3 == pytest.approx(64.60, abs=0.02)
    assert seed.cause.share == pytest.approx(0.6929, abs=0.0005)
    assert seed.gpu_us / 1e3 == pytest.approx(93.23, abs=0.02)
    assert (seed.gpu_us - seed.cast_us) / 1e3 == pytest.approx(28.63, abs=0.02)


def test_the_reports_rows_come_out_of_the_grid(seed: Diagnosis) -> None:
    assert seed.cause is not None
    assert seed.cause.group.kind.grid == (557_568, 1, 1)
    assert seed.cause.rows == 495_616 == 495_552 + 64
    held = {fact.key: fact.holds for fact in seed.cause.facts}
    assert held == {"F1": True, "F2": True, "F3": True, "F4": True, "F5": True, "F6": True,
                    "F7": True, "F8": None, "F9": None, "F10": None}  # fmt: skip
    assert "75 MoE layers" in next(f.number for f in seed.cause.facts if f.key == "F2")


def test_the_reports_prediction(seed: Diagnosis) -> None:
    prediction = seed.prediction
    assert prediction is not None
    assert prediction.gpu_bound_ms == pytest.approx(31.0, abs=0.03)
    assert prediction.new_ms == pytest.approx(31.0, abs=0.03)
    assert prediction.tokens_after == pytest.approx(32.3, abs=0.05)
    assert prediction.amdahl == pytest.approx(3.256, abs=0.005)
    assert seed.remedies[0].action == "rewriter apply mla_kv_gather"
    smaller = next(r.effect for r in seed.remedies if r.action.startswith("--max-total-tokens"))
    assert smaller == "a step at 202,752: 57.4 ms, 131,072: 48.1 ms, 65,536: 39.5 ms"


def test_the_reports_bytes_are_corrected(seed: Diagnosis) -> None:
    """E3, E5, E6: what is read and what written, GB and GiB apart, the index cache not doubled."""
    pool = seed.pool
    assert pool == Pool(495_552, 78, 576, 10_296)
    assert pool.layer_read / MB == pytest.approx(285.44, abs=0.005)
    assert pool.layer_written / MB == pytest.approx(570.88, abs=0.005)
    assert pool.layer_moved / MB == pytest.approx(856.31, abs=0.005)
    assert pool.layer_moved / MIB == pytest.approx(816.6, abs=0.05)
    assert 78 * pool.layer_moved / GB == pytest.approx(66.8, abs=0.05)
    assert pool.fp8 / GB == pytest.approx(22.264, abs=0.0005)
    assert pool.fp8 / GIB == pytest.approx(20.735, abs=0.0005)
    assert pool.index / GB == pytest.approx(5.102, abs=0.0005)
    assert pool.index / GIB == pytest.approx(4.752, abs=0.0005)
    assert pool.memory / GB == pytest.approx(27.366, abs=0.0005)
    assert pool.memory / GIB == pytest.approx(25.487, abs=0.0005)
    assert pool.bf16 / GB == pytest.approx(44.53, abs=0.005)
    assert pool.bf16 / GIB == pytest.approx(41.47, abs=0.005)
    assert (pool.bf16 + pool.index) / GB == pytest.approx(49.631, abs=0.0005)
    assert (pool.bf16 + pool.index) / GIB == pytest.approx(46.22, abs=0.005)
    assert pool.layer_written / GIB == pytest.approx(0.532, abs=0.0005)
    assert pool.tokens_bf16 == 273_248
    assert pool.tokens_shadow == 188_629


def test_the_report_was_not_limited_by_bandwidth(seed: Diagnosis) -> None:
    """E4: counted bytes over time give the rate; time times bandwidth gives no bytes."""
    limit = next(r for r in seed.rejected if r.hypothesis == "memory bandwidth is the limit")
    assert limit.reason == "1,034 GB/s counted = 58% of 1,792"
    assert cast_ms(78, 202_752, 576, rate=0.345e12) == pytest.approx(26.4, abs=0.05)
    by_time = 828.2e-6 * CAST_RATE / 576
    assert by_time == pytest.approx(488_900, abs=50)
    assert abs(by_time - 495_552) / 495_552 == pytest.approx(0.013, abs=0.001)


def test_the_issues_trace(tmp_path: Path) -> None:
    """Fixture B: 305 launches, fa3, a pool smaller than the longest context."""
    found = _written(tmp_path, ISSUE, Known(model=MODELS["DeepSeek-R1"], pool=131_008, page=64))
    assert found.verdict is Verdict.FULL_POOL
    assert found.cause is not None
    assert found.cause.group.calls == (61,) * 5
    assert found.cause.rows == 131_072
    assert found.cause.holds("F7") is True
    assert found.prediction is not None
    assert found.prediction.step_ms == pytest.approx(31.52, abs=0.01)
    assert found.prediction.new_ms == pytest.approx(17.75, abs=0.02)
    assert found.remedies[0].action == "no codemod for fa3 yet"
    assert any("flashmla" in remedy.action for remedy in found.remedies)


def test_the_issues_pool_must_be_known(tmp_path: Path) -> None:
    found = _written(tmp_path, ISSUE, Known(model=MODELS["DeepSeek-R1"]))
    assert found.verdict is Verdict.UNDECIDED
    assert found.cause is not None
    assert found.cause.holds("F3") is None
    assert "--pool" in found.cause.reason
    assert not found.remedies


@pytest.mark.parametrize(
    ("name", "gpu_us", "cast_us", "share", "steps"),
    [
        ("eager-dummy", 7_689, 6_937, 0.902, 5),
        ("graphs-dummy", 7_747, 6_934, 0.895, 5),
        ("eager-ragged", 7_538, 6_806, 0.903, 5),
        ("v17-eager", 7_529, 6_796, 0.903, 6),
        ("v17-graphs", 7_676, 6_814, 0.888, 6),
    ],
)
def test_real_servers_with_the_fault(
    name: str, gpu_us: float, cast_us: float, share: float, steps: int
) -> None:
    """sglang 0.5.12.post1 and 0.5.17 on an H200, 8 layers, against figures read by hand."""
    found = _one(TRACES / f"trace-{name}.json.gz")
    assert found.verdict is Verdict.FULL_POOL
    assert found.cause is not None
    assert len(found.steps.whole) == steps
    assert found.cause.share == pytest.approx(share, abs=0.005)
    assert found.gpu_us == pytest.approx(gpu_us, rel=0.002)
    assert found.cast_us == pytest.approx(cast_us, rel=0.001)
    assert found.cause.rows == 495_553 == 495_552 + 1
    assert found.cause.group.calls == (8,) * steps
    assert found.cause.holds("F7") is True
    assert found.unattributed == 0.0
    agreed = [proof.agrees for proof in found.steps.proofs if proof.agrees is not None]
    assert agreed == [True] * len(agreed)
    assert len(agreed) == (3 if "graphs" in name else 2)


@pytest.mark.parametrize(
    ("name", "gpu_us"),
    [("eager-random-index", 741), ("eager-random-triton", 717), ("graphs-random-triton", 773)],
)
def test_real_servers_with_the_cure(name: str, gpu_us: float) -> None:
    found = _one(TRACES / f"trace-{name}.json.gz")
    assert found.verdict is Verdict.NONE
    assert found.cause is None
    assert found.prediction is None
    assert not found.remedies
    assert found.gpu_us == pytest.approx(gpu_us, rel=0.005)


@pytest.mark.parametrize("name", ["eager-plain", "eager-stacks", "graph-plain", "graph-shapes"])
def test_the_cast_alone_on_a_gpu(name: str) -> None:
    """Fixture C: 4 layers without attention. With shapes F4 proves it, else the pool's size."""
    path = TRACES / f"{name}.json"
    bare = _one(path)
    assert bare.verdict is (Verdict.FULL_POOL if name == "eager-stacks" else Verdict.UNDECIDED)
    found = _one(path, Asked(Known(layers=4, pool=495_552, page=64)))
    assert found.verdict is Verdict.FULL_POOL
    assert found.cause is not None
    assert found.cause.rows == 495_616
    assert found.cause.share == pytest.approx(0.964 if "eager" in name else 0.961, abs=0.002)
    assert found.cause.group.rate == pytest.approx(0.329e12, rel=0.005)


def test_odd_names_are_healthy() -> None:
    assert _one(TRACES / "odd-names.json").verdict is Verdict.NONE


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize("fault", ["none", "no cast"])
def test_healthy_traces_give_no_verdict(tmp_path: Path, mode: str, fault: str) -> None:
    """Fixture D, with and without knowledge of the server."""
    recipe = Recipe(steps=4, mode=mode, fault=fault, shapes=mode == "eager")
    for known in (Known(), replace(GLM5, layers=6)):
        found = _written(tmp_path, recipe, known)
        assert found.verdict is Verdict.NONE
        assert found.prediction is None


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize(
    ("fault", "elements"),
    [
        ("experts", None),  # as large as the pool, once in each MoE layer
        ("experts", 256 * 2048 * 6144 // 8),  # a layer's experts
        ("weights", 6144 * 16384),  # 174,762 rows would fit: more than one context of DeepSeek's
        ("weights", 2048 * 131_072),  # 466,033 rows would fit
    ],
)
def test_near_misses_give_no_verdict(
    tmp_path: Path, fault: str, elements: int | None, mode: str
) -> None:
    """Fixture E: copies that are large, and casts, and not the pool's."""
    recipe = Recipe(steps=3, fault=fault, elements=elements, mode=mode)
    for known in (
        Known(),
        Known(layers=6),
        Known(model=MODELS["DeepSeek-R1"], layers=6),
        Known(model=MODELS["GLM-5"], layers=6, pool=495_552, page=64),
    ):
        found = _written(tmp_path, recipe, known)
        assert found.verdict is Verdict.NONE
        assert found.judgements[0].share > 0.5


def test_quantising_is_another_kernel(tmp_path: Path) -> None:
    """bf16 -> fp8 on write has a kernel of its own, and is told as looked for."""
    found = _written(tmp_path, Recipe(fault="no cast"))
    reasons = {r.hypothesis: r.reason for r in found.rejected}
    assert reasons["KV quantised on write"].startswith("6 calls, 0.022 ms a step")
    assert reasons["strided copies"].startswith("6 calls")
    families = {use.family for use in found.families}
    assert Family.QUANTISE in families
    assert Family.FULL_CAST not in families


def test_a_whole_index_buffer_is_not_the_pool(tmp_path: Path) -> None:
    """One longest context a layer: what a cure inside a CUDA graph may leave behind."""
    recipe = Recipe(elements=202_752 * 576, cast=340.0, mode="graph")
    found = _written(tmp_path, recipe, Known(model=MODELS["GLM-5"], layers=6))
    assert found.verdict is Verdict.NONE
    number = next(f.number for f in found.judgements[0].facts if f.key == "F3")
    assert "228,096 blocks" in number
    assert "index buffer" in number


def test_stacks_name_file_and_function(tmp_path: Path) -> None:
    found = _written(tmp_path, Recipe(stack=3, launch=20.0))
    assert found.cause is not None
    fact = next(fact for fact in found.cause.facts if fact.key == "F8")
    assert fact.holds is True
    assert fact.number == "flashinfer_mla_backend.py: forward_decode (6 of 6)"


def test_a_graphs_external_id_is_not_believed(tmp_path: Path) -> None:
    """Until 2024-10 kineto gave a graph's kernels ids that hit foreign operators."""
    path = tmp_path / "trace.json"
    write_trace(path, Recipe(mode="graph"))
    text = path.read_text().replace('"queued": 0,', '"queued": 0, "External id": 5,')
    foreign = ('{"ph": "X", "cat": "cpu_op", "name": "aten::copy_", "ts": 1, "dur": 1, "pid": 1, '
               '"args": {"External id": 5, "Input type": ["c10::BFloat16", "c10::Float8_e4m3fn"], '
               '"Input Dims": [[7, 9], [7, 9]]}},')  # fmt: skip
    path.write_text(text.replace('"traceEvents": [', f'"traceEvents": [{foreign}'))
    found = _one(path)
    assert found.cause is not None
    assert found.cause.holds("F4") is None


def test_the_host_is_a_floor_unless_stacks_were_recorded(tmp_path: Path) -> None:
    recipe = Recipe(steps=4, launch=40.0)
    slow = _written(tmp_path, recipe).prediction
    assert slow is not None
    assert slow.host_bound
    assert slow.new_ms == pytest.approx(min(slow.host_ms or 0, slow.step_ms))
    assert slow.gpu_bound_ms < slow.new_ms
    stacked = _written(tmp_path, replace(recipe, stack=2)).prediction
    assert stacked is not None
    assert not stacked.host_counts
    assert stacked.new_ms == pytest.approx(stacked.gpu_bound_ms)


def test_what_stays_depends_on_the_context(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write_trace(path, Recipe())
    found = _one(path, Asked(Known(), context=500))
    assert found.prediction is not None
    # E12: 500 rows of 576 at 5 bytes are 1.4 MB, below a microsecond a layer.
    assert 0 < found.prediction.stays_ms / 6 < 0.001


def test_elements_of_a_geometry() -> None:
    name = "unrolled_elementwise_kernel<x, std::array<char*, 2ul>, 4, T>"
    found = elements_of(name, (557_568, 1, 1), (128, 1, 1))
    assert found is not None
    assert (found.rows, found.count) == (495_616, 285_474_816)
    assert elements_of(name, (), ()) is None
    for rows in (1, 215, 131_072, 202_752, 495_553, 862_001):
        back = elements_of(name, (blocks_of(rows), 1, 1), (128, 1, 1))
        assert back is not None
        assert back.rows == rows
    odd = elements_of(name, (9, 1, 1), (128, 1, 1))
    assert odd is not None
    assert odd.rows == 8
    none = elements_of(name, (10, 1, 1), (128, 1, 1))
    assert none is not None
    assert none.rows is None or none.least <= none.rows * 576 <= none.most


def test_eight_layers_need_no_model() -> None:
    """F2 counts MLA attention where nobody names a model."""
    found = _one(TRACES / "trace-graphs-dummy.json.gz")
    assert found.cause is not None
    fact = next(fact for fact in found.cause.facts if fact.key == "F2")
    assert fact.holds is True
    assert fact.number == "8 a step in 5 steps, 8 attention kernels a step, 5 MoE layers"
