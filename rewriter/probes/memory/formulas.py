"""Memory and time of an MLA pool. Bytes are bytes, GB is 10^9 and GiB 2^30 of them.

Sources are sglang 0.5.9 where a file is named; times are of one GPU: MLA keeps one row a token
and layer on every tensor-parallel rank, so more ranks make no pool smaller.
"""

from __future__ import annotations

from rewriter.probes.models import Model
from rewriter.probes.trace.prediction import CAST_BYTES, cast_ms, gather_ms

__all__ = [
    "CAST_BYTES",
    "GATHER_LAUNCH_US",
    "cast_ms",
    "cast_scratch",
    "cell",
    "floor_cast_ms",
    "layers_of",
    "memory_for_pool",
    "packed_row",
    "patched_ms",
    "tokens_in",
]

GATHER_LAUNCH_US = 7.3
"""What gather-then-cast costs a layer beside its bytes: 7.17 against 6.60 ms with BF16 KV, 78
layers, 15 rows, CUDA graphs, one H200."""


def layers_of(model: Model, drafts: bool) -> int:
    """Return layers with a KV row: the model's, and its NextN layers if the server drafts."""
    return model.layers + (model.nextn_layers if drafts else 0)


def packed_row(model: Model) -> int:
    """Return bytes of sparse attention's packed FP8 row: values, scales, BF16 rotary part.

    Until 0.5.16 sglang counts 576 bytes for it and allocates 656 (the same file, :47-70).

    ``kv_lora_rank + kv_lora_rank / 128 * 4 + qk_rope_head_dim * 2`` = 656 for 512 + 64
    (srt/model_executor/model_runner_kv_cache_mixin.py:212-249); trtllm keeps plain rows.
    """
    return model.kv_lora_rank + model.kv_lora_rank // 128 * 4 + 2 * model.qk_rope_head_dim


def cell(model: Model, row_bytes: int, drafts: bool = False) -> int:
    """Return bytes a token of the pool on one GPU.

    ``layers * row bytes``, and for sparse attention the index cache, which is FP8 with a float32
    scale for 128 values whatever the KV dtype: ``layers * (index_head_dim + index_head_dim / 128
    * 4)``.

    Args:
        model: its sizes.
        row_bytes: of one layer: row * 1 for FP8, row * 2 for BF16, ``packed_row``.
        drafts: whether the NextN layers have rows too.
    """
    layers = layers_of(model, drafts)
    index = model.index_bytes_per_token * layers // model.layers
    return layers * row_bytes + index


def memory_for_pool(total: float, mem_fraction: float, weights: float) -> float:
    """Return bytes of the pool: ``total * mem_fraction - weights``.

    sglang keeps ``total * (1 - mem_fraction_static)`` free of what is free after loading the
    weights (srt/model_executor/model_runner_kv_cache_mixin.py, profile_max_num_token). The
    driver's own memory, some GiB, is not known here and comes off.
    """
    return total * mem_fraction - weights


def tokens_in(memory: float, cell_bytes: int, page: int = 1) -> int:
    """Return tokens that fit: ``floor(memory / cell)``, down to a whole page."""
    return int(memory // cell_bytes) // page * page


def cast_scratch(model: Model, rows: int) -> int:
    """Return bytes of BF16 that the cast of one layer allocates beside the pool."""
    return rows * model.row * 2


def floor_cast_ms(layers: int, rows: int, width: int, bandwidth: float) -> float:
    """Return ms a step of the cast if memory were its limit, which it is not: 3 B a value.

    Args:
        layers, rows, width: of the pool.
        bandwidth: GB/s.
    """
    return layers * rows * width * CAST_BYTES / bandwidth / 1e6


def patched_ms(layers: int, rows: int, width: int, bandwidth: float) -> float:
    """Return ms a step of gathering and casting the rows a batch reads.

    ``layers * (7.3 us + rows * width * 5 B / bandwidth)``: two kernels' bytes, which is more than
    the one kernel of ``mla_kv_gather`` moves (3 B), at full bandwidth, which it does not reach.

    Args:
        layers, width: of the pool.
        rows: that the batch reads.
        bandwidth: GB/s.
    """
    return layers * GATHER_LAUNCH_US / 1e3 + gather_ms(layers, rows, width, bandwidth)
