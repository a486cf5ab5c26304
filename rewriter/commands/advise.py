"""``rewriter advise``: memory and time of every way out of the full-pool cast."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from rewriter.commands.options import Json
from rewriter.errors import UsageError

if TYPE_CHECKING:
    from packaging.version import Version

    from rewriter.probes.memory.advice import Advice
    from rewriter.probes.memory.backends import Backend
    from rewriter.probes.memory.deployment import Deployment
    from rewriter.probes.memory.gpus import Gpu
    from rewriter.probes.models import Model


class KvDtype(str, Enum):
    """The KV cache's dtypes that matter here."""

    FP8 = "fp8_e4m3"
    BF16 = "bfloat16"


class _Memory(NamedTuple):
    """What the pool's memory follows from: its tokens, or the GPU's memory and the weights."""

    pool: int | None
    total: str | None
    weights: str | None
    model_weights: str | None
    fraction: float


def run(
    model: Annotated[
        str | None,
        typer.Argument(help="GLM-5, DeepSeek-V3, DeepSeek-R1, DeepSeek-V3.2, Kimi-K2, …"),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", help="A model's config.json instead.", metavar="FILE"),
    ] = None,
    gpu: Annotated[
        str | None, typer.Option("--gpu", help="E.g. H200; sets the next three.")
    ] = None,
    arch: Annotated[str | None, typer.Option("--arch", help="E.g. sm120.", metavar="SM")] = None,
    gpu_memory: Annotated[
        str | None, typer.Option("--gpu-memory", help="Of one, with GB or GiB.", metavar="SIZE")
    ] = None,
    bandwidth: Annotated[
        float | None, typer.Option("--bandwidth", min=1, help="Of one, GB/s, peak.")
    ] = None,
    gpus: Annotated[int, typer.Option("--gpus", min=1, help="How many (TP ranks).")] = 1,
    data_parallel: Annotated[
        int, typer.Option("--dp", min=1, help="Ranks with a pool of their own (DP attention).")
    ] = 1,
    weights: Annotated[
        str | None,
        typer.Option("--weights", help="On each GPU, with GB or GiB.", metavar="SIZE"),
    ] = None,
    model_weights: Annotated[
        str | None,
        typer.Option("--model-weights", help="Of all GPUs together instead.", metavar="SIZE"),
    ] = None,
    mem_fraction: Annotated[
        float, typer.Option("--mem-fraction", min=0.01, max=1, help="--mem-fraction-static.")
    ] = 0.88,
    pool: Annotated[
        int | None, typer.Option("--pool", min=1, help="Tokens of the pool as the server says.")
    ] = None,
    sglang: Annotated[
        str | None, typer.Option("--sglang", help="Release; default the newest known.")
    ] = None,
    backend: Annotated[
        str | None, typer.Option("--attention-backend", help="As served; else the default.")
    ] = None,
    kv_dtype: Annotated[KvDtype, typer.Option("--kv-cache-dtype", help="As served.")] = KvDtype.FP8,
    page_size: Annotated[
        int | None, typer.Option("--page-size", min=1, help="As served; else the backend's.")
    ] = None,
    drafts: Annotated[
        bool, typer.Option("--drafts", help="The server drafts with the NextN layers.")
    ] = False,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Requests at a time.")] = 1,
    context: Annotated[
        int, typer.Option("--context", min=0, help="Tokens that each has, when it is long.")
    ] = 0,
    step_ms: Annotated[
        float | None, typer.Option("--step-ms", min=0, help="ms a token as measured (TPOT).")
    ] = None,
    cast_ms: Annotated[
        float | None, typer.Option("--cast-ms", min=0, help="ms a step of the cast, by diagnose.")
    ] = None,
    host_ms: Annotated[
        float, typer.Option("--host-ms", min=0, help="ms a step that the host needs.")
    ] = 0.0,
    need_tokens: Annotated[
        int | None, typer.Option("--need-tokens", min=1, help="Tokens that must fit a GPU.")
    ] = None,
    need_ms: Annotated[
        float | None, typer.Option("--need-ms", min=0, help="ms a token at most.")
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Formula and source of every way.")
    ] = False,
    as_json: Json = False,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write a page with a plot.", metavar="FILE")
    ] = None,
) -> None:
    """Weigh every way out: tokens of the pool, ms a token, formula and source of each."""
    from rewriter.probes.memory.advice import Needs, advise
    from rewriter.probes.memory.deployment import Deployment

    known = _model(model, config)
    card = _gpu(gpu, arch, bandwidth)
    release = _release(sglang)
    kv = "fp8" if kv_dtype is KvDtype.FP8 else "bf16"
    served = _backend(backend, known, card.arch, release, kv)
    page = page_size or (served.pages[-1] if served.pages else 64 if known.indexed else 1)
    memory = _Memory(pool, gpu_memory, weights, model_weights, mem_fraction)
    at = Deployment(
        model=known,
        arch=card.arch,
        release=release,
        memory=_bytes(memory, card, gpus, known, served, kv, drafts),
        bandwidth=card.bandwidth,
        kv=kv,
        backend=served,
        page=page,
        gpus=gpus,
        data_parallel=data_parallel,
        drafts=drafts,
        batch=batch,
        context=context,
        step_ms=step_ms,
        measured_cast_ms=cast_ms,
        host_ms=host_ms,
        codemods=_codemods(),
        gpu=card.name,
    )
    _check(at, context)
    advice = advise(at, Needs(need_tokens, need_ms))
    code = 0 if advice.answered else 1
    _show(advice, code, as_json, html, verbose)
    raise typer.Exit(code)


def _model(name: str | None, config: Path | None) -> Model:
    from rewriter.probes.trace.known import model_of

    found = model_of(name, config)
    if found is None:
        raise UsageError("name a model, e.g. `rewriter advise GLM-5`, or give --config FILE")
    return found


def _gpu(name: str | None, arch: str | None, bandwidth: float | None) -> Gpu:
    """Return the GPU by name, with what the other options say of it."""
    from dataclasses import replace

    from rewriter.probes.memory.gpus import Gpu, architecture, gpu_named

    if name is None:
        if arch is None or bandwidth is None:
            raise UsageError("name the GPU (--gpu H200), or give --arch and --bandwidth")
        return Gpu("", architecture(arch), 0, bandwidth)
    found = gpu_named(name)
    return replace(
        found,
        arch=architecture(arch) if arch else found.arch,
        bandwidth=bandwidth or found.bandwidth,
    )


def _release(text: str | None) -> Version:
    from packaging.version import InvalidVersion, Version

    from rewriter.probes.memory.backends import FIRST, NEWEST

    try:
        release = NEWEST if text is None else Version(text)
    except InvalidVersion as error:
        raise UsageError(f"--sglang {text!r} is no release") from error
    if release < FIRST:
        raise UsageError(f"--sglang {release}: what is known here begins with {FIRST}")
    if release > NEWEST:
        typer.echo(f"rewriter: {release} is judged as {NEWEST}, the newest known", err=True)
    return release


def _backend(name: str | None, model: Model, arch: str, release: Version, kv: str) -> Backend:
    from rewriter.probes.memory.backends import BACKENDS, backend_named, default, obstacle

    if name is None:
        return default(model, arch, release, kv)
    if name in ("nsa", "dsa"):  # which of them follows from model and architecture
        return default(model, arch, release, kv)
    found = backend_named(name)
    if found is None:
        known = ", ".join(backend.name for backend in BACKENDS)
        raise UsageError(f"--attention-backend {name!r} is not one of {known}")
    if why := obstacle(found, model, arch, release, kv):
        raise UsageError(f"--attention-backend {name} cannot be what is served: it {why}")
    return found


def _bytes(
    memory: _Memory,
    card: Gpu,
    gpus: int,
    model: Model,
    backend: Backend,
    kv: str,
    drafts: bool,
) -> float:
    """Return bytes of the pool on one GPU."""
    from rewriter.probes.memory.deployment import cell_of
    from rewriter.probes.memory.formulas import memory_for_pool
    from rewriter.probes.memory.gpus import size

    total = size(memory.total, "--gpu-memory") if memory.total else float(card.memory)
    taken = None
    if memory.weights:
        taken = size(memory.weights, "--weights")
    elif memory.model_weights:
        taken = size(memory.model_weights, "--model-weights") / gpus
    if memory.pool is not None:
        asked = float(memory.pool * cell_of(model, backend, kv, drafts))
        if total and asked + (taken or 0.0) > total:
            raise UsageError(
                f"--pool {memory.pool:,} tokens are {asked / 1e9:.2f} GB, which do not fit beside "
                f"the weights on a GPU of {total / 1e9:.2f} GB"
            )
        return asked
    if not total or taken is None:
        raise UsageError(
            "how large is the pool? Give --pool TOKENS (max_total_num_tokens in the server's "
            "log), or --gpu-memory and --weights"
        )
    return memory_for_pool(total, memory.fraction, taken)


def _codemods() -> frozenset[str]:
    from rewriter import catalog

    return frozenset(catalog.names())


def _check(at: Deployment, context: int) -> None:
    longest = at.model.max_context
    if longest is not None and context > longest:
        raise UsageError(f"--context {context:,}: {at.model.name} takes {longest:,} at most")


def _show(advice: Advice, code: int, as_json: bool, html: Path | None, verbose: bool) -> None:
    if html is not None:
        from rewriter.report.advice_page import document as page

        try:
            html.write_text(page(advice), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{html}: cannot be written: {error.strerror}") from error
    if as_json:
        from rewriter.report.advice import values
        from rewriter.report.jsons import document

        typer.echo(document("advise", None, exit_code=code, advice=values(advice)))
        return
    from rewriter.report.advice import lines

    for line in lines(advice, all_formulas=verbose):
        typer.echo(line)
