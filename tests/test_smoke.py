"""The smoke test's own logic: on the CPU, against a stand-in of the server's command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from rewriter.errors import TargetError
from rewriter.probes.serve import model, profile, scenarios, server, smoke
from rewriter.probes.serve.smoke import Observed, Profile, Report, Row
from rewriter.report.smoke import as_json, lines

SERVER = Path(__file__).parent / "data" / "stand_in_server"
"""A package ``sglang`` of ours whose ``launch_server`` answers by arithmetic."""


def serving(tmp_path: Path, **changes: object) -> server.Serving:
    values: dict[str, object] = {"name": "graphs", "model": tmp_path / "model", "package": SERVER}
    return server.Serving(**{**values, **changes})  # type: ignore[arg-type]


def test_servers_are_started_asked_and_ended(tmp_path: Path) -> None:
    running = server.start(serving(tmp_path), tmp_path / "logs")
    try:
        assert server.wait(running, 30) > 0
        seen = scenarios.run_all(running.url)
        assert list(seen) == list(scenarios.SCENARIOS)
        assert [len(ids) for ids in seen["interleaved"]] == [24 + 8 * k for k in range(8)]
        assert seen == scenarios.run_all(running.url)
        timing = scenarios.time_stream(running.url, 15, 30, trials=2, warmups=1)
        assert timing.tpot_ms > 0
        assert timing.e2e_ms > 0
    finally:
        server.stop([running])
    assert running.process.poll() is not None


@pytest.mark.parametrize(
    ("attention", "flag", "others"),
    [
        ("flashinfer", "--flashinfer-mla-disable-ragged", "--disable-chunked-prefix-cache"),
        ("fa3", "--disable-chunked-prefix-cache", "--flashinfer-mla-disable-ragged"),
    ],
)
def test_each_backend_is_served_with_a_prefill_that_reads_the_pool(
    tmp_path: Path, attention: str, flag: str, others: str
) -> None:
    line = serving(tmp_path, attention=attention).arguments(30000)
    assert line[line.index("--attention-backend") + 1] == attention
    assert flag in line
    assert others not in line


def test_a_server_that_ends_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    running = server.start(serving(tmp_path, flags=("--fail", "no such model")), tmp_path / "logs")
    with pytest.raises(TargetError, match="no such model"):
        server.wait(running, 30)
    server.stop([running])


def test_the_whole_run_compares_every_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(SERVER))
    monkeypatch.setattr(smoke, "write", lambda folder, shape, weights: folder.mkdir())
    monkeypatch.setattr(profile, "record", lambda url, folder, name: folder / "none")
    seen = iter([8.0, 0.0])
    monkeypatch.setattr(
        profile, "read", lambda trace, rows: Profile(trace, 5, 100.0, 80.0, next(seen))
    )
    report = smoke.run(SERVER, tmp_path, python=sys.executable, modes=["graphs", "draft"])
    assert report.fine
    assert {row.outcome for row in report.rows} == {"equal"}
    assert len(report.rows) == 2 * len(scenarios.SCENARIOS)
    text = "\n".join(lines(report))
    assert max(map(len, text.splitlines())) <= 80
    assert json.loads(json.dumps(as_json(report)))["fine"]


def observed(tokens: scenarios.Tokens, *, steady: bool = True) -> Observed:
    return Observed("graphs", 1.0, {"one": tokens}, frozenset({"one"} if steady else ()))


@pytest.mark.parametrize(
    ("after", "steady", "outcome", "first"),
    [
        (((1, 2), (3, 4)), True, "equal", None),
        (((1, 2), (3, 5)), True, "differs", (1, 1)),
        (((1, 2), (3, 5)), False, "unsteady", (1, 1)),
        (((1,), (3, 4)), True, "differs", (0, 1)),
    ],
)
def test_tokens_are_compared_to_the_first_difference(
    after: scenarios.Tokens, steady: bool, outcome: str, first: tuple[int, int] | None
) -> None:
    before = observed(((1, 2), (3, 4)), steady=steady)
    assert smoke.compare("graphs", before, observed(after)) == [
        Row("graphs", "one", outcome, 4, first)
    ]


def report(*outcomes: str, casts: float = 0.0) -> Report:
    after = Observed("graphs", 1.0, {}, frozenset(), None, Profile(Path(), 5, 1.0, 0.0, casts))
    rows = tuple(Row("graphs", "one", outcome, 4) for outcome in outcomes)
    return Report(1, rows, {}, {"graphs": after})


def test_a_report_is_fine_only_with_equal_tokens_and_no_cast() -> None:
    assert report("equal", "unsteady").fine
    assert not report("equal", "differs").fine
    assert not report("unsteady").fine
    assert not report().fine
    assert not report("equal", casts=8.0).fine


def test_the_reduced_model_keeps_the_cache_row_of_glm5() -> None:
    values = model.config(model.Shape(layers=3, draft_layer=True))
    assert values["kv_lora_rank"] + values["qk_rope_head_dim"] == 576
    assert values["architectures"] == ["GlmMoeDsaForCausalLM"]
    names = [
        name for part in model._parts(model.Shape(layers=3, draft_layer=True)) for name in part
    ]
    assert len(names) == len(set(names))
    assert "model.layers.3.eh_proj.weight" in names
    assert any(name.startswith("model.layers.2.mlp.experts.7.") for name in names)
