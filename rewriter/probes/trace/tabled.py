"""What a key_averages table shows: times and counts, but no launch geometry and no order.

So it can make the fault likely and predict the gain; it cannot prove it, for which F3 is needed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

from rewriter.probes.trace.facts import LARGE, LONGEST_CONTEXT, RATES, Fact, Verdict
from rewriter.probes.trace.families import Family, family_of
from rewriter.probes.trace.findings import Asked
from rewriter.probes.trace.geometry import ROW
from rewriter.probes.trace.known import server_beside
from rewriter.probes.trace.prediction import CAST_RATE, Prediction
from rewriter.probes.trace.problems import TraceError
from rewriter.probes.trace.table import Row, Table, looks_like_table, read_tables
from rewriter.probes.trace.usage import FamilyUse, KernelUse, families_of

# Names are cut at 55 characters: the functor, which tells a cast from an addition, is not there.
_CAST_ROW = re.compile(r"unrolled_elementwise_kernel")
_NEAR = 0.05
_LARGEST_TABLE = 64 << 20
_SNIFFED = 64 << 10


@dataclass(frozen=True)
class TableDiagnosis:
    """What one table shows. Times are microseconds a step, or of all of it without steps.

    Attributes:
        path: the file.
        number: of the table in it, from 1.
        table: as read.
        steps: decode steps, if known; ``steps_by`` says how.
        families: GPU time by family, as far as cut names tell.
        cast: the row that may be the cast.
        eager: whether an operator row repeats it: graphs have none.
        facts: what can be said of F1 to F6.
        verdict: UNDECIDED at most.
        reason: why.
        prediction: the step without it.
    """

    path: Path
    number: int
    table: Table
    steps: int | None
    steps_by: str
    families: tuple[FamilyUse, ...]
    cast: Row | None
    eager: bool
    facts: tuple[Fact, ...]
    verdict: Verdict
    reason: str
    prediction: Prediction | None

    @property
    def share(self) -> float:
        """The cast's part of the GPU time."""
        return self.cast.device_us / self.table.device_us if self.cast else 0.0


def is_table(path: Path) -> bool:
    """Whether a file begins as such a table."""
    try:
        with path.open("rb") as stream:
            return looks_like_table(stream.read(_SNIFFED).decode("utf-8", "replace"))
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from error


def diagnose_table(path: Path, asked: Asked, steps: int | None = None) -> list[TableDiagnosis]:
    """Diagnose each table of a file.

    Raises:
        TraceError: none has device time.
    """
    with path.open("rb") as stream:
        tables = read_tables(stream.read(_LARGEST_TABLE).decode("utf-8", "replace"))
    if not tables:
        raise TraceError(
            f"{path}: the table has no device time: only the host was profiled, or its rows "
            "were cut off"
        )
    return [_diagnosed(path, at, table, asked, steps) for at, table in enumerate(tables, 1)]


def _diagnosed(
    path: Path, number: int, table: Table, asked: Asked, given: int | None
) -> TableDiagnosis:
    known = asked.known.over(server_beside(path))
    rows = [row for row in table.kernels if _CAST_ROW.search(row.name)]
    cast = max(rows, key=lambda row: row.device_us, default=None)
    steps, steps_by = given, "--steps"
    if steps is None:
        steps, steps_by = table.steps, "calls of the step annotation"
    layers = known.attention_layers
    if steps is None and cast is not None and layers:
        steps, steps_by = round(cast.calls / layers) or None, f"{cast.calls} calls / {layers}"
    twin = _twin(table, cast)
    facts = _facts(cast, twin, steps, layers, known.pool) if cast else ()
    verdict, reason = _verdict(table, cast, facts)
    prediction = None
    if cast is not None and verdict is Verdict.UNDECIDED and steps:
        prediction = Prediction(
            step_ms=asked.tpot_ms or table.device_us / steps / 1e3,
            measured=asked.tpot_ms is not None,
            gpu_ms=table.device_us / steps / 1e3,
            cast_ms=cast.device_us / steps / 1e3,
            stays_ms=0.0,
            host_ms=None,
            host_counts=False,
            batch=1,
        )
    families = families_of(_uses(table, cast, verdict, steps or 1))
    return TableDiagnosis(
        path, number, table, steps, steps_by if steps else "not known (--steps N)",
        tuple(families), cast, twin is not None, facts, verdict, reason, prediction,
    )  # fmt: skip


def _twin(table: Table, cast: Row | None) -> Row | None:
    """Return the operator row that repeats the kernel's: there is one in eager mode only."""
    if cast is None:
        return None
    fitting = [
        row
        for row in table.operators
        if row.name == "aten::copy_" and abs(row.device_us - cast.device_us) < 0.1 * cast.device_us
    ]
    return fitting[0] if fitting else None


def _facts(
    cast: Row, twin: Row | None, steps: int | None, layers: int | None, pool: int | None
) -> tuple[Fact, ...]:
    elements = cast.average_us * 1e-6 * CAST_RATE
    rows = elements / ROW
    size = f"about {rows:,.0f} rows of {ROW} by {CAST_RATE / 1e12:.2f} T elements/s"
    if pool:
        size += f", pool {pool:,} ({abs(rows - pool) / pool:.1%} off)"
    shapes = _shapes(twin)
    calls = f"{cast.calls:,} calls"
    if steps:
        calls += f" in {steps} steps = {cast.calls / steps:.3f} a step"
    calls += f", {layers} layers" if layers else ""
    counted = cast.calls / steps == layers if steps and layers else None
    return (
        Fact("F1", "kernel", None, "unrolled_elementwise_kernel<...; the table cuts its functor"),
        Fact("F2", "calls a step = layers", counted, calls),
        Fact("F3", "size = the pool's", None, size),
        Fact(
            "F4",
            "operator's tensors",
            None,
            f"aten::copy_ of {shapes[0]:,} x {shapes[1]}; types not printed" if shapes
            else "no shapes in the table",
        ),
        Fact("F5", "same time in all calls", None, f"{cast.average_us:,.1f} us a call on average"),
        Fact("F6", "rate of a casting copy", _rate_fits(cast, shapes), _rate(cast, shapes)),
    )  # fmt: skip


def _shapes(twin: Row | None) -> tuple[int, int] | None:
    """Return rows and width of a copy's source, if the table was grouped by shapes."""
    if twin is None or not twin.shapes:
        return None
    try:
        source = ast.literal_eval(twin.shapes)[1]
        return prod(source[:-1]), source[-1]
    except (ValueError, SyntaxError, TypeError, IndexError):
        return None  # shapes are cut at 80 characters


def _rate_fits(cast: Row, shapes: tuple[int, int] | None) -> bool | None:
    if shapes is None or not cast.average_us:
        return None
    return RATES[0] <= prod(shapes) / cast.average_us / 1e6 <= RATES[1]


def _rate(cast: Row, shapes: tuple[int, int] | None) -> str:
    if shapes is None or not cast.average_us:
        return "no element count"
    return f"{prod(shapes) / cast.average_us / 1e6:.3f} T elements/s"


def _verdict(table: Table, cast: Row | None, facts: Sequence[Fact]) -> tuple[Verdict, str]:
    share = cast.device_us / table.device_us if cast else 0.0
    if cast is None or share < LARGE:
        return Verdict.NONE, f"casting copies take {share:.1%} of the GPU time"
    if any(fact.key == "F2" and fact.holds is False for fact in facts):
        return Verdict.NONE, "F2: the calls a step are not the layers"
    rows = cast.average_us * 1e-6 * CAST_RATE / ROW
    if rows < (1 - _NEAR) * min(LONGEST_CONTEXT, 65_536):
        return Verdict.NONE, f"a call is too short for a pool: about {rows:,.0f} rows"
    return Verdict.UNDECIDED, (
        "the full-pool KV cast is likely; a table has no launch geometry, which proves it. Give "
        "the trace (export_chrome_trace, or sglang's /stop_profile)"
    )


def _uses(table: Table, cast: Row | None, verdict: Verdict, steps: int) -> list[KernelUse]:
    return [
        KernelUse(
            row.name,
            Family.FULL_CAST
            if row is cast and verdict is Verdict.UNDECIDED
            else family_of(row.name),
            row.calls / steps,
            row.device_us / steps,
        )
        for row in table.kernels
    ]
