"""Profile some decode steps of a running server and look for the cast by its kernel."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path

from rewriter.probes.load.client import LoadError, generate, start_profile
from rewriter.probes.serve.scenarios import prompt


@dataclass(frozen=True)
class Profile:
    """What the kernels of a decode step say.

    Attributes:
        trace: the file.
        steps: whole decode steps in it.
        gpu_us: GPU time a step.
        cast_us: GPU time a step in casts of the whole pool; under CUDA graphs they have no
            operator, so they are known by kernel and launch geometry.
        cast_calls: such casts a step.
    """

    trace: Path
    steps: int
    gpu_us: float
    cast_us: float
    cast_calls: float


def record(url: str, folder: Path, name: str, steps: int = 6) -> Path:
    """Let the server record decode steps of one stream; return the trace, moved to ``folder``.

    Raises:
        LoadError: it does not profile, or writes nothing within a minute.
    """
    place = folder / f"{name}-profile"
    under_way = threading.Event()
    failures: list[LoadError] = []

    def arrived(chunks: int) -> None:
        if chunks == 8:
            under_way.set()

    def stream() -> None:
        try:
            generate(url, prompt(15), 40 + 8 * steps, on_chunk=arrived)
        except LoadError as error:
            failures.append(error)
        under_way.set()

    thread = threading.Thread(target=stream)
    thread.start()
    under_way.wait(120.0)
    try:
        start_profile(url, output_dir=str(place), num_steps=steps)
    finally:
        thread.join()
    if failures:
        raise failures[0]
    return _written(place, folder / f"{name}.trace.json.gz")


def _written(place: Path, target: Path) -> Path:
    size = -1
    for _ in range(120):
        found = next(iter(sorted(place.glob("*.trace.json.gz"))), None)
        if found is not None:
            now = found.stat().st_size
            if now == size and now > 0:
                return found.replace(target)
            size = now
        time.sleep(0.5)
    raise LoadError("stalled", f"{place}: the server wrote no trace within a minute")


def read(trace: Path, pool_rows: int) -> Profile:
    """Count the casts of the whole pool in a trace.

    Args:
        trace: a torch profiler trace of decode steps.
        pool_rows: rows of the pool; a cast of at least 90 % of them is one of the whole pool.
    """
    from rewriter.probes.trace.diagnosis import diagnose
    from rewriter.probes.trace.findings import Asked

    (found,) = diagnose(trace, Asked())
    casts = [
        judgement.group
        for judgement in found.judgements
        if judgement.group.elements is not None
        and judgement.group.elements.count >= 0.9 * pool_rows * 576
    ]
    return Profile(
        trace,
        len(found.steps.whole),
        found.gpu_us,
        sum(group.step_us for group in casts),
        sum(group.calls_a_step for group in casts),
    )
