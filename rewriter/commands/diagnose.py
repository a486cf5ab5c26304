"""``rewriter diagnose``: what a profiler trace shows, and what would end it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rewriter.commands.options import Json
from rewriter.errors import UsageError

if TYPE_CHECKING:
    from rewriter.probes.trace.comparison import Comparison
    from rewriter.probes.trace.findings import Asked, Diagnosis
    from rewriter.probes.trace.tabled import TableDiagnosis

_PANEL = "Figures from outside the trace (default: server_args.json beside it)"
_ENDINGS = (".json", ".json.gz", ".tmp", ".gz", ".txt")


def _figure(*names: str, help: str, metavar: str) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, rich_help_panel=_PANEL)


def run(
    traces: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="TRACE...",
            help="Traces of torch.profiler (.json, .gz, .tmp), one a rank or merged, or a folder "
            "of them; or the text of a key_averages table.",
        ),
    ] = None,
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option("--compare", help="Two traces of the same work.", metavar="BEFORE AFTER"),
    ] = None,
    model: Annotated[
        str | None, _figure("--model", help="A known model, e.g. GLM-5.", metavar="NAME")
    ] = None,
    model_config: Annotated[
        Path | None, _figure("--model-config", help="The model's config.json.", metavar="FILE")
    ] = None,
    server_args: Annotated[
        Path | None, _figure("--server-args", help="What /server_info says.", metavar="FILE")
    ] = None,
    pool: Annotated[
        int | None, _figure("--pool", help="Tokens of the KV pool.", metavar="N")
    ] = None,
    page: Annotated[int | None, _figure("--page", help="Tokens of a page.", metavar="N")] = None,
    layers: Annotated[
        int | None, _figure("--layers", help="Attention layers.", metavar="N")
    ] = None,
    context: Annotated[
        int | None, _figure("--context", help="Tokens in the batch's contexts.", metavar="N")
    ] = None,
    steps: Annotated[
        int | None, _figure("--steps", help="Steps that a table covers.", metavar="N")
    ] = None,
    tpot: Annotated[
        float | None,
        _figure("--tpot", help="A step, measured without the profiler.", metavar="MS"),
    ] = None,
    tpot_after: Annotated[
        float | None, _figure("--tpot-after", help="The same after a cure.", metavar="MS")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 1 if a trace is damaged or incomplete.")
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Write a page with plots, self-contained.", metavar="FILE"),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="List kernels, and every rank's page.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Find the full-pool KV cast in a trace, and predict the gain.

    Exits 0 whether it is found or not, 1 with --strict on a damaged trace, 2 where there is
    nothing to diagnose.
    """
    if bool(traces) == bool(compare):
        raise UsageError("give traces, or --compare BEFORE AFTER")
    if tpot_after is not None and tpot is None:
        raise UsageError("--tpot-after needs --tpot: two measurements make a comparison")
    for name, value in (("--tpot", tpot), ("--tpot-after", tpot_after), ("--pool", pool),
                        ("--page", page), ("--layers", layers), ("--steps", steps)):  # fmt: skip
        if value is not None and value <= 0:
            raise UsageError(f"{name} is {value}, expected a number above 0")
    asked = _asked(model, model_config, server_args, layers, pool, page, tpot, context)
    if compare is not None:
        pages = _compared(*compare, asked, tpot_after)
    else:
        pages = _diagnosed(_expanded(traces or []), asked, steps)
        if tpot is not None and tpot_after is not None:
            pages = _with_measured(pages, tpot, tpot_after)
    damaged = [one for one in pages.ranks if not one.whole]
    code = 1 if strict and damaged else 0
    if html is not None:
        _write(html, pages)
    _print(pages, code, as_json=as_json, verbose=verbose)
    if code:
        typer.echo(f"rewriter: --strict: {damaged[0].path} is damaged or incomplete", err=True)
    raise typer.Exit(code)


@dataclass(frozen=True)
class _Pages:
    """What is to be shown: ranks of traces, tables, a comparison of two of the ranks."""

    ranks: tuple[Diagnosis, ...] = ()
    tables: tuple[TableDiagnosis, ...] = ()
    comparison: Comparison | None = None


def _asked(
    model: str | None,
    model_config: Path | None,
    server_args: Path | None,
    layers: int | None,
    pool: int | None,
    page: int | None,
    tpot: float | None,
    context: int | None,
) -> Asked:
    from rewriter.catalog import names
    from rewriter.probes.trace.findings import Asked
    from rewriter.probes.trace.known import Known, model_of, server_from

    known = Known(model=model_of(model, model_config), layers=layers, pool=pool, page=page)
    if server_args is not None:
        known = known.over(server_from(server_args))
    return Asked(known, tpot_ms=tpot, context=context, codemods=frozenset(names()))


def _expanded(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the files that are named, and those of the folders that are named."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        inside = sorted(
            file
            for file in path.iterdir()
            if file.name.endswith(_ENDINGS) and file.name != "server_args.json"
        )
        if not inside:
            raise UsageError(f"{path}: no trace in this folder ({', '.join(_ENDINGS)})")
        yield from inside


def _diagnosed(paths: Iterable[Path], asked: Asked, steps: int | None) -> _Pages:
    from rewriter.probes.trace.diagnosis import diagnose
    from rewriter.probes.trace.tabled import diagnose_table, is_table
    from rewriter.report.diagnosis_progress import reading

    ranks: list[Diagnosis] = []
    tables: list[TableDiagnosis] = []
    for path in paths:
        if is_table(path):
            tables += diagnose_table(path, asked, steps)
        else:
            with reading(path.name) as progress:
                ranks += diagnose(path, asked, progress)
    return _Pages(tuple(ranks), tuple(tables))


def _compared(before: Path, after: Path, asked: Asked, tpot_after: float | None) -> _Pages:
    """Compare the rank with the longest cast before with the same rank after."""
    from rewriter.probes.trace.comparison import compare

    old = _diagnosed([before], asked, None).ranks
    new = _diagnosed([after], replace(asked, tpot_ms=tpot_after), None).ranks
    if not old or not new:
        raise UsageError("--compare needs two traces; a key_averages table has no steps to compare")
    first = max(old, key=lambda one: one.cast_us)
    second = next((one for one in new if one.rank == first.rank), new[0])
    measured = (asked.tpot_ms, tpot_after) if asked.tpot_ms and tpot_after else None
    return _Pages((first, second), comparison=compare(first, second, measured))


def _with_measured(pages: _Pages, tpot: float, tpot_after: float) -> _Pages:
    """Add the comparison of the slowest rank with a step measured after a cure."""
    from rewriter.probes.trace.comparison import compare

    if not pages.ranks:
        return pages
    slowest = max(pages.ranks, key=lambda one: one.cast_us)
    return replace(pages, comparison=compare(slowest, None, (tpot, tpot_after)))


def _write(path: Path, pages: _Pages) -> None:
    from rewriter.report.diagnosis_html import html_page

    try:
        path.write_text(html_page(pages.ranks, pages.tables, pages.comparison), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from error


def _print(pages: _Pages, code: int, *, as_json: bool, verbose: bool) -> None:
    if as_json:
        typer.echo(_json(pages, code))
        return
    from rewriter.report.text import colourful

    for number, lines in enumerate(_texts(pages, colour=colourful(), verbose=verbose)):
        if number:
            typer.echo("")
        for line in lines:
            typer.echo(line)


def _texts(pages: _Pages, *, colour: bool, verbose: bool) -> Iterator[Iterable[str]]:
    """Yield one text after another. Of many ranks the one with the longest cast gets a page."""
    from rewriter.report.diagnosis import diagnosis_lines
    from rewriter.report.diagnosis_pages import comparison_lines, rank_lines, table_lines

    shown = pages.ranks
    two = pages.comparison is not None and pages.comparison.after is not None
    if len(shown) > 1 and not two:
        yield rank_lines(shown)
    if len(shown) > 1 and not verbose:
        shown = () if two else (max(shown, key=lambda one: (one.cast_us, one.gpu_us)),)
    for one in shown:
        yield diagnosis_lines(one, colour=colour, verbose=verbose)
    for table in pages.tables:
        yield table_lines(table, colour=colour)
    if pages.comparison is not None:
        yield comparison_lines(pages.comparison, colour=colour)


def _json(pages: _Pages, code: int) -> str:
    from rewriter.report.diagnosis_values import comparison_value, diagnosis_value, table_value
    from rewriter.report.jsons import document

    return document(
        "diagnose",
        None,
        exit_code=code,
        ranks=[diagnosis_value(one) for one in pages.ranks],
        tables=[table_value(one) for one in pages.tables],
        comparison=comparison_value(pages.comparison) if pages.comparison else None,
    )
