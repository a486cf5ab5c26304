"""``rewriter bench``: measure a running sglang, and what a change to it gained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rewriter.commands.options import Json
from rewriter.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from rewriter.probes.load.access import Access
    from rewriter.probes.load.identity import Server
    from rewriter.probes.load.measure import Plan
    from rewriter.probes.load.realised import Prediction
    from rewriter.probes.load.record import Record
    from rewriter.probes.models import Model
    from rewriter.report.benchmark import Outcome


class EndpointName(str, Enum):
    """The endpoints that sglang serves."""

    NATIVE = "native"
    OPENAI = "openai"


def run(
    url: Annotated[
        str, typer.Option("--url", help="The server.", metavar="URL")
    ] = "http://127.0.0.1:30000",
    endpoint: Annotated[
        EndpointName, typer.Option("--endpoint", help="/generate or /v1/completions.")
    ] = EndpointName.NATIVE,
    trials: Annotated[int, typer.Option("--trials", min=1, help="Timed replies.")] = 3,
    tokens: Annotated[int, typer.Option("--tokens", min=2, help="Tokens of each.")] = 200,
    warmups: Annotated[int, typer.Option("--warmups", min=0, help="Untimed replies before.")] = 3,
    warmup_tokens: Annotated[
        int, typer.Option("--warmup-tokens", min=1, help="Tokens of each.")
    ] = 20,
    prompt_tokens: Annotated[
        int, typer.Option("--prompt-tokens", min=1, help="Tokens of the prompt.")
    ] = 15,
    context_sweep: Annotated[
        str | None,
        typer.Option(
            "--context-sweep",
            help="Measure at several prompt lengths, e.g. 15,4K,32K: a full-pool cast is flat.",
            metavar="N,N,...",
        ),
    ] = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, max=1024, help="Streams at a time.")
    ] = 1,
    check_tokens: Annotated[
        int,
        typer.Option("--check-tokens", min=0, help="Tokens of the two replies kept to compare."),
    ] = 64,
    logprobs: Annotated[
        bool, typer.Option("--logprobs", help="Keep their log-probabilities too.")
    ] = False,
    save: Annotated[
        Path | None, typer.Option("--save", help="Write what is measured, trial by trial.")
    ] = None,
    against: Annotated[
        Path | None, typer.Option("--against", help="Compare with a file of --save.")
    ] = None,
    changed: Annotated[
        list[str] | None,
        typer.Option(
            "--changed", help="A difference that is what you compare.", metavar="ARGUMENT"
        ),
    ] = None,
    tokens_may_differ: Annotated[
        bool, typer.Option("--tokens-may-differ", help="Exit 0 even if the tokens changed.")
    ] = False,
    predicted_ms: Annotated[
        float | None,
        typer.Option("--predicted-ms", min=0, help="TPOT that was predicted."),
    ] = None,
    diagnosis: Annotated[
        Path | None,
        typer.Option("--diagnosis", help="A file of `diagnose --json`: its prediction."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="The model, if its path does not say.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="Its config.json.", metavar="FILE")
    ] = None,
    gpu: Annotated[str, typer.Option("--gpu", help="Name the GPU; else nvidia-smi, here.")] = "",
    flush: Annotated[
        bool, typer.Option("--flush/--no-flush", help="Empty the prefix cache before each trial.")
    ] = True,
    stall: Annotated[
        float, typer.Option("--stall", min=0.1, help="Give up after so many s without a token.")
    ] = 120.0,
    api_key: Annotated[
        str | None, typer.Option("--api-key", envvar="REWRITER_API_KEY", help="The server's key.")
    ] = None,
    as_json: Json = False,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write a page with plots.", metavar="FILE")
    ] = None,
) -> None:
    """Time greedy replies of a running server, against a saved run."""
    from rewriter.probes.load.access import Access
    from rewriter.probes.load.measure import Plan
    from rewriter.probes.load.realised import diagnosed
    from rewriter.probes.trace.known import model_of

    plan = Plan(
        contexts=_contexts(context_sweep, prompt_tokens),
        tokens=tokens,
        trials=trials,
        warmups=warmups,
        warmup_tokens=warmup_tokens,
        concurrency=concurrency,
        endpoint="openai" if endpoint is EndpointName.OPENAI else "native",
        check_lengths=Plan.check_lengths if check_tokens else (),
        check_tokens=check_tokens,
        logprobs=logprobs,
    )
    access = Access(url, plan.endpoint, api_key, stall, flush)
    # What is wrong with the command line is told before anything is measured.
    given = model_of(model, config)
    stated = predicted_ms if diagnosis is None else diagnosed(diagnosis, given)
    if html is not None and not html.absolute().parent.is_dir():
        raise UsageError(f"{html}: cannot be written: no such folder")
    before = _before(against)
    allowed = frozenset(changed or ())
    record = _measured(access, gpu, plan, before, allowed, save, _silent if as_json else _tell)
    outcome = _outcome(record, before, allowed, stated, given or _served(record.server))
    code = _code(outcome, tokens_may_differ)
    _show(outcome, url, code, as_json, html)
    raise typer.Exit(code)


def _contexts(sweep: str | None, prompt_tokens: int) -> tuple[int, ...]:
    """Return the prompt lengths; ``4K`` is 4,096."""
    if sweep is None:
        return (prompt_tokens,)
    found = []
    for part in sweep.split(","):
        word = part.strip().upper()
        factor = 1024 if word.endswith("K") else 1
        digits = word.removesuffix("K")
        if not digits.isdecimal() or not int(digits):
            raise UsageError(f"--context-sweep: {part!r} is no number of tokens, e.g. 15,4K,32K")
        found.append(int(digits) * factor)
    return tuple(dict.fromkeys(found))


def _before(path: Path | None) -> Record | None:
    """Read the earlier bench, before anything is measured."""
    from rewriter.probes.load.record import load

    record = load(path) if path is not None else None
    if record is not None and not record.complete:
        why = record.failure or "it was stopped"
        raise RefusedError(f"{path}: incomplete ({why}); measure it again to compare with it")
    return record


def _measured(
    access: Access,
    gpu: str,
    plan: Plan,
    before: Record | None,
    changed: frozenset[str],
    save: Path | None,
    tell: Callable[[str], None],
) -> Record:
    """Measure, unless the two servers are not to be compared.

    Raises:
        LoadError: the server tells nothing about itself, or is in use.
        RefusedError: it is not like the earlier one.
    """
    from rewriter.probes.load import running
    from rewriter.probes.load.compare import unlike
    from rewriter.probes.load.connection import address
    from rewriter.probes.load.identity import described, local_gpu
    from rewriter.probes.load.record import Record, saver

    info = access.info()
    server = described(info, gpu or local_gpu(address(access.url).host))
    when = datetime.now(timezone.utc).isoformat(timespec="seconds")
    record = Record(server, plan, when)
    if before is not None and (found := unlike(before, record, changed)):
        raise RefusedError(_unlike_words([str(each) for each in found]))
    flush, note = access.flusher()
    record = Record(server, plan, when, notes=(note,) if note else ())
    keep = saver(save)
    keep(record)
    driver = running.Driver(
        send=access.sender(info),
        send_check=access.sender(info, logprobs=plan.logprobs),
        flush=flush,
        keep=keep,
        tell=tell,
    )
    return running.run(record, driver)


def _unlike_words(differences: Sequence[str]) -> str:
    told = "".join(f"\n  {difference}" for difference in differences)
    return (
        f"the two benches are not alike:{told}\nmeasure both in the same way, or name what you "
        "compare, e.g. `--changed attention_backend`"
    )


def _silent(line: str) -> None: ...


def _tell(line: str) -> None:
    typer.echo(f"bench: {line}", err=True)


def _served(server: Server) -> Model | None:
    """Return the figures of the model that is served, if its path names a known one."""
    from rewriter.probes.models import named

    try:
        return named(server.model)
    except UsageError:
        return None  # it is not in the table: nothing is predicted


def _outcome(
    record: Record,
    before: Record | None,
    changed: frozenset[str],
    stated: Prediction | float | None,
    model: Model | None,
) -> Outcome:
    from rewriter.probes.load import realised, running
    from rewriter.probes.load.compare import compare
    from rewriter.probes.load.sweep import sweep
    from rewriter.report.benchmark import Outcome

    cast = realised.expected_cast(record.server, model)
    swept = sweep(record.points, cast)
    wrong = tuple(running.wrong(record))
    if before is None or not record.complete:
        return Outcome(record, wrong, swept, cast)
    comparison = compare(before, record, changed)
    return Outcome(
        record, wrong, swept, cast, comparison, realised.realised(comparison, stated, model)
    )


def _code(outcome: Outcome, tokens_may_differ: bool) -> int:
    comparison = outcome.comparison
    other = comparison is not None and not comparison.same_tokens and not tokens_may_differ
    return 1 if outcome.record.failure or outcome.wrong or other else 0


def _show(outcome: Outcome, url: str, code: int, as_json: bool, html: Path | None) -> None:
    if html is not None:
        from rewriter.report.benchmark_page import document as page

        try:
            html.write_text(page(outcome), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{html}: cannot be written: {error.strerror}") from error
    if as_json:
        from rewriter.report.benchmark_values import values
        from rewriter.report.jsons import document

        version = outcome.record.server.version or None
        target = {"kind": "server", "location": url, "version": version}
        typer.echo(document("bench", target, exit_code=code, bench=values(outcome)))
        return
    from rewriter.report.benchmark import lines

    for line in lines(outcome):
        typer.echo(line)
