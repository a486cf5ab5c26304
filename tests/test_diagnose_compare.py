"""Before and after: realised over predicted, and what could explain the rest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from trace_writer import SEED, Recipe, write_trace

from rewriter.probes.models import MODELS
from rewriter.probes.trace.comparison import Comparison, compare
from rewriter.probes.trace.diagnosis import diagnose
from rewriter.probes.trace.families import Family
from rewriter.probes.trace.findings import Asked, Diagnosis
from rewriter.probes.trace.known import Known

TRACES = Path(__file__).parent / "data" / "traces"


def _real(name: str) -> Diagnosis:
    (found,) = diagnose(TRACES / f"trace-{name}.json.gz", Asked())
    return found


def _written(tmp_path: Path, recipe: Recipe, name: str = "trace.json") -> Diagnosis:
    path = tmp_path / name
    write_trace(path, recipe)
    known = Known(model=MODELS["GLM-5"], layers=recipe.layers, pool=recipe.pool)
    (found,) = diagnose(path, Asked(known))
    return found


def _fitting(found: Comparison) -> set[str]:
    return {hypothesis.name for hypothesis in found.hypotheses if hypothesis.fits}


def test_graphs_on_a_real_server() -> None:
    found = compare(_real("graphs-dummy"), _real("graphs-random-triton"))
    assert found.step_before_ms == pytest.approx(7.75, abs=0.01)
    assert found.step_after_ms == pytest.approx(2.92, abs=0.01)
    assert found.cast_ms == pytest.approx(6.934, abs=0.001)
    assert found.realised_gpu == pytest.approx(1.006, abs=0.001)
    assert found.realised is not None
    assert 0.7 < found.realised < 0.9
    assert _fitting(found) == {"the host sets the pace"}
    assert [use.family for use in found.vanished] == [Family.FULL_CAST]
    assert [use.name for use in found.new] == ["_gather_cast_kernel"]
    assert found.cautions == ()


def test_eager_on_a_real_server_is_the_hosts() -> None:
    """The GPU's time goes down by the whole cast; the step does not, and none was predicted."""
    found = compare(_real("eager-dummy"), _real("eager-random-triton"))
    assert found.realised is None
    assert found.realised_gpu == pytest.approx(1.005, abs=0.002)
    assert found.hypotheses == ()


def test_two_releases_have_nothing_to_realise() -> None:
    found = compare(_real("graphs-random-triton"), _real("graphs-random-triton"))
    assert (found.cast_ms, found.predicted_ms, found.realised) == (0.0, 0.0, None)
    assert found.vanished == found.new == ()


def test_the_reports_shortfall(tmp_path: Path) -> None:
    """A third of the prediction; a whole index buffer, still cast, would take what was seen."""
    path = tmp_path / "trace.json"
    write_trace(path, SEED)
    known = Known(model=MODELS["GLM-5"], pool=495_552, page=64)
    (before,) = diagnose(path, Asked(known, tpot_ms=95.6))
    found = compare(before, None, (95.6, 74.03))
    assert found.realised_ms == pytest.approx(21.57)
    assert found.realised == pytest.approx(0.334, abs=0.001)
    assert found.unexplained_ms == pytest.approx(43.0, abs=0.05)
    assert found.step_before_ms / found.step_after_ms == pytest.approx(1.291, abs=0.001)
    host, buffer = found.hypotheses
    assert (host.fits, buffer.fits) == (None, True)
    assert host.number.startswith("28.6 ms of GPU time would leave 61% of 74.0 ms idle")
    assert buffer.number == "202,752 rows a layer: 70-78 ms predicted"


def test_the_issues_fix_realised_all(tmp_path: Path) -> None:
    before = replace(SEED, steps=2, layers=61, dense=3, pool=131_072, page=0, cast=225.7,
                     other_ms=16.6, step_ms=31.52, launch=4.0, backend="flashinfer")  # fmt: skip
    old = _written(tmp_path, before)
    new = _written(tmp_path, replace(before, fault="no cast", step_ms=17.68), "after.json")
    found = compare(old, new)
    assert found.predicted_ms == pytest.approx(13.77, abs=0.01)
    assert found.realised == pytest.approx(1.005, abs=0.002)
    assert found.hypotheses == ()


def test_an_index_buffer_in_the_trace_after(tmp_path: Path) -> None:
    recipe = Recipe(steps=3, mode="graph", step_ms=7.4)
    old = _written(tmp_path, recipe)
    left = replace(recipe, elements=202_752 * 576, cast=338.0, step_ms=4.5)
    found = compare(old, _written(tmp_path, left, "after.json"))
    assert "a whole index buffer is still cast" in _fitting(found)
    text = next(h.number for h in found.hypotheses if "index buffer" in h.name)
    assert text == "202,752 rows cast in 6 calls a step"


def test_a_part_that_remains(tmp_path: Path) -> None:
    old = _written(tmp_path, Recipe(steps=3, mode="graph", step_ms=7.4))
    new = _written(tmp_path, Recipe(steps=3, mode="graph", step_ms=7.3, seed=2), "after.json")
    found = compare(old, new)
    assert "a part of the cast remains" in _fitting(found)
    assert found.realised == pytest.approx(0.02, abs=0.01)


def test_other_work_that_became_slower(tmp_path: Path) -> None:
    old = _written(tmp_path, Recipe(steps=3, mode="graph", step_ms=7.4))
    slow = Recipe(steps=3, mode="graph", fault="no cast", other_ms=5.2, step_ms=5.4)
    found = compare(old, _written(tmp_path, slow, "after.json"))
    assert "other work became slower" in _fitting(found)


def test_other_machines_and_batches_are_cautioned(tmp_path: Path) -> None:
    old = _written(tmp_path, Recipe())
    other = Recipe(fault="no cast", device="NVIDIA H200", annotations="step[DECODE bs=8]")
    found = compare(old, _written(tmp_path, other, "after.json"))
    assert [caution.split(" differ")[0] for caution in found.cautions] == ["GPU", "steps"]


def test_a_bf16_pool_is_the_control(tmp_path: Path) -> None:
    """F10: 0 such launches with a BF16 KV cache."""
    old = _written(tmp_path, Recipe())
    new = _written(tmp_path, Recipe(fault="no cast"), "after.json")
    fp8 = replace(old, known=replace(old.known, kv_dtype="fp8_e4m3"))
    bf16 = replace(new, known=replace(new.known, kv_dtype="bfloat16"))
    (caution,) = compare(fp8, bf16).cautions
    assert caution.endswith("bfloat16 after (the control: no cast there, as F10 asks)")
