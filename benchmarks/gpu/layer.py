"""What one layer of a decode step costs with FP8 keys and the cure, against BF16 keys.

    python benchmarks/gpu/layer.py [--fa3] [--rows 200 8000 65536]

Captures the attention part of many layers in one CUDA graph as sglang runs it: this step's keys
are made, written into the layer's pool by sglang's own kernel, the rows in use are converted, and
the MLA kernel reads them (FlashInfer's, or FlashAttention 3's with ``--fa3``). In between each
layer reads weights, as a model does, which empties the L2 cache. Prints us a layer for BF16 keys
and what the patched layer takes beyond that: the launches and gaps too, not kernel time alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import product
from statistics import median
from types import SimpleNamespace

import torch
from sglang.srt.mem_cache.utils import set_mla_kv_buffer_triton

from codemods.runtime import kv_gather

POOL, RANK, ROPE, HEADS = 495_616, 512, 64, 16
LAYERS, WEIGHTS = 24, 32 * 2**20


def graph_us(step: Callable[[int], object], between: Callable[[], object]) -> float:
    """Return the time of a layer in us: a graph of LAYERS layers, the median of 25 replays."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for layer in range(2):
            between(), step(layer)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for layer in range(LAYERS):
            between(), step(layer)
    times: list[float] = []
    for _ in range(30):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / LAYERS)
    return median(times[5:])


def flashinfer_mla(rows: torch.Tensor) -> Callable[[torch.Tensor], object]:
    """Return FlashInfer's MLA over ``rows``, planned, as a function of the keys."""
    import flashinfer

    count = rows.shape[0]
    workspace = torch.empty(384 * 2**20, dtype=torch.uint8, device="cuda")
    wrapper = flashinfer.mla.BatchMLAPagedAttentionWrapper(workspace, backend="auto")
    steps = torch.tensor([0, 1], dtype=torch.int32, device="cuda")
    wrapper.plan(
        steps, steps * count, rows, steps[1:] * count, HEADS, RANK, ROPE, 1, False, 1 / 16,
        torch.bfloat16, torch.bfloat16,
    )  # fmt: skip
    query = torch.randn(1, HEADS, RANK + ROPE, dtype=torch.bfloat16, device="cuda")
    nope, rope = query[:, :, :RANK].contiguous(), query[:, :, RANK:].contiguous()
    return lambda keys: wrapper.run(nope, rope, keys[:, :, :RANK], keys[:, :, RANK:])


def fa3_mla(rows: torch.Tensor) -> Callable[[torch.Tensor], object]:
    """Return FlashAttention 3's MLA over ``rows`` as pages of 1, as a function of the keys."""
    from sgl_kernel.flash_attn import flash_attn_with_kvcache

    count = rows.shape[0]
    table = rows[None]
    lengths = torch.tensor([count], dtype=torch.int32, device="cuda")
    ends = torch.tensor([0, 1], dtype=torch.int32, device="cuda")
    rope = torch.randn(1, HEADS, ROPE, dtype=torch.bfloat16, device="cuda")
    nope = torch.randn(1, HEADS, RANK, dtype=torch.bfloat16, device="cuda")

    def run(keys: torch.Tensor) -> object:
        return flash_attn_with_kvcache(
            q=rope, k_cache=keys[:, :, RANK:].unsqueeze(1), v_cache=keys[:, :, :RANK].unsqueeze(1),
            qv=nope, page_table=table, cache_seqlens=lengths, cu_seqlens_q=ends, max_seqlen_q=1,
            softmax_scale=1 / 16, causal=True,
        )  # fmt: skip

    return run


class Layers:
    """Pools of all layers, this step's keys, and the steps over them."""

    def __init__(self, count: int, scattered: bool, fa3: bool) -> None:
        """Make pools with ``count`` rows in use, anywhere or one behind the other."""
        width = RANK + ROPE
        self.fp8 = [
            torch.zeros(POOL, 1, width, dtype=torch.float8_e4m3fn, device="cuda")
            for _ in range(LAYERS)
        ]
        self.bf16 = [
            torch.zeros(POOL, 1, width, dtype=torch.bfloat16, device="cuda") for _ in range(LAYERS)
        ]
        self.source = torch.randn(1, 1, width, dtype=torch.bfloat16, device="cuda")
        self.keys = torch.empty_like(self.source)
        self.weights = torch.ones(WEIGHTS // 4, device="cuda")
        self.fa3 = fa3
        self.use(count, scattered)

    def use(self, count: int, scattered: bool) -> None:
        """Take other rows."""
        self.rows = torch.arange(1, count + 1, dtype=torch.int32, device="cuda")
        if scattered:
            self.rows = 1 + torch.randperm(POOL - 1, device="cuda")[:count].to(torch.int32)
        self.loc = self.rows[-1:].long()
        self.count = torch.tensor([count], dtype=torch.int32, device="cuda")
        self.attention = (fa3_mla if self.fa3 else flashinfer_mla)(self.rows)

    def between(self) -> None:
        """Read what a layer reads besides its keys."""
        self.weights.sum()

    def make(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Make this step's keys, by a kernel like the one that turns them (rope)."""
        torch.mul(self.source, 1.0, out=self.keys)
        return self.keys[:, :, :RANK], self.keys[:, :, RANK:]

    def plain(self, layer: int) -> object:
        """Do a layer with BF16 keys."""
        set_mla_kv_buffer_triton(self.bf16[layer], self.loc, *self.make())
        return self.attention(self.bf16[layer])

    def patched(self, layer: int, shared: torch.Tensor) -> object:
        """Do a layer with FP8 keys, as the patched backends do."""
        pool = self.fp8[layer]
        nope, rope = kv_gather.narrow(*self.make())
        set_mla_kv_buffer_triton(
            pool.view(torch.uint8), self.loc, nope.view(torch.uint8), rope.view(torch.uint8)
        )
        if self.fa3:
            backend = SimpleNamespace(page_size=1)
            shared = kv_gather.pages(backend, pool, self.rows[None], self.count, torch.bfloat16)
        else:
            kv_gather.convert(pool, self.rows, self.count, shared, True)
        return self.attention(shared)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fa3", action="store_true")
    parser.add_argument("--rows", type=int, nargs="+", default=[200, 8_000, 65_536])
    asked = parser.parse_args()
    shared = torch.zeros(POOL, 1, RANK + ROPE, dtype=torch.bfloat16, device="cuda")
    layers = Layers(200, False, asked.fa3)
    kv_gather._past_range(shared.device)
    for rows, scattered in product(asked.rows, (False, True)):
        layers.use(rows, scattered)
        plain = graph_us(layers.plain, layers.between)
        empty = graph_us(lambda _: None, layers.between)
        ours = graph_us(lambda layer: layers.patched(layer, shared), layers.between)
        print(
            f"{rows} rows, {'random' if scattered else 'neighbours'}: BF16 {plain - empty:.2f} us,"
            f" patched {ours - plain:+.2f}; the weights between {empty:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
