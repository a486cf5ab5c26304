"""Arithmetic of an MLA pool. Bytes are bytes; GB is 10^9 and GiB is 2^30 of them, never mixed.

A layer's pool has one row a token, FP8 or BF16; with sparse attention (DSA) there is an index
cache beside it, which stays as it is whatever the KV dtype.
"""

from __future__ import annotations

from dataclasses import dataclass

GB = 1e9
GIB = 2.0**30
MB = 1e6
MIB = 2.0**20


@dataclass(frozen=True)
class Pool:
    """A pool of tokens of one model.

    Attributes:
        tokens: in the pool (its buffer has one page more).
        layers: attention layers.
        row: values of a row (kv_lora_rank + qk_rope_head_dim).
        index_bytes: bytes a token of the index cache, over all layers.
    """

    tokens: int
    layers: int
    row: int
    index_bytes: int = 0

    @property
    def layer_read(self) -> int:
        """Bytes of FP8 that the cast of one layer reads."""
        return self.tokens * self.row

    @property
    def layer_written(self) -> int:
        """Bytes of BF16 that it writes; also its scratch memory while the attention runs."""
        return 2 * self.layer_read

    @property
    def layer_moved(self) -> int:
        """Bytes that the cast of one layer moves."""
        return self.layer_read + self.layer_written

    @property
    def index(self) -> int:
        """Bytes of the index cache."""
        return self.tokens * self.index_bytes

    @property
    def fp8(self) -> int:
        """Bytes of the FP8 pool, without the index cache."""
        return self.layers * self.layer_read

    @property
    def bf16(self) -> int:
        """Bytes that the pool would have in BF16, without the index cache, which stays."""
        return 2 * self.fp8

    @property
    def memory(self) -> int:
        """Bytes of the FP8 pool and its index cache."""
        return self.fp8 + self.index

    @property
    def tokens_bf16(self) -> int:
        """Tokens of a BF16 pool in the same memory."""
        return self.memory // (2 * self.layers * self.row + self.index_bytes)

    @property
    def tokens_shadow(self) -> int:
        """Tokens of an FP8 pool with a BF16 copy beside it in the same memory.

        Always fewer than of a BF16 pool alone: a shadow is never the better choice.
        """
        return self.memory // (3 * self.layers * self.row + self.index_bytes)
