"""Modules in the shapes that FlashAttention's backend has had, release by release: our own text.

Only names are upstream's, because a codemod finds definitions by name. What the modules do, they do
with the stand-ins below, so that a rewritten one can be run: what its kernels are given is written
down and compared with what the original gave them.
"""

from __future__ import annotations

import builtins
from types import SimpleNamespace
from typing import Any

PATH = "sglang/srt/layers/attention/flashattention_backend.py"

HEAD = '''\
from __future__ import annotations

"""Attention over pages of latent rows, one a token."""

import os

from sglang.srt.layers.attention.base import AttentionBackend
from sglang.srt.layers.attention.pages import paged_view

from kernels import flash_attn_with_kvcache


class FlashAttentionBackend(AttentionBackend):
    def __init__(self, model_runner, page_size=4, topk=0):
        super().__init__()

        # The pool and what reads it.
        self.token_to_kv_pool = model_runner.token_to_kv_pool
        self.page_size = page_size
        self.topk = topk
        self.forward_metadata = model_runner.metadata
        self.expanded = model_runner.expanded
'''

WRITE = """
        if save_kv_cache:
            {pool}.set_mla_kv_buffer(
                layer, forward_batch.out_cache_loc, k, k_rope
            )
        metadata = self.forward_metadata
        cascade = forward_batch.spec_info is not None and self.topk > 1
        split = forward_batch.split
"""

CASTS = {
    "one line": """
        keys = {pool}.get_key_buffer(layer.layer_id).to(q.dtype)
""",
    "wrapped": """
        keys = {pool}.get_key_buffer(
            layer.layer_id
        ).to(q.dtype)
""",
    "wrapped behind the cast": """
        keys = {pool}.get_key_buffer(layer.layer_id).to(
            q.dtype
        )
""",
    "two steps": """
        keys = {pool}.get_key_buffer(layer.layer_id)
        assert keys is not None and keys.shape[-1] == 8
        wanted = q.dtype
        keys = keys.to(wanted)
""",
    "keyword": """
        keys = {pool}.get_key_buffer(layer.layer_id).to(dtype=q.dtype)
""",
    "both arms": """
        if layer.layer_id == 0:
            keys = {pool}.get_key_buffer(layer.layer_id).to(q.dtype)
        else:
            keys = {pool}.get_key_buffer(layer.layer_id).to(q.dtype)
""",
    "none": """
        keys = {pool}.get_key_buffer(layer.layer_id)
""",
}

CUTS = {
    "view": """
        ropes = keys[:, :, layer.rank :]
        latent = keys[:, :, : layer.rank]
        rope_pages = ropes.view(-1, self.page_size, 1, layer.width - layer.rank)
        latent_pages = latent.view(
            -1, self.page_size, 1, layer.rank
        )
""",
    "paged_view": """
        ropes = keys[:, :, layer.rank :]
        latent = keys[:, :, : layer.rank]
        rope_pages = paged_view(ropes, self.page_size)
        latent_pages = paged_view(latent, self.page_size)
""",
    "before the slices": """
        pages = keys.view(-1, self.page_size, 1, layer.width)
        rope_pages, latent_pages = pages[..., layer.rank :], pages[..., : layer.rank]
""",
}

TABLES = """
        if layer.local:
            page_table = metadata.local_table
            cache_seqlens = metadata.local_lengths
        else:
            page_table = metadata.page_table
            cache_seqlens = metadata.cache_seqlens
"""

KERNEL = """\
flash_attn_with_kvcache(
{space}    q=q[1],
{space}    k_cache=rope_pages,
{space}    v_cache=latent_pages,
{space}    qv=q[0],
{space}    page_table={table},
{space}    cache_seqlens={lengths},
{space}    causal=not cascade,
{space})
"""


def kernel(indent: int, table: str, lengths: str) -> str:
    """Return a call of the kernel that begins somewhere in a line of this indentation."""
    return KERNEL.format(space=" " * indent, table=table, lengths=lengths)


def ends(table: str, lengths: str, end: str) -> str:
    """Return what follows the cut keys: one kernel or two, or one in a nested function."""
    expand = ("self.expanded.page_table", "self.expanded.cache_seqlens")
    if end == "one":
        return f"        result = {kernel(8, table, lengths)}        return result\n"
    if end == "positional":
        return (
            f"        return flash_attn_with_kvcache(q[1], rope_pages, latent_pages, None, None, "
            f"q[0], None, None, {lengths}, None, None, {table})\n"
        )
    cascade = (
        f"{{0}}result = {kernel(8 if end == 'cascade' else 12, table, lengths)}"
        f"{{0}}if cascade:\n{{0}}    other = "
        f"{kernel(12 if end == 'cascade' else 16, *expand)}"
        f"{{0}}    result = (result, other)\n"
    )
    if end == "cascade":
        return cascade.format("        ") + "        return result\n"
    return (
        "        if split:\n\n"
        "            def attend(lengths):\n"
        f"                return {kernel(16, table, 'lengths')}\n"
        "            result = forward_batch.in_halves(attend)\n        else:\n"
        + cascade.format("            ")
        + "        return result\n"
    )


def backend(
    pool: str = "forward_batch.token_to_kv_pool",
    cast: str = "wrapped",
    cut: str = "view",
    extend: str = "cascade",
    decode: str = "cascade",
    decode_cast: str | None = None,
) -> str:
    """Return a module. The shapes of a release are those of its two methods."""
    arguments = "self, q, k, layer, forward_batch, k_rope=None, save_kv_cache=True"
    methods = []
    for name, tables, where, end in (
        ("extend", TABLES, ("page_table", "cache_seqlens"), extend),
        ("decode", "", ("metadata.page_table", "metadata.cache_seqlens"), decode),
    ):
        chosen = cast if name == "extend" else (decode_cast or cast)
        parts = (WRITE, tables, CASTS[chosen], CUTS[cut])
        body = "".join(part.replace("{pool}", pool)[1:] for part in parts if part)
        methods.append(f"\n    def forward_{name}({arguments}):\n{body}{ends(*where, end)}")
    return HEAD + "".join(methods)


EPOCHS = {
    "0.4.8.post1": {},
    "0.5.14": {"extend": "parallel", "pool": "forward_batch.token_to_kv_pool"},
    "0.5.15": {"extend": "parallel", "pool": "self.token_to_kv_pool", "cast": "one line"},
    "0.5.23": {"extend": "parallel", "pool": "self.token_to_kv_pool", "cut": "paged_view",
               "cast": "wrapped behind the cast", "decode_cast": "one line"},
}  # fmt: skip
"""The shapes of releases, by the first that has them."""


class Rows:
    """Rows of a pool, or of what was made of them: what they are, in words."""

    def __init__(self, log: list[Any], words: str) -> None:
        self.log, self.words = log, words
        self.shape, self.dtype = (16, 1, 8), "bytes"

    def __getitem__(self, place: Any) -> Rows:
        return self

    def view(self, *shape: int) -> Rows:
        return self

    def to(self, dtype: str) -> Rows:
        if "pages of" not in self.words:
            self.log.append(("converted", self.words))
        return Rows(self.log, f"{self.words} as {dtype}")


class Query(str):
    """A query: its parts, and its dtype."""

    dtype = "bf16"

    def __getitem__(self, part: Any) -> str:
        return f"{self}{part}"


def run(
    text: str, method: str, *, layer_id: int = 0, local: bool = False, branches: bool = False,
    split: bool = False,
) -> list[Any]:  # fmt: skip
    """Run one method of a module on stand-ins; return what the kernels and the companion got."""
    log: list[Any] = []

    def attend(q: str, k_cache: Rows, v_cache: Rows, *rest: Any, **named: Any) -> str:
        table = named.get("page_table", rest[-1] if rest else None)
        lengths = named.get("cache_seqlens", rest[5] if rest else None)
        log.append(("kernel", k_cache.words, v_cache.words, table, lengths))
        return "out"

    def pages(
        owner: Any, pool: Rows, table: str, lengths: str, dtype: str, whole: bool = False
    ) -> Rows:
        assert owner.page_size == 4
        log.append(("pages", pool.words, table, lengths, dtype, whole))
        return pool if whole else Rows(log, f"pages of {pool.words}")

    def writer(owner: Any, written: Any) -> Any:
        log.append(("writer",))
        return written

    known = {
        "AttentionBackend": type("AttentionBackend", (), {}),
        "flash_attn_with_kvcache": attend,
        "paged_view": lambda rows, size: rows,
        "_rewriter_kv_gather": SimpleNamespace(
            attach=lambda *given: log.append(("attach", given[1].name)), pages=pages, writer=writer
        ),
    }

    def import_(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] in ("sglang", "kernels"):
            return SimpleNamespace(**known)
        return builtins.__import__(name, *rest)

    module: dict[str, Any] = {"__builtins__": {**vars(builtins), "__import__": import_}}
    exec(compile(text, PATH, "exec", dont_inherit=True), module)
    pool = SimpleNamespace(
        get_key_buffer=lambda layer: Rows(log, f"layer {layer}"),
        set_mla_kv_buffer=lambda *given: log.append(("written", *given[1:])),
    )
    metadata = SimpleNamespace(
        page_table="table", cache_seqlens="lengths", local_table="local table",
        local_lengths="local lengths",
    )  # fmt: skip
    expanded = SimpleNamespace(page_table="branches", cache_seqlens="branch lengths")
    runner = SimpleNamespace(
        name="runner", token_to_kv_pool=pool, metadata=metadata, expanded=expanded
    )
    made = module["FlashAttentionBackend"](runner, topk=2)
    batch = SimpleNamespace(
        token_to_kv_pool=pool, out_cache_loc="places", spec_info=branches or None, split=split,
        in_halves=lambda attend: [attend("first half"), attend("second half")],
    )  # fmt: skip
    layer = SimpleNamespace(layer_id=layer_id, rank=6, width=8, local=local)
    getattr(made, f"forward_{method}")(Query("q"), "k", layer, batch, "rope")
    return log
