"""Sources in the shape of flashinfer_mla_backend.py, put together from spellings: all our own text.

Every source runs: ``play`` serves two batches with a small FP8 pool in torch and writes down what
``run`` was handed for each request, and what of the pool was converted on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from generating import Conversions, Played, Shape, bits, executed, indented, renamed

PATH = "sglang/srt/layers/attention/flashinfer_mla_backend.py"

ROWS, CKV, KPE = 24, 6, 2
"""A batch lists 5 rows of the pool's 24, so that a conversion of the whole is told from one of
what is read."""

MODULE = """\
from __future__ import annotations

import contextlib
from functools import partial

import torch

from sglang.srt.layers.attention.base import AttentionBackend


def same(function):
    return function


{module}


class FlashInferMLAAttnBackend(AttentionBackend):
    {class_start}

{constructor}
{extend_decorator}    def forward_extend(
        self, q, k, v, layer, forward_batch, save_kv_cache=True, q_rope=None, k_rope=None
    ):
        prefill_wrapper_paged = self.forward_metadata.prefill_wrapper
        if save_kv_cache and k is not None:
{write}
{extend_cast}
{extend_run}
        return o.view(-1, layer.head_num * layer.v_head_dim)

{decode_decorator}    def forward_decode(
        self, q, k, v, layer, forward_batch, save_kv_cache=True, q_rope=None, k_rope=None
    ):
        decode_wrapper = self.forward_metadata.decode_wrapper
{decode_cast}
{decode_run}
        return o.view(-1, layer.head_num * layer.v_head_dim)

{class_end}


class FlashInferMLAIndicesUpdaterDecode:
    def __init__(self, model_runner, attn_backend):
        self.heads, self.scaling = 2, 0.5
        self.data_type = model_runner.dtype
        self.attn_backend = attn_backend

    def call_begin_forward(
        self, wrapper, paged_kernel_lens, pool_rows, q_indptr, kv_indptr, spec_info=None
    ):
        bs = len(paged_kernel_lens)
        kv_lens = paged_kernel_lens.to(torch.int32)
        if spec_info is None:
            kv_indptr[1 : bs + 1] = torch.cumsum(paged_kernel_lens, dim=0)
            kv_indptr = kv_indptr[: bs + 1]
            kv_indices = torch.empty(int(kv_indptr[-1]), dtype=torch.int32)
            fill(kv_indices, pool_rows)
        else:
            kv_indptr, kv_indices = spec_info.kv_indptr, spec_info.kv_indices
{decode_plan}


class FlashInferMLAIndicesUpdaterPrefill:
    def __init__(self, model_runner, attn_backend):
        self.heads, self.scaling = 2, 0.5
        self.data_type = model_runner.dtype
        self.attn_backend = attn_backend

    def call_begin_forward(
        self, wrapper, paged_kernel_lens, pool_rows, q_indptr, kv_indptr, spec_info=None
    ):
        bs = len(paged_kernel_lens)
        kv_lens = paged_kernel_lens.to(torch.int32)
        kv_indptr[1 : bs + 1] = torch.cumsum(paged_kernel_lens, dim=0)
        kv_indptr = kv_indptr[: bs + 1]
        kv_indices = torch.empty(int(kv_indptr[-1]), dtype=torch.int32)
        fill(kv_indices, pool_rows)
{prefill_plan}


def fill(indices, rows):
    indices.copy_(torch.tensor(rows, dtype=torch.int32)[: len(indices)])


def fast_mla_decode_plan(wrapper, *arguments):
    wrapper.plan(*arguments)


{module_end}
"""

POOL = "self.token_to_kv_pool"
GET = f"{POOL}.get_key_buffer(layer.layer_id)"
WHOLE = f"k_buf = {GET}.to(q.dtype)"

CASTS = {
    "plain": WHOLE,
    "wrapped by a formatter": f"k_buf = {GET}.to(\n    q.dtype\n)",
    "in brackets": f"k_buf = (({GET}).to((q.dtype)))",
    "comments everywhere": f"""\
# before
k_buf = (  # one
    {POOL}  # two
    # three
    .get_key_buffer(  # four
        layer.layer_id,  # five
    )
    .to(  # six
        q.dtype  # seven
    )  # eight
)  # nine""",
    "dtype spread": f"k_buf = {GET}.to(\n    q  # the query's\n    .dtype\n)",
    "keyword": f"k_buf = {GET}.to(dtype=q.dtype)",
    "layer by keyword": f"k_buf = {POOL}.get_key_buffer(layer_id=layer.layer_id).to(q.dtype)",
    "pool of the batch": "k_buf = forward_batch.token_to_kv_pool.get_key_buffer(layer.layer_id)"
    ".to(q.dtype)",
    "pool in a local": f"pool = {POOL}\nk_buf = pool.get_key_buffer(layer.layer_id).to(q.dtype)",
    "two steps": f"k_buf = {GET}\nk_buf = k_buf.to(q.dtype)",
    "two steps, dtype in a local": f"k_buf = {GET}\nwanted = q.dtype\nk_buf = k_buf.to(wanted)",
    "two names": f"raw = {GET}\nk_buf = raw.to(q.dtype)",
    "annotated": f"k_buf: torch.Tensor = {GET}.to(q.dtype)",
    "chained targets": f"k_buf = keys = {GET}.to(q.dtype)",
    "pair": f"k_buf, wanted = {GET}.to(q.dtype), q.dtype",
    "both arms": f"if layer.layer_id:\n    {WHOLE}\nelse:\n    {WHOLE}",
    "an arm each way": f"if layer.layer_id:\n    {WHOLE}\nelif q is not None:\n    {WHOLE}\nelse:\n"
    "    raise RuntimeError('no query')",
    "conditional expression": f"k_buf = {GET}.to(q.dtype) if layer.layer_id else {GET}.to(q.dtype)",
    "conditional pool": f"k_buf = ({GET} if layer.layer_id else {GET}).to(q.dtype)",
    "walrus": f"if (k_buf := {GET}.to(q.dtype)) is None:\n    raise RuntimeError('no keys')",
    "walrus in an assertion": f"assert (k_buf := {GET}.to(q.dtype)).shape[-1] == 8",
    "try, finally": f"try:\n    {WHOLE}\nfinally:\n    self.calls += 1",
    "try, except": f"try:\n    {WHOLE}\nexcept KeyError:\n    raise RuntimeError('no layer')",
    "try, except, other keys": f"k_buf = {GET}\ntry:\n    k_buf = k_buf.to(q.dtype)\n"
    "except TypeError:\n    pass",
    "with": f"with torch.no_grad():\n    {WHOLE}",
    "with, bound": f"with contextlib.nullcontext({GET}) as k_buf:\n    k_buf = k_buf.to(q.dtype)",
    "loop of one": f"for part in ({GET},):\n    k_buf = part.to(q.dtype)",
    "while": f"while True:\n    {WHOLE}\n    break",
    "early return in front": f"if layer.layer_id < 0:\n    return None\n{WHOLE}",
    "one line": f"if layer.layer_id >= 0: {WHOLE}",
    "semicolons": f"wanted = q.dtype; {WHOLE}; self.calls += 1",
    "match": f"match layer.layer_id:\n    case 0:\n        {WHOLE}\n    case _:\n        {WHOLE}",
    "nested function": f"def keys():\n    return {GET}.to(q.dtype)\nk_buf = keys()",
    "nested function of the pool": f"def keys():\n    return {GET}\nk_buf = keys().to(q.dtype)",
    "lambda": f"k_buf = (lambda pool: pool.to(q.dtype))({GET})",
    "lambda that is called later": f"keys = lambda: {GET}.to(q.dtype)\nk_buf = keys()",
    "comprehension": f"k_buf = [pool.to(q.dtype) for pool in ({GET},)][0]",
    "generator": f"k_buf = next(pool.to(q.dtype) for pool in ({GET},))",
    "extra cast behind": f"k_buf = {GET}.to(q.dtype).to(q.dtype)",
    "extra cast in front": f"k_buf = {GET}.to(torch.float32).to(q.dtype)",
    "extra cast of a copy": f"{WHOLE}\nother = k_buf.to(torch.float32)\n"
    "self.calls += len(other) > 0",
    "no cast": f"k_buf = {GET}",
    "no cast in one arm": f"if layer.layer_id:\n    {WHOLE}\nelse:\n    k_buf = {GET}",
    "duplicated": f"{WHOLE}\n{WHOLE}",
    "a second for nothing": f"{WHOLE}\nself.calls += {GET}.to(q.dtype) is not None",
    "a second by another method": f"{WHOLE}\nself.calls += {GET}.float() is not None",
    "a second, of all layers": f"{WHOLE}\nself.seen = [b.float() for b in {POOL}.kv_buffer]",
    "bfloat16": f"k_buf = {GET}.bfloat16()",
    "type": f"k_buf = {GET}.type(q.dtype)",
    "to as a function": f"k_buf = torch.Tensor.to({GET}, q.dtype)",
    "like the query": f"k_buf = {GET}.to(q)",
    "copy": f"k_buf = {GET}.to(q.dtype, copy=True)",
    "dtype of a call": f"k_buf = {GET}.to(getattr(q, 'dtype'))",
    "dtype of torch": f"k_buf = {GET}.to(torch.bfloat16)",
    "into another buffer": f"k_buf = torch.empty({GET}.shape, dtype=q.dtype)\nk_buf.copy_({GET})",
    "scaled": f"k_buf = {GET}.to(q.dtype) * 1",
    "changed in place": f"{WHOLE}\nk_buf.mul_(1)",
    "stored in place": f"{WHOLE}\nk_buf[0] = 0",
    "getter in a local": f"get = {POOL}.get_key_buffer\nk_buf = get(layer.layer_id).to(q.dtype)",
    "getter by name": f"k_buf = getattr({POOL}, 'get_key_buffer')(layer.layer_id).to(q.dtype)",
    "the pool's own list": f"k_buf = {POOL}.kv_buffer[layer.layer_id].to(q.dtype)",
    "the same shape first": f"k_buf = {GET}.view(-1, 1, layer.head_dim).to(q.dtype)",
    "another shape first": f"k_buf = {GET}.view(4, -1, layer.head_dim).to(q.dtype)"
    ".view(-1, 1, layer.head_dim)",
    "contiguous first": f"k_buf = {GET}.contiguous().to(q.dtype)",
    "viewed behind": f"{WHOLE}\nk_buf = k_buf.view(-1, 1, k_buf.shape[-1])",
    "viewed by rows behind": f"{WHOLE}\nk_buf = k_buf.view(k_buf.shape[0], 1, -1)",
    "cut by rows behind": f"{WHOLE}\nk_buf = k_buf[: k_buf.shape[0]]",
    "all of it behind": f"{WHOLE}\nk_buf = k_buf[:]",
    "cut by rows in front": f"k_buf = {GET}[:].to(q.dtype)",
    "kept": f"{WHOLE}\nself.keys = k_buf",
    "read by a function inside": f"{WHOLE}\ndef told():\n    return float(k_buf[-1].sum())\n"
    "self.calls += told() is not None",
    "read by a lambda": f"{WHOLE}\nself.later = lambda: k_buf",
    "printed": f"{WHOLE}\nself.calls += len(str(k_buf)) > 0",
    "counted": f"{WHOLE}\nself.calls += k_buf.shape[0] > 0",
    "looked at": f"{WHOLE}\nassert k_buf.dtype == q.dtype and k_buf is not None",
    "deleted after": f"{WHOLE}\nother = k_buf\ndel other",
    "global": f"global k_buf\n{WHOLE}",
    "helper method": "k_buf = self.keys_of(layer, q)",
    "helper function": f"k_buf = keys_of({GET}, q)",
    "starred": f"k_buf, *rest = ({GET}.to(q.dtype), 1)",
    "compared": f"{WHOLE}\nself.calls += bool((k_buf == k_buf).all())",
    "context parallel": "if forward_batch.dcp is not None:\n"
    f"    k_buf = forward_batch.dcp.dcp_kv_buffer.to(q.dtype)\nelse:\n    {WHOLE}",
}

CKV_PART, KPE_PART = "k_buf[:, :, : layer.v_head_dim]", "k_buf[:, :, layer.v_head_dim :]"
Q_PART, ROPE_PART = "q[..., : layer.v_head_dim]", "q[..., layer.v_head_dim :]"
POSITIONAL = f"{Q_PART}, {ROPE_PART}, {CKV_PART}, {KPE_PART}"
KEYWORDS = f"q_nope={Q_PART}, q_pe={ROPE_PART}, ckv_cache={CKV_PART}, kpe_cache={KPE_PART}"
REORDERED = (
    f"kpe_cache={KPE_PART}, out=None, ckv_cache={CKV_PART}, q_pe={ROPE_PART}, q_nope={Q_PART}"
)

RUNS = {
    "positional": f"o = WRAPPER.run({POSITIONAL})",
    "keywords": f"o = WRAPPER.run({KEYWORDS})",
    "keywords in another order": f"o = WRAPPER.run({REORDERED})",
    "half and half": f"o = WRAPPER.run({Q_PART}, {ROPE_PART}, kpe_cache={KPE_PART}, "
    f"ckv_cache={CKV_PART})",
    "one argument a line": "o = WRAPPER.run(\n"
    + "".join(
        f"    {part},  # {at}\n" for at, part in enumerate((Q_PART, ROPE_PART, CKV_PART, KPE_PART))
    )
    + ")",
    "parts in locals": f"ckv, kpe = {CKV_PART}, {KPE_PART}\n"
    f"o = WRAPPER.run({Q_PART}, {ROPE_PART}, ckv, kpe)",
    "with an output": f"o = torch.empty_like({Q_PART})\no = WRAPPER.run({POSITIONAL}, out=o)",
    "with a result of two": f"o = WRAPPER.run({POSITIONAL}, return_lse=True)\no, lse = o",
    "ellipsis": f"o = WRAPPER.run({Q_PART}, {ROPE_PART}, k_buf[..., : layer.v_head_dim], "
    "k_buf[..., layer.v_head_dim :])",
    "wrapper in a local": f"w = WRAPPER\no = w.run({POSITIONAL})",
    "wrapper of self": f"self.current = WRAPPER\no = self.current.run({POSITIONAL})",
    "wrapper of metadata": f"o = self.forward_metadata.ATTRIBUTE.run({POSITIONAL})",
    "wrapper of metadata, spread": "o = (\n    self.forward_metadata  # of this step\n"
    f"    .ATTRIBUTE\n).run({POSITIONAL})",
    "wrapper of metadata, stored": "self.forward_metadata.ATTRIBUTE = WRAPPER\n"
    f"o = self.forward_metadata.ATTRIBUTE.run({POSITIONAL})",
    "wrapper of metadata, stored by another name": "step = self.forward_metadata\n"
    f"step.ATTRIBUTE = WRAPPER\no = self.forward_metadata.ATTRIBUTE.run({POSITIONAL})",
    "wrapper of what is bound again": "v = self.forward_metadata\n"
    f"o = v.ATTRIBUTE.run({POSITIONAL})",
    "wrapper handed on": f"self.calls += len(str(WRAPPER)) > 0\no = WRAPPER.run({POSITIONAL})",
    "one of two wrappers": f"w = WRAPPER if layer.layer_id >= 0 else None\no = w.run({POSITIONAL})",
    "wrapper bound in both arms": "if layer.layer_id:\n    w = WRAPPER\nelse:\n    w = WRAPPER\n"
    f"o = w.run({POSITIONAL})",
    "run in a local": f"run = WRAPPER.run\no = run({POSITIONAL})",
    "run of a partial": f"run = partial(WRAPPER.run, {Q_PART}, {ROPE_PART})\n"
    f"o = run({CKV_PART}, {KPE_PART})",
    "run by name": f"o = getattr(WRAPPER, 'run')({POSITIONAL})",
    "starred": f"parts = ({CKV_PART}, {KPE_PART})\no = WRAPPER.run({Q_PART}, {ROPE_PART}, *parts)",
    "a dictionary": f"more = dict(out=None)\no = WRAPPER.run({POSITIONAL}, **more)",
    "twice": f"o = WRAPPER.run({POSITIONAL})\no = WRAPPER.run({POSITIONAL})",
    "other argument": f"o = WRAPPER.run({POSITIONAL}, page_table=None)",
    "nested function": f"def attend():\n    return WRAPPER.run({POSITIONAL})\no = attend()",
    "lambda": f"o = (lambda: WRAPPER.run({POSITIONAL}))()",
    "comprehension": f"(o,) = [WRAPPER.run({POSITIONAL}) for _ in range(1)]",
    "try, finally": f"try:\n    o = WRAPPER.run({POSITIONAL})\nfinally:\n    self.calls += 1",
    "with": f"with torch.no_grad():\n    o = WRAPPER.run({POSITIONAL})",
    "both arms": f"if layer.layer_id:\n    o = WRAPPER.run({POSITIONAL})\n"
    f"else:\n    o = WRAPPER.run({KEYWORDS})",
    "returned at once": f"return WRAPPER.run({POSITIONAL}).view(-1, layer.head_num * "
    "layer.v_head_dim)",
    "early return": f"if layer.layer_id < 0:\n    return None\no = WRAPPER.run({POSITIONAL})",
    "through a helper": f"o = attend(WRAPPER, {POSITIONAL})",
    "class by name": f"o = type(WRAPPER).run(WRAPPER, {POSITIONAL})",
}

NUMBERS = "self.heads, 6, 2, 1, True, self.scaling, self.data_type, self.data_type"
NAMED = (
    "num_heads=self.heads, head_dim_ckv=6, head_dim_kpe=2, page_size=1, causal=True, "
    "sm_scale=self.scaling, q_data_type=self.data_type, kv_data_type=self.data_type"
)
PLAN = f"wrapper.plan(q_indptr, kv_indptr, kv_indices, kv_lens, {NUMBERS})"

PLANS = {
    "positional": PLAN,
    "one argument a line": "wrapper.plan(\n    q_indptr,\n    kv_indptr,  # where\n    kv_indices,"
    f"  # which\n    kv_lens,\n    {NUMBERS},\n)",
    "keywords": "wrapper.plan(qo_indptr=q_indptr, kv_indptr=kv_indptr, kv_indices=kv_indices, "
    f"kv_len_arr=kv_lens, {NAMED})",
    "keywords in another order": f"wrapper.plan({NAMED}, kv_len_arr=kv_lens, "
    "kv_indices=kv_indices, kv_indptr=kv_indptr, qo_indptr=q_indptr)",
    "wrapper in a local": "w = wrapper\n" + PLAN.replace("wrapper.", "w."),
    "pointers in a local": "starts = kv_indptr\n" + PLAN.replace("kv_indptr", "starts"),
    "pointers on the host": "starts = kv_indptr if spec_info is None else spec_info.kv_indptr\n"
    + PLAN.replace("kv_indptr", "starts"),
    "indices in a local": "rows = kv_indices\n" + PLAN.replace("kv_indices", "rows"),
    "indices converted": PLAN.replace("kv_indices", "kv_indices.to(torch.int32)"),
    "indices cut": PLAN.replace("kv_indices", "kv_indices[: int(kv_indptr[-1])]"),
    "indices cut before": "kv_indices = kv_indices[: int(kv_indptr[-1])]\n" + PLAN,
    "indices longer than in use": "kv_indices = torch.cat([kv_indices, kv_indices[:1]])\n" + PLAN,
    "indices kept": "self.last = kv_indices\n" + PLAN,
    "another buffer's indices": "self.other_rows = kv_indices\nkv_indices = self.other_rows\n"
    + PLAN,
    "sequential": "self.rows, kv_indices = kv_indices, torch.arange(len(kv_indices), "
    "dtype=torch.int32)\n" + PLAN,
    "both arms": f"if spec_info is None:\n    {PLAN}\nelse:\n    {PLAN}",
    "try, finally": f"try:\n    {PLAN}\nfinally:\n    self.planned = True",
    "with": f"with torch.no_grad():\n    {PLAN}",
    "early return": f"if bs == 0:\n    return\n{PLAN}",
    "walrus": "if (rows := kv_indices) is not None:\n    " + PLAN.replace("kv_indices", "rows"),
    "planned twice": f"{PLAN}\n{PLAN}",
    "nested function": f"def plan():\n    {PLAN}\nplan()",
    "lambda": f"(lambda: {PLAN})()",
    "comprehension": f"[{PLAN} for _ in range(1)]",
    "plan in a local": "plan = wrapper.plan\n" + PLAN.replace("wrapper.plan", "plan"),
    "plan of a partial": "plan = partial(wrapper.plan, q_indptr, kv_indptr)\n"
    f"plan(kv_indices, kv_lens, {NUMBERS})",
    "plan by name": PLAN.replace("wrapper.plan", "getattr(wrapper, 'plan')"),
    "its other name": PLAN.replace("wrapper.plan", "wrapper.begin_forward"),
    "its other name as well": f"{PLAN}\n" + PLAN.replace("wrapper.plan", "wrapper.begin_forward"),
    "a helper": "planned(wrapper, q_indptr, kv_indptr, kv_indices, kv_lens, self)",
    "a helper as well": f"{PLAN}\nplanned(wrapper, q_indptr, kv_indptr, kv_indices, kv_lens, self)",
    "a fast plan": PLAN.replace("wrapper.plan(", "fast_mla_decode_plan(wrapper, "),
    "a fast plan as well": "if bs > 100:\n    "
    + PLAN.replace("wrapper.plan(", "fast_mla_decode_plan(wrapper, ")
    + f"\nelse:\n    {PLAN}",
    "starred": f"more = ({NUMBERS})\nwrapper.plan(q_indptr, kv_indptr, kv_indices, kv_lens, *more)",
    "starred indices": f"more = (kv_indices, kv_lens, {NUMBERS})\n"
    "wrapper.plan(q_indptr, kv_indptr, *more)",
    "pointers bound again": "starts = kv_indptr\nkv_indptr = kv_lens\n"
    + PLAN.replace("kv_indptr", "starts"),
    "pages in a local": "size = 1\n" + PLAN.replace(", 1, True", ", size, True"),
    "pages of a call": PLAN.replace(", 1, True", ", int(1), True"),
    "class by name": PLAN.replace("wrapper.plan(", "type(wrapper).plan(wrapper, "),
}

CONSTRUCTOR = """\
def __init__(self, model_runner, metadata):
    {super}
    self.token_to_kv_pool = model_runner.token_to_kv_pool
    self.forward_metadata = metadata
    self.calls = 0
"""
SUPERS = {
    "plain": "super().__init__()",
    "comment": "super().__init__()  # the base class first",
    "by name": "super(FlashInferMLAAttnBackend, self).__init__()",
    "conditional": "if metadata is not None:\n        super().__init__()",
    "in a with": "with torch.no_grad():\n        super().__init__()",
    "returns before": "if metadata is None:\n        return\n    super().__init__()",
    "semicolon": "super().__init__(); self.first = 1",
    "twice": "super().__init__()\n    super().__init__()",
    "runner bound again": "model_runner = model_runner.self\n    super().__init__()",
    "runner in a local": "runner = model_runner\n    super().__init__()",
    "no base class": "AttentionBackend.__init__(self)",
    "nested": "def start():\n        super(FlashInferMLAAttnBackend, self).__init__()\n    start()",
    "renamed runner": "super().__init__()",
}

WRITES = {
    "plain": "self.token_to_kv_pool.set_mla_kv_buffer(layer, forward_batch.loc, k, k_rope)",
    "wrapped": "self.token_to_kv_pool.set_mla_kv_buffer(\n    layer,\n    forward_batch.loc,"
    "  # where\n    k,\n    k_rope,\n)",
    "none": "self.calls += 1",
    "keywords": "self.token_to_kv_pool.set_mla_kv_buffer(\n"
    "    layer=layer, loc=forward_batch.loc, nope=k, rope=k_rope\n)",
    "starred": "parts = (k, k_rope)\n"
    "self.token_to_kv_pool.set_mla_kv_buffer(layer, forward_batch.loc, *parts)",
    "in a local": "write = self.token_to_kv_pool.set_mla_kv_buffer\n"
    "write(layer, forward_batch.loc, k, k_rope)",
    "by name": "getattr(self.token_to_kv_pool, 'set_mla_kv_buffer')(\n"
    "    layer, forward_batch.loc, k, k_rope\n)",
}

WHOLE_METHOD = f"""\
    def forward_{{name}}(self, q, k, v, layer, forward_batch, *more, **named):
        {WHOLE}
        wrapper = self.forward_metadata.decode_wrapper
        o = wrapper.run({POSITIONAL})
        return o.view(-1, layer.head_num * layer.v_head_dim)
"""


def classes(owner: str, method: str) -> dict[str, dict[str, str]]:
    """Return what stands in and around a backend's class.

    Args:
        owner: the class.
        method: a method ``forward_{name}`` that converts the whole pool.
    """
    return {
        "plain": {},
        "decorated": {"decode_decorator": "    @same\n"},
        "decorated by torch": {"extend_decorator": "    @torch.no_grad()\n"},
        "a docstring": {"class_start": '"""Reads the pool through ``get_key_buffer``."""'},
        "defined twice": {"class_end": method.format(name="decode")},
        "bound again": {
            "class_end": method.format(name="other") + "\n    forward_decode = forward_other\n"
        },
        "decorated in place": {"class_end": "    forward_decode = same(forward_decode)"},
        "replaced from outside": {
            "module_end": method.format(name="other").replace("\n    ", "\n").lstrip()
            + f"\n{owner}.forward_decode = forward_other"
        },
        "replaced by setattr": {
            "module_end": method.format(name="other").replace("\n    ", "\n").lstrip()
            + f"\nsetattr({owner}, 'forward_extend', forward_other)"
        },
        "a method beside": {"class_end": method.format(name="verify")},
        "a class of the same name": {
            "module": f"class {owner}:\n    pass",
        },
        "a look-alike beside": {"module_end": "class Other:\n" + method.format(name="decode")},
        "the name is taken": {"module": "_kv_gather = None"},
        "the name is a local": {"class_start": "_kv_gather = None"},
        "a static method": {"class_end": "    @staticmethod\n    def rows():\n        return 1"},
        "module aliases": {"module": "KEYS = 'get_key_buffer'\nRUN = 'run'"},
    }


CLASSES = classes("FlashInferMLAAttnBackend", WHOLE_METHOD)

RENAMED: dict[str, dict[str, str]] = {
    "as they are": {},
    "other locals": {
        "k_buf": "keys", "decode_wrapper": "reader", "prefill_wrapper_paged": "reader",
        "kv_indices": "rows_in_use", "kv_indptr": "first_rows", "kv_lens": "lengths",
    },
    "words of ours": {
        "k_buf": "gather", "kv_indices": "plan_rows", "kv_indptr": "pointers", "q_indptr": "to",
    },
    "one letter": {"k_buf": "b", "kv_lens": "n", "paged_kernel_lens": "m"},
    "not ASCII": {"k_buf": "schlüssel", "kv_indptr": "anfänge"},
}  # fmt: skip
"""Locals by other names. What a wrapper's methods call their parameters stays."""

KEPT = ("kv_indptr=", "kv_indices=", ".kv_indptr", ".kv_indices", ".decode_wrapper")


def build(choice: Mapping[str, str]) -> str:
    """Return the source of a choice: one spelling for each of ``CHOICES``."""
    parts = dict.fromkeys(
        ("module", "class_end", "module_end", "extend_decorator", "decode_decorator"), ""
    )
    parts["class_start"] = "page_size = 1"
    parts.update(CLASSES[choice["class"]])
    constructor = CONSTRUCTOR.replace("{super}", SUPERS[choice["constructor"]])
    if choice["constructor"] == "renamed runner":
        constructor = constructor.replace("model_runner", "runner")
    attributes = {"decode_wrapper": "decode_wrapper", "prefill_wrapper_paged": "prefill_wrapper"}
    text = MODULE
    for name, wrapper in (("extend", "prefill_wrapper_paged"), ("decode", "decode_wrapper")):
        run = RUNS[choice[f"{name} run"]].replace("WRAPPER", wrapper)
        text = text.replace(f"{{{name}_cast}}", indented(CASTS[choice[f"{name} cast"]], 8))
        run = run.replace("ATTRIBUTE", attributes[wrapper])
        text = text.replace(f"{{{name}_run}}", indented(run, 8))
    for name in ("decode", "prefill"):
        text = text.replace(f"{{{name}_plan}}", indented(PLANS[choice[f"{name} plan"]], 8))
    text = text.replace("{constructor}\n", indented(constructor, 4))
    text = text.replace("{write}", indented(WRITES[choice["write"]], 12))
    for name, part in parts.items():
        text = text.replace(f"{{{name}}}", part)
    return renamed(text, RENAMED[choice["names"]]) + HELPERS


HELPERS = f"""

def keys_of(pool, q):
    return pool.to(q.dtype)


def attend(wrapper, *parts):
    return wrapper.run(*parts)


def planned(wrapper, q_indptr, kv_indptr, kv_indices, kv_lens, self):
    {PLAN}
"""


CHOICES: dict[str, tuple[str, ...]] = {
    "decode cast": tuple(CASTS),
    "extend cast": tuple(CASTS),
    "decode run": tuple(RUNS),
    "extend run": tuple(RUNS),
    "decode plan": tuple(PLANS),
    "prefill plan": tuple(PLANS),
    "constructor": tuple(SUPERS),
    "write": tuple(WRITES),
    "class": tuple(CLASSES),
    "names": tuple(RENAMED),
}


REFUSED: dict[str, frozenset[str]] = {
    "cast": frozenset({
        "a second by another method", "a second for nothing", "a second, of all layers",
        "another shape first", "bfloat16", "changed in place", "compared", "comprehension",
        "copy", "counted", "cut by rows behind", "cut by rows in front", "dtype of a call",
        "duplicated", "extra cast behind", "extra cast in front", "extra cast of a copy",
        "generator", "getter by name", "getter in a local", "global", "helper function",
        "helper method", "into another buffer", "kept", "lambda", "lambda that is called later",
        "like the query", "loop of one", "match", "nested function",
        "nested function of the pool", "no cast", "no cast in one arm", "one line", "printed",
        "read by a function inside", "read by a lambda", "scaled", "starred", "stored in place",
        "the pool's own list", "to as a function", "try, except, other keys", "type",
        "viewed by rows behind", "while", "with, bound",
    }),
    "run": frozenset({
        "a dictionary", "class by name", "lambda", "nested function", "one of two wrappers",
        "other argument", "run by name", "run in a local", "run of a partial", "starred",
        "through a helper", "wrapper bound in both arms", "wrapper handed on",
        "wrapper in a local", "wrapper of metadata, stored",
        "wrapper of metadata, stored by another name", "wrapper of self",
        "wrapper of what is bound again",
    }),
    "plan": frozenset({
        "a fast plan", "a helper", "a helper as well", "another buffer's indices",
        "class by name", "indices converted", "indices cut", "its other name",
        "its other name as well", "lambda", "pages of a call", "plan by name", "plan in a local",
        "plan of a partial", "pointers bound again", "sequential", "starred", "starred indices",
    }),
    "constructor": frozenset({
        "by name", "conditional", "in a with", "nested", "no base class", "renamed runner",
        "returns before", "runner bound again", "semicolon", "twice",
    }),
    "write": frozenset({
        "by name", "in a local", "keywords", "starred",
    }),
    "class": frozenset({
        "a class of the same name", "a method beside", "bound again", "defined twice",
        "replaced by setattr", "replaced from outside", "the name is taken",
    }),
    "names": frozenset(),
}  # fmt: skip
"""Spellings that are refused, whatever else is plain; all others are rewritten."""

# --- running one ---------------------------------------------------------------------------


class _Wrapper:
    """A paged wrapper in an eager step: it keeps its indices, and tells what a run is handed."""

    _use_cuda_graph = False

    def __init__(self, name: str, log: list[Any]) -> None:
        self.name, self.log = name, log

    def plan(
        self, qo_indptr: Any, kv_indptr: torch.Tensor, kv_indices: torch.Tensor, kv_len_arr: Any,
        num_heads: int, head_dim_ckv: int, head_dim_kpe: int, page_size: int, causal: bool,
        sm_scale: float, q_data_type: Any, kv_data_type: Any,
    ) -> None:  # fmt: skip
        """Keep the indices and where each request's begin."""
        assert kv_indices.dtype == torch.int32
        self._kv_indices_buf, self._starts = kv_indices, [int(i) for i in kv_indptr]
        self.log.append(("plan", self.name, self._starts, [int(n) for n in kv_len_arr], page_size))

    begin_forward = plan

    def run(
        self, q_nope: torch.Tensor, q_pe: torch.Tensor, ckv_cache: torch.Tensor,
        kpe_cache: torch.Tensor, out: Any = None, return_lse: bool = False, page_table: Any = None,
    ) -> Any:  # fmt: skip
        """Write down the rows of each request, bit for bit, and their dtype."""
        rows = []
        for first, last in zip(self._starts, self._starts[1:], strict=False):
            at = self._kv_indices_buf[first:last].long()
            rows.append(tuple(bits(keys, at) for keys in (ckv_cache, kpe_cache)))
        queries = bits(q_nope), bits(q_pe)
        dtypes = ckv_cache.dtype, kpe_cache.dtype
        self.log.append(("run", self.name, rows, dtypes, queries))
        made = q_nope.clone()
        return (made, None) if return_lse else made


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


def play(source: str, companion: ModuleType | None) -> Played:
    """Run a source: two batches, two layers, decode and paged prefill.

    Args:
        source: the module, original or patched.
        companion: what a patched one imports.
    """
    log: list[Any] = []
    pool = _pool()
    module = executed(source, PATH, AttentionBackend=Base, _rewriter_kv_gather=companion)
    config = SimpleNamespace(kv_lora_rank=CKV, qk_rope_head_dim=KPE)
    runner = SimpleNamespace(token_to_kv_pool=pool, dtype=torch.bfloat16, model_config=config)
    runner.self = runner
    wrappers = {name: _Wrapper(name, log) for name in ("decode", "prefill")}
    metadata = SimpleNamespace(
        decode_wrapper=wrappers["decode"], prefill_wrapper=wrappers["prefill"]
    )
    conversions = Conversions(pool.kv_buffer)
    with conversions:
        backend = module["FlashInferMLAAttnBackend"](runner, metadata)
        updaters = {
            "decode": module["FlashInferMLAIndicesUpdaterDecode"](runner, backend),
            "prefill": module["FlashInferMLAIndicesUpdaterPrefill"](runner, backend),
        }
        for lens, rows in (([2, 3], [7, 3, 20, 0, 11]), ([1, 2, 1], [23, 5, 4, 9])):
            for name in ("decode", "prefill"):
                updaters[name].call_begin_forward(
                    wrappers[name], torch.tensor(lens), rows,
                    torch.arange(len(lens) + 1, dtype=torch.int32),
                    torch.zeros(5, dtype=torch.int32),
                )  # fmt: skip
            for layer, batch, query, keys in steps(rows, pool):
                for name in ("extend", "decode"):
                    forward = getattr(backend, f"forward_{name}")
                    out = forward(query, keys[..., :CKV], 1, layer, batch, True, None,
                                  keys[..., CKV:])  # fmt: skip
                    log.append((name, bits(out)))
    whole = [size for size in conversions.sizes if size >= ROWS * KPE]
    return Played(log, len(whole))


def steps(rows: list[int], pool: Any) -> Iterator[tuple[Any, Any, torch.Tensor, torch.Tensor]]:
    """Yield layer, batch, query and new keys of each layer in one step."""
    generator = torch.Generator().manual_seed(len(rows))
    for layer_id in range(2):
        layer = SimpleNamespace(
            layer_id=layer_id, head_num=2, v_head_dim=CKV, head_dim=CKV + KPE
        )  # fmt: skip
        batch = SimpleNamespace(token_to_kv_pool=pool, dcp=None, loc=torch.tensor(rows[:2]))
        query = torch.randn((2, 2, CKV + KPE), generator=generator).to(torch.bfloat16)
        keys = torch.randn((2, 1, CKV + KPE), generator=generator).to(torch.bfloat16)
        yield layer, batch, query, keys


class Base:
    """What the backends inherit from."""

    def keys_of(self, layer: Any, q: torch.Tensor) -> torch.Tensor:
        """Convert the pool where no patch of the module can see it."""
        return self.token_to_kv_pool.get_key_buffer(layer.layer_id).to(q.dtype)  # type: ignore[attr-defined,no-any-return]


def refused(part: str) -> frozenset[str]:
    """Return the spellings of a part that are refused."""
    return REFUSED[part.rpartition(" ")[2]]


SHAPE = Shape("mla_kv_gather", PATH, CHOICES, build, play, refused)
