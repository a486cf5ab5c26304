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

from collections.abc import Collection, Iterable, Iterator
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

BACKEND = "FlashAttentionBackend"
METHODS = ("forward_extend", "forward_decode")

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

_OTHER_READS = ("get_mla_kv_buffer", "kv_buffer")


def find_casts(definition: Definition) -> Iterable[Match]:
    """Find the conversions of the pool that reach the kernel, with its page table and lengths.

    Raises:
        Upstream: every kernel gets the pool's pages in the pool's dtype.
        Drift: a kernel gets something else, or the pool is read in a way that is not known.
    """
    _nothing_beside(definition, {"get_key_buffer", *_OTHER_READS})
    casts = {cast: _readers(definition, cast) for cast in _casts(definition)}
    direct = _direct(definition, casts)
    known = [call for calls in casts.values() for call in calls] + direct
    for call in definition.nodes:
        if _is_kernel(call) and _arg(call, "qv") is not None and call not in known:
            raise Drift(
                f"what `{KERNEL}` reads is neither the pool's buffer nor a cast of it "
                "(another patch of the same idea?)", call,
            )  # fmt: skip
    if casts and direct:
        raise Drift("some kernels read the pool converted, others as it is", direct[0])
    if direct:
        raise Upstream(f"`{KERNEL}` gets the pool's pages without a change of dtype", direct[0])
    if not casts:
        raise Drift(f"no `{KERNEL}` that reads the pool of latent keys")
    return [_match(definition, cast, calls, casts) for cast, calls in casts.items()]


def _nothing_beside(definition: Definition, names: set[str]) -> None:
    """Refuse methods that are kept under another name, or mentioned in other methods."""
    from rewriter.mentions import aliased, beside

    node = aliased(definition, names)
    if node is not None:
        raise Drift("a method is not called where it is named: what calls it is not known", node)
    line = beside(definition, names, METHODS)
    if line is not None:
        raise Drift(f"another method of the class does the same: line {line}")


def _is_kernel(node: cst.CSTNode | None) -> bool:
    return _called(node) == KERNEL


def _called(node: cst.CSTNode | None) -> str | None:
    """Return the name of the function or method that a call calls."""
    import libcst

    if not isinstance(node, libcst.Call):
        return None
    func = node.func.attr if isinstance(node.func, libcst.Attribute) else node.func
    return func.value if isinstance(func, libcst.Name) else None


def _arg(call: cst.CSTNode, name: str) -> cst.Arg | None:
    from rewriter.flow import argument

    return argument(call, name, _POSITIONS[name])  # type: ignore[arg-type]


def _casts(definition: Definition) -> Iterator[cst.Call]:
    """Yield the conversions of the pool's own buffer; one of a part of it is refused."""
    import libcst

    from rewriter.flow import method, steps, trace

    for node in definition.nodes:
        if method(node) in _OTHER_READS:
            raise Drift("the pool is read in a way that is not known", node)
        if method(node) != "to":
            continue
        assert isinstance(node, libcst.Call) and isinstance(node.func, libcst.Attribute)
        pool = node.func.value
        roots = [origin.node for origin in trace(definition, pool)]
        if not any(method(root) == "get_key_buffer" for root in roots):
            continue
        names_alone = all(isinstance(s, libcst.Name) for s in steps(definition, pool))
        if not names_alone or any(method(root) != "get_key_buffer" for root in roots):
            raise Drift("what is converted is not the pool's buffer alone", node)
        yield node


def _direct(definition: Definition, casts: Collection[cst.Call]) -> list[cst.Call]:
    """Return the kernels that read the pool as it is; refuse what else reads it."""
    from rewriter.flow import method

    found: list[cst.Call] = []
    for node in definition.nodes:
        if method(node) == "get_key_buffer":
            for taken in _takers(definition, node):
                call = definition.parents[taken]
                if _is_kernel(call):
                    found.append(call)  # type: ignore[arg-type]
                elif call not in casts and not _looked_at(definition, taken):
                    raise Drift(f"the pool's buffer goes elsewhere than to `{KERNEL}`", taken)
    return found


def _readers(definition: Definition, cast: cst.Call) -> list[cst.Call]:
    """Return the kernels that read converted keys, in the order of the text; refuse others."""
    read: dict[cst.CSTNode, set[str]] = {}
    for taken in _takers(definition, cast):
        call = definition.parents[taken]
        if call is not None and _is_kernel(call):
            names = {name for name in ("k_cache", "v_cache") if _arg(call, name) is taken}
            if names:
                read.setdefault(call, set()).update(names)
                continue
        if not _looked_at(definition, taken):
            raise Drift(f"the converted keys go elsewhere than to `{KERNEL}`", taken)
    if not read:
        raise Drift(f"a conversion of the pool that reaches no `{KERNEL}`", cast)
    for call, given in read.items():
        if len(given) < 2:
            raise Drift(f"`{KERNEL}` gets only half of its keys from the pool", call)
    return [node for node in definition.nodes if node in read]  # type: ignore[misc]


def _takers(definition: Definition, value: cst.CSTNode) -> list[cst.CSTNode]:
    """Return what takes a value in the end; ``paged_view`` cuts it as ``view`` does."""
    from rewriter.uses import uses

    found: list[cst.CSTNode] = []
    todo = [value]
    seen: set[cst.CSTNode] = set()
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        for taken in uses(definition, node):
            call = definition.parents[taken]
            if _called(call) == "paged_view" and call.args[0] is taken:  # type: ignore[union-attr]
                todo.append(call)  # type: ignore[arg-type]
            else:
                found.append(taken)
    return found


def _looked_at(definition: Definition, node: cst.CSTNode) -> bool:
    """Return whether something looks at a buffer's shape or dtype, or at whether it is there."""
    import libcst

    if isinstance(node, libcst.Comparison):
        return all(isinstance(c.operator, (libcst.Is, libcst.IsNot)) for c in node.comparisons)
    looks = ("shape", "dtype", "device", "ndim")
    return isinstance(node, libcst.Attribute) and node.attr.value in looks


def _match(
    definition: Definition, cast: cst.Call, calls: list[cst.Call], casts: Collection[cst.Call]
) -> Match:
    import libcst

    from rewriter.flow import argument, trace

    dtype = argument(cast, "dtype", 0)
    if dtype is None or len(cast.args) != 1:
        raise Drift("the cast of the pool takes more than a dtype", cast)
    main, flags = _one_kernel(definition, cast, calls)
    _known_arguments(definition, main)
    for name in ("k_cache", "v_cache"):
        _in_pages(definition, _arg(main, name), casts)
    arguments = [
        _settled(definition, _given(main, name).value, cast, f"`{name}` of `{KERNEL}`")
        for name in ("page_table", "cache_seqlens")
    ]
    arguments.append(_settled(definition, dtype.value, cast, "the dtype"))
    for origin in trace(definition, dtype.value):
        if not definition.code(origin.node).endswith("dtype") and not _of_torch(arguments[-1]):
            raise Drift("what the pool is converted to is no dtype by its name", cast)
    if flags:
        names = [_settled(definition, flag, cast, "the condition") for flag in flags]
        arguments.append(f"whole={' or '.join(dict.fromkeys(names))}")
    assert isinstance(cast.func, libcst.Attribute)
    return Match(cast.func.value, ("self", *arguments))


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


def _in_pages(definition: Definition, keys: cst.Arg | None, casts: Collection[cst.CSTNode]) -> None:
    """Refuse keys that are not, on every way back to a cast, cut into pages of the backend's size.

    Rows keep their numbers: slices along the other dimensions, and one ``view`` or ``paged_view``.
    """
    import libcst

    from rewriter.flow import method, origins

    assert keys is not None
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

    name = _called(node)
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


def _settled(definition: Definition, node: cst.BaseExpression, cast: cst.Call, what: str) -> str:
    """Return an expression's code, if it means at the cast what it means where it stands.

    Raises:
        Drift: it is no dotted name, or it is bound or changed behind the cast.
    """
    import libcst

    from rewriter.flow import bound, origins
    from rewriter.mentions import stored

    code = definition.code(node)
    root: cst.BaseExpression = node
    while isinstance(root, libcst.Attribute):
        root = root.value
    if not isinstance(root, libcst.Name):
        raise Drift(f"{what} is no plain name", node)
    if _of_torch(code):
        return code
    here = origins(definition, root)
    if any(origin.what in ("opaque", "free") for origin in here):
        raise Drift(f"where {what}, `{code}`, comes from cannot be told", node)
    if set(here) != set(bound(definition, root.value, cast)):
        raise Drift(f"{what}, `{code}`, is bound behind the cast", node)
    change = stored(definition, code) or _changed_behind(definition, code, cast)
    if change is not None:
        raise Drift(f"{what}, `{code}`, is changed in the method", change)
    return code


def _of_torch(code: str) -> bool:
    return code.startswith("torch.")


def _changed_behind(definition: Definition, code: str, cast: cst.Call) -> cst.CSTNode | None:
    """Return what changes a tensor's elements behind the cast: ``x[…] = …`` or ``x.copy_(…)``."""
    import libcst

    start = definition.span(cast)[0]
    for node in definition.nodes:
        changed: cst.CSTNode | None = None
        if isinstance(node, (libcst.AssignTarget, libcst.AugAssign)):
            if isinstance(node.target, libcst.Subscript):
                changed = node.target.value
        elif isinstance(node, libcst.Call) and isinstance(node.func, libcst.Attribute):
            if node.func.attr.value.endswith("_"):
                changed = node.func.value
        if changed is not None and definition.code(changed) == code:
            if definition.span(node)[0] > start:
                return node
    return None


def find_writes(definition: Definition) -> Iterable[Match]:
    """Find the pool's write method where the two parts of the keys are written together."""
    import libcst

    from rewriter.flow import method

    _nothing_beside(definition, {"set_mla_kv_buffer"})
    for node in definition.nodes:
        if method(node) == "set_mla_kv_buffer":
            assert isinstance(node, libcst.Call)
            if len(node.args) < 4 or any(arg.star or arg.keyword for arg in node.args):
                raise Drift("the keys' two parts are not the third and fourth argument", node)
            yield Match(node.func, ("self",))


class Fa3KvGather(Codemod):
    """Pages converted in place of the pool, in sglang's FlashAttention backend."""

    target = "sglang/srt/layers/attention/flashattention_backend.py"
    supports = ">=0.4.8.post1,<0.6"
    drop_when = "upstream reads FP8 pages without converting the pool in decode and extend"
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
            Site(f"{BACKEND}.{name}", "cast", find_casts,
                 Wrap("_kv_gather.pages", keeps=1), count=None, decides=True)
            for name in METHODS
        ),
        *(
            Site(f"{BACKEND}.{name}", "write", find_writes,
                 Wrap("_kv_gather.writer", keeps=1), count=None, optional=True)
            for name in METHODS
        ),
    )  # fmt: skip
