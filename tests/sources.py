"""Modules in the shapes that the target's file has had, release by release: all our own text.

Only names are upstream's, because a codemod finds definitions by name. What the modules do, they
do with NumPy and the stand-ins below, so that a rewritten one can be run: what its wrappers are
given is written down and compared with what the original gave them.
"""

from __future__ import annotations

import builtins
from types import SimpleNamespace
from typing import Any

import numpy as np

PATH = "sglang/srt/layers/attention/flashinfer_mla_backend.py"

HEAD = '''\
from __future__ import annotations

"""Attention over one latent row a token, through paged wrappers."""

import os
from functools import partial

import numpy as np

from sglang.srt.layers.attention.base import (
    AttentionBackend,
)

LIMIT = int(os.environ.get("LIMIT", "8"))
'''

CONSTRUCTOR = """\
    def __init__(self, model_runner, paged=None, decode=None):
        super().__init__()

        # The pool and what reads it.
        self.token_to_kv_pool = model_runner.token_to_kv_pool
        self.prefill_wrapper_paged = paged
        self.decode_wrapper = decode
"""

# --- forward paths: what reaches ``run`` ---------------------------------------------------

EXTEND = """\
    def forward_extend(self, q, layer, forward_batch, save_kv_cache=True):
        prefill_wrapper_paged = self.prefill_wrapper_paged
        if save_kv_cache:
            forward_batch.token_to_kv_pool.set_kv_buffer(layer, q)
{cast}
        out = prefill_wrapper_paged.run(
            q[0],
            q[1],
            {keys}[:, :, : layer.v_head_dim],
            {keys}[:, :, layer.v_head_dim :],
        )
        return out
"""

DECODE = """\
    def forward_decode(self, q, layer, forward_batch, save_kv_cache=True):
        decode_wrapper = self.decode_wrapper
{cast}
        return decode_wrapper.run(q[0], q[1], {ckv}, {kpe})
"""

WHOLE, LEFT, RIGHT = (
    "{keys}",
    "{keys}[:, :, : layer.v_head_dim]",
    "{keys}[:, :, layer.v_head_dim :]",
)

CASTS = {
    # E1: the pool's rows as they are.
    "none": """\
        k_buf = forward_batch.token_to_kv_pool.get_key_buffer(layer.layer_id)
        k_buf = k_buf.view(-1, 1, layer.head_dim)
""",
    # E2, E4: the cast in the same statement, wrapped by a formatter.
    "wrapped": """\
        # rows in the dtype of the query
        k_buf = forward_batch.token_to_kv_pool.get_key_buffer(layer.layer_id).to(
            q.dtype
        )
""",
    # E3: converted, then viewed by pages.
    "by pages": """\
        k_buf = forward_batch.token_to_kv_pool.get_key_buffer(layer.layer_id).to(
            q.dtype
        )
        k_buf = k_buf.view(-1, self.page_size, k_buf.shape[-1])
""",
    # E5: the backend's own pool, on one line.
    "one line": """\
        k_buf = self.token_to_kv_pool.get_key_buffer(layer.layer_id).to(q.dtype)
""",
    # E6 and later: context parallel reads another buffer.
    "context parallel": """\
        if (
            forward_batch.attn_dcp_metadata is not None
            and forward_batch.attn_dcp_metadata.dcp_kv_buffer is not None
        ):
            k_buf = forward_batch.attn_dcp_metadata.dcp_kv_buffer.to(q.dtype)
        else:
            k_buf = self.token_to_kv_pool.get_key_buffer(layer.layer_id).to(q.dtype)
""",
    # Forks.
    "pool in a local": """\
        pool = forward_batch.token_to_kv_pool
        k_buf = pool.get_key_buffer(layer.layer_id).to(q.dtype)
""",
    "two steps": """\
        k_buf = self.token_to_kv_pool.get_key_buffer(layer.layer_id)
        wanted = q.dtype
        k_buf = k_buf.to(wanted)
""",
    "both arms": """\
        if layer.layer_id % 2:
            k_buf = self.token_to_kv_pool.get_key_buffer(layer.layer_id).to(q.dtype)
        else:
            k_buf = self.token_to_kv_pool.get_key_buffer(layer.layer_id).to(q.dtype)
""",
    "comments inside": """\
        k_buf = (  # the whole pool
            self.token_to_kv_pool  # of this rank
            .get_key_buffer(layer.layer_id)
            # FP8 in, 16 bits out
            .to(q.dtype)
        )
""",
    "keyword": """\
        k_buf = self.token_to_kv_pool.get_key_buffer(layer.layer_id).to(dtype=q.dtype)
""",
    "walrus": """\
        if (k_buf := self.token_to_kv_pool.get_key_buffer(layer.layer_id).to(q.dtype)) is None:
            raise RuntimeError("no keys")
""",
}

REFUSED_CASTS = {
    "helper method": (
        """\
        k_buf = self.keys_of(layer, q.dtype)
""",
        "neither the pool's buffer nor a cast of it",
    ),
    "gathered by another patch": (
        """\
        k_buf = gather_rows(self.token_to_kv_pool.get_key_buffer(layer.layer_id), self.rows)
""",
        "neither the pool's buffer nor a cast of it",
    ),
    "another cast left": (
        """\
        k_buf = self.token_to_kv_pool.get_key_buffer(layer.layer_id).to(q.dtype)
        if os.environ.get("LOG_KEYS"):
            print(self.token_to_kv_pool.get_key_buffer(layer.layer_id).to(q.dtype).sum())
""",
        "the converted keys go elsewhere than to `run`",
    ),
    "only one arm": (
        """\
        if layer.layer_id % 2:
            k_buf = self.token_to_kv_pool.get_key_buffer(layer.layer_id).to(q.dtype)
        else:
            k_buf = self.token_to_kv_pool.get_key_buffer(layer.layer_id)
""",
        "some calls read the pool converted, others as it is",
    ),
    "bound in a loop": (
        """\
        k_buf = None
        for part in self.parts:
            k_buf = part
        k_buf = k_buf if k_buf is not None else self.token_to_kv_pool.get_key_buffer(0).to(q.dtype)
""",
        "neither the pool's buffer nor a cast of it",
    ),
    "left by a break": (
        """\
        k_buf = self.token_to_kv_pool.get_key_buffer(layer.layer_id).to(q.dtype)
        for part in self.parts:
            if part.full:
                k_buf = part.keys
                break
""",
        "neither the pool's buffer nor a cast of it",
    ),
    "no pool at all": (
        """\
        k_buf = forward_batch.dcp.dcp_kv_buffer.to(q.dtype)
""",
        "no `run` that reads the pool of latent keys",
    ),
    "another wrapper as well": (
        """\
        k_buf = self.token_to_kv_pool.get_key_buffer(layer.layer_id).to(q.dtype)
        self.other_wrapper.run(q[0], q[1], k_buf, k_buf)
""",
        "the converted keys go to several wrappers",
    ),
    "another kernel as well": (
        """\
        k_buf = self.token_to_kv_pool.get_key_buffer(layer.layer_id).to(q.dtype)
        other_kernel(q, k_buf, self.kv_indices)
""",
        "the converted keys go elsewhere than to",
    ),
    "kept for later": (
        """\
        k_buf = self.token_to_kv_pool.get_key_buffer(layer.layer_id).to(q.dtype)
        self.keys = k_buf
""",
        "the converted keys go elsewhere than to",
    ),
    "cast with more arguments": (
        """\
        k_buf = self.token_to_kv_pool.get_key_buffer(layer.layer_id).to(q.dtype, copy=True)
""",
        "takes more than a dtype",
    ),
}

# --- plan paths: what reaches ``plan`` -----------------------------------------------------

PLAN_DECODE = """\
    def call_begin_forward(
        self, wrapper, lens, {pointers}, init_metadata_replay=False, spec_info=None, **kept
    ):
        {pointers}[1 : len(lens) + 1] = np.cumsum(lens)
        {pointers} = {pointers}[: len(lens) + 1]
{indices}
        if not init_metadata_replay:
            wrapper.plan(
                self.q_indptr,
                {pointers},
                kv_indices,
                lens,
                self.heads,
                512,
                64,
                1,
                False,
                self.scale,
                self.dtype,
                self.dtype,
            )
        else:
            wrapper.plan(
                kept["qo_indptr_cpu"],
                kept["kv_indptr_cpu"],
                kv_indices,
                kept["kv_len_arr_cpu"],
                self.heads,
                512,
                64,
                1,
                False,
                self.scale,
                self.dtype,
                self.dtype,
            )
"""

PLAN_PREFILL = """\
    def call_begin_forward(
        self, wrapper_ragged, wrapper_paged, lens, kv_indptr, use_ragged=False, extra=None
    ):
        kv_indptr[1 : len(lens) + 1] = np.cumsum(lens)
        kv_indptr = kv_indptr[: len(lens) + 1]
{indices}
        if use_ragged:
            wrapper_ragged.begin_forward(self.q_indptr, self.q_indptr)
        else:
            kv_len_arr = kv_indptr[1:] - kv_indptr[:-1]
{plan}
"""

POSITIONAL = """\
            wrapper_paged.plan(
                self.q_indptr,
                kv_indptr,
                kv_indices,
                kv_len_arr,
                self.heads,
                512,
                64,
                1,
                True,
                self.scale,
                self.dtype,
                self.dtype,
            )
"""

PLANS = {
    "positional": POSITIONAL,
    # E3
    "keywords and pages": """\
            wrapper_paged.plan(
                qo_indptr=self.q_indptr,
                kv_indptr=kv_indptr,
                kv_indices=kv_indices,
                kv_len_arr=kv_len_arr,
                page_size=self.page_size,
                causal=True,
            )
""",
    # E7: the plan's own row pointers lead back to the local ones.
    "pointers renamed": """\
            plan_kv_indptr, plan_kv_len_arr = kv_indptr, kv_len_arr
            if extra is not None:
                plan_kv_indptr = extra.kv_indptr_cpu
            wrapper_paged.plan(
                self.q_indptr,
                plan_kv_indptr,
                kv_indices,
                plan_kv_len_arr,
                self.heads,
                512,
                64,
                1,
                True,
                self.scale,
                self.dtype,
                self.dtype,
            )
""",
    # E8 and later
    "fast plan in line": """\
            if extra is not None:
                fast_mla_decode_plan(
                    wrapper_paged,
                    self.q_indptr,
                    kv_indptr,
                    kv_indices,
                    kv_len_arr,
                    self.heads,
                    512,
                    64,
                    1,
                    True,
                    self.scale,
                    self.dtype,
                    self.dtype,
                )
                return
"""
    + POSITIONAL,
    # E6 and later: rows of another buffer
    "context parallel": """\
            if extra is not None:
                kv_indices = extra.dcp_kv_indices
"""
    + POSITIONAL,
    "commented": """\
            wrapper_paged.plan(
                self.q_indptr, kv_indptr,  # where each request begins
                kv_indices,  # which rows
                kv_len_arr, self.heads, 512, 64, 1, True, self.scale, self.dtype, self.dtype)
""",
}

FILLED = """\
        kv_indices = np.zeros(int(kv_indptr[-1]), dtype=np.int32)
        fill(kv_indices, lens)
"""

INDICES = {
    "filled": FILLED,
    # E7: virtual rows become dense ones
    "translated": FILLED
    + """\
        kv_indices = self.translate(kv_indices)
""",
    # E10: a local of the name `plan`
    "packed by a plan": """\
        plan = extra_plan(lens)
        kv_indices = np.zeros(int(kv_indptr[-1]), dtype=np.int32)
        pack_read_stream(plan, lens, out=kv_indices)
""",
    "attribute store between": FILLED
    + """\
        self.last_indices = kv_indices
        self.shapes[0] = kv_indices.shape
""",
}

TAIL = """

def fast_mla_decode_plan(wrapper, *arguments):
    wrapper.plan(*arguments)


def fill(indices, lens):
    indices[:] = np.arange(len(indices))[::-1]


def extra_plan(lens):
    return ("plan", len(lens))


def pack_read_stream(plan, lens, out):
    fill(out, lens)
"""


def backend(
    *,
    extend: str = "wrapped",
    decode: str = "wrapped",
    prefill_plan: str = "positional",
    decode_indices: str = "filled",
    prefill_indices: str = "filled",
    pointers: str = "kv_indptr",
    casts: dict[str, str] | None = None,
    head: str = HEAD,
    constructor: str = CONSTRUCTOR,
) -> str:
    """Return a module: names of entries of CASTS, PLANS and INDICES, ``\\n`` newlines."""
    known = {**CASTS, **{n: t for n, (t, _) in REFUSED_CASTS.items()}, **(casts or {})}
    parts = [
        head,
        "\n\nclass FlashInferMLAAttnBackend(AttentionBackend):\n",
        "    page_size = 1\n    parts = ()\n\n",
        constructor,
        "\n",
        EXTEND.replace("{cast}\n", known[extend]).replace("{keys}", "k_buf"),
        "\n",
        DECODE.replace("{cast}\n", known[decode])
        .replace("{ckv}", "k_buf[:, :, : layer.v_head_dim]")
        .replace("{kpe}", "k_buf[:, :, layer.v_head_dim :]"),
        "\n\nclass FlashInferMLAIndicesUpdaterDecode:\n",
        UPDATER,
        PLAN_DECODE.replace(
            "{indices}\n", INDICES[decode_indices].replace("kv_indptr", pointers)
        ).replace("{pointers}", pointers),
        "\n\nclass FlashInferMLAIndicesUpdaterPrefill:\n",
        UPDATER,
        PLAN_PREFILL.replace("{indices}\n", INDICES[prefill_indices]).replace(
            "{plan}\n", PLANS[prefill_plan]
        ),
        TAIL,
    ]
    return "".join(parts)


UPDATER = """\
    q_indptr, heads, scale, dtype, page_size = None, 16, 0.5, "bf16", 1

    def __init__(self, attn_backend):
        self.attn_backend = attn_backend
        self.shapes = [None]

    def translate(self, indices):
        return indices + 1

"""

EPOCHS: dict[str, dict[str, Any]] = {
    "E1": {"extend": "none", "decode": "none"},
    "E2": {},
    "E3": {"extend": "by pages", "decode": "by pages", "prefill_plan": "keywords and pages"},
    "E4": {"prefill_plan": "positional"},
    "E5": {"extend": "one line", "decode": "one line"},
    "E6": {
        "extend": "context parallel", "decode": "one line", "prefill_plan": "context parallel",
    },
    "E7": {
        "extend": "context parallel", "decode": "one line", "prefill_plan": "pointers renamed",
        "prefill_indices": "translated",
    },
    "E8": {
        "extend": "context parallel", "decode": "one line", "prefill_plan": "fast plan in line",
    },
    "E9": {
        "extend": "context parallel", "decode": "one line", "prefill_plan": "fast plan in line",
        "prefill_indices": "attribute store between",
    },
    "E10": {
        "extend": "context parallel", "decode": "one line", "prefill_plan": "fast plan in line",
        "prefill_indices": "packed by a plan", "decode_indices": "packed by a plan",
    },
}  # fmt: skip
"""The epochs of the target's file, as arguments of ``backend``."""


# --- stand-ins, to run a module ------------------------------------------------------------


class Keys:
    """A buffer of keys that tells when the whole of it is converted."""

    def __init__(self, log: list[Any], name: str, dtype: str = "fp8") -> None:
        self.log, self.name, self.dtype, self.shape = log, name, dtype, (9, 1, 576)

    def to(self, dtype: str) -> Keys:
        """Convert; a buffer that has the dtype already is returned as it is."""
        if dtype == self.dtype:
            return self
        self.log.append(("converted", self.name))
        return Keys(self.log, self.name, dtype)

    def view(self, *shape: int) -> Keys:
        """Return the same rows."""
        return self

    def __getitem__(self, key: Any) -> Keys:
        return self


class Wrapper:
    """A paged wrapper that writes down what it is given."""

    def __init__(self, log: list[Any], name: str) -> None:
        self.log, self.name = log, name

    def plan(self, *arguments: Any, **named: Any) -> None:
        """Write down the indices."""
        indices = named["kv_indices"] if named else arguments[2]
        self.log.append(("plan", self.name, [int(i) for i in indices]))

    def begin_forward(self, *arguments: Any) -> None:
        """Write down that the ragged wrapper was planned."""
        self.log.append(("ragged", self.name))

    def run(self, q: Any, r: Any, ckv: Keys, kpe: Keys) -> None:
        """Write down whose rows, in which dtype."""
        self.log.append(("run", self.name, ckv.name, ckv.dtype, kpe.name, kpe.dtype))


class Companion:
    """Stands in for the installed module: gathers and plans are written down."""

    def __init__(self, log: list[Any]) -> None:
        self.log = log

    def attach(self, backend: Any, model_runner: Any) -> None:
        """Write it down."""
        self.log.append(("attach", backend.token_to_kv_pool if False else model_runner.name))

    def plan(self, wrapper: Wrapper, kv_indices: Any, *more: Any, **named: Any) -> Any:
        """Return sequential indices, as the real one does in an eager step."""
        pointers, _, *others = more
        self.log.append(("keeps", wrapper.name, [int(i) for i in kv_indices], int(pointers[-1])))
        if any(other is not None for other in others) or named.get("page_size", 1) != 1:
            return kv_indices
        return np.arange(len(kv_indices))

    def gather(self, wrapper: Wrapper, keys: Keys, dtype: str) -> Keys:
        """Return the rows of the batch, converted."""
        self.log.append(("gathers", wrapper.name, keys.name))
        return Keys(self.log, f"rows of {keys.name}", dtype)

    def writer(self, backend: Any, method: Any) -> Any:
        """Return the method itself."""
        return method


class Batch:
    """A forward batch: a pool, and metadata of context parallelism or none."""

    def __init__(self, pool: Any, dcp: Any = None) -> None:
        self.token_to_kv_pool, self.attn_dcp_metadata = pool, dcp


def run(text: str, *, extra: Any = None, layer_id: int = 0) -> list[Any]:
    """Plan and run each path of a module once; return what was written down, in order."""
    log: list[Any] = []
    pool = SimpleNamespace(
        get_key_buffer=lambda layer: Keys(log, f"pool of layer {layer}"),
        set_kv_buffer=lambda layer, keys: log.append(("saved", layer.layer_id)),
    )
    namespace: dict[str, Any] = {"__name__": "module", "__builtins__": _builtins(log)}
    exec(compile(text, PATH, "exec"), namespace)
    paged, decode = Wrapper(log, "paged"), Wrapper(log, "decode")
    runner = SimpleNamespace(token_to_kv_pool=pool, name="runner")
    made = namespace["FlashInferMLAAttnBackend"](runner, paged, decode)
    for name, wrappers, keywords in (
        ("Decode", [decode], {"init_metadata_replay": False}),
        ("Decode", [decode], {"init_metadata_replay": True, **_HOST}),
        ("Prefill", [Wrapper(log, "ragged"), paged], {"use_ragged": True}),
        ("Prefill", [Wrapper(log, "ragged"), paged], {"extra": None}),
        ("Prefill", [Wrapper(log, "ragged"), paged], {"extra": extra}),
    ):
        updater = namespace[f"FlashInferMLAIndicesUpdater{name}"](made)
        updater.call_begin_forward(*wrappers, [2, 3], np.zeros(4, dtype=np.int32), **keywords)
    layer = SimpleNamespace(layer_id=layer_id, v_head_dim=512, head_dim=576)
    query = _Query()
    made.forward_extend(query, layer, Batch(pool))
    made.forward_extend(query, layer, Batch(pool, SimpleNamespace(dcp_kv_buffer=Keys(log, "dcp"))))
    made.forward_decode(query, layer, Batch(pool))
    return log


_HOST = {"qo_indptr_cpu": [0, 1, 2], "kv_indptr_cpu": [0, 2, 5], "kv_len_arr_cpu": [2, 3]}


class _Query:
    dtype = "bf16"

    def __getitem__(self, part: int) -> str:
        return f"part {part}"


def _builtins(log: list[Any]) -> dict[str, Any]:
    """Return builtins whose import serves stand-ins for everything of sglang."""

    def importer(name: str, *arguments: Any) -> Any:
        if not name.startswith("sglang"):
            return builtins.__import__(name, *arguments)
        return SimpleNamespace(AttentionBackend=object, _rewriter_kv_gather=Companion(log))

    return {**vars(builtins), "__import__": importer}
