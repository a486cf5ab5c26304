"""The ten facts about a group of casts, and the verdict they allow.

The fault: sglang's ``flashinfer_mla`` and ``fa3`` backends convert the WHOLE FP8 pool to the
query's type in every layer of every step. A verdict needs F1 and F3 and one of F2, F4, F7; each
fact prints its number, whether it counts or not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from rewriter.probes.models import MODELS
from rewriter.probes.trace.cast import CastGroup
from rewriter.probes.trace.families import Family, short_name
from rewriter.probes.trace.known import Known

SHARE = 0.02
"""A group below this part of the GPU time is no cause of anything."""
LARGE = 0.10
RATES = (0.30, 0.36)
"""T elements a second of torch's casting copy: 0.334 to 0.345 on H200 and RTX PRO 6000."""
_STEADY = 0.01
LONGEST_CONTEXT = max(model.max_context or 0 for model in MODELS.values())
_FAULTY_BACKENDS = ("flashinfer", "fa3")
_QUERY_TYPES = ("BFloat16", "Half")
_FP8 = ("fp8_e4m3", "fp8_e5m2")


class Verdict(str, Enum):
    """What the facts allow to say."""

    FULL_POOL = "full-pool"
    UNDECIDED = "undecided"
    NONE = "none"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Fact:
    """One fact: ``holds`` is None where the trace cannot tell."""

    key: str
    title: str
    holds: bool | None
    number: str


@dataclass(frozen=True)
class Context:
    """What the facts are judged by, besides the group.

    Attributes:
        known: figures from outside the trace.
        share: the group's part of the GPU time of a step.
        attention_calls: MLA attention kernels a step, or None; one a layer.
        moe_calls: expert-routing kernels a step, or None; one a MoE layer.
    """

    known: Known
    share: float
    attention_calls: float | None
    moe_calls: float | None

    @property
    def layers(self) -> float | None:
        return self.known.attention_layers or self.attention_calls

    @property
    def moe_layers(self) -> float | None:
        model, layers = self.known.model, self.known.layers
        if model and (layers is None or layers == model.layers):
            return model.moe_layers
        return self.moe_calls


@dataclass(frozen=True)
class Judgement:
    """A group with its facts and what they come to.

    Attributes:
        group: the casts.
        facts: F1 to F10.
        verdict: what they allow to say.
        reason: why, in one sentence.
        rows: of the pool's buffer, where F3 or F4 tells them.
    """

    group: CastGroup
    facts: tuple[Fact, ...]
    verdict: Verdict
    reason: str
    rows: int | None
    share: float

    def holds(self, key: str) -> bool | None:
        """Return whether a fact holds."""
        return next(fact.holds for fact in self.facts if fact.key == key)


def judge(group: CastGroup, context: Context) -> Judgement:
    """State the facts about a group and the verdict."""
    facts = tuple(state(group, context) for state in _FACTS)
    held = {fact.key: fact.holds for fact in facts}
    verdict, reason = _verdict(group, context, held)
    rows = group.elements.rows if group.elements else None
    if rows is None and group.shapes is not None:
        rows = group.shapes.rows
    return Judgement(group, facts, verdict, reason, rows, context.share)


def _verdict(
    group: CastGroup, context: Context, held: dict[str, bool | None]
) -> tuple[Verdict, str]:
    if context.share < SHARE:
        return Verdict.NONE, "too little to matter"
    if not held["F1"]:
        return Verdict.NONE, f"F1: a cast to {group.target} is none of the KV cache"
    if held["F4"] is False:
        return Verdict.NONE, "F4: the tensor is not the FP8 pool"
    if held["F3"] is False:
        return Verdict.NONE, "F3 does not hold: the calls are not as large as the pool"
    support = [key for key in ("F2", "F4", "F7") if held[key]]
    if held["F3"] and support and (_pool_matches(group, context) or {"F4", "F7"} & {*support}):
        return Verdict.FULL_POOL, f"{_and(['F1', 'F3', *support])} hold"
    return _open(group, context, held)


def _open(group: CastGroup, context: Context, held: dict[str, bool | None]) -> tuple[Verdict, str]:
    """Say what is missing. A size alone proves nothing: weights are as large as pools."""
    if held["F2"] is False and not held["F7"]:
        return Verdict.NONE, "neither F2 nor F4 nor F7 holds"
    if group.follower_family in (Family.GEMM, Family.MOE) and held["F2"] is not None:
        where = short_name(group.follower)
        return Verdict.NONE, (
            f"{where} follows, as after dequantised weights; --pool N can prove otherwise"
        )
    if context.share < LARGE:
        return Verdict.NONE, "neither F4 nor F7 holds, and it is small"
    return Verdict.UNDECIDED, (
        "large, but the pool's size is not known: give --pool N, or put server_args.json beside "
        "the trace"
    )


def _and(keys: list[str]) -> str:
    return f"{', '.join(keys[:-1])} and {keys[-1]}"


def _f1(group: CastGroup, context: Context) -> Fact:
    target = group.target or "an unnamed type"
    fits = group.target in (*_QUERY_TYPES, None)
    return Fact("F1", "kernel", fits, f"direct_copy_kernel with LoadWithCast, to {target}")


def _f2(group: CastGroup, context: Context) -> Fact:
    title = "calls a step = layers"
    calls = group.calls_a_step
    each = f"{group.calls[0]}" if group.constant else f"{min(group.calls)}-{max(group.calls)}"
    layers, moe = context.layers, context.moe_layers
    if layers is None:
        return Fact("F2", title, None, f"{each} a step; layers not known (--model)")
    source = "layers" if context.known.attention_layers else "attention kernels a step"
    nextn = (context.known.model.nextn_layers or 1) if context.known.model else 1
    fits = group.constant and (calls == layers or calls == layers + nextn)
    number = f"{each} a step in {len(group.calls)} steps, {layers:g} {source}"
    if moe:
        number += f", {moe:g} MoE layers"
        fits = fits and calls != moe
    return Fact("F2", title, fits, number)


def _f3(group: CastGroup, context: Context) -> Fact:
    title = "size = the pool's"
    elements = group.elements
    if elements is None:
        return Fact("F3", title, None, "the trace has no launch geometry")
    blocks = -(-elements.most // (elements.most - elements.least + 1))
    measured = f"{blocks:,} blocks"
    rows = elements.rows
    if rows is None:
        return Fact(
            "F3", title, False, f"{measured}: no multiple of {elements.width} values fits them"
        )
    measured += f" -> {elements.count:,} values = {rows:,} rows of {elements.width}"
    pool = context.known.pool
    if pool:
        fits = _pool_matches(group, context)
        beside = f"pool {pool:,}" + (f" + {rows - pool}" if fits and rows > pool else "")
        return Fact("F3", title, fits, f"{measured}; {beside}")
    longest = _longest(context)
    if rows > longest:
        return Fact("F3", title, True, f"{measured}; more than one context of {longest:,}")
    if rows == longest:
        return Fact("F3", title, False, f"{measured}: one longest context, an index buffer")
    small = context.share < LARGE or group.before_attention < 0.5 or not group.constant
    return Fact("F3", title, False if small else None, f"{measured}; pool not known (--pool)")


def _longest(context: Context) -> int:
    model = context.known.model
    return (model.max_context if model else None) or LONGEST_CONTEXT


def _pool_matches(group: CastGroup, context: Context) -> bool:
    """Whether the rows are the pool's, alone or with the one page more of its buffer."""
    rows = group.elements.rows if group.elements else None
    if rows is None or not context.known.pool:
        return False
    page = context.known.page
    more = rows - context.known.pool
    return more in (0, page) if page else more in (0, 1, 16, 32, 64, 128)


def _f4(group: CastGroup, context: Context) -> Fact:
    title = "operator's tensors"
    shapes = group.shapes
    if shapes is None:
        why = "CUDA graph: no operators" if group.in_graph else "no shapes recorded"
        return Fact("F4", title, None, why)
    fits = "Float8" in shapes.source and "Float8" not in shapes.target
    if group.elements is not None:
        fits = fits and shapes.width == group.elements.width and shapes.rows == group.elements.rows
    source, target = (name.removeprefix("c10::") for name in (shapes.source, shapes.target))
    return Fact(
        "F4", title, fits, f"aten::copy_ {source} -> {target}, {shapes.rows:,} x {shapes.width}"
    )


def _f5(group: CastGroup, context: Context) -> Fact:
    number = f"{group.mean_us:,.1f} us a call, deviation {group.cv:.2%}"
    return Fact("F5", "same time in all calls", group.cv < _STEADY, number)


def _f6(group: CastGroup, context: Context) -> Fact:
    title = "rate of a casting copy"
    if group.rate is None:
        return Fact("F6", title, None, "no element count")
    rate = group.rate / 1e12
    low, high = RATES
    return Fact(
        "F6", title, low <= rate <= high, f"{rate:.3f} T elements/s (known: {low:.2f}-{high:.2f})"
    )


def _f7(group: CastGroup, context: Context) -> Fact:
    holds = group.before_attention >= 0.9
    name = short_name(group.follower) if group.follower else "nothing"
    part = f"before {group.before_attention:.0%} of them" if holds else "not MLA attention"
    return Fact("F7", "followed by MLA attention", holds, f"{name}, {part}")


def _f8(group: CastGroup, context: Context) -> Fact:
    title = "Python frame"
    if not group.frames:
        return Fact("F8", title, None, "no stacks recorded")
    calls = group.calls[0]
    said = ", ".join(f"{frame} ({count} of {calls})" for frame, count in group.frames.items())
    known = any("mla_backend" in frame or "flashattention" in frame for frame in group.frames)
    return Fact("F8", title, known, said)


def _f9(group: CastGroup, context: Context) -> Fact:
    title = "server's settings"
    dtype, backend = context.known.kv_dtype, context.known.backend
    if dtype is None and backend is None:
        return Fact("F9", title, None, "no server_args.json")
    fits = (dtype in _FP8 or dtype is None) and (backend in _FAULTY_BACKENDS or backend is None)
    return Fact("F9", title, fits, f"KV {dtype or '?'}, backend {backend or '?'}")


def _f10(group: CastGroup, context: Context) -> Fact:
    return Fact("F10", "control with BF16 KV", None, "not given (--compare with such a trace)")


_FACTS: tuple[Callable[[CastGroup, Context], Fact], ...] = (
    _f1, _f2, _f3, _f4, _f5, _f6, _f7, _f8, _f9, _f10,
)  # fmt: skip
