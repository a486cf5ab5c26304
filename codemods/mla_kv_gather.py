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

    from rewriter.definition import Definition

BACKEND = "FlashInferMLAAttnBackend"
UPDATERS = ("FlashInferMLAIndicesUpdaterDecode", "FlashInferMLAIndicesUpdaterPrefill")

# Where the index argument stands: the in-line fast plan takes the wrapper as its first argument.
_PLAN_METHOD, _PLAN_FUNCTION = 2, 3


def find_casts(definition: Definition) -> Iterable[Match]:
    """Find the conversions of the pool that reach ``wrapper.run(…, ckv, kpe)``.

    Raises:
        Upstream: every run gets the pool's rows in the pool's dtype.
        Drift: a run gets something else, or the pool is read in a way that is not known.
    """
    from rewriter.flow import argument, method, trace

    runs = [n for n in definition.nodes if method(n) == "run"]
    if not runs:
        raise Drift("no call of `run` on an attention wrapper")
    _nothing_beside(definition, {"run", *_READS}, ("forward_extend", "forward_decode"))
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
                    _row_by_row(definition, arg.value)
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


_READS = ("get_key_buffer", "get_value_buffer", "get_kv_buffer", "get_mla_kv_buffer", "kv_buffer")

_RUN_KEYWORDS = ("q_nope", "q_pe", "ckv_cache", "kpe_cache", "out", "lse", "return_lse")
"""What ``run`` may be given; pages or lengths would name other rows than those of the plan."""


def _nothing_beside(definition: Definition, names: set[str], known: tuple[str, ...]) -> None:
    """Refuse methods that are kept under another name, or mentioned in other methods."""
    from rewriter.mentions import aliased, beside

    node = aliased(definition, names)
    if node is not None:
        raise Drift("a method is not called where it is named: what calls it is not known", node)
    line = beside(definition, names - {"run"}, known)
    if line is not None:
        raise Drift(f"another method of the class does the same: line {line}")


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
                _known_arguments(call)
                continue
        if not _looked_at(definition, taken):
            raise Drift(f"the converted keys go elsewhere than to `{wrapper}.run`", taken)


def _known_arguments(run: cst.Call) -> None:
    for arg in run.args:
        if arg.star or (arg.keyword is not None and arg.keyword.value not in _RUN_KEYWORDS):
            raise Drift("`run` gets an argument that is not known", arg)


def _looked_at(definition: Definition, node: cst.CSTNode) -> bool:
    """Return whether something looks at a buffer's dtype or width, or at whether it is there."""
    import libcst

    if isinstance(node, libcst.Comparison):
        return all(isinstance(c.operator, (libcst.Is, libcst.IsNot)) for c in node.comparisons)
    if not isinstance(node, libcst.Attribute):
        return False
    if node.attr.value == "shape":  # how many rows there are changes; how wide they are does not
        part = definition.parents[node]
        code = definition.code(part) if isinstance(part, libcst.Subscript) else ""
        return code.endswith(("[-1]", "[1]", "[2]"))
    return node.attr.value in ("dtype", "device")


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
    from rewriter.mentions import stored

    dtype = argument(cast, "dtype", 0)
    if dtype is None or len(cast.args) != 1:
        raise Drift("the cast of the pool takes more than a dtype", cast)
    if not _is_dtype(definition, dtype.value):
        raise Drift("what the pool is converted to is no dtype by its name", cast)
    assert isinstance(run, cst.Call) and isinstance(run.func, cst.Attribute)
    assert isinstance(cast.func, cst.Attribute)
    _whole(definition, cast.func.value)
    wrapper = run.func.value
    if isinstance(wrapper, cst.Name):
        bound = origins(definition, wrapper)
        if len(bound) != 1 or bound[0].what not in ("value", "parameter"):
            raise Drift(f"`{wrapper.value}` may be one of several wrappers", wrapper)
        if definition.span(bound[0].node)[0] > definition.span(cast)[0]:
            raise Drift(f"`{wrapper.value}` is bound only after the cast", wrapper)
    elif not _is_dotted(wrapper):
        raise Drift("the wrapper of `run` is no plain name", wrapper)
    elif (change := stored(definition, definition.code(wrapper))) is not None:
        raise Drift(f"`{definition.code(wrapper)}` may be one of several wrappers", change)
    return Match(cast.func.value, (definition.code(wrapper), definition.code(dtype.value)))


def _is_dtype(definition: Definition, node: cst.CSTNode) -> bool:
    """Return whether an expression is a dotted name, and that of a dtype on every way back."""
    from rewriter.flow import trace

    if not _is_dotted(node):
        return False  # it is evaluated twice
    codes = [definition.code(origin.node) for origin in trace(definition, node)]
    return all(code.endswith("dtype") or code.startswith("torch.") for code in codes)


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


def find_writes(definition: Definition) -> Iterable[Match]:
    """Find the pool's write method where the two parts of the keys are written together."""
    import libcst

    from rewriter.flow import method

    _nothing_beside(definition, {"set_mla_kv_buffer"}, ("forward_extend", "forward_decode"))
    for node in definition.nodes:
        if method(node) == "set_mla_kv_buffer":
            assert isinstance(node, libcst.Call)
            if len(node.args) < 4 or any(arg.star or arg.keyword for arg in node.args):
                raise Drift("the keys' two parts are not the third and fourth argument", node)
            yield Match(node.func, ("self",))


def _is_dotted(node: cst.CSTNode) -> bool:
    import libcst as cst

    while isinstance(node, cst.Attribute):
        node = node.value
    return isinstance(node, cst.Name)


def _no_cast_left(definition: Definition, casts: dict[cst.Call, Match]) -> None:
    """Refuse a read of the pool that is neither converted for a run nor given to one."""
    from rewriter.flow import method
    from rewriter.uses import uses

    for node in definition.nodes:
        if method(node) not in _READS:
            continue
        if method(node) != "get_key_buffer":
            raise Drift("the pool is read in a way that is not known", node)
        for taken in uses(definition, node):
            call = definition.parents[taken]
            if method(call) == "to" and call not in casts:  # type: ignore[arg-type]
                raise Drift("a conversion of the pool that reaches no `run`", taken)
            if call in casts or method(call) == "run" or _looked_at(definition, taken):  # type: ignore[arg-type]
                continue
            raise Drift("the pool's buffer goes elsewhere than to `run`", taken)


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
    _nothing_beside(definition, {"plan"}, ("call_begin_forward",))
    _no_plan_left(definition, plans)
    rows = _row_pointers(definition, [call for call, _, _ in plans])
    return [_plan(definition, call, wrapper, indices, rows) for call, wrapper, indices in plans]


def _no_plan_left(
    definition: Definition,
    plans: list[tuple[cst.Call, cst.BaseExpression, cst.Arg | None]],
) -> None:
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
        elif isinstance(node, cst.Attribute) and node.attr.value != "kv_indices":
            raise Drift("which buffer the plan's indices point into cannot be told", node)
    if len(others) > 1:
        raise Drift("the plan's indices come from several other buffers", indices.value)
    arguments += others
    pages = argument(call, "page_size", 7 if method(call) == "plan" else 8)
    if pages is None:
        raise Drift("the plan's page size cannot be told", call)
    if definition.code(pages.value) != "1":
        if not _is_dotted(pages.value):
            raise Drift("the plan's page size is no plain name", pages)
        arguments.append(f"page_size={definition.code(pages.value)}")
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
    companions = (Companion("sglang/srt/layers/attention/_rewriter_kv_gather.py", "kv_gather"),)
    sites = (
        import_line("from sglang.srt.layers.attention import _rewriter_kv_gather as _kv_gather"),
        Site(
            f"{BACKEND}.__init__",
            "constructor",
            "super().__init__()",
            Insert("_kv_gather.attach(self, model_runner)"),
            unconditional=True,
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
