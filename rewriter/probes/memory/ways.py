"""Every way out of the full-pool cast, each with its tokens, its time and where that comes from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from packaging.version import Version

from rewriter.probes.memory import backends, formulas
from rewriter.probes.memory.backends import Backend
from rewriter.probes.memory.deployment import Deployment, cell_of

SMALLER_POOLS = (202_752, 131_072, 65_536, 32_768)
"""Pools that are weighed besides those that the needs ask for."""


class Kind(Enum):
    """What one does, in the order in which it is advised if nothing else decides."""

    BACKEND = "another backend"
    UPGRADE = "a later release"
    BF16 = "BF16 KV"
    POOL = "a smaller pool"
    PATCH = "a codemod"
    SHADOW = "a BF16 copy of the pool"
    NATIVE = "native FP8 in FlashInfer"

    @property
    def order(self) -> int:
        """The place in DIAGNOSE's order of advice."""
        return list(Kind).index(self)


@dataclass(frozen=True)
class Way:
    """One way out.

    Attributes:
        kind: what sort of thing one does.
        action: what exactly.
        tokens: of the pool on one GPU.
        cell: bytes a token of it.
        added_ms: ms a step on top of the step without any cast.
        certain: whether ``added_ms`` is all: the same kernels run, only the cast goes. Under
            another backend it is the least that can be said.
        formula: of the tokens and the time, with its numbers.
        source: where that stands.
        limits: what else it asks for.
        obstacle: why it cannot be done; empty if it can.
        name: a shorter name than the action, if there is one.
    """

    kind: Kind
    action: str
    tokens: int
    cell: int
    added_ms: float
    certain: bool
    formula: str
    source: str
    limits: str = ""
    obstacle: str = ""
    name: str = ""

    @property
    def short(self) -> str:
        """What to call it where there is little room."""
        return self.name or self.action


def ways(at: Deployment, needs: tuple[int, ...] = ()) -> list[Way]:
    """Return every way, possible or not.

    Args:
        at: the server as it is.
        needs: further sizes of a smaller pool to weigh, in tokens.
    """
    return [
        *_backends(at),
        *_upgrades(at),
        _bf16(at),
        *_pools(at, needs),
        _patch(at),
        _shadow(at),
        _native(at),
    ]


def _tokens_words(at: Deployment, cell: int, page: int, how: str = "") -> str:
    """Say how many tokens of a size fit, before and after whole pages."""
    tokens = formulas.tokens_in(at.memory, cell)
    paged = formulas.tokens_in(at.memory, cell, page)
    pages = "" if tokens == paged else f", {paged:,} in whole pages of {page}"
    divisor = f"({how} = {cell:,} B)" if how else f"{cell:,} B"
    return f"{at.memory / 1e9:.2f} GB / {divisor} = {tokens:,} tokens{pages}"


def _backends(at: Deployment) -> Iterator[Way]:
    """Yield the backends of this release that read FP8 themselves."""
    for backend in _candidates(at):
        if backend.name != at.backend.name:
            yield _by_backend(at, backend, at.release, Kind.BACKEND)


def _candidates(at: Deployment) -> list[Backend]:
    """Return the backends without the cast; of one flag's kinds, those of this architecture."""
    found = [b for b in backends.BACKENDS if b.casts_since is None]
    here = {b.flag for b in found if at.arch in b.archs}
    return [b for b in found if at.arch in b.archs or b.flag not in here]


def _by_backend(at: Deployment, backend: Backend, release: Version, kind: Kind) -> Way:
    cell = cell_of(at.model, backend, "fp8", at.drafts)
    page = backend.pages[-1] if backend.pages else at.page
    limits = [f"page {' or '.join(map(str, backend.pages))}"] if backend.pages else []
    limits += [backend.limits] if backend.limits else []
    flags = _flags(at, backend, release)
    short = backend.packed and release < Version("0.5.17")
    if short:
        more = cell / formulas.cell(at.model, at.model.row, at.drafts) - 1
        limits.append(
            f"{release} sizes packed rows as plain ones: allow {more:.0%} more memory, e.g. by "
            "--mem-fraction-static"
        )
    return Way(
        kind,
        f"sglang {release}: {flags}" if kind is Kind.UPGRADE else flags,
        formulas.tokens_in(at.memory, cell, page),
        cell,
        0.0,
        certain=False,
        formula=f"{_tokens_words(at, cell, page)}; no cast, its own kernel's time "
        + (f"measured elsewhere: {backend.measured}" if backend.measured else "not measured"),
        source=backend.source,
        limits="; ".join(limits),
        obstacle=backends.obstacle(backend, at.model, at.arch, release, "fp8"),
        name=f"{backend.name}, {release}" if kind is Kind.UPGRADE else backend.name,
    )


def _flags(at: Deployment, backend: Backend, release: Version) -> str:
    """Return what to start the server with.

    A dense backend on a sparse model needs plain rows, which ``trtllm`` of the DSA flags keeps.
    """
    name = "dsa" if release >= Version("0.5.13") else "nsa"
    flags = backend.flags.format(dsa=name)
    if at.kv != "fp8":
        flags += " --kv-cache-dtype fp8_e4m3"
    if backend.sparse is None and backends.packs_rows(at.model, at.arch, release):
        flags += f" --{name}-prefill-backend trtllm --{name}-decode-backend trtllm"
    return flags


def _upgrades(at: Deployment) -> Iterator[Way]:
    """Yield what the next releases bring that this one lacks."""
    for backend in _candidates(at):
        release = _first_release(at, backend) if _lacking(at, backend) else None
        if release is not None:
            yield _by_backend(at, backend, release, Kind.UPGRADE)


def _lacking(at: Deployment, backend: Backend) -> bool:
    return bool(backends.obstacle(backend, at.model, at.arch, at.release, "fp8"))


def _first_release(at: Deployment, backend: Backend) -> Version | None:
    """Return the first later release in which a backend serves this model here."""
    later = (backend.since, Version("0.5.10"))
    return next(
        (
            release
            for release in sorted(later)
            if release > at.release
            and not backends.obstacle(backend, at.model, at.arch, release, "fp8")
        ),
        None,
    )


def _bf16(at: Deployment) -> Way:
    cell = formulas.cell(at.model, 2 * at.model.row, at.drafts)
    return Way(
        Kind.BF16,
        "--kv-cache-dtype bfloat16",
        formulas.tokens_in(at.memory, cell, at.page),
        cell,
        0.0,
        certain=True,
        formula=_tokens_words(at, cell, at.page, _sum_words(at, 2)) + _index_words(at),
        source="0.5.9 srt/model_executor/model_runner_kv_cache_mixin.py:47-70; measured on one "
        "H200: 73.25 -> 6.60 ms",
        obstacle="it is BF16 already" if at.kv == "bf16" else "",
        name="BF16 KV",
    )


def _sum_words(at: Deployment, size: int) -> str:
    index = " + index" if at.model.indexed else ""
    return f"{at.layers} layers x {at.model.row} x {size} B{index}"


def _index_words(at: Deployment) -> str:
    return "; the index cache does not double" if at.model.indexed else ""


def _pools(at: Deployment, needs: tuple[int, ...]) -> Iterator[Way]:
    """Yield smaller FP8 pools: the cast is linear in them."""
    sizes = {size for size in (*SMALLER_POOLS, *needs) if 0 < size < at.tokens}
    for size in sorted(sizes, reverse=True):
        tokens = max(size // at.page, 1) * at.page
        cast = at.cast_of(tokens)
        yield Way(
            Kind.POOL,
            f"--max-total-tokens {tokens}",
            tokens,
            at.cell,
            cast,
            certain=True,
            formula=f"cast {at.cast_of(at.tokens):.1f} ms x {tokens:,} / {at.tokens:,} "
            f"= {cast:.1f} ms",
            source="the cast's time is linear in the pool: 0.229, 0.848, 1.704 ms a layer at "
            "131,072, 495,552, 1,000,000 tokens on one H200",
            obstacle="" if at.casts else "nothing is converted",
            name=f"pool {tokens:,}",
        )


def _patch(at: Deployment) -> Way:
    name = {"flashinfer": "mla_kv_gather", "fa3": "fa3_kv_gather"}.get(at.backend.name, "")
    rows = at.rows
    added = formulas.patched_ms(at.layers, rows, at.model.row, at.bandwidth)
    obstacle = ""
    if not at.casts:
        obstacle = "nothing is converted"
    elif name not in at.codemods:
        obstacle = f"no codemod for the {at.backend.name} backend"
    return Way(
        Kind.PATCH,
        f"rewriter apply {name or 'mla_kv_gather'}",
        at.tokens,
        at.cell,
        added,
        certain=True,
        formula=f"{at.layers} layers x ({formulas.GATHER_LAUNCH_US} us + {rows:,} rows x "
        f"{at.model.row} x 5 B / {at.bandwidth:,.0f} GB/s)",
        source="measured on one H200, 78 layers, CUDA graphs: 73.25 -> 7.17 ms, 6.60 with BF16 KV",
        limits="exact rows alone: profile again (`rewriter diagnose --compare`); one BF16 buffer "
        f"of {formulas.cast_scratch(at.model, at.tokens + at.page) / 1e9:.2f} GB for CUDA graphs, "
        "as large as the cast's own scratch",
        obstacle=obstacle,
        name=name,
    )


def _shadow(at: Deployment) -> Way:
    cell = formulas.cell(at.model, 3 * at.model.row, at.drafts)
    return Way(
        Kind.SHADOW,
        "a BF16 copy beside the FP8 pool",
        formulas.tokens_in(at.memory, cell, at.page),
        cell,
        0.0,
        certain=True,
        formula=_tokens_words(at, cell, at.page, _sum_words(at, 3)),
        source="always fewer tokens than BF16 KV alone, which needs no code",
        name="BF16 shadow",
    )


def _native(at: Deployment) -> Way:
    return Way(
        Kind.NATIVE,
        "FlashInfer's native FP8-KV MLA",
        at.tokens,
        at.cell,
        0.0,
        certain=False,
        formula=f"{at.tokens:,} tokens as now; no cast",
        source="sglang PR 35322 with FlashInfer PR 3694: SM90, fa3 kernels, e4m3, 512 + 64",
        obstacle="in no release of sglang"
        + ("" if at.arch == "sm90" else f", and for SM90 alone, not {at.arch.upper()}"),
    )
