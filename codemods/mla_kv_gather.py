"""flashinfer_mla converts the rows a batch reads to the query's dtype, not the whole KV pool.

What: MLA with an FP8 KV cache hands FlashInfer ``pool.get_key_buffer(layer).to(q.dtype)``, so the
whole pool is converted on every layer of every step. Plan calls now pass their indices through
``_kv_gather.plan`` and the buffer goes through ``_kv_gather.gather`` in front of the cast, which
stays: whatever the companion leaves alone is converted as before. The step's own keys are
narrowed to FP8 by one kernel instead of two on their way into the pool.

Why: 69 % of the GPU time of a decode step in a field report on GLM-5 (pool of 495,552 tokens);
43.7 % on DeepSeek-R1 in sglang issue 35291. docs/performance.md has our own measurements.

Drop when: upstream reads FP8 rows without converting the pool, in decode and in paged prefill, on
every architecture that is served (sglang pull requests 34638 and 35322 do so in part).
"""

from __future__ import annotations

from collections.abc import Iterable
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
from rewriter.codemod import Codemod, Drift, Match, Site, Upstream, Wrap

if TYPE_CHECKING:
    import libcst as cst

    from rewriter.definition import Definition

    Plan = tuple[cst.Call, cst.BaseExpression, cst.Arg | None]

BACKEND = "FlashInferMLAAttnBackend"
UPDATERS = ("FlashInferMLAIndicesUpdaterDecode", "FlashInferMLAIndicesUpdaterPrefill")

# Where the index argument stands: the in-line fast plan takes the wrapper as its first argument.
_PLAN_METHOD, _PLAN_FUNCTION = 2, 3

_KEYS = {"ckv_cache": 2, "kpe_cache": 3}

_RUN_KEYWORDS = ("q_nope", "q_pe", *_KEYS, "out", "lse", "return_lse")
"""What ``run`` may be given; pages or lengths would name other rows than those of the plan."""

_HOW = Reading(
    "run",
    others=("get_value_buffer", "get_kv_buffer", "get_mla_kv_buffer", "kv_buffer"),
    # how many rows there are changes; how wide they are does not
    looks=("dtype", "device", "shape[-1]", "shape[1]", "shape[2]"),
    elsewhere="dcp_kv_buffer",  # context parallel: gathered from all ranks already
)


def find_casts(definition: Definition) -> Iterable[Match]:
    """Find the conversions of the pool that reach ``wrapper.run(…, ckv, kpe)``.

    Raises:
        Upstream: every run gets the pool's rows in the pool's dtype.
        Drift: a run gets something else, or the pool is read in a way that is not known.
    """
    from rewriter.flow import argument, method
    from rewriter.mentions import only_called

    only_called(definition, {"run"})
    keys: dict[cst.Call, list[cst.Arg]] = {}
    for run in definition.nodes:
        if method(run) == "run":
            for name, position in _KEYS.items():
                arg = argument(run, name, position)  # type: ignore[arg-type]
                if arg is None:
                    raise Drift(f"`run` has no argument `{name}` at position {position}", run)
                keys.setdefault(run, []).append(arg)  # type: ignore[arg-type]
    if not keys:
        raise Drift("no call of `run` on an attention wrapper")
    found = reads(definition, _HOW, keys)
    if found.direct:
        direct = next(iter(found.direct))
        raise Upstream("`run` gets the pool's rows without a change of dtype", direct)
    for runs in found.converted.values():
        for arg in (arg for run in runs for arg in keys[run]):
            _row_by_row(definition, arg.value)
    return [_match(definition, cast, runs) for cast, runs in found.converted.items()]


def _match(definition: Definition, cast: cst.Call, runs: list[cst.Call]) -> Match:
    import libcst

    from rewriter.repeated import repeated

    wanted = dtype(definition, cast)
    assert isinstance(cast.func, libcst.Attribute)
    _whole(definition, cast.func.value)
    wrappers: set[str] = set()
    for run in runs:
        for arg in run.args:
            if arg.star or (arg.keyword is not None and arg.keyword.value not in _RUN_KEYWORDS):
                raise Drift("`run` gets an argument that is not known", arg)
        assert isinstance(run.func, libcst.Attribute)
        wrapper = run.func.value
        wrappers.add(repeated(definition, wrapper, cast, "the wrapper of `run`", runs))
    if len(wrappers) > 1:
        raise Drift("the converted keys go to several wrappers", runs[1])
    return Match(cast.func.value, (*wrappers, wanted))


def _whole(definition: Definition, pool: cst.CSTNode) -> None:
    """Refuse a part of the pool's buffer, or one of another shape: the companion leaves those."""
    import libcst

    from rewriter.flow import method, steps

    for node in steps(definition, pool):
        if isinstance(node, libcst.Subscript):
            raise Drift("what is converted is a part of the pool's buffer", node)
        if isinstance(node, libcst.Call) and method(node) != "contiguous":
            if [definition.code(arg.value) for arg in node.args[:-1]] != ["-1", "1"]:
                raise Drift("what is converted has another shape than the pool's buffer", node)


def _row_by_row(definition: Definition, keys: cst.CSTNode) -> None:
    """Refuse converted keys that are cut by rows before ``run``: there may be fewer of them."""
    import libcst

    from rewriter.flow import method, steps

    for node in steps(definition, keys):
        if isinstance(node, libcst.Subscript):
            first = definition.code(node.slice[0].slice).replace(" ", "")
            if first not in (":", "..."):
                raise Drift("the converted keys are cut by rows", node)
        elif isinstance(node, libcst.Call) and method(node) in ("view", "reshape"):
            if not node.args or definition.code(node.args[0].value) != "-1":
                raise Drift("the converted keys are given a number of rows", node)


def find_plans(definition: Definition) -> Iterable[Match]:
    """Find the index argument of every plan call, with the local ``kv_indptr`` beside it.

    Raises:
        Drift: a plan call whose indices or row pointers cannot be told.
    """
    import libcst as cst

    from rewriter.flow import argument, method
    from rewriter.mentions import only_called, only_in

    plans: list[Plan] = []
    for node in definition.nodes:
        if not isinstance(node, cst.Call):
            continue
        if method(node) == "plan":
            assert isinstance(node.func, cst.Attribute)
            plans.append((node, node.func.value, argument(node, "kv_indices", _PLAN_METHOD)))
        elif isinstance(node.func, cst.Name) and node.func.value.startswith("fast_mla_"):
            wrapper = argument(node, "self", 0)
            if wrapper is None:
                raise Drift("a fast plan without a wrapper", node)
            plans.append((node, wrapper.value, argument(node, "kv_indices", _PLAN_FUNCTION)))
    if not plans:
        raise Drift("no plan call")
    only_called(definition, {"plan"})
    only_in(definition, ("call_begin_forward",), {"plan"})
    _no_plan_left(definition, plans)
    rows = _row_pointers(definition, [call for call, _, _ in plans])
    return [_plan(definition, call, wrapper, indices, rows) for call, wrapper, indices in plans]


def _no_plan_left(definition: Definition, plans: list[Plan]) -> None:
    """Refuse a call that gets a wrapper and its indices and is no plan that is known here."""
    from rewriter.mentions import calls_with

    known = [call for call, _, _ in plans]
    wrappers = {definition.code(wrapper) for _, wrapper, _ in plans}
    indices = {definition.code(arg.value) for _, _, arg in plans if arg is not None}
    for call in calls_with(definition, wrappers, indices):
        if call not in known:
            raise Drift("a call plans a wrapper in a way that is not known", call)


def _plan(
    definition: Definition,
    call: cst.Call,
    wrapper: cst.BaseExpression,
    indices: cst.Arg | None,
    row_pointers: str,
) -> Match:
    import libcst as cst

    from rewriter.flow import argument, method, origins, plain_name

    if indices is None or not isinstance(indices.value, cst.Name):
        raise Drift("the index argument of the plan is no plain name", call)
    planned = plain_name(wrapper)
    if planned is None:
        raise Drift("the wrapper of the plan is no plain name", wrapper)
    arguments = [planned, row_pointers, "self.attn_backend"]
    others: set[str] = set()
    for origin in origins(definition, indices.value):
        node = origin.node
        if method(node) == "arange":
            raise Drift("the plan gets sequential indices (another patch of the same idea?)", node)
        if isinstance(node, cst.Attribute) and node.attr.value == "dcp_kv_indices":
            others.add(definition.code(node.value))
        elif isinstance(node, cst.Attribute) and node.attr.value != "kv_indices":
            raise Drift("which buffer the plan's indices point into cannot be told", node)
    if len(others) > 1:
        raise Drift("the plan's indices come from several other buffers", indices.value)
    arguments += others
    pages = argument(call, "page_size", 7 if method(call) == "plan" else 8)
    if pages is None:
        raise Drift("the plan's page size cannot be told", call)
    if definition.code(pages.value) != "1":
        page_size = plain_name(pages.value)
        if page_size is None:
            raise Drift("the plan's page size is no plain name", pages)
        arguments.append(f"page_size={page_size}")
    return Match(indices.value, tuple(arguments))


def _row_pointers(definition: Definition, calls: list[cst.Call]) -> str:
    """Return the name of the device tensor whose last value is the number of rows in use.

    It is the name that a slice of row counts is summed into and that a plan call's second
    argument leads back to; replays pass a host tensor there instead.
    """
    import libcst as cst

    from rewriter.flow import argument, bound, method, origins

    summed = {
        target.target.value.value
        for node in definition.nodes
        if isinstance(node, cst.Assign) and method(node.value) == "cumsum"
        for target in node.targets
        if isinstance(target.target, cst.Subscript) and isinstance(target.target.value, cst.Name)
    }
    found: set[str] = set()
    known: list[cst.CSTNode] = []
    for call in calls:
        if method(call) != "plan":
            continue
        arg = argument(call, "kv_indptr", 1)
        todo: list[cst.CSTNode] = [arg.value] if arg is not None else []
        seen: set[str] = set()
        while todo:
            node = todo.pop()
            if isinstance(node, cst.IfExp):
                todo += [node.body, node.orelse]
            elif isinstance(node, cst.Name) and node.value in summed:
                found.add(node.value)
                known += [origin.node for origin in origins(definition, node)]
            elif isinstance(node, cst.Name) and node.value not in seen:
                seen.add(node.value)
                todo += [o.node for o in origins(definition, node) if o.what == "value"]
    if len(found) != 1:
        names = ", ".join(sorted(found)) or "none"
        raise Drift(f"expected one local tensor of row pointers behind the plan, found {names}")
    name = found.pop()
    for call in calls:
        if any(origin.node not in known for origin in bound(definition, name, call)):
            raise Drift(f"`{name}` is another thing at this plan than behind it", call)
    return name


class MlaKvGather(Codemod):
    """Gather-then-cast in sglang's FlashInfer MLA backend."""

    target = "sglang/srt/layers/attention/flashinfer_mla_backend.py"
    supports = ">=0.4.6.post5,<0.6"
    drop_when = "upstream reads FP8 rows without converting the pool in decode and paged prefill"
    companions = COMPANIONS
    sites = (
        IMPORT,
        constructor(BACKEND),
        *(
            Site(f"{name}.call_begin_forward", "plan", find_plans,
                 Wrap("_kv_gather.plan", keeps=1), count=None)
            for name in UPDATERS
        ),
        *casts(BACKEND, find_casts, Wrap("_kv_gather.gather", keeps=1)),
        *writes(BACKEND),
    )  # fmt: skip
