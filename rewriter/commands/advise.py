"""``rewriter advise``: memory and time of every way out of the full-pool cast."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rewriter.commands.options import Json
from rewriter.errors import UsageError

if TYPE_CHECKING:
    from rewriter.probes.memory.advice import Advice
    from rewriter.probes.memory.deployment import Deployment


class KvDtype(str, Enum):
    """The KV cache's dtypes that matter here."""

    FP8 = "fp8_e4m3"
    BF16 = "bfloat16"


def run(
    model: Annotated[
        str | None,
        typer.Argument(help="GLM-5, DeepSeek-V3, DeepSeek-R1, DeepSeek-V3.2, Kimi-K2, …"),
    ] = None,
    bench: Annotated[
        Path | None,
        typer.Option(
            "--bench", help="A file of `bench --save`: what it says is served.", metavar="FILE"
        ),
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
    gpus: Annotated[
        int | None, typer.Option("--gpus", min=1, help="How many (TP ranks); default 1.")
    ] = None,
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
    kv_dtype: Annotated[
        KvDtype | None,
        typer.Option("--kv-cache-dtype", help="fp8_e4m3 or bfloat16; else FP8.", metavar="DTYPE"),
    ] = None,
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
    """Weigh every way out of the cast: tokens of the pool, ms a token."""
    from rewriter.commands import served
    from rewriter.probes.memory.advice import Needs, advise
    from rewriter.probes.memory.deployment import Deployment

    said = served.Said(
        model=model,
        config=config,
        gpu=gpu,
        arch=arch,
        gpu_memory=gpu_memory,
        bandwidth=bandwidth,
        gpus=gpus,
        weights=weights,
        model_weights=model_weights,
        mem_fraction=mem_fraction,
        pool=pool,
        sglang=sglang,
        backend=backend,
        kv=kv_dtype.value if kv_dtype else None,
        page=page_size,
        drafts=drafts,
        step_ms=step_ms,
    )
    if bench is not None:
        said = said.over(served.in_bench(bench))
    known, card, release = served.model_of(said), served.card_of(said), served.release_of(said)
    serving = served.backend_of(said, known, card.arch, release)
    at = Deployment(
        model=known,
        arch=card.arch,
        release=release,
        memory=served.pool_bytes(said, card, known, serving),
        bandwidth=card.bandwidth,
        kv=served.kv_of(said),
        backend=serving,
        page=served.page_of(said, known, serving),
        gpus=said.gpus or 1,
        data_parallel=data_parallel,
        drafts=said.drafts,
        batch=batch,
        context=context,
        step_ms=said.step_ms,
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
