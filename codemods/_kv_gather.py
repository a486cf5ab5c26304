"""What the codemods of MLA's converted pool share: how it is read, and what is the same in each.

No codemod itself, as the underscore says. Its bytes are a part of the digest of each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from rewriter.codemod import (
    Companion,
    Drift,
    Edit,
    Finder,
    Insert,
    Match,
    Site,
    Wrap,
    import_line,
)

if TYPE_CHECKING:
    import libcst as cst

    from rewriter.definition import Definition

METHODS = ("forward_extend", "forward_decode")

READ = "get_key_buffer"

COMPANIONS = (Companion("sglang/srt/layers/attention/_rewriter_kv_gather.py", "kv_gather"),)

IMPORT = import_line("from sglang.srt.layers.attention import _rewriter_kv_gather as _kv_gather")


def constructor(backend: str) -> Site:
    """Return the site in a backend's constructor that notes the pool."""
    attach = Insert("_kv_gather.attach(self, model_runner)")
    return Site(
        f"{backend}.__init__", "constructor", "super().__init__()", attach, unconditional=True
    )


def casts(backend: str, find: Finder, edit: Edit) -> tuple[Site, ...]:
    """Return the sites of the conversions in a backend's two methods."""
    return tuple(
        Site(f"{backend}.{name}", "cast", find, edit, count=None, decides=True)
        for name in METHODS
    )  # fmt: skip


def writes(backend: str) -> tuple[Site, ...]:
    """Return the sites where a backend's two methods write the step's own keys."""
    edit = Wrap("_kv_gather.writer", keeps=1)
    return tuple(
        Site(f"{backend}.{name}", "write", find_writes, edit, count=None, optional=True)
        for name in METHODS
    )


def find_writes(definition: Definition) -> Iterable[Match]:
    """Find the pool's write method where the two parts of the keys are written together."""
    import libcst

    from rewriter.flow import method
    from rewriter.mentions import only_called, only_in

    only_called(definition, {"set_mla_kv_buffer"})
    only_in(definition, METHODS, {"set_mla_kv_buffer"})
    for node in definition.nodes:
        if method(node) == "set_mla_kv_buffer":
            assert isinstance(node, libcst.Call)
            if len(node.args) < 4 or any(arg.star or arg.keyword for arg in node.args):
                raise Drift("the keys' two parts are not the third and fourth argument", node)
            yield Match(node.func, ("self",))


class Reading(NamedTuple):
    """How a backend reads the pool.

    Attributes:
        call: what is called with the keys, for messages.
        others: other ways to read the pool, none of which is followed.
        looks: what may be looked at of the pool's buffer and of the converted keys.
        views: functions whose result is their first argument in another shape.
        elsewhere: the attribute of another buffer, a conversion of which may be the keys as well.
    """

    call: str
    others: Collection[str]
    looks: Collection[str]
    views: Collection[str] = ()
    elsewhere: str = ""


class Reads(NamedTuple):
    """Every read of the pool in a method.

    Attributes:
        converted: each conversion of the pool, with the calls that read its result.
        direct: each read whose result is the keys as it is, with the calls.
    """

    converted: dict[cst.Call, list[cst.Call]]
    direct: dict[cst.Call, list[cst.Call]]


def reads(
    definition: Definition, how: Reading, keys: Mapping[cst.Call, Iterable[cst.Arg]]
) -> Reads:
    """Account for every read of the pool, for all that takes what is read, and for all keys.

    Args:
        definition: a method.
        how: what is known of the method's backend.
        keys: the calls that read keys, each with the arguments that are the keys.

    Raises:
        Drift: keys are something else than the pool's buffer or a conversion of it, some are the
            one and some the other, or the pool is read or goes elsewhere.
    """
    from rewriter.flow import method
    from rewriter.mentions import only_called, only_in

    only_called(definition, {READ, *how.others})
    only_in(definition, METHODS, {READ, *how.others})
    known = [arg for arguments in keys.values() for arg in arguments]
    for arg in known:
        _known_keys(definition, how, arg)
    found = Reads({}, {})
    for node in definition.nodes:
        if method(node) in how.others:
            raise Drift("the pool is read in a way that is not known", node)
        if method(node) == READ:
            casts, calls = _takers(definition, node, how, known, "the pool's buffer goes")
            if calls:
                found.direct[node] = calls  # type: ignore[index]
            for cast in casts:
                _, calls = _takers(definition, cast, how, known, "the converted keys go")
                if not calls:
                    raise Drift(f"a conversion of the pool that reaches no `{how.call}`", cast)
                found.converted[cast] = calls
    if found.converted and found.direct:
        direct = next(iter(found.direct))
        raise Drift("some calls read the pool converted, others as it is", direct)
    if not found.converted and not found.direct:
        raise Drift(f"no `{how.call}` that reads the pool of latent keys")
    return found


def _known_keys(definition: Definition, how: Reading, arg: cst.Arg) -> None:
    """Refuse keys that are something else than the pool's buffer or a cast, on any way back."""
    from rewriter.flow import method, trace

    for origin in trace(definition, arg.value, how.views):
        node = origin.node
        known = method(node) == READ or _is_cast(definition, node, how.elsewhere)
        if origin.what != "value" or not known:
            raise Drift(
                f"what `{how.call}` reads is neither the pool's buffer nor a cast of it "
                "(another patch of the same idea?)", node,
            )  # fmt: skip


def _is_cast(definition: Definition, node: cst.CSTNode | None, elsewhere: str = "") -> bool:
    """Return whether a node is a conversion of the pool's buffer alone, or of another's."""
    from rewriter.flow import method, plain_name, trace

    if node is None or method(node) != "to":
        return False
    roots = [o.node for o in trace(definition, node.func.value)]  # type: ignore[attr-defined]
    if all(method(root) == READ for root in roots):
        return True
    return bool(elsewhere) and all(
        (plain_name(root) or "").endswith(f".{elsewhere}") for root in roots
    )


def _takers(
    definition: Definition,
    value: cst.CSTNode,
    how: Reading,
    keys: Collection[cst.CSTNode],
    what: str,
) -> tuple[list[cst.Call], list[cst.Call]]:
    """Return the conversions of a value and the calls that read it, in the order of the text.

    Raises:
        Drift: it goes elsewhere.
    """
    from rewriter.uses import only_looked_at, uses

    casts: set[cst.CSTNode | None] = set()
    calls: set[cst.CSTNode | None] = set()
    for taken in uses(definition, value, how.views):
        call = definition.parents[taken]
        if taken in keys:
            calls.add(call)
        elif getattr(call, "func", None) is taken and _is_cast(definition, call):
            casts.add(call)
        elif not only_looked_at(definition, taken, how.looks):
            raise Drift(f"{what} elsewhere than to `{how.call}`", taken)
    in_order = [[node for node in definition.nodes if node in some] for some in (casts, calls)]
    return in_order[0], in_order[1]  # type: ignore[return-value]


def dtype(definition: Definition, cast: cst.Call) -> str:
    """Return the code of what the pool is converted to.

    Raises:
        Drift: it is no dotted name, or not known for a dtype on every way back.
    """
    from rewriter.flow import argument, plain_name, trace

    wanted = argument(cast, "dtype", 0)
    if wanted is None or len(cast.args) != 1:
        raise Drift("the cast of the pool takes more than a dtype", cast)
    name = plain_name(wanted.value)  # it is evaluated twice
    codes = [definition.code(origin.node) for origin in trace(definition, wanted.value)]
    if name is None or not all(c.endswith("dtype") or c.startswith("torch.") for c in codes):
        raise Drift("what the pool is converted to is no dtype by its name", cast)
    return name
