"""Time one stream of a served GLM-5 on a GPU: unpatched, patched, and with BF16 keys.

    python benchmarks/gpu/serve.py --patched DIR --out DIR [--layers 78] [--prompts 15 8000]
        [--attention-backend fa3] [--page-size 64]

DIR is what ``rewriter apply --output DIR --full`` wrote for the installed sglang, with the codemod
that goes with the backend: ``mla_kv_gather``, or ``fa3_kv_gather`` for fa3. Weights are dummies:
the time does not depend on them. Prints a table and writes ``serve.json``.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

from rewriter.probes.serve import profile, scenarios
from rewriter.probes.serve.model import Shape, write
from rewriter.probes.serve.server import ATTENTION, Running, Serving, start, stop, wait

KINDS = ("unpatched", "patched", "bf16")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patched", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--layers", type=int, default=78)
    parser.add_argument("--pool", type=int, default=495_552)
    parser.add_argument("--prompts", type=int, nargs="+", default=[15, 8000])
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--attention-backend", choices=ATTENTION, default="flashinfer")
    parser.add_argument("--page-size", type=int, default=1)
    parser.add_argument("--eager", action="store_true", help="without CUDA graphs")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    model = asked.out / "model"
    write(model, Shape(layers=asked.layers), weights=False)
    base = Serving(
        "unpatched", model, dummy=True, pool=asked.pool, graphs=not asked.eager,
        attention=asked.attention_backend,
        flags=("--mem-fraction-static", "0.9", "--page-size", str(asked.page_size)),
    )  # fmt: skip
    servings = {
        "unpatched": base,
        "patched": replace(base, name="patched", package=asked.patched),
        "bf16": replace(base, name="bf16", package=asked.patched, kv_dtype="auto"),
    }
    running: list[Running] = []
    rows: list[dict[str, object]] = []
    try:
        for kind in asked.kinds:  # one after the other: a server sizes its pool by free memory
            running.append(start(servings[kind], asked.out / "logs"))
            print(f"{kind}: ready in {wait(running[-1], 420):.0f} s", flush=True)
        for server in running:
            rows.append(measure(server, asked))
    finally:
        stop(running)
        (asked.out / "serve.json").write_text(json.dumps(rows, indent=1))
    show(rows)


def measure(server: Running, asked: argparse.Namespace) -> dict[str, object]:
    """Time every prompt; profile decode steps with the first."""
    name = server.serving.name
    slow = name == "unpatched"  # ten times the time; one trial of half the length tells as much
    tokens, trials = (asked.tokens // 2, 1) if slow else (asked.tokens, asked.trials)
    times = [
        scenarios.time_stream(server.url, n, tokens, trials=trials, warmups=1 if slow else 3)
        for n in asked.prompts
    ]
    for time in times:
        print(f"{name}: prompt {time.prompt}: TPOT {time.tpot_trials}", flush=True)
    trace = profile.record(server.url, asked.out, name, steps=4)
    seen = profile.read(trace, server.serving.pool)
    print(f"{name}: GPU {seen.gpu_us:.0f} us a step, casts {seen.cast_us:.0f} us", flush=True)
    return {
        "kind": name,
        "times": [asdict(time) for time in times],
        "gpu_us": seen.gpu_us,
        "cast_us": seen.cast_us,
        "cast_calls": seen.cast_calls,
    }


def show(rows: list[dict[str, object]]) -> None:
    """Print TPOT by prompt, and the ratios that matter."""
    by_kind = {str(row["kind"]): row for row in rows}
    print(f"{'':<10} " + " ".join(f"prompt {t['prompt']:>6}" for t in rows[0]["times"]))  # type: ignore[attr-defined]
    for kind, row in by_kind.items():
        print(f"{kind:<10} " + " ".join(f"{t['tpot_ms']:>10.3f} ms" for t in row["times"]))  # type: ignore[attr-defined]
    for above, below in (("unpatched", "patched"), ("patched", "bf16")):
        if above in by_kind and below in by_kind:
            pairs = zip(by_kind[above]["times"], by_kind[below]["times"], strict=True)  # type: ignore[call-overload]
            ratios = " ".join(f"{a['tpot_ms'] / b['tpot_ms']:>13.3f}" for a, b in pairs)
            print(f"{above} over {below}: {ratios}")
    if "unpatched" in by_kind and "patched" in by_kind:
        old, new = by_kind["unpatched"], by_kind["patched"]
        saved = (old["times"][0]["tpot_ms"] - new["times"][0]["tpot_ms"]) * 1e3  # type: ignore[index]
        print(f"realised over predicted: {saved:.0f} us of {old['cast_us']:.0f} us of casts, "
              f"{saved / float(old['cast_us']):.3f}")  # type: ignore[arg-type]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
