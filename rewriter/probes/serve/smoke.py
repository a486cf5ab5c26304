"""The smoke test: the same requests to an unpatched and a patched server, compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from rewriter.probes.load.client import LoadError
from rewriter.probes.serve import profile, scenarios
from rewriter.probes.serve.model import Shape, write
from rewriter.probes.serve.profile import Profile
from rewriter.probes.serve.scenarios import Timing, Tokens
from rewriter.probes.serve.server import Running, Serving, start, stop, wait

MODES = ("graphs", "eager", "draft")
"""CUDA graphs, without them, and speculative decoding (with graphs)."""

READY_S = 420.0
"""Seconds a server may take: importing, capturing, and compiling kernels on a fresh machine."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Observed:
    """What one server did.

    Attributes:
        tokens: by scenario.
        repeatable: scenarios that gave the same tokens when asked again; the others compare
            nothing, whatever the reason.
    """

    name: str
    ready_s: float
    tokens: dict[str, Tokens]
    repeatable: frozenset[str]
    timing: Timing | None = None
    profile: Profile | None = None


@dataclass(frozen=True)
class Row:
    """One scenario in one mode.

    Attributes:
        outcome: ``equal``, ``differs``, or ``unsteady`` where the unpatched server's own tokens
            change from one time to the next.
        tokens: how many were compared.
        first: request and position of the first difference.
    """

    mode: str
    scenario: str
    outcome: str
    tokens: int
    first: tuple[int, int] | None = None


@dataclass(frozen=True)
class Report:
    """The whole comparison."""

    pool: int
    rows: tuple[Row, ...]
    before: dict[str, Observed] = field(default_factory=dict)
    after: dict[str, Observed] = field(default_factory=dict)

    @property
    def fine(self) -> bool:
        """Whether no token differs and no cast of the whole pool is left where there was one."""
        profiles = [seen.profile for seen in self.after.values() if seen.profile is not None]
        return (
            bool(self.rows)
            and all(row.outcome != "differs" for row in self.rows)
            and any(row.outcome == "equal" for row in self.rows)
            and all(p.cast_calls == 0 for p in profiles)
        )


def run(
    patched: Path,
    work: Path,
    *,
    python: str,
    modes: Iterable[str] = MODES,
    layers: int = 8,
    pool: int = 495_552,
    gpus: int = 1,
    attention: str = "flashinfer",
    flags: tuple[str, ...] = (),
    say: Say = lambda line: None,
) -> Report:
    """Serve the model unpatched, then patched, in every mode, and compare.

    The servers of one kind live together, but start and are asked one after the other: a server
    sizes its pool by the memory that is free, and nothing shall run beside what is timed.

    Args:
        patched: a directory with the patched package, for PYTHONPATH.
        work: where the model, logs and traces go.
        python: the interpreter that has sglang.
        attention: the servers' attention backend, one that the codemods are about.

    Raises:
        TargetError: a server did not come up.
        LoadError: a server failed while it was asked.
    """
    shape = Shape(layers=layers, draft_layer=True)
    model = work / f"model-{layers}"
    if not (model / "model.safetensors.index.json").exists():
        say(f"writing a model of {layers} layers with seeded random weights")
        write(model, shape, weights=True)
    base = Serving("", model, pool=pool, gpus=gpus, attention=attention, flags=flags)
    servings = [
        replace(base, name=mode, graphs=mode != "eager", draft=mode == "draft") for mode in modes
    ]
    before = _observe(servings, work, python, "unpatched", say)
    after = _observe([replace(s, package=patched) for s in servings], work, python, "patched", say)
    rows = [row for mode in before for row in compare(mode, before[mode], after[mode])]
    return Report(pool, tuple(rows), before, after)


def _observe(
    servings: list[Serving], work: Path, python: str, kind: str, say: Say
) -> dict[str, Observed]:
    running: list[Running] = []
    found: dict[str, Observed] = {}
    try:
        say(f"starting {len(servings)} {kind} server(s): {', '.join(s.name for s in servings)}")
        ready: list[float] = []
        for serving in servings:
            running.append(start(serving, work / "logs" / kind, python))
            ready.append(wait(running[-1], READY_S))
        for server, ready_s in zip(running, ready, strict=True):
            say(f"asking {server.serving.name} ({kind})")
            found[server.serving.name] = observe(server, ready_s, work / "traces" / kind)
    finally:
        stop(running)
    return found


def observe(server: Running, ready_s: float, traces: Path) -> Observed:
    """Ask one server everything, twice; time and profile it where steps are plain decode."""
    first, second = scenarios.run_all(server.url), scenarios.run_all(server.url)
    repeatable = frozenset(name for name in first if first[name] == second[name])
    seen = Observed(server.serving.name, ready_s, first, repeatable)
    if server.serving.draft:
        return seen  # a step gives several tokens: neither comparable nor one kernel sequence
    timing = scenarios.time_stream(server.url, 15, 200)
    traces.mkdir(parents=True, exist_ok=True)
    trace = profile.record(server.url, traces, server.serving.name)
    return replace(seen, timing=timing, profile=profile.read(trace, server.serving.pool))


def compare(mode: str, before: Observed, after: Observed) -> list[Row]:
    """Compare two servers scenario by scenario."""
    rows: list[Row] = []
    for name, old in before.tokens.items():
        new = after.tokens[name]
        count = sum(len(ids) for ids in old)
        first = _first_difference(old, new)
        if first is None:
            rows.append(Row(mode, name, "equal", count))
        else:
            steady = name in before.repeatable
            rows.append(Row(mode, name, "differs" if steady else "unsteady", count, first))
    return rows


def _first_difference(old: Tokens, new: Tokens) -> tuple[int, int] | None:
    for request, (a, b) in enumerate(zip(old, new, strict=True)):
        for position, (x, y) in enumerate(zip(a, b, strict=False)):
            if x != y:
                return request, position
        if len(a) != len(b):
            return request, min(len(a), len(b))
    return None


__all__ = ["MODES", "LoadError", "Observed", "Report", "Row", "compare", "observe", "run"]
