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

from rewriter.codemod import (
    Codemod,
    Companion,
    Drift,
    Insert,
    Match,
    Site,
    Upstream,
    Wrap,
    import_line,
)

if TYPE_CHECKING:
    import libcst as cst

    from rewriter.source import Definition

BACKEND = "FlashInferMLAAttnBackend"
UPDATERS = ("FlashInferMLAIndicesUpdaterDecode", "FlashInferMLAIndicesUpdaterPrefill")

# Where the index argument stands: the in-line fast plan takes the wrapper as its first argument.
_PLAN_METHOD, _PLAN_FUNCTION = 2, 3


def find_casts(definition: Definition) -> Iterable[Match]:
    """Find the conversions of the pool that reach ``wrapper.run(…, ckv, kpe)``.

    Raises:
        Upstream: every run gets the pool's rows in the pool's dtype.
        Drift: a run gets something else, or a conversion of the pool does not reach a run.
    """
    from rewriter.flow import argument, method, trace

    runs = [n for n in definition.nodes if method(n) == "run"]
    if not runs:
        raise Drift("no call of `run` on an attention wrapper")
    casts: dict[cst.Call, Match] = {}
    direct: list[cst.CSTNode] = []
    for run in runs:
        for keyword, position in (("ckv_cache", 2), ("kpe_cache", 3)):
            arg = argument(run, keyword, position)  # type: ignore[arg-type]
            if arg is None:
                raise Drift(f"`run` has no argument `{keyword}` at position {position}", run)
            for origin in trace(definition, arg.value):
                kind = _source_of(definition, origin.node)
                if kind == "pool":
                    direct.append(origin.node)
                elif kind == "cast of the pool":
                    casts.setdefault(origin.node, _cast(definition, run, origin.node))  # type: ignore[arg-type]
                elif kind != "cast of another buffer":
                    raise Drift(
                        "what `run` reads is neither the pool's buffer nor a cast of it "
                        "(another patch of the same idea?)", origin.node,
                    )  # fmt: skip
    if casts and direct:
        raise Drift("some runs read the pool converted, others as it is", direct[0])
    _no_cast_left(definition, casts)
    if not casts:
        raise Upstream("`run` gets the pool's rows without a change of dtype", direct[0])
    for cast, match in casts.items():
        _only_to_run(definition, cast, match.arguments[0])
    return casts.values()


def _only_to_run(definition: Definition, cast: cst.Call, wrapper: str) -> None:
    """Refuse converted keys that something else than this wrapper's ``run`` reads by pool row."""
    import libcst

    from rewriter.flow import method
    from rewriter.uses import uses

    for taken in uses(definition, cast):
        if isinstance(taken, libcst.Arg):
            call = definition.parents[taken]
            assert isinstance(call, libcst.Call)
            if method(call) == "run" and definition.code(call.func) == f"{wrapper}.run":
                continue
        looked_at = isinstance(taken, libcst.Attribute) and taken.attr.value in ("shape", "dtype")
        if looked_at or isinstance(taken, libcst.Comparison):
            continue
        raise Drift(f"the converted keys go elsewhere than to `{wrapper}.run`", taken)


def _source_of(definition: Definition, node: cst.CSTNode) -> str:
    import libcst as cst

    from rewriter.flow import method, trace

    if method(node) == "get_key_buffer":
        return "pool"
    if method(node) != "to":
        return "unknown"
    receiver = node.func.value  # type: ignore[attr-defined]
    roots = [origin.node for origin in trace(definition, receiver)]
    if all(method(root) == "get_key_buffer" for root in roots):
        return "cast of the pool"
    if all(isinstance(r, cst.Attribute) and r.attr.value == "dcp_kv_buffer" for r in roots):
        return "cast of another buffer"  # context parallel: gathered from all ranks already
    return "unknown"


def _cast(definition: Definition, run: cst.CSTNode, cast: cst.Call) -> Match:
    import libcst as cst

    from rewriter.flow import argument, origins

    dtype = argument(cast, "dtype", 0)
    if dtype is None or len(cast.args) != 1:
        raise Drift("the cast of the pool takes more than a dtype", cast)
    assert isinstance(run, cst.Call) and isinstance(run.func, cst.Attribute)
    assert isinstance(cast.func, cst.Attribute)
    wrapper = run.func.value
    if isinstance(wrapper, cst.Name):
        bound = origins(definition, wrapper)
        if len(bound) != 1 or bound[0].what not in ("value", "parameter"):
            raise Drift(f"`{wrapper.value}` may be one of several wrappers", wrapper)
        if definition.span(bound[0].node)[0] > definition.span(cast)[0]:
            raise Drift(f"`{wrapper.value}` is bound only after the cast", wrapper)
    elif not _is_dotted(wrapper):
        raise Drift("the wrapper of `run` is no plain name", wrapper)
    return Match(cast.func.value, (definition.code(wrapper), definition.code(dtype.value)))


def find_writes(definition: Definition) -> Iterable[Match]:
    """Find the pool's write method where the two parts of the keys are written together."""
    from rewriter.flow import method

    for node in definition.nodes:
        if method(node) == "set_mla_kv_buffer":
            yield Match(node.func, ("self",))  # type: ignore[attr-defined]


def _is_dotted(node: cst.CSTNode) -> bool:
    import libcst as cst

    while isinstance(node, cst.Attribute):
        node = node.value
    return isinstance(node, cst.Name)


def _no_cast_left(definition: Definition, casts: dict[cst.Call, Match]) -> None:
    from rewriter.flow import method

    for node in definition.nodes:
        if method(node) == "to" and node not in casts:
            if _source_of(definition, node) == "cast of the pool":
                raise Drift("a conversion of the pool that reaches no `run`", node)


def find_plans(definition: Definition) -> Iterable[Match]:
    """Find the index argument of every plan call, with the local ``kv_indptr`` beside it.

    Raises:
        Drift: a plan call whose indices or row pointers cannot be told.
    """
    import libcst as cst

    from rewriter.flow import argument, method

    plans: list[tuple[cst.Call, cst.BaseExpression, cst.Arg | None]] = []
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
    _no_plan_left(definition, plans)
    rows = _row_pointers(definition, [call for call, _, _ in plans])
    return [_plan(definition, call, wrapper, indices, rows) for call, wrapper, indices in plans]


def _no_plan_left(
    definition: Definition,
    plans: list[tuple[cst.Call, cst.BaseExpression, cst.Arg | None]],
) -> None:
    """Refuse a call that gets a wrapper and its indices and is no plan that is known here."""
    import libcst as cst

    known = [call for call, _, _ in plans]
    wrappers = {definition.code(wrapper) for _, wrapper, _ in plans}
    indices = {definition.code(arg.value) for _, _, arg in plans if arg is not None}
    for node in definition.nodes:
        if node.__class__ is not cst.Call or any(node is call for call in known):
            continue
        assert isinstance(node, cst.Call)
        given = {a.value.value for a in node.args if isinstance(a.value, cst.Name)}
        receiver = node.func.value if isinstance(node.func, cst.Attribute) else None
        if isinstance(receiver, cst.Name):
            given.add(receiver.value)
        if given & wrappers and given & indices:
            raise Drift("a call plans a wrapper in a way that is not known", node)


def _plan(
    definition: Definition,
    call: cst.Call,
    wrapper: cst.BaseExpression,
    indices: cst.Arg | None,
    row_pointers: str,
) -> Match:
    import libcst as cst

    from rewriter.flow import argument, method, origins

    if indices is None or not isinstance(indices.value, cst.Name):
        raise Drift("the index argument of the plan is no plain name", call)
    if not _is_dotted(wrapper):
        raise Drift("the wrapper of the plan is no plain name", wrapper)
    arguments = [definition.code(wrapper), row_pointers, "self.attn_backend"]
    others: set[str] = set()
    for origin in origins(definition, indices.value):
        node = origin.node
        if method(node) == "arange":
            raise Drift("the plan gets sequential indices (another patch of the same idea?)", node)
        if isinstance(node, cst.Attribute) and node.attr.value == "dcp_kv_indices":
            others.add(definition.code(node.value))
    if len(others) > 1:
        raise Drift("the plan's indices come from several other buffers", indices.value)
    arguments += others
    pages = argument(call, "page_size", 7 if method(call) == "plan" else 8)
    if pages is None:
        raise Drift("the plan's page size cannot be told", call)
    if definition.code(pages.value) != "1":
        arguments.append(f"page_size={definition.code(pages.value)}")
    return Match(indices.value, tuple(arguments))


def _row_pointers(definition: Definition, calls: list[cst.Call]) -> str:
    """Return the name of the device tensor whose last value is the number of rows in use.

    It is the name that a slice of row counts is summed into and that a plan call's second
    argument leads back to; replays pass a host tensor there instead.
    """
    import libcst as cst

    from rewriter.flow import argument, method

    summed = {
        target.target.value.value
        for node in definition.nodes
        if isinstance(node, cst.Assign) and method(node.value) == "cumsum"
        for target in node.targets
        if isinstance(target.target, cst.Subscript) and isinstance(target.target.value, cst.Name)
    }
    found: set[str] = set()
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
            elif isinstance(node, cst.Name) and node.value not in seen:
                from rewriter.flow import origins

                seen.add(node.value)
                todo += [o.node for o in origins(definition, node) if o.what == "value"]
    if len(found) != 1:
        names = ", ".join(sorted(found)) or "none"
        raise Drift(f"expected one local tensor of row pointers behind the plan, found {names}")
    return found.pop()


class MlaKvGather(Codemod):
    """Gather-then-cast in sglang's FlashInfer MLA backend."""

    target = "sglang/srt/layers/attention/flashinfer_mla_backend.py"
    supports = ">=0.4.6.post5,<0.6"
    drop_when = "upstream reads FP8 rows without converting the pool in decode and paged prefill"
    companions = (Companion("sglang/srt/layers/attention/_rewriter_kv_gather.py", "kv_gather"),)
    sites = (
        import_line("from sglang.srt.layers.attention import _rewriter_kv_gather as _kv_gather"),
        Site(
            f"{BACKEND}.__init__",
            "constructor",
            "super().__init__()",
            Insert("_kv_gather.attach(self, model_runner)"),
        ),
        *(
            Site(f"{name}.call_begin_forward", "plan", find_plans,
                 Wrap("_kv_gather.plan", keeps=1), count=None)
            for name in UPDATERS
        ),
        *(
            Site(f"{BACKEND}.{name}", "cast", find_casts,
                 Wrap("_kv_gather.gather", keeps=1), count=None, decides=True)
            for name in ("forward_extend", "forward_decode")
        ),
        *(
            Site(f"{BACKEND}.{name}", "write", find_writes,
                 Wrap("_kv_gather.writer", keeps=1), count=None, optional=True)
            for name in ("forward_extend", "forward_decode")
        ),
    )  # fmt: skip
