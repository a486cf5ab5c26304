"""Sources in the shape of flashattention_backend.py, put together from spellings: all our own text.

Every source runs: ``play`` serves two batches with a small FP8 pool in torch, plain and split, and
writes down what the kernel was handed for each request, and what of the pool was converted.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import generated_mla
import torch
from generated_mla import CKV, KPE, Q_PART, ROPE_PART, WHOLE
from generating import Conversions, Played, Shape, bits, executed, indented, renamed

PATH = "sglang/srt/layers/attention/flashattention_backend.py"

PAGE, ROWS = 4, 64
"""A batch lists 4 pages of the pool's 16 at most, so that a conversion of the whole is told from
one of what is read."""

MODULE = """\
from __future__ import annotations

import contextlib
from functools import partial

import torch
from kernels import flash_attn_with_kvcache

from sglang.srt.layers.attention.base import AttentionBackend
from sglang.srt.layers.attention.pages import paged_view


def same(function):
    return function


{module}


class FlashAttentionBackend(AttentionBackend):
    {class_start}

{constructor}
{extend_decorator}    def forward_extend(
        self, q, k, v, layer, forward_batch, save_kv_cache=True, q_rope=None, k_rope=None
    ):
        if save_kv_cache and k is not None:
{write}
        metadata = self.forward_metadata
        split = forward_batch.split
{extend}
        return o.view(-1, layer.head_num * layer.v_head_dim)

{decode_decorator}    def forward_decode(
        self, q, k, v, layer, forward_batch, save_kv_cache=True, q_rope=None, k_rope=None
    ):
        metadata = self.forward_metadata
        split = forward_batch.split
{decode}
        return o.view(-1, layer.head_num * layer.v_head_dim)

{class_end}


{module_end}


def keys_of(pool, q):
    return pool.to(q.dtype)


def attend(*parts, **named):
    return flash_attn_with_kvcache(*parts, **named)


def tables_of(metadata):
    return metadata.page_table, metadata.cache_seqlens


def moved(table):
    table[0, 0] = 9
"""

CASTS = {
    name: code
    for name, code in generated_mla.CASTS.items()
    # views are spelled below, and a body may hold two conversions
    if name not in ("viewed by rows behind", "context parallel", "global")
}

ROPES, LATENT = "k_buf[:, :, layer.v_head_dim :]", "k_buf[:, :, : layer.v_head_dim]"
VIEW = "view(-1, self.page_size, 1, {width})"
ROPE_VIEW, LATENT_VIEW = VIEW.format(width=KPE), VIEW.format(width=CKV)
PLAIN_CUT = f"""\
ropes, latent = {ROPES}, {LATENT}
rope_pages = ropes.{ROPE_VIEW}
latent_pages = latent.{LATENT_VIEW}"""

CUTS = {
    "plain": PLAIN_CUT,
    "at once": f"rope_pages = {ROPES}.{ROPE_VIEW}\nlatent_pages = {LATENT}.{LATENT_VIEW}",
    "a pair": f"rope_pages, latent_pages = {ROPES}.{ROPE_VIEW}, {LATENT}.{LATENT_VIEW}",
    "wrapped": PLAIN_CUT.replace("(-1, self", "(\n    -1,  # pages\n    self"),
    "reshape": PLAIN_CUT.replace(".view(", ".reshape("),
    "contiguous": PLAIN_CUT.replace(".view(", ".contiguous().view("),
    "contiguous behind": PLAIN_CUT.replace(f"1, {KPE})", f"1, {KPE}).contiguous()"),
    "a function": f"rope_pages = paged_view({ROPES}, self.page_size)\n"
    f"latent_pages = paged_view({LATENT}, self.page_size)",
    "a function, in brackets": f"rope_pages = (paged_view(({ROPES}), (self.page_size)))\n"
    f"latent_pages = paged_view(\n    {LATENT},\n    self.page_size,\n)",
    "a function, by keyword": f"rope_pages = paged_view({ROPES}, size=self.page_size)\n"
    f"latent_pages = paged_view({LATENT}, size=self.page_size)",
    "a function, all by keyword": f"rope_pages = paged_view(size=self.page_size, rows={ROPES})\n"
    f"latent_pages = paged_view(size=self.page_size, rows={LATENT})",
    "a function in a local": f"cut = paged_view\nrope_pages = cut({ROPES}, self.page_size)\n"
    f"latent_pages = cut({LATENT}, self.page_size)",
    "a function of a partial": f"cut = partial(paged_view, {ROPES})\n"
    f"rope_pages = cut(self.page_size)\nlatent_pages = paged_view({LATENT}, self.page_size)",
    "before the slices": f"pages = k_buf.{VIEW.format(width=CKV + KPE)}\n"
    f"rope_pages, latent_pages = pages[..., {CKV}:], pages[..., :{CKV}]",
    "all of it": f"keys = k_buf[:]\nrope_pages = keys[..., {CKV}:].{ROPE_VIEW}\n"
    f"latent_pages = keys[..., :{CKV}].{LATENT_VIEW}",
    "both arms": f"if layer.layer_id:\n{indented(PLAIN_CUT, 4)}\nelse:\n{indented(PLAIN_CUT, 4)}",
    "walrus": f"assert (rope_pages := {ROPES}.{ROPE_VIEW}) is not None\n"
    f"latent_pages = {LATENT}.{LATENT_VIEW}",
    "with": f"with torch.no_grad():\n{indented(PLAIN_CUT, 4)}",
    "size in a local": "size = self.page_size\n" + PLAIN_CUT.replace("self.page_size", "size"),
    "number of pages told": PLAIN_CUT.replace("(-1,", "(k_buf.shape[0] // self.page_size,"),
    "size left open": PLAIN_CUT.replace("(-1, self.page_size,", "(k_buf.shape[0] // 4, -1,"),
    "pages of another size": PLAIN_CUT.replace("self.page_size", "self.page_size // 2"),
    "cut twice": f"{PLAIN_CUT}\nrope_pages = rope_pages.{ROPE_VIEW}",
    "pages cut": f"{PLAIN_CUT}\nrope_pages = rope_pages[: len(rope_pages)]",
    "rows cut": PLAIN_CUT.replace("k_buf[:, :, l", "k_buf[: k_buf.shape[0], :, l"),
    "copied": f"{PLAIN_CUT}\nrope_pages = rope_pages.clone()",
    "kept": f"{PLAIN_CUT}\nself.pages = rope_pages",
    "changed": f"{PLAIN_CUT}\nrope_pages.mul_(1)",
    "split by torch": f"latent, ropes = torch.split(k_buf, [{CKV}, {KPE}], dim=-1)\n"
    f"rope_pages, latent_pages = ropes.{ROPE_VIEW}, latent.{LATENT_VIEW}",
    "narrowed": f"latent, ropes = k_buf.narrow(-1, 0, {CKV}), k_buf.narrow(-1, {CKV}, {KPE})\n"
    f"rope_pages, latent_pages = ropes.{ROPE_VIEW}, latent.{LATENT_VIEW}",
    "view by name": f"rope_pages = getattr({ROPES}, 'view')(-1, self.page_size, 1, {KPE})\n"
    f"latent_pages = {LATENT}.{LATENT_VIEW}",
    "half of another buffer": f"{PLAIN_CUT}\nlatent_pages = latent_pages.new_zeros((16, 4, 1, 6))",
    "another buffer at times": f"{PLAIN_CUT}\nif layer.layer_id:\n    rope_pages = self.ropes",
}  # fmt: skip

QUERY = f"q={ROPE_PART}, qv={Q_PART}"
TABLE = "page_table=TABLE, cache_seqlens=LENGTHS"
CALL = (
    f"flash_attn_with_kvcache({QUERY}, k_cache=rope_pages, v_cache=latent_pages, {TABLE}, "
    "causal=True)"
)
OTHER = CALL.replace("TABLE", "metadata.other_table").replace("LENGTHS", "metadata.other_lengths")

KERNELS = {
    "plain": f"o = {CALL}",
    "one argument a line": "o = " + CALL.replace("(q=", "(\n    q=").replace(", k_cache", ",\n    "
    "k_cache").replace(", page_table", ",  # keys\n    page_table"),
    "in another order": f"o = flash_attn_with_kvcache({TABLE}, v_cache=latent_pages, {QUERY}, "
    "k_cache=rope_pages)",
    "positional": f"o = flash_attn_with_kvcache({ROPE_PART}, rope_pages, latent_pages, None, None, "
    f"{Q_PART}, None, None, LENGTHS, None, None, TABLE)",
    "half and half": f"o = flash_attn_with_kvcache({ROPE_PART}, rope_pages, latent_pages, "
    f"qv={Q_PART}, {TABLE})",
    "with a result of two": "o = " + CALL.replace("causal", "return_softmax_lse=True, causal")
    + "\no, lse = o",
    "with an output": f"o = torch.empty_like({Q_PART})\no = "
    + CALL.replace("causal=True", "out=o"),
    "by another module": "o = " + CALL.replace("flash_attn", "self.kernels.flash_attn"),
    "a local of its name": "flash_attn_with_kvcache = self.kernels.flash_attn_with_kvcache\no = "
    + CALL,
    "own keys": "o = " + CALL.replace("causal=True", "k=k"),
    "own keys of none": "o = " + CALL.replace("causal=True", "k=None"),
    "padding told": "o = " + CALL.replace("causal=True", "cache_leftpad=LENGTHS"),
    "a dictionary": "more = dict(causal=True)\no = " + CALL.replace("causal=True", "**more"),
    "all in a dictionary": "more = dict(k_cache=rope_pages, v_cache=latent_pages)\n"
    f"o = flash_attn_with_kvcache({QUERY}, {TABLE}, **more)",
    "starred": f"more = (rope_pages, latent_pages)\no = flash_attn_with_kvcache({ROPE_PART}, *more,"
    f" qv={Q_PART}, {TABLE})",
    "in a local": "kernel = flash_attn_with_kvcache\no = " + CALL.replace("flash_attn_with_kvcache",
    "kernel"),
    "of a partial": f"kernel = partial(flash_attn_with_kvcache, {QUERY})\no = kernel("
    f"k_cache=rope_pages, v_cache=latent_pages, {TABLE})",
    "through a helper": "o = " + CALL.replace("flash_attn_with_kvcache", "attend"),
    "nested function": f"def attention():\n    return {CALL}\no = attention()",
    "lambda": f"o = (lambda: {CALL})()",
    "comprehension": f"(o,) = [{CALL} for _ in range(1)]",
    "table of a comprehension": "(o,) = [" + CALL.replace("TABLE", "table")
    + " for table in (TABLE,)]",
    "loop of two": f"for _ in range(2):\n    o = {CALL}",
    "loop over tables": "for table in (TABLE, metadata.other_table):\n    o = "
    + CALL.replace("TABLE", "table"),
    "try, finally": f"try:\n    o = {CALL}\nfinally:\n    self.calls += 1",
    "try, another table": f"try:\n    o = {CALL}\nexcept ValueError:\n    o = {OTHER}",
    "with": f"with torch.no_grad():\n    o = {CALL}",
    "returned at once": f"return {CALL}.view(-1, layer.head_num * layer.v_head_dim)",
    "twice": f"o = {CALL}\no = {CALL}",
    "twice, another table": f"o = {CALL}\nother = {OTHER}",
    "another at times": f"o = {CALL}\nif split:\n    other = {OTHER}",
    "another at times, first": f"if split:\n    other = {OTHER}\no = {CALL}",
    "another instead": f"if split:\n    o = {OTHER}\nelse:\n    o = {CALL}",
    "another instead, returned": f"if split:\n    return {OTHER}.view(-1, 12)\no = {CALL}",
    "one of three": f"if split:\n    o = {OTHER}\nelif self.many:\n    o = {OTHER}\nelse:\n"
    f"    o = {CALL}",
    "another, deep inside": f"o = {CALL}\nif split:\n    with torch.no_grad():\n"
    f"        if layer.layer_id:\n            other = {OTHER}",
    "another in a function": f"o = {CALL}\nif split:\n    def attention(lengths):\n        return "
    + OTHER.replace("metadata.other_lengths", "lengths")
    + "\n    other = attention(metadata.other_lengths)",
    "another at other times": f"if not split:\n    o = {CALL}\nelse:\n    o = {OTHER}",
    "another by a conditional expression": f"o = {OTHER} if split else {CALL}",
    "another by and": f"o = {CALL}\nsplit and {OTHER}",
    "another by a computed condition": f"o = {CALL}\nif len(LENGTHS) > 5:\n    other = {OTHER}",
    "another by match": f"match split:\n    case True:\n        o = {OTHER}\n    case _:\n"
    f"        o = {CALL}",
    "another in a while": f"o = {CALL}\nwhile split:\n    other = {OTHER}\n    break",
    "another by a condition bound again": f"o = {CALL}\nsplit = forward_batch.split\nif split:\n"
    f"    other = {OTHER}",
    "another by a condition of the batch": f"o = {CALL}\nif forward_batch.split:\n"
    f"    other = {OTHER}",
    "all of them at times": f"if split:\n    o = {OTHER}\nif not split:\n    o = {CALL}",
    "of other keys as well": f"o = {CALL}\nother = flash_attn_with_kvcache(q=q, k_cache=self.ropes,"
    f" v_cache=self.ropes, {TABLE})",
    "no query of latents": f"o = {Q_PART}.clone()\nself.seen = " + CALL.replace("qv=", "sinks="),
    "table made": "o = " + CALL.replace("TABLE", "TABLE.int()"),
    "table cut": "o = " + CALL.replace("TABLE", "TABLE[:, :4]"),
    "no table": f"o = flash_attn_with_kvcache({QUERY}, k_cache=rope_pages, v_cache=latent_pages, "
    "cache_seqlens=LENGTHS)",
    "looked at behind": f"o = {CALL}\nassert TABLE.shape[0] == LENGTHS.shape[0]",
}  # fmt: skip


class Tables(NamedTuple):
    """Where table and lengths come from, and what happens to them.

    Attributes:
        front: lines in front of the conversion.
        behind: lines behind it, in front of the kernel.
        table, lengths: what the kernel is given.
    """

    front: str = "page_table = metadata.page_table\ncache_seqlens = metadata.cache_seqlens"
    behind: str = ""
    table: str = "page_table"
    lengths: str = "cache_seqlens"

    @classmethod
    def of_metadata(cls, behind: str = "") -> Tables:
        """Return those that the kernel is given as attributes."""
        return cls("", behind, "metadata.page_table", "metadata.cache_seqlens")


FRONT = Tables().front

TABLES = {
    "plain": Tables(),
    "of the metadata": Tables.of_metadata(),
    "of self": Tables("", "", "self.forward_metadata.page_table",
                      "self.forward_metadata.cache_seqlens"),
    "of self, spread": Tables("", "", "(\n    self.forward_metadata  # now\n    .page_table)",
                              "(self.forward_metadata).cache_seqlens"),
    "a pair": Tables("page_table, cache_seqlens = metadata.page_table, metadata.cache_seqlens"),
    "a pair of a call": Tables("page_table, cache_seqlens = tables_of(metadata)"),
    "annotated": Tables(FRONT.replace("table =", "table: torch.Tensor =")),
    "both arms": Tables("if layer.layer_id:\n    page_table = metadata.page_table\nelse:\n"
                        "    page_table = metadata.page_table\n"
                        "cache_seqlens = metadata.cache_seqlens"),
    "another layer's": Tables("if layer.layer_id:\n    page_table, cache_seqlens = "
                              "metadata.other_table, metadata.other_lengths\nelse:\n"
                              f"{indented(FRONT, 4)}"),
    "conditional expression": Tables(FRONT.replace("metadata.page_table", "metadata.page_table if "
                                                   "layer.layer_id else metadata.other_table")),
    "walrus": Tables("assert (page_table := metadata.page_table) is not None\n"
                     "cache_seqlens = metadata.cache_seqlens"),
    "made in front": Tables(FRONT.replace("cache_seqlens = metadata.cache_seqlens",
                                          "cache_seqlens = metadata.cache_seqlens.clone()")),
    "cut in front": Tables(FRONT.replace("= metadata.page_table", "= metadata.page_table[:, :4]")),
    "changed in front": Tables(f"{FRONT}\npage_table[1, 3] = 0"),
    "looked at behind": Tables(FRONT, "assert page_table is not None and page_table.shape[1] == 4"),
    "in a with": Tables(f"with torch.no_grad():\n{indented(FRONT, 4)}"),
    "in a try": Tables(f"try:\n{indented(FRONT, 4)}\nexcept AttributeError:\n    raise"),
    "of a loop": Tables("for page_table in (metadata.page_table,):\n    pass\n"
                        "cache_seqlens = metadata.cache_seqlens"),
    "of a with": Tables("with contextlib.nullcontext(metadata.page_table) as page_table:\n"
                        "    cache_seqlens = metadata.cache_seqlens"),
    "behind": Tables("", FRONT),
    "bound again behind": Tables(FRONT, "page_table = metadata.other_table"),
    "bound again at times": Tables(FRONT, "if layer.layer_id:\n"
                                   "    cache_seqlens = metadata.other_lengths"),
    "bound again by a walrus": Tables(FRONT, "assert (page_table := metadata.other_table) is not "
                                      "None"),
    "bound again by a loop": Tables(FRONT, "for page_table in (metadata.other_table,):\n    pass"),
    "its owner bound again": Tables.of_metadata("metadata = self.other_metadata"),
    "stored behind": Tables.of_metadata("metadata.page_table = metadata.other_table"),
    "stored as one of two": Tables.of_metadata("metadata.page_table, metadata.last = "
                                               "metadata.other_table, 1"),
    "stored by another name": Tables("step = metadata", "step.page_table = metadata.other_table",
                                     "metadata.page_table", "metadata.cache_seqlens"),
    "stored by setattr": Tables.of_metadata("setattr(metadata, 'page_table', "
                                            "metadata.other_table)"),
    "deleted": Tables(FRONT, "del page_table\npage_table = metadata.other_table"),
    "an entry changed": Tables(FRONT, "page_table[0, 0] = 9"),
    "an entry of a row changed": Tables(FRONT, "page_table[0][0] = 9"),
    "an entry of a view changed": Tables(FRONT, "page_table.view(-1)[0] = 9"),
    "an entry of one of two changed": Tables(FRONT, "page_table[0, 0], self.calls = 9, 1"),
    "filled": Tables(FRONT, "page_table.fill_(9)"),
    "a row filled": Tables(FRONT, "page_table[0].fill_(9)"),
    "a transposed row filled": Tables(FRONT, "page_table.T[0].fill_(9)"),
    "added to": Tables(FRONT, "cache_seqlens += 1"),
    "added to, of the metadata": Tables.of_metadata("metadata.cache_seqlens += 1"),
    "added to by torch": Tables(FRONT, "torch.add(cache_seqlens, 1, out=cache_seqlens)"),
    "changed by a function": Tables(FRONT, "moved(page_table)"),
    "changed by a method's function": Tables(FRONT, "torch.Tensor.fill_(page_table, 9)"),
    "changed by a function inside": Tables(f"{FRONT}\ndef moved():\n    page_table[0, 0] = 9",
                                           "moved()"),
    "changed by a lambda": Tables(f"{FRONT}\nmove = lambda: page_table.fill_(9)", "move()"),
    "changed by another name": Tables(f"{FRONT}\nother = page_table", "other[0, 0] = 9"),
    "changed as an attribute": Tables(f"{FRONT}\nself.kept = page_table", "self.kept[0, 0] = 9"),
    "kept in an element": Tables(f"{FRONT}\nboth = [page_table, 1]"),
    "changed by its owner": Tables(FRONT, "metadata.page_table[0, 0] = 9"),
    "changed by its owner's owner": Tables(FRONT, "self.forward_metadata.page_table[0, 0] = 9"),
    "changed in an element": Tables(f"{FRONT}\nboth = [page_table, 1]", "both[0][0, 0] = 9"),
}  # fmt: skip

BODIES = {
    "plain": "{front}\n{rest}",
    "in a with": "{front}\nwith torch.no_grad():\n    {rest}",
    "in a try": "{front}\ntry:\n    {rest}\nfinally:\n    self.calls += 1",
    "in an if": "{front}\nif layer.layer_id >= 0:\n    {rest}\nelse:\n    raise ValueError(layer)",
    "in a loop": "{front}\nfor _ in range(2):\n    {rest}",
    "in a while": "{front}\nturn = 0\nwhile turn < 2:\n    turn += 1\n    {rest}",
    "tables in a loop": "{front}\nfor _ in range(2):\n    TABLE = metadata.other_table\n    {rest}",
    "in a loop, another table then": "{front}\nfor turn in range(2):\n    if turn == 0:\n"
    "        {cast}\n    {reading}\n    TABLE = metadata.other_table",
    "in a loop, another table at times": "{front}\nfor turn in range(2):\n    {cast}\n"
    "    if turn:\n        TABLE = metadata.other_table\n    {reading}",
    "in a loop, converted for the next turn": "{front}\n{cast}\nfor turn in range(2):\n"
    "    {reading}\n    {cast}\n    TABLE = metadata.other_table",
    "in a loop, changed in front": "{front}\n{behind}\nfor turn in range(2):\n"
    "    TABLE[0, 0] = 9 * turn\n    if turn == 0:\n        {cast}\n    {taking}",
    "in a loop, changed behind": "{front}\nfor turn in range(2):\n    {rest}\n    TABLE[0, 0] = 9",
    "nested function": "{front}\n{behind}\ndef attention():\n    {cast}\n    {taking}\n"
    "    return o\no = attention()",
    "early return": "{front}\nif layer.layer_id < 0:\n    return None\n{rest}",
    "the other attention beside": "{front}\nif self.many:\n    pair = self.token_to_kv_pool."
    "get_kv_buffer(layer.layer_id)\n    o = flash_attn_with_kvcache(q=q, k_cache=pair[0], "
    "v_cache=pair[1], page_table=metadata.page_table, cache_seqlens=metadata.cache_seqlens)\n"
    "else:\n    {rest}",
}
"""How the parts stand together; ``rest`` is the conversion and ``reading`` what comes behind it:
what happens to the tables, and ``taking`` of the keys by the kernel."""

CONSTRUCTOR = """\
def __init__(self, model_runner, metadata):
    {super}
    self.token_to_kv_pool = model_runner.token_to_kv_pool
    self.forward_metadata = metadata
    self.other_metadata = model_runner.other_metadata
    self.kernels = model_runner.kernels
    self.page_size = model_runner.page_size
    self.ropes = torch.zeros((16, 4, 1, 2), dtype=torch.bfloat16)
    self.many = False
    self.calls = 0
"""
SUPERS = {
    name: code.replace("FlashInferMLAAttnBackend", "FlashAttentionBackend")
    for name, code in generated_mla.SUPERS.items()
}

WHOLE_METHOD = f"""\
    def forward_{{name}}(self, q, k, v, layer, forward_batch, *more, **named):
        {WHOLE}
        metadata = self.forward_metadata
{indented(PLAIN_CUT, 8)}
        o = {CALL}
        return o.view(-1, layer.head_num * layer.v_head_dim)
""".replace("TABLE", "metadata.page_table").replace("LENGTHS", "metadata.cache_seqlens")
CLASSES = generated_mla.classes("FlashAttentionBackend", WHOLE_METHOD)

RENAMED: dict[str, dict[str, str]] = {
    "as they are": {},
    "other locals": {
        "k_buf": "keys", "page_table": "table", "cache_seqlens": "lengths", "split": "halved",
        "metadata": "step", "rope_pages": "r", "latent_pages": "c",
    },
    "words of ours": {"k_buf": "attach", "page_table": "gather", "cache_seqlens": "writer"},
    "crosswise": {"page_table": "lens", "cache_seqlens": "page_table"},
    "not ASCII": {"k_buf": "schlüssel", "page_table": "tafel", "cache_seqlens": "längen"},
}  # fmt: skip
"""Locals by other names."""

CHOICES: dict[str, tuple[str, ...]] = {
    "decode cast": tuple(CASTS),
    "extend cast": tuple(CASTS),
    "decode cut": tuple(CUTS),
    "extend cut": tuple(CUTS),
    "decode kernel": tuple(KERNELS),
    "extend kernel": tuple(KERNELS),
    "decode tables": tuple(TABLES),
    "extend tables": tuple(TABLES),
    "decode body": tuple(BODIES),
    "extend body": tuple(BODIES),
    "constructor": tuple(SUPERS),
    "write": tuple(generated_mla.WRITES),
    "class": tuple(CLASSES),
    "names": tuple(RENAMED),
}

REFUSED: dict[str, frozenset[str]] = {
    "cast": (generated_mla.REFUSED["cast"] & set(CASTS)) - {"counted"} | {
        "conditional pool", "contiguous first", "the same shape first", "viewed behind",
    },
    "cut": frozenset({
        "a function in a local", "a function of a partial", "a function, all by keyword",
        "another buffer at times", "changed", "copied", "cut twice", "half of another buffer",
        "kept", "narrowed", "number of pages told", "pages cut", "pages of another size",
        "rows cut", "size in a local", "size left open", "split by torch", "view by name",
    }),
    "kernel": frozenset({
        "a dictionary", "all in a dictionary", "all of them at times", "another at other times",
        "another by a computed condition", "another by a condition bound again",
        "another by a conditional expression", "another by and", "another by match",
        "another in a while", "in a local", "lambda",
        "loop over tables", "nested function", "no query of latents", "no table", "of a partial",
        "own keys", "padding told", "starred", "table cut", "table made",
        "table of a comprehension", "through a helper", "try, another table", "twice",
        "twice, another table",
    }),
    "tables": frozenset({
        "a row filled", "a transposed row filled", "added to", "added to by torch",
        "added to, of the metadata", "an entry changed", "an entry of a row changed",
        "an entry of a view changed", "an entry of one of two changed", "behind",
        "bound again at times", "bound again behind", "bound again by a loop",
        "bound again by a walrus", "changed as an attribute", "changed by a function",
        "changed by a function inside", "changed by a lambda", "changed by a method's function",
        "changed by another name", "changed by its owner", "changed by its owner's owner",
        "changed in an element", "deleted", "filled", "its owner bound again",
        "kept in an element", "of a loop", "of a with", "stored as one of two", "stored behind",
        "stored by another name", "stored by setattr",
    }),
    "body": frozenset({
        "in a loop, another table at times", "in a loop, another table then",
        "in a loop, changed behind", "in a loop, changed in front",
        "in a loop, converted for the next turn", "nested function", "tables in a loop",
    }),
    "constructor": generated_mla.REFUSED["constructor"],
    "write": generated_mla.REFUSED["write"],
    "class": generated_mla.REFUSED["class"],
    "names": frozenset(),
}  # fmt: skip
"""Spellings that are refused, whatever else is plain; all others are rewritten."""


def build(choice: Mapping[str, str]) -> str:
    """Return the source of a choice: one spelling for each of ``CHOICES``."""
    parts = dict.fromkeys(
        ("module", "class_end", "module_end", "extend_decorator", "decode_decorator"), ""
    )
    parts["class_start"] = "first = 1"
    parts.update(CLASSES[choice["class"]])
    constructor = CONSTRUCTOR.replace("{super}", SUPERS[choice["constructor"]])
    if choice["constructor"] == "renamed runner":
        constructor = constructor.replace("model_runner", "runner")
    text = MODULE
    for name in ("extend", "decode"):
        tables = TABLES[choice[f"{name} tables"]]
        kernel = KERNELS[choice[f"{name} kernel"]]
        kernel = kernel.replace("TABLE", tables.table).replace("LENGTHS", tables.lengths)
        cast = CASTS[choice[f"{name} cast"]]
        taking = f"{CUTS[choice[f'{name} cut']]}\n{kernel}"
        reading = f"{tables.behind}\n{taking}"
        filled = {
            "front": tables.front, "cast": cast, "behind": tables.behind, "taking": taking,
            "reading": reading, "rest": f"{cast}\n{reading}",
        }  # fmt: skip
        lines = BODIES[choice[f"{name} body"]].split("\n")
        body = "\n".join(
            _filled(line.replace("TABLE", tables.table), filled) for line in lines
        )  # fmt: skip
        text = text.replace(f"{{{name}}}", indented(body, 8))
    text = text.replace("{constructor}\n", indented(constructor, 4))
    text = text.replace("{write}", indented(generated_mla.WRITES[choice["write"]], 12))
    for name, part in parts.items():
        text = text.replace(f"{{{name}}}", part)
    return renamed(text, RENAMED[choice["names"]])


def _filled(line: str, parts: Mapping[str, str]) -> str:
    """Return a line, or the part that it stands for, at its indentation."""
    code = line.lstrip()
    part = parts.get(code[1:-1]) if code[:1] == "{" else None
    return line if part is None else indented(part, len(line) - len(code))


# --- running one ---------------------------------------------------------------------------


def _kernel(log: list[Any]) -> Any:
    """Return a kernel that writes down the rows of each request, bit for bit, and their dtype."""

    def flash_attn_with_kvcache(
        q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, k: Any = None,
        v: Any = None, qv: Any = None, rotary_cos: Any = None, rotary_sin: Any = None,
        cache_seqlens: Any = None, cache_batch_idx: Any = None, cache_leftpad: Any = None,
        page_table: Any = None, *, causal: bool = False, out: Any = None, sinks: Any = None,
        return_softmax_lse: bool = False,
    ) -> Any:  # fmt: skip
        rows = []
        table = [[0], [1]] if page_table is None else page_table.tolist()
        for pages, length in zip(table, cache_seqlens.tolist(), strict=True):
            used = torch.tensor(pages[: -(-length // PAGE)])
            length = min(length, len(used) * PAGE)
            rows.append(tuple(
                bits(keys[used].flatten(0, 1)[:length]) for keys in (k_cache, v_cache)
            ))  # fmt: skip
        queries = [bits(part) for part in (q, qv) if part is not None]
        log.append(("kernel", rows, k_cache.dtype, v_cache.dtype, queries, k is None, causal))
        made = (q if qv is None else qv).clone()
        return (made, None) if return_softmax_lse else made

    return flash_attn_with_kvcache


def _pool() -> Any:
    generator = torch.Generator().manual_seed(5)
    buffers = [
        torch.randn((ROWS, 1, CKV + KPE), generator=generator).to(torch.float8_e4m3fn)
        for _ in range(2)
    ]

    def write(layer: Any, loc: torch.Tensor, nope: torch.Tensor, rope: torch.Tensor) -> None:
        both = torch.cat([nope, rope], -1).to(torch.float8_e4m3fn)
        buffers[layer.layer_id].view(torch.uint8)[loc] = both.view(torch.uint8)

    return SimpleNamespace(
        dtype=torch.float8_e4m3fn, kv_buffer=buffers, set_mla_kv_buffer=write,
        get_key_buffer=lambda layer_id: buffers[layer_id],
    )  # fmt: skip


def _metadata() -> Any:
    return SimpleNamespace(
        page_table=torch.tensor([[7, 3, 15, 0], [11, 15, 15, 15]], dtype=torch.int32),
        cache_seqlens=torch.tensor([9, 2], dtype=torch.int32),
        other_table=torch.tensor([[2, 5, 0, 0], [13, 0, 0, 0]], dtype=torch.int32),
        other_lengths=torch.tensor([6, 3], dtype=torch.int32),
    )


def play(source: str, companion: ModuleType | None) -> Played:
    """Run a source: two layers, decode and extend, plain and split.

    Conversions of a whole pool count in plain steps: in split ones another table is read as well.

    Args:
        source: the module, original or patched.
        companion: what a patched one imports.
    """
    log: list[Any] = []
    pool = _pool()
    kernel = _kernel(log)
    module = executed(
        source, PATH, AttentionBackend=generated_mla.Base, _rewriter_kv_gather=companion,
        flash_attn_with_kvcache=kernel,
        paged_view=lambda rows, size: rows.view(-1, size, *rows.shape[1:]),
    )  # fmt: skip
    runner = SimpleNamespace(
        token_to_kv_pool=pool, dtype=torch.bfloat16, page_size=PAGE, other_metadata=_metadata(),
        model_config=SimpleNamespace(kv_lora_rank=CKV, qk_rope_head_dim=KPE),
        kernels=SimpleNamespace(flash_attn_with_kvcache=kernel),
    )  # fmt: skip
    runner.self = runner
    runner.other_metadata.page_table = runner.other_metadata.other_table
    whole = 0
    conversions = Conversions(pool.kv_buffer)
    with conversions:
        backend = module["FlashAttentionBackend"](runner, _metadata())
        for split in (False, True):
            for layer, batch, query, keys in generated_mla.steps([28, 31], pool):
                batch.split = split
                for name in ("extend", "decode"):
                    backend.forward_metadata = _metadata()
                    conversions.sizes.clear()
                    out = getattr(backend, f"forward_{name}")(
                        query, keys[..., :CKV], 1, layer, batch, True, None, keys[..., CKV:]
                    )
                    log.append((name, bits(out)))
                    if not split:
                        whole += sum(size >= ROWS * KPE for size in conversions.sizes)
    return Played(log, whole)


def refused(part: str) -> frozenset[str]:
    """Return the spellings of a part that are refused."""
    return REFUSED[part.rpartition(" ")[2]]


SHAPE = Shape("fa3_kv_gather", PATH, CHOICES, build, play, refused)
