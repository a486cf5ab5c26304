"""What is served: from the options of ``advise``, and where they are silent from a bench."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import typer
from packaging.version import InvalidVersion, Version

from rewriter.errors import UsageError
from rewriter.probes.memory.backends import BACKENDS, FIRST, NEWEST, Backend, default, obstacle
from rewriter.probes.memory.deployment import cell_of
from rewriter.probes.memory.formulas import memory_for_pool
from rewriter.probes.memory.gpus import Gpu, architecture, gpu_named, size
from rewriter.probes.models import Model
from rewriter.probes.trace import known


class Said(NamedTuple):
    """What was said of a server; None or False where nothing was.

    Attributes:
        model, config: its name, or the file that has its sizes.
        gpu, arch, gpu_memory, bandwidth, gpus: what it runs on; memory with a unit, GB/s.
        weights, model_weights: on each GPU, or of all together; with a unit.
        mem_fraction: ``--mem-fraction-static``.
        pool: tokens.
        sglang, backend, kv, page: release, attention backend, KV dtype, tokens of a page.
        drafts: whether the NextN layers have rows.
        step_ms: ms a token.
    """

    model: str | None = None
    config: Path | None = None
    gpu: str | None = None
    arch: str | None = None
    gpu_memory: str | None = None
    bandwidth: float | None = None
    gpus: int | None = None
    weights: str | None = None
    model_weights: str | None = None
    mem_fraction: float = 0.88
    pool: int | None = None
    sglang: str | None = None
    backend: str | None = None
    kv: str | None = None
    page: int | None = None
    drafts: bool = False
    step_ms: float | None = None

    def over(self, other: Said) -> Said:
        """Return this, and what the other says where this is silent."""
        return Said(*(ours or theirs for ours, theirs in zip(self, other, strict=True)))  # type: ignore[arg-type]


def in_bench(path: Path) -> Said:
    """Return what a file of ``bench --save`` says of its server.

    Raises:
        UsageError: it is no such file.
    """
    from rewriter.probes.load.record import load

    record = load(path)
    server = record.server
    step = record.points[0].summary("tpot_ms") if record.points else None
    ranks, page = server.arg("tp_size"), server.arg("page_size")
    return Said(
        model=server.model or None,
        gpu=server.gpu or None,
        gpus=int(ranks) if ranks.isdecimal() else None,
        pool=server.pool or None,
        sglang=server.version or None,
        backend=server.backend or None,
        kv=server.kv_dtype or None,
        page=int(page) if page.isdecimal() else None,
        drafts=bool(server.arg("speculative_algorithm")),
        step_ms=None if step is None else step.mean,
    )


def model_of(said: Said) -> Model:
    """Return the model's sizes; raises UsageError."""
    found = known.model_of(said.model, said.config)
    if found is None:
        raise UsageError("name a model, e.g. `rewriter advise GLM-5`, or give --config FILE")
    return found


def card_of(said: Said) -> Gpu:
    """Return the GPU by name, with what the other options say of it; raises UsageError."""
    if said.gpu is None:
        if said.arch is None or said.bandwidth is None:
            raise UsageError("name the GPU (--gpu H200), or give --arch and --bandwidth")
        found = Gpu("", architecture(said.arch), 0, said.bandwidth)
    else:
        found = gpu_named(said.gpu)
    return replace(
        found,
        arch=architecture(said.arch) if said.arch else found.arch,
        bandwidth=said.bandwidth or found.bandwidth,
        memory=int(size(said.gpu_memory, "--gpu-memory")) if said.gpu_memory else found.memory,
    )


def release_of(said: Said) -> Version:
    """Return the release, the newest known by default; raises UsageError."""
    try:
        release = NEWEST if said.sglang is None else Version(said.sglang)
    except InvalidVersion as error:
        raise UsageError(f"--sglang {said.sglang!r} is no release") from error
    if release < FIRST:
        raise UsageError(f"--sglang {release}: what is known here begins with {FIRST}")
    if release > NEWEST:
        typer.echo(f"rewriter: {release} is judged as {NEWEST}, the newest known", err=True)
    return release


def kv_of(said: Said) -> str:
    """Return ``fp8`` or ``bf16``; FP8 if nothing was said."""
    return "fp8" if said.kv is None or said.kv.startswith("fp8") else "bf16"


def backend_of(said: Said, model: Model, arch: str, release: Version) -> Backend:
    """Return the backend that is served: of one flag's kinds, the one of this architecture.

    Raises:
        UsageError: there is none, or it cannot be.
    """
    name, kv = said.backend, kv_of(said)
    if name is None:
        return default(model, arch, release, kv)
    flag = "dsa" if name == "nsa" else name
    kinds = [backend for backend in BACKENDS if backend.flag == flag]
    if not kinds:
        flags = ", ".join(dict.fromkeys(backend.flag for backend in BACKENDS))
        raise UsageError(f"--attention-backend {name!r} is not one of {flags}")
    reasons = {kind: obstacle(kind, model, arch, release, kv) for kind in kinds}
    found = next((kind for kind, why in reasons.items() if not why), None)
    if found is None:
        nearest = next((kind for kind in kinds if arch in kind.archs), kinds[0])
        raise UsageError(
            f"--attention-backend {name} cannot be what is served: {nearest.name} "
            f"{reasons[nearest]}"
        )
    return found


def page_of(said: Said, model: Model, backend: Backend) -> int:
    """Return tokens of a page: as said, the backend's, or 64 for a sparse model's pool."""
    return said.page or (backend.pages[-1] if backend.pages else 64 if model.indexed else 1)


def pool_bytes(said: Said, card: Gpu, model: Model, backend: Backend) -> float:
    """Return bytes of the pool on one GPU: its tokens', or what the weights leave.

    Raises:
        UsageError: neither is known, or they do not fit.
    """
    taken = None
    if said.weights:
        taken = size(said.weights, "--weights")
    elif said.model_weights:
        taken = size(said.model_weights, "--model-weights") / (said.gpus or 1)
    if said.pool is not None:
        asked = float(said.pool * cell_of(model, backend, kv_of(said), said.drafts))
        if card.memory and asked + (taken or 0.0) > card.memory:
            raise UsageError(
                f"--pool {said.pool:,} tokens are {asked / 1e9:.2f} GB, which do not fit beside "
                f"the weights on a GPU of {card.memory / 1e9:.2f} GB"
            )
        return asked
    if not card.memory or taken is None:
        raise UsageError(
            "how large is the pool? Give --pool TOKENS (max_total_num_tokens in the server's "
            "log), or --gpu-memory and --weights"
        )
    return memory_for_pool(card.memory, said.mem_fraction, taken)
