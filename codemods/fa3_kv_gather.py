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

from collections.abc import Iterable, Iterator
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

KERNEL = "flash_attn_with_kvcache"
_POSITIONS = {
    "k_cache": 1, "v_cache": 2, "k": 3, "v": 4, "cache_seqlens": 8, "cache_batch_idx": 9,
    "cache_leftpad": 10, "page_table": 11,
}  # fmt: skip

_OTHER_ROWS = ("k", "v", "cache_batch_idx", "cache_leftpad")
"""Arguments that change which rows the kernel reads, or write to them."""

_LOOKS = frozenset({"shape", "dtype", "device", "ndim"})


def find_casts(definition: Definition) -> Iterable[Match]:
    """Find the conversions of the pool that reach the kernel, with its page table and lengths.

    Raises:
        Upstream: every kernel gets the pool's pages in the pool's dtype.
        Drift: a kernel gets something else, or something else than kernels gets the conversion.
    """
    from rewriter.flow import method

    kernels = [node for node in definition.nodes if _is_kernel(node)]
    pools = [node for node in definition.nodes if method(node) == "get_key_buffer"]
    casts = {cast: _readers(definition, cast) for cast in _casts(definition)}
    direct = [call for pool in pools for call in _readers(definition, pool, strict=False)]
    converted = [call for calls in casts.values() for call in calls]
    for call in kernels:
        if _arg(call, "qv") is not None and call not in converted and call not in direct:
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
    return [_match(definition, cast, calls) for cast, calls in casts.items()]


def _is_kernel(node: cst.CSTNode) -> bool:
    import libcst

    if node.__class__ is not libcst.Call:
        return False
    func = node.func
    name = getattr(func, "value" if isinstance(func, libcst.Name) else "attr", None)
    return KERNEL in (name, getattr(name, "value", None))


def _arg(call: cst.CSTNode, name: str) -> cst.Arg | None:
    from rewriter.flow import argument

    return argument(call, name, _POSITIONS.get(name, 99))  # type: ignore[arg-type]


def _casts(definition: Definition) -> Iterator[cst.Call]:
    """Yield the conversions of the pool's own buffer; one of a part of it is refused."""
    import libcst

    from rewriter.flow import method, trace

    for node in definition.nodes:
        if method(node) != "to":
            continue
        assert isinstance(node, libcst.Call) and isinstance(node.func, libcst.Attribute)
        pool = node.func.value
        roots = [origin.node for origin in trace(definition, pool)]
        if not any(method(root) == "get_key_buffer" for root in roots):
            continue
        whole = isinstance(pool, libcst.Name) or method(pool) == "get_key_buffer"
        if not whole or any(method(root) != "get_key_buffer" for root in roots):
            raise Drift("what is converted is not the pool's buffer alone", node)
        yield node


def _readers(definition: Definition, value: cst.CSTNode, strict: bool = True) -> list[cst.Call]:
    """Return the kernels that read a value as their keys, in the order of the text.

    Raises:
        Drift: something else reads it (if that is asked for), or a kernel reads half of it.
    """
    import libcst

    read: dict[cst.Call, set[str]] = {}
    for taken in _takers(definition, value):
        call = definition.parents[taken]
        if isinstance(taken, libcst.Arg) and _is_kernel(call):  # type: ignore[arg-type]
            assert isinstance(call, libcst.Call)
            names = [n for n in ("k_cache", "v_cache") if _arg(call, n) is taken]
            if names:
                read.setdefault(call, set()).update(names)
                continue
        looked_at = isinstance(taken, libcst.Attribute) and taken.attr.value in _LOOKS
        if strict and not looked_at and not isinstance(taken, libcst.Comparison):
            raise Drift(f"the converted keys go elsewhere than to `{KERNEL}`", taken)
    if strict and not read:
        raise Drift(f"a conversion of the pool that reaches no `{KERNEL}`", value)
    for call, given in read.items():
        if strict and len(given) < 2:
            raise Drift(f"`{KERNEL}` gets only half of its keys from the pool", call)
    return [node for node in definition.nodes if node in read]  # type: ignore[misc]


def _takers(definition: Definition, value: cst.CSTNode) -> list[cst.CSTNode]:
    """Return what takes a value in the end; ``paged_view`` cuts it as ``view`` does."""
    from rewriter.uses import uses

    found: list[cst.CSTNode] = []
    todo = [value]
    while todo:
        for taken in uses(definition, todo.pop()):
            call = definition.parents[taken]
            if _is_paged_view(call) and call.args[0] is taken:  # type: ignore[union-attr]
                todo.append(call)  # type: ignore[arg-type]
            else:
                found.append(taken)
    return found


def _is_paged_view(node: cst.CSTNode | None) -> bool:
    import libcst

    name = node.func if isinstance(node, libcst.Call) else None
    return isinstance(name, libcst.Name) and name.value == "paged_view"


def _match(definition: Definition, cast: cst.Call, calls: list[cst.Call]) -> Match:
    import libcst

    from rewriter.flow import argument

    dtype = argument(cast, "dtype", 0)
    if dtype is None or len(cast.args) != 1:
        raise Drift("the cast of the pool takes more than a dtype", cast)
    main, flags = _one_kernel(definition, cast, calls)
    _same_rows(definition, main)
    arguments = []
    for name in ("page_table", "cache_seqlens"):
        arg = _arg(main, name)
        if arg is None:
            raise Drift(f"`{KERNEL}` has no argument `{name}`", main)
        arguments.append(_settled(definition, arg.value, cast, f"`{name}`"))
    arguments.append(definition.code(dtype.value))
    if flags:
        names = [_settled(definition, flag, cast, "the condition") for flag in flags]
        arguments.append(f"whole={' or '.join(dict.fromkeys(names))}")
    assert isinstance(cast.func, libcst.Attribute)
    return Match(cast.func.value, ("self", *arguments))


def _one_kernel(
    definition: Definition, cast: cst.Call, calls: list[cst.Call]
) -> tuple[cst.Call, list[cst.BaseExpression]]:
    """Return the kernel whose table is asked for, and the conditions under which others run.

    It is the one that no condition behind the cast has to hold for; all others run in the body of
    an ``if`` there.
    """
    main: list[cst.Call] = []
    flags: list[cst.BaseExpression] = []
    for call in calls:
        flag = _condition(definition, cast, call)
        if flag is None:
            main.append(call)
        else:
            flags.append(flag)
    if not main:
        raise Drift(f"every `{KERNEL}` that reads the converted keys is conditional", calls[0])
    if len(main) > 1:
        raise Drift("several kernels read the converted keys by tables of their own", main[1])
    return main[0], flags


def _condition(
    definition: Definition, cast: cst.CSTNode, call: cst.CSTNode
) -> cst.BaseExpression | None:
    """Return the test of the outermost ``if`` behind the cast whose body holds a call."""
    import libcst

    around = set()
    node: cst.CSTNode | None = cast
    while node is not None:
        around.add(node)
        node = definition.parents[node]
    found = None
    node, parent = call, definition.parents[call]
    while parent is not None and parent not in around:
        if isinstance(parent, libcst.If) and node is parent.body:
            found = parent.test
        node, parent = parent, definition.parents[parent]
    return found


def _same_rows(definition: Definition, call: cst.Call) -> None:
    """Refuse a kernel whose rows are not those of pages of ``self.page_size`` in its table."""
    import libcst

    for arg in call.args:
        if arg.star:
            raise Drift(f"what `{KERNEL}` gets cannot be told", arg)
    for name in _OTHER_ROWS:
        extra = _arg(call, name)
        if extra is not None and definition.code(extra.value) != "None":
            raise Drift(f"`{name}` changes which rows `{KERNEL}` reads", extra)
    for name in ("k_cache", "v_cache"):
        keys = _arg(call, name)
        assert isinstance(keys, libcst.Arg)
        for size in _page_sizes(definition, keys.value):
            if size is None or definition.code(size) != "self.page_size":
                raise Drift("the keys are not cut into pages of `self.page_size`", keys)


def _page_sizes(definition: Definition, keys: cst.BaseExpression) -> list[cst.CSTNode | None]:
    """Return the second dimension that keys are cut into, on every way back to their cast."""
    import libcst

    from rewriter.flow import RESHAPES, argument, method, origins

    found: list[cst.CSTNode | None] = []
    todo: list[cst.CSTNode] = [keys]
    seen: set[cst.CSTNode] = set()
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, libcst.Name):
            reached = origins(definition, node)
            found += [None for origin in reached if origin.what != "value"]
            todo += [origin.node for origin in reached if origin.what == "value"]
        elif isinstance(node, libcst.Subscript):
            todo.append(node.value)
        elif isinstance(node, libcst.IfExp):
            todo += [node.body, node.orelse]
        elif _is_paged_view(node):
            size = argument(node, "page_size", 1)  # type: ignore[arg-type]
            found.append(size and size.value)
        elif method(node) == "view" and len(node.args) > 2:  # type: ignore[attr-defined]
            found.append(node.args[1].value)  # type: ignore[attr-defined]
        elif method(node) in RESHAPES:
            todo.append(node.func.value)  # type: ignore[attr-defined]
        else:
            found.append(None)
    return found


def _settled(definition: Definition, node: cst.BaseExpression, cast: cst.Call, what: str) -> str:
    """Return an expression's code, if it means at the cast what it means where it stands.

    Raises:
        Drift: it is no dotted name, or a part of it is bound or changed behind the cast.
    """
    import libcst

    from rewriter.flow import origins

    code = definition.code(node)
    start = definition.span(cast)[0]
    parts: list[str] = []
    root: cst.BaseExpression = node
    while isinstance(root, libcst.Attribute):
        parts.append(definition.code(root))
        root = root.value
    if not isinstance(root, libcst.Name):
        raise Drift(f"{what} of `{KERNEL}` is no plain name", node)
    for origin in origins(definition, root):
        if origin.what == "opaque" or (origin.what == "free" and root.value != "self"):
            raise Drift(f"where {what} `{code}` comes from cannot be told", node)
        if definition.span(origin.node)[0] > start:
            raise Drift(f"{what} `{code}` is bound only after the cast", origin.node)
    for target in _targets(definition):
        if definition.span(target)[0] < start:
            continue
        while isinstance(target, (libcst.Subscript, libcst.Attribute)):
            if isinstance(target.value, libcst.Name) and definition.code(target.value) == code:
                raise Drift(f"{what} `{code}` is changed after the cast", target)
            if isinstance(target, libcst.Attribute) and definition.code(target) in parts:
                raise Drift(f"{what} `{code}` is bound only after the cast", target)
            target = target.value
    return code


def _targets(definition: Definition) -> Iterator[cst.CSTNode]:
    """Yield what assignments of all kinds bind or change."""
    import libcst

    for node in definition.nodes:
        if isinstance(node, (libcst.AssignTarget, libcst.AugAssign, libcst.AnnAssign)):
            yield node.target


def find_writes(definition: Definition) -> Iterable[Match]:
    """Find the pool's write method where the two parts of the keys are written together."""
    from rewriter.flow import method

    for node in definition.nodes:
        if method(node) == "set_mla_kv_buffer":
            yield Match(node.func, ("self",))  # type: ignore[attr-defined]


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
        ),
        *(
            Site(f"{BACKEND}.{name}", "cast", find_casts,
                 Wrap("_kv_gather.pages", keeps=1), count=None, decides=True)
            for name in ("forward_extend", "forward_decode")
        ),
        *(
            Site(f"{BACKEND}.{name}", "write", find_writes,
                 Wrap("_kv_gather.writer", keeps=1), count=None, optional=True)
            for name in ("forward_extend", "forward_decode")
        ),
    )  # fmt: skip
