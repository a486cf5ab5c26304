"""What the companion costs a server that it leaves alone: BF16 keys, so nothing to convert.

    python benchmarks/untouched.py

CPU time of each of its functions with a pool in the query's dtype, in us: the median of 15 rounds
of 20,000 calls, less an empty call. Under CUDA graphs only ``plan`` runs, once a step; without
graphs the others run once a layer.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import process_time
from types import SimpleNamespace

import torch

from codemods.runtime import kv_gather


def call_us(call: Callable[[], object], calls: int = 20_000) -> float:
    """Return the CPU time of one call in us."""
    rounds: list[float] = []
    for _ in range(15):
        start = process_time()
        for _ in range(calls):
            call()
        rounds.append((process_time() - start) / calls * 1e6)
    return median(rounds)


def main() -> None:
    """Print the table."""
    keys = torch.zeros(64, 1, 576, dtype=torch.bfloat16)
    config = SimpleNamespace(kv_lora_rank=512, qk_rope_head_dim=64)
    pool = SimpleNamespace(kv_buffer=[keys], dtype=keys.dtype)
    backend = SimpleNamespace(page_size=1)
    runner = SimpleNamespace(model_config=config, token_to_kv_pool=pool, dtype=keys.dtype)
    kv_gather.attach(backend, runner)
    assert backend._kv_gather_pool is None
    wrapper = SimpleNamespace(_use_cuda_graph=True)
    rows, ends = torch.zeros(32, dtype=torch.int32), torch.tensor([0, 32], dtype=torch.int32)
    table, lengths = rows[None], ends[1:]
    empty = call_us(lambda: None)
    calls: dict[str, Callable[[], object]] = {
        "plan": lambda: kv_gather.plan(wrapper, rows, ends, backend),
        "gather": lambda: kv_gather.gather(wrapper, keys, keys.dtype),
        "pages": lambda: kv_gather.pages(backend, keys, table, lengths, keys.dtype),
        "writer": lambda: kv_gather.writer(backend, main),
    }
    for name, call in calls.items():
        print(f"{name:<8} {call_us(call) - empty:.2f} us")


if __name__ == "__main__":
    main()
