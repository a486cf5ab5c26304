"""Random sequences of batches, in random modes, on a backend that lives on from step to step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from equivalence_sources import COMPANION, Releases, sources  # noqa: E402
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from rewriter.probes.equivalence.driving import GraphRunner, eager  # noqa: E402
from rewriter.probes.equivalence.externals import ForwardMode as Forward  # noqa: E402
from rewriter.probes.equivalence.externals import Settings  # noqa: E402
from rewriter.probes.equivalence.modes import Expect, Scenario  # noqa: E402
from rewriter.probes.equivalence.serving import Batch, Server, Shape  # noqa: E402
from rewriter.probes.equivalence.verifying import compare, play  # noqa: E402

pytestmark = pytest.mark.wheels

CONTEXT, REQUESTS, LANES, WINDOW = 12, 5, 3, 2

Step = tuple[str, Batch]


@st.composite
def steps(draw: st.DrawFn) -> Step:
    """Draw one step: its mode, and requests with keys to read and tokens to compute."""
    how = draw(st.sampled_from(["decode", "graph", "prefill", "verify", "verify graph"]))
    most = LANES if "graph" in how else 4
    count = draw(st.integers(1, most))
    first = draw(st.integers(0, REQUESTS - count))
    lengths = tuple(draw(st.integers(1, CONTEXT)) for _ in range(count))
    if how in ("decode", "graph"):
        return how, Batch(Forward.DECODE, lengths, first=first)
    if how == "prefill":
        tokens = tuple(draw(st.integers(1, length)) for length in lengths)
        return how, Batch(Forward.EXTEND, lengths, tokens, first)
    overstated = draw(st.integers(0, 3)) if how == "verify" else 0
    return how, Batch(
        Forward.TARGET_VERIFY, lengths, first=first, window=WINDOW, spec="verify",
        overstated=overstated,
    )  # fmt: skip


def serve(plan: list[Step]) -> Callable[[Server], None]:
    """Return what runs a plan on one side; graphs are captured when one is first replayed."""

    def run(server: Server) -> None:
        backend: Any = server.backend()
        graphs: dict[str, GraphRunner] = {}
        like = {
            "graph": Batch(Forward.DECODE, (1,)),
            "verify graph": Batch(Forward.TARGET_VERIFY, (1,), window=WINDOW, spec="verify"),
        }
        owners = {"graph": server.backend(), "verify graph": server.backend()}
        for how, batch in plan:
            if how not in like:
                eager(server, backend, batch)
                continue
            if how not in graphs:
                graphs[how] = GraphRunner(server, owners[how], (LANES, 1), like[how])
            graphs[how].replay(batch)

    return run


@pytest.mark.parametrize("version", ["0.4.8", "0.5.5.post3", "0.5.13", "0.5.22"])
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    plan=st.lists(steps(), min_size=1, max_size=6),
    slots=st.sampled_from([18, 30, 110]),
    shared=st.sampled_from([0, 9]),
    pool_dtype=st.sampled_from([torch.float8_e4m3fn, torch.float8_e5m2]),
    strided=st.booleans(),
)
def test_any_sequence_of_batches(
    version: str,
    plan: list[Step],
    slots: int,
    shared: int,
    pool_dtype: torch.dtype,
    strided: bool,
    release: Releases,
) -> None:
    both = sources(release, version)
    shape = Shape(
        rank=8, rope=4, layers=2, slots=slots, context=CONTEXT, requests=REQUESTS, shared=shared,
        pool_dtype=pool_dtype, strided=strided,
    )  # fmt: skip
    scenario = Scenario(
        "random batches", serve(plan), Expect.FEWER, shape=shape,
        settings=Settings(disable_ragged=True),
    )  # fmt: skip
    row = compare(
        scenario, play(scenario, both.original, None), play(scenario, both.patched, COMPANION)
    )
    assert row.state == "equal", row.detail
