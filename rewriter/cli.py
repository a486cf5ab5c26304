"""The command ``rewriter``: its verbs, and exit codes from errors."""

from __future__ import annotations

import gc
import sys
from typing import Annotated, Any

import typer

from rewriter import __version__
from rewriter.commands import apply, check, diff, list, pin
from rewriter.errors import RewriterError

app = typer.Typer(
    name="rewriter",
    help="Structural patches for sglang: found by syntax, applied all or nothing, reverted "
    "byte for byte.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"rewriter {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


for _name, _module in (
    ("list", list), ("check", check), ("diff", diff), ("apply", apply), ("pin", pin),
):  # fmt: skip
    app.command(_name)(_module.run)


def main(arguments: Any = None) -> None:
    """Run the command line and exit: 0 as asked, 1 no, 2 refused, 3 a bug of the tool."""
    # A command lives for a moment: collecting cycles costs more than the memory it would free.
    gc.disable()
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        code = app(arguments, standalone_mode=False)
    except RewriterError as error:
        sys.exit(_fail(error, arguments))
    except typer.Abort:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader went away; nothing is left to tell it
        sys.exit(0)
    except Exception as error:
        usage_exit = getattr(error, "exit_code", None)
        if usage_exit is None or not hasattr(error, "format_message"):
            _bug()
        error.show()  # type: ignore[attr-defined]
        sys.exit(usage_exit)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(error: RewriterError, arguments: Any) -> int:
    typer.echo(f"rewriter: {error}", err=True)
    if "--json" in arguments:
        from rewriter.report.jsons import document

        command = next((a for a in arguments if not a.startswith("-")), "")
        typer.echo(document(command, None, exit_code=error.exit_code, error=str(error)))
    return error.exit_code


def _bug() -> None:
    import traceback

    traceback.print_exc()
    typer.echo("rewriter: this is a bug of the tool; nothing more was written", err=True)
    sys.exit(3)


if __name__ == "__main__":
    main()
