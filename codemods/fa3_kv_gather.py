"""fa3 converts the pages a batch reads to the query's dtype, not the whole KV pool.

What: MLA with an FP8 KV cache hands FlashAttention 3 ``pool.get_key_buffer(layer).to(q.dtype)``,
so the whole pool is converted on every layer of every step. The buffer now goes through
``_kv_gather.pages`` in front of the cast, with the very page table and lengths that the kernel
gets: the pages that they refer to are converted, page table and lengths stay. Where another
kernel reads the same buffer by a table of its own (cascade, context parallel) the cast is as
before. The step's own keys are narrowed to FP8 by one kernel instead of two.

Why: 13.8 of 31.5 ms of a decode step of DeepSeek-R1 on 8 H200, of which some 99 % for pages that
nobody reads: sglang issue 35291. fa3 is the default for MLA on Hopper.

Drop when: upstream reads FP8 pages without converting the pool, in decode, extend and
verification (sglang pull request 36087 does so in part).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from codemods._kv_gather import (
    COMPANIONS,
    IMPORT,
    Reading,
    casts,
    constructor,
    dtype,
    reads,
    writes,
)
from rewriter.codemod import Codemod, Drift, Match, Upstream, Wrap

if TYPE_CHECKING:
    import libcst as cst

    from rewriter.definition import Definition

BACKEND = "FlashAttentionBackend"

KERNEL = "flash_attn_with_kvcache"
_POSITIONS = {
    "q": 0, "k_cache": 1, "v_cache": 2, "qv": 5, "cache_seqlens": 8, "page_table": 11,
    "cu_seqlens_q": 12, "cu_seqlens_k_new": 13, "max_seqlen_q": 14,
}  # fmt: skip
_KEYWORDS = frozenset(_POSITIONS) | {
    "softmax_scale", "causal", "window_size", "softcap", "q_descale", "k_descale", "v_descale",
    "sinks", "num_splits", "scheduler_metadata", "return_softmax_lse", "out", "ver", "pack_gqa",
    "sm_margin",
}  # fmt: skip
"""What the kernel may be given; new keys, batch indices or padding would change which rows it
reads."""

_HOW = Reading(
    KERNEL,
    others=("get_mla_kv_buffer", "kv_buffer"),
    looks=("shape", "dtype", "device", "ndim"),
    views=("paged_view",),
)


def find_casts(definition: Definition) -> Iterable[Match]:
    """Find the conversions of the pool that reach the kernel, with its page table and lengths.

    Raises:
        Upstream: every kernel gets the pool's pages in the pool's dtype.
        Drift: a kernel gets something else, or the pool is read in a way that is not known.
    """
    from rewriter.flow import called

    keys: dict[cst.Call, list[cst.Arg]] = {}
    for call in definition.nodes:
        if called(call) == KERNEL and _arg(call, "qv") is not None:  # of latent keys
            keys[call] = [_given(call, name) for name in ("k_cache", "v_cache")]  # type: ignore[index,arg-type]
    found = reads(definition, _HOW, keys)
    for calls in found.direct.values():
        raise Upstream(f"`{KERNEL}` gets the pool's pages without a change of dtype", calls[0])
    return [_match(definition, cast, found.converted) for cast in found.converted]


def _match(
    definition: Definition, cast: cst.Call, converted: dict[cst.Call, list[cst.Call]]
) -> Match:
    import libcst

    from rewriter.flow import called, steps
    from rewriter.repeated import repeated

    wanted = dtype(definition, cast)
    assert isinstance(cast.func, libcst.Attribute)
    if not all(isinstance(s, libcst.Name) for s in steps(definition, cast.func.value)):
        raise Drift("what is converted is not the pool's buffer alone", cast)
    main, flags = _one_kernel(definition, cast, converted[cast])
    _known_arguments(definition, main)
    for name in ("k_cache", "v_cache"):
        _in_pages(definition, _given(main, name), converted)
    kernels = [node for node in definition.nodes if called(node) == KERNEL]
    arguments = [
        repeated(definition, _given(main, name).value, cast, f"`{name}` of `{KERNEL}`", kernels)
        for name in ("page_table", "cache_seqlens")
    ]
    arguments.append(wanted)
    if flags:
        names = [repeated(definition, flag, cast, "the condition") for flag in flags]
        arguments.append(f"whole={' or '.join(dict.fromkeys(names))}")
    return Match(cast.func.value, ("self", *arguments))


def _arg(call: cst.CSTNode, name: str) -> cst.Arg | None:
    from rewriter.flow import argument

    return argument(call, name, _POSITIONS[name])  # type: ignore[arg-type]


def _given(call: cst.Call, name: str) -> cst.Arg:
    arg = _arg(call, name)
    if arg is None:
        raise Drift(f"`{KERNEL}` has no argument `{name}`", call)
    return arg


def _one_kernel(
    definition: Definition, cast: cst.Call, calls: list[cst.Call]
) -> tuple[cst.Call, list[cst.BaseExpression]]:
    """Return the kernel whose table is asked for, and the conditions under which others run.

    It is the one that no condition behind the cast has to hold for; all others run in the body of
    an ``if`` there.
    """
    conditions = [_condition(definition, cast, call) for call in calls]
    main = [call for call, test in zip(calls, conditions, strict=True) if test is None]
    if not main:
        raise Drift(f"every `{KERNEL}` that reads the converted keys is conditional", calls[0])
    if len(main) > 1:
        raise Drift("several kernels read the converted keys by tables of their own", main[1])
    return main[0], [test for test in conditions if test is not None]


def _condition(
    definition: Definition, cast: cst.CSTNode, call: cst.CSTNode
) -> cst.BaseExpression | None:
    """Return the test of the outermost ``if`` behind the cast whose body holds a call."""
    import libcst

    around = {cast}
    while (outer := definition.parents[cast]) is not None:
        around.add(outer)
        cast = outer
    found = None
    node = call
    while (parent := definition.parents[node]) is not None and parent not in around:
        if isinstance(parent, libcst.If) and node is parent.body:
            found = parent.test
        node = parent
    return found


def _known_arguments(definition: Definition, call: cst.Call) -> None:
    known = {position: name for name, position in _POSITIONS.items()}
    for position, arg in enumerate(call.args):
        name = arg.keyword.value if arg.keyword is not None else known.get(position)
        if arg.star or (name not in _KEYWORDS and definition.code(arg.value) != "None"):
            raise Drift(f"`{KERNEL}` gets an argument that is not known", arg)


def _in_pages(definition: Definition, keys: cst.Arg, casts: Collection[cst.CSTNode]) -> None:
    """Refuse keys that are not, on every way back to a cast, cut into pages of the backend's size.

    Rows keep their numbers: slices along the other dimensions, and one ``view`` or ``paged_view``.
    """
    import libcst

    from rewriter.flow import method, origins

    todo: list[tuple[cst.CSTNode, bool]] = [(keys.value, False)]
    seen: set[tuple[cst.CSTNode, bool]] = set()
    while todo:
        node, cut = step = todo.pop()
        if step in seen:
            continue
        seen.add(step)
        if isinstance(node, libcst.Name):
            reached = origins(definition, node)
            if any(origin.what != "value" for origin in reached):
                raise Drift("where the keys come from cannot be told", node)
            todo += [(origin.node, cut) for origin in reached]
        elif isinstance(node, libcst.Subscript):
            if definition.code(node.slice[0].slice).replace(" ", "") not in (":", "..."):
                raise Drift("the converted keys are cut by rows", node)
            todo.append((node.value, cut))
        elif isinstance(node, libcst.IfExp):
            todo += [(node.body, cut), (node.orelse, cut)]
        elif _is_page_cut(definition, node) and not cut:
            todo.append((_cut_object(node), True))
        elif method(node) == "contiguous":
            todo.append((_cut_object(node), cut))
        elif node not in casts or not cut:
            raise Drift("the keys are not cut into pages of `self.page_size`", keys)


def _is_page_cut(definition: Definition, node: cst.CSTNode) -> bool:
    """Return whether a call is ``x.view(-1, self.page_size, …)`` or ``paged_view(x, …)``."""
    import libcst

    from rewriter.flow import called

    name = called(node)
    if not isinstance(node, libcst.Call) or len(node.args) < 2:
        return False
    first = definition.code(node.args[0].value)
    if name != "paged_view" and (name not in ("view", "reshape") or first != "-1"):
        return False
    return definition.code(node.args[1].value) == "self.page_size"


def _cut_object(node: cst.CSTNode) -> cst.CSTNode:
    import libcst

    assert isinstance(node, libcst.Call)
    return node.func.value if isinstance(node.func, libcst.Attribute) else node.args[0].value


class Fa3KvGather(Codemod):
    """Pages converted in place of the pool, in sglang's FlashAttention backend."""

    target = "sglang/srt/layers/attention/flashattention_backend.py"
    supports = ">=0.4.8.post1,<0.6"
    drop_when = "upstream reads FP8 pages without converting the pool in decode and extend"
    companions = COMPANIONS
    sites = (
        IMPORT,
        constructor(BACKEND),
        *casts(BACKEND, find_casts, Wrap("_kv_gather.pages", keeps=1)),
        *writes(BACKEND),
    )
