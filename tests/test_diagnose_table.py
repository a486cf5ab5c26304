"""key_averages tables: cut by the dashes, kernels alone added up, the fault likely at most."""

from __future__ import annotations

from pathlib import Path

import pytest

from rewriter.probes.models import MODELS
from rewriter.probes.trace.facts import Verdict
from rewriter.probes.trace.findings import Asked
from rewriter.probes.trace.known import Known
from rewriter.probes.trace.problems import TraceError
from rewriter.probes.trace.table import Table, read_tables
from rewriter.probes.trace.tabled import diagnose_table, is_table

REAL = Path(__file__).parent / "data" / "traces" / "key_averages.txt"
_TITLES = ("Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg",
           "Self CUDA", "Self CUDA %", "CUDA total", "CUDA time avg", "# of Calls")  # fmt: skip
_WIDTHS = (55, *(12,) * 10)
_CAST = "void at::native::unrolled_elementwise_kernel<at::nat..."


def _line(*cells: str) -> str:
    return "  ".join(c.rjust(w) for c, w in zip(cells, _WIDTHS, strict=True)) + "  "


def _row(name: str, cuda: str, average: str, calls: int, cpu: str = "0.000us") -> str:
    return _line(name, "0.00%", cpu, "0.00%", cpu, cpu, cuda, "1.00%", cuda, average, str(calls))


def _text(rows: list[str], total: str = "2.797s", device: str = "CUDA") -> str:
    dashes = "  ".join("-" * width for width in _WIDTHS) + "  "
    header = _line(*(title.replace("CUDA", device) for title in _TITLES))
    footer = f"Self CPU time total: 3.1s\nSelf {device} time total: {total}\n"
    return "\n".join([dashes, header, dashes, *rows, dashes, footer])


def _report(device: str = "CUDA") -> str:
    """The report's table: 30 steps, profiled eagerly; the rest of the kernels in one row."""
    rows = [
        _row("step[DECODE bs=1]", "2.812s", "93.733ms", 30),
        _row("aten::copy_", "1.938s", "828.205us", 2340, "210.000ms"),
        _row(_CAST, "1.938s", "828.205us", 2340),
        _row("Activity Buffer Request", "828.205us", "828.205us", 1, "3.000ms"),
        _row("void cutlass::device_kernel<cutlass::gemm::kernel::G...", "168.000ms", "37us", 4500),
        _row("aten::mm", "0.000us", "0.000us", 9360, "410.000ms"),
        _row("step[DECODE bs=1]", "0.000us", "0.000us", 30, "99.000ms"),
    ]
    return _text(rows, device=device)


def _only(text: str) -> Table:
    (table,) = read_tables(text)
    return table


@pytest.mark.parametrize("device", ["CUDA", "XPU", "HIP"])
def test_the_reports_table(tmp_path: Path, device: str) -> None:
    path = tmp_path / "profile.txt"
    path.write_text("some log\n\n" + _report(device))
    assert is_table(path)
    known = Known(model=MODELS["GLM-5"], pool=495_552)
    (found,) = diagnose_table(path, Asked(known, tpot_ms=95.6))
    assert found.verdict is Verdict.UNDECIDED
    assert found.eager
    assert found.steps == 30
    assert found.share == pytest.approx(0.6929, abs=0.0001)
    assert found.table.device_us == pytest.approx(2.797e6)
    assert found.prediction is not None
    assert found.prediction.cast_ms == pytest.approx(64.60, abs=0.005)
    assert found.prediction.gpu_left_ms == pytest.approx(28.63, abs=0.005)
    assert found.prediction.new_ms == pytest.approx(31.0, abs=0.005)
    facts = {fact.key: fact for fact in found.facts}
    assert facts["F2"].holds is True
    assert "78.000 a step" in facts["F2"].number
    assert "488,8" in facts["F3"].number
    assert "(1.3% off)" in facts["F3"].number
    assert found.prediction.gpu_ms == pytest.approx(0.975 * 95.6, abs=0.05)


def test_a_sum_in_seconds_is_refined_by_its_average() -> None:
    cast = next(row for row in _only(_report()).kernels if row.name == _CAST)
    assert cast.device_us == pytest.approx(2340 * 828.205)


def test_steps_by_layers_or_as_given(tmp_path: Path) -> None:
    path = tmp_path / "profile.txt"
    lines = [line for line in _report().splitlines() if "step[" not in line]
    path.write_text("\n".join(lines))
    (bare,) = diagnose_table(path, Asked())
    assert (bare.steps, bare.prediction) == (None, None)
    (by_layers,) = diagnose_table(path, Asked(Known(layers=78)))
    assert by_layers.steps == 30
    (given,) = diagnose_table(path, Asked(), steps=30)
    assert given.prediction is not None


def test_another_count_is_not_the_fault(tmp_path: Path) -> None:
    path = tmp_path / "profile.txt"
    path.write_text(_report().replace("2340", "2250"))
    (found,) = diagnose_table(path, Asked(Known(model=MODELS["GLM-5"])))
    assert found.verdict is Verdict.NONE
    assert found.reason.startswith("F2")


def test_hidden_rows_show_against_the_total() -> None:
    table = _only(_report())
    assert table.hidden_us == pytest.approx(2.797e6 - 2340 * 828.205 - 168_000, abs=1)


def test_graphs_have_no_operators_row(tmp_path: Path) -> None:
    path = tmp_path / "profile.txt"
    path.write_text("\n".join(x for x in _report().splitlines() if "aten::copy_" not in x))
    (found,) = diagnose_table(path, Asked())
    assert not found.eager


def test_host_only_and_empty_tables_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "profile.txt"
    row = _row("aten::mm", "0.000us", "0.000us", 9, "4.0ms")
    path.write_text(_text([row], total="0.000us"))
    with pytest.raises(TraceError, match="no device time"):
        diagnose_table(path, Asked())


def test_real_tables() -> None:
    """torch 2.11 on an H200: eager and graphs, with and without shapes, and odd names."""
    tables = read_tables(REAL.read_text())
    assert len(tables) == 10
    for table in tables:
        assert table.unreadable == 0
        assert table.summed_us == pytest.approx(table.device_us, rel=2e-4)
    assert [table.steps for table in tables] == [3] * 8 + [1] * 2
    found = diagnose_table(REAL, Asked())
    assert [one.verdict for one in found] == [Verdict.UNDECIDED] * 8 + [Verdict.NONE] * 2
    assert [one.eager for one in found] == [True] * 4 + [False] * 6
    shares = [one.share for one in found[:8]]
    assert shares == pytest.approx([0.9643] * 4 + [0.9611] * 4, abs=0.001)


def test_shapes_give_the_rate() -> None:
    found = diagnose_table(REAL, Asked())[1]
    facts = {fact.key: fact for fact in found.facts}
    assert facts["F4"].number == "aten::copy_ of 495,616 x 576; types not printed"
    assert facts["F6"].number == "0.329 T elements/s"
    assert facts["F6"].holds is True


def test_a_name_with_a_newline_keeps_its_row() -> None:
    odd = read_tables(REAL.read_text())[8]
    names = [row.name for row in odd.rows]
    assert 'we"ird\\p\tx\x01\né' in names
    assert len(odd.kernels) == 1


def test_a_table_that_was_cut_is_read_as_far_as_it_goes() -> None:
    text = _report()
    for cut in range(0, len(text), 61):
        for table in read_tables(text[:cut]):
            assert table.summed_us <= 2.797e6
