"""Time a served GLM-5 over pools, batches and contexts: unpatched, patched, and with BF16 keys.

    python benchmarks/gpu/grid.py --patched DIR --out DIR [--layers 78]

DIR is what ``rewriter apply --output DIR --full`` wrote for the installed sglang. Servers of one
round start at once, live beside each other on one GPU and are asked one after the other. Every
prompt is put into the prefix cache first, so that only decoding is timed: the time per token
after the first, the median over the streams of a batch. No point holds more rows than its pool.
Weights are dummies: the time does not depend on them. Prints a table and writes ``grid.json``.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

from rewriter.probes.load.client import generate
from rewriter.probes.serve import scenarios
from rewriter.probes.serve.model import Shape, write
from rewriter.probes.serve.server import Running, Serving, start, stop, wait

POOL = 495_552
TOKENS = 64
POINTS = (
    (1, 15),
    (8, 15),
    (32, 15),
    (1, 8_000),
    (8, 8_000),
    (32, 8_000),
    (8, 32_000),
    (1, 100_000),
)
FEWER = ((1, 15), (8, 8_000))
ROUNDS = (
    ((POOL, "bf16", POINTS), (POOL, "unpatched", POINTS), (POOL, "patched", POINTS)),
    ((131_072, "unpatched", FEWER), (800_000, "unpatched", FEWER), (800_000, "patched", FEWER)),
)
FLAGS = (
    "--mem-fraction-static", "0.97", "--max-running-requests", "32",
    "--cuda-graph-max-bs", "32", "--cuda-graph-bs", "1", "8", "32",
    "--chunked-prefill-size", "8192",
)  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """Milliseconds per token at one point; ``trials`` are the medians of each repetition."""

    kind: str
    pool: int
    batch: int
    context: int
    tpot_ms: float
    trials: tuple[float, ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patched", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--layers", type=int, default=78)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    model = asked.out / "model"
    write(model, Shape(layers=asked.layers), weights=False)
    found: list[Measured] = []
    for round_ in ROUNDS:
        running: list[Running] = []
        try:
            for pool, kind, _ in round_:
                running.append(start(serving(kind, pool, model, asked.patched), asked.out / "logs"))
            for server, (pool, kind, points) in zip(running, round_, strict=True):
                print(f"{kind}, {pool:,}: ready in {wait(server, 300):.0f} s", flush=True)
                for batch, context in points:
                    found.append(measure(server.url, kind, pool, batch, context))
                    print(line(found[-1]), flush=True)
        finally:
            stop(running)
            rows = [asdict(one) for one in found]
            (asked.out / "grid.json").write_text(json.dumps(rows, indent=1))
    show(found)


def serving(kind: str, pool: int, model: Path, patched: Path) -> Serving:
    """Return one server of the grid."""
    base = Serving(f"{kind}-{pool}", model, dummy=True, pool=pool, flags=FLAGS)
    if kind == "unpatched":
        return base
    return replace(base, package=patched, kv_dtype="auto" if kind == "bf16" else base.kv_dtype)


def measure(url: str, kind: str, pool: int, batch: int, context: int) -> Measured:
    """Time ``batch`` streams that decode together, each after a prompt of its own."""
    assert batch * (context + TOKENS) <= pool
    prompts = [scenarios.prompt(context, 100 * batch + k) for k in range(batch)]
    trials: list[float] = []
    with ThreadPoolExecutor(batch) as threads:
        list(threads.map(lambda ids: generate(url, ids, 2), prompts))
        for _ in range(1 if kind == "unpatched" else 3):
            replies = list(threads.map(lambda ids: generate(url, ids, TOKENS), prompts))
            trials.append(median(r.tpot_ms for r in replies if r.tpot_ms is not None))
    return Measured(kind, pool, batch, context, median(trials), tuple(trials))


def line(one: Measured) -> str:
    """Return a measurement as a line."""
    return (
        f"{one.kind:<10} pool {one.pool:>9,} batch {one.batch:>3} context {one.context:>7,} "
        f"{one.tpot_ms:>9.3f} ms"
    )


def show(found: list[Measured]) -> None:
    """Print the points of the common pool beside each other."""
    kinds = ("unpatched", "patched", "bf16")
    at = {(o.kind, o.pool, o.batch, o.context): o.tpot_ms for o in found}
    print(
        f"{'batch':>5} {'context':>8} " + " ".join(f"{k:>10}" for k in kinds) + "  faster  of BF16"
    )
    for batch, context in POINTS:
        old, new, bf16 = (at[kind, POOL, batch, context] for kind in kinds)
        print(f"{batch:>5} {context:>8,} {old:>10.3f} {new:>10.3f} {bf16:>10.3f} "
              f"{old / new:>7.1f} {new / bf16:>8.3f}")  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
