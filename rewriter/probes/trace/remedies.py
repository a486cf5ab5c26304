"""What would end the cast: a codemod, a backend, another dtype, a smaller pool.

Backends as of sglang 0.4.6 to 0.5.23. The faulty paths: ``flashinfer`` since 0.4.6.post5, ``fa3``
since 0.4.8.post1, both still there in 0.5.23.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from rewriter.probes.trace.facts import Judgement
from rewriter.probes.trace.families import FA3
from rewriter.probes.trace.known import Known
from rewriter.probes.trace.pool import Pool
from rewriter.probes.trace.prediction import Prediction

_CODEMODS = {"flashinfer": "mla_kv_gather", "fa3": "fa3_kv_gather"}
"""By backend: the name that a codemod for it has, where there is one."""

_UPSTREAM = {
    "flashinfer": "sglang#35291 (the fault), PR 35322 (native FP8, SM90 only)",
    "fa3": "sglang#35291 (the fault), PR 36087 (referenced pages only)",
}

_BACKENDS: dict[int, tuple[tuple[str, str], ...]] = {
    9: (
        (
            "--attention-backend flashmla --page-size 64",
            "reads FP8 itself; #35291: 31.5 -> 17.7 ms",
        ),
        ("--attention-backend triton", "casts inside its kernel"),
    ),
    10: (
        ("--attention-backend trtllm_mla --page-size 64", "reads FP8 itself"),
        ("--attention-backend cutedsl_mla --page-size 64", "0.5.13+, decoding only"),
    ),
    12: (
        ("sglang 0.5.17 or later", "for GLM with sparse attention: flashinfer_sparse_mla, no cast"),
        ("--attention-backend trtllm_mla --page-size 64", "FP8, one query token a request (XQA)"),
        ("--attention-backend triton", "casts inside its kernel"),
    ),
}
_ANYWHERE = (("--attention-backend triton", "casts inside its kernel"),)
_POOLS = (202_752, 131_072, 65_536, 32_768)


@dataclass(frozen=True)
class Remedy:
    """One way out: what to do, and what it brings or costs."""

    action: str
    effect: str


def backend_of(cause: Judgement, known: Known) -> str:
    """Return the attention backend: as the server says, or by the kernel behind the cast."""
    if known.backend in _CODEMODS:
        return str(known.backend)
    return "fa3" if FA3.search(cause.group.follower) else "flashinfer"


def remedies(
    cause: Judgement,
    known: Known,
    prediction: Prediction,
    capability: tuple[int, int],
    codemods: Collection[str],
) -> list[Remedy]:
    """Return what would help, the cheapest first.

    Args:
        cause: the verdict's group.
        known: model and server.
        prediction: of the step without the cast.
        capability: the GPU's compute capability.
        codemods: names of the codemods that this tool has.
    """
    backend = backend_of(cause, known)
    found = []
    if (codemod := _CODEMODS[backend]) in codemods:
        effect = (
            f"gathers the batch's rows, then casts: {prediction.new_ms:.1f} ms a step predicted"
        )
        found.append(Remedy(f"rewriter apply {codemod}", effect))
    else:
        found.append(Remedy(f"no codemod for {backend} yet", _UPSTREAM[backend]))
    for action, effect in _BACKENDS.get(capability[0], _ANYWHERE):
        found.append(Remedy(action, effect))
    return found + _memory(cause, known, prediction)


def pool_of(cause: Judgement, known: Known) -> Pool | None:
    """Return the pool that is cast: as the server says, else the rows of its buffer."""
    layers = known.attention_layers or round(cause.group.calls_a_step)
    tokens = known.pool or cause.rows
    if not tokens or cause.group.elements is None:
        return None
    index = known.model.index_bytes_per_token if known.model else 0
    return Pool(tokens, layers, cause.group.elements.width, index)


def _memory(cause: Judgement, known: Known, prediction: Prediction) -> list[Remedy]:
    pool = pool_of(cause, known)
    if pool is None:
        return []
    kept = pool.tokens_bf16
    rest = prediction.step_ms - prediction.cast_ms
    smaller = [
        f"{tokens:,}: {max(prediction.floor_ms, rest + part):.1f} ms"
        for tokens in _POOLS
        if tokens < 0.9 * pool.tokens and (part := prediction.cast_ms * tokens / pool.tokens)
    ]
    found = [
        Remedy(
            "--kv-cache-dtype bfloat16",
            f"no cast; {kept:,} tokens in the same memory ({kept / pool.tokens:.0%})",
        )
    ]
    if smaller:
        found.append(Remedy("--max-total-tokens N", "a step at " + ", ".join(smaller[:3])))
    shadow = f"{pool.tokens_shadow:,} tokens, fewer than BF16 alone"
    return [*found, Remedy("not: a BF16 copy beside the pool", shadow)]
