"""The reports that a matrix can be written as, declared once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rewriter.errors import UsageError

if TYPE_CHECKING:
    from rewriter.rows import Matrix


def _report(*names: str, help: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, rich_help_panel="Reports")


Sarif = Annotated[
    Path | None, _report("--sarif", help="Write SARIF 2.1.0 there as well.", metavar="FILE")
]
Junit = Annotated[
    Path | None, _report("--junit", help="Write JUnit XML there as well.", metavar="FILE")
]
Html = Annotated[
    Path | None, _report("--html", help="Write one page, a heat map, there.", metavar="FILE")
]
Github = Annotated[
    bool,
    _report(
        "--github",
        help="Print GitHub annotations as well; add the summary to $GITHUB_STEP_SUMMARY.",
    ),
]
Markdown = Annotated[bool, _report("--markdown", help="Print the summary as Markdown.")]


def write(
    matrix: Matrix, *, sarif: Path | None, junit: Path | None, html: Path | None
) -> list[str]:
    """Write the reports that go into files, and return their paths.

    Raises:
        UsageError: one cannot be written; the message says why.
    """
    written: list[str] = []
    if sarif is not None:
        from rewriter.report.sarif import document

        written.append(_place(sarif, document(matrix).encode()))
    if junit is not None:
        from rewriter.report import junit as junit_report

        written.append(_place(junit, junit_report.document(matrix)))
    if html is not None:
        from rewriter.report.html import page

        written.append(_place(html, page(matrix).encode()))
    return written


def tell_github(matrix: Matrix) -> None:
    """Print annotations, and add the summary to the file that a workflow's step names."""
    from rewriter.report.github import commands
    from rewriter.report.markdown import summary

    for line in commands(matrix):
        typer.echo(line)
    if place := os.environ.get("GITHUB_STEP_SUMMARY"):
        try:
            with Path(place).open("a", encoding="utf-8") as file:
                file.write("\n".join(summary(matrix)) + "\n")
        except OSError as error:
            raise _unwritable(place, error) from error


def _place(path: Path, content: bytes) -> str:
    """Write a file by one rename, so that a reader never sees half of it."""
    import tempfile

    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(content)
        scratch = Path(file.name)
        scratch.chmod(0o644)
        scratch.replace(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    return str(path)


def _unwritable(path: Path | str, error: OSError) -> UsageError:
    return UsageError(f"{path}: the report cannot be written: {error.strerror or error}")
