"""``rewriter smoke``: serve GLM-5's architecture on a GPU, unpatched and patched."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rewriter.commands.options import Codemods, ForceVersion, Json, TargetOptions, with_target
from rewriter.errors import RefusedError, TargetError, UsageError
from rewriter.model import State

if TYPE_CHECKING:
    from rewriter.session import Session


_CODEMODS = {"fa3": ["fa3_kv_gather"]}
"""What is patched where none is named, if not what the configuration says."""


@with_target
def run(
    options: TargetOptions,
    codemods: Codemods = None,
    modes: Annotated[
        str, typer.Option("--modes", help="Of graphs, eager, draft; with commas.")
    ] = "graphs,eager,draft",
    layers: Annotated[int, typer.Option("--layers", min=2, help="Of the reduced model.")] = 8,
    pool: Annotated[int, typer.Option("--pool", min=20000, help="Tokens of the pool.")] = 495_552,
    gpus: Annotated[int, typer.Option("--gpus", min=1, help="Tensor-parallel size.")] = 1,
    attention: Annotated[
        str,
        typer.Option("--attention-backend", help="flashinfer or fa3; the latter: fa3_kv_gather."),
    ] = "flashinfer",
    work: Annotated[
        Path | None, typer.Option("--work", help="Keep model, logs and traces.", metavar="DIR")
    ] = None,
    flag: Annotated[
        list[str] | None, typer.Option("--server-flag", help="A further flag of the server.")
    ] = None,
    force_version: ForceVersion = False,
    as_json: Json = False,
) -> None:
    """Serve a reduced GLM-5 on a GPU before and after, and compare.

    The installed sglang is not touched: the patched one is a copy beside it.
    """
    from rewriter.probes.serve import smoke
    from rewriter.probes.serve.server import ATTENTION
    from rewriter.session import opened

    chosen = tuple(dict.fromkeys(modes.split(",")))
    unknown = [mode for mode in chosen if mode not in smoke.MODES]
    if unknown:
        raise UsageError(f"--modes: {unknown[0]!r} is none of {', '.join(smoke.MODES)}")
    if attention not in ATTENTION:
        raise UsageError(f"--attention-backend: {attention!r} is none of {', '.join(ATTENTION)}")
    python = str(options.python) if options.python is not None else sys.executable
    found = gpus_of(python)
    if found < gpus:
        raise TargetError(f"{python} sees {found} GPU(s), and the smoke test needs {gpus}")
    names = codemods or _CODEMODS.get(attention)
    session = opened(options.resolve(), names, force_version, patches=False)
    with tempfile.TemporaryDirectory(prefix="rewriter-smoke-") as temporary:
        place = work or Path(temporary)
        patched = patched_copy(session, place / "patched")
        report = smoke.run(
            patched, place, python=python, modes=chosen, layers=layers, pool=pool, gpus=gpus,
            attention=attention, flags=tuple(flag or ()),
            say=lambda line: typer.echo(line, err=True),
        )  # fmt: skip
    code = 0 if report.fine else 1
    from rewriter.report.smoke import as_json as report_json
    from rewriter.report.smoke import lines

    if as_json:
        from rewriter.report.jsons import document

        told = document("smoke", session.described(), exit_code=code, smoke=report_json(report))
        typer.echo(told)
    else:
        for line in lines(report):
            typer.echo(line)
    raise typer.Exit(code)


def patched_copy(session: Session, directory: Path) -> Path:
    """Write the whole package, patched, into a directory for PYTHONPATH.

    Raises:
        RefusedError: a codemod is not ready in the target.
    """
    from rewriter.judge import changes
    from rewriter.output import write

    found = session.verdicts()
    for verdict in found:
        if verdict.state is not State.READY:
            raise RefusedError(
                f"{verdict.codemod} is {verdict.state}: the smoke test compares an unpatched "
                "package with a patched copy of it, so it must be ready"
            )
    made = changes(session.codemods, session.target.read)
    write(directory, session.target, found, made, full=True)
    return directory


def gpus_of(python: str) -> int:
    """Return how many GPUs an interpreter's torch sees; 0 where it has no torch."""
    code = "import torch; print(torch.cuda.device_count())"
    try:
        done = subprocess.run(
            [python, "-c", code], capture_output=True, text=True, timeout=120, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return int(done.stdout.strip() or 0) if done.returncode == 0 else 0
