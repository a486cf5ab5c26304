"""The command ``rewriter``: its verbs, and exit codes from errors."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterable
from typing import Annotated

import typer

from rewriter import __version__
from rewriter.commands.options import SECTIONS, Command, Group
from rewriter.errors import RewriterError
from rewriter.visible import visible

COMMANDS = tuple(verb for verbs in SECTIONS.values() for verb in verbs)
"""The verbs, in the order of the help; each is a module of ``rewriter.commands``."""


def build(verbs: Iterable[str] = COMMANDS, *, completion: bool = True) -> typer.Typer:
    """Return the application with these verbs. Only their modules are imported.

    A gate runs ``check`` before every start of a server: what the other verbs need is not loaded,
    nor what completes command lines.
    """
    import importlib

    app = typer.Typer(
        name="rewriter",
        cls=Group,
        help="Structural patches for sglang: found by syntax, applied all or nothing, reverted "
        "byte for byte.",
        no_args_is_help=True,
        add_completion=completion,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for verb in verbs:
        app.command(verb, cls=Command)(importlib.import_module(f"rewriter.commands.{verb}").run)
    return app


def _version(value: bool) -> None:
    if value:
        typer.echo(f"rewriter {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 as asked, 1 no, 2 refused, 3 a bug of the tool."""
    # A command lives for a moment: collecting cycles costs more than the memory it would free.
    gc.disable()
    try:
        _run(sys.argv[1:] if arguments is None else arguments)
    finally:
        # Nor shall the interpreter collect as it ends: a tenth of a cold check. Compiled modules
        # beside torch complain about what is left, so there it does.
        if "torch" not in sys.modules:
            gc.freeze()


def _run(arguments: list[str]) -> None:
    completing = "_REWRITER_COMPLETE" in os.environ
    if any(argument.endswith("-completion") for argument in arguments):
        _complete_at_once_in_zsh()
    verb = _verb(_half_typed() if completing else arguments)
    try:
        app = build((verb,), completion=completing) if verb in COMMANDS else build()
        code = app(arguments, prog_name="rewriter", standalone_mode=False)
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


def _verb(arguments: list[str]) -> str:
    """Return the first argument that is no option: the root takes none that has a value."""
    return next((a for a in arguments if not a.startswith("-")), "")


def _complete_at_once_in_zsh() -> None:
    """Mend typer's script: zsh loads it at the first tabulator, which then completed nothing."""
    from typer import _completion_shared

    scripts = _completion_shared._completion_scripts
    call = '[[ $zsh_eval_context[-1] == loadautofunc ]] && %(complete_func)s "$@"'
    scripts["zsh"] = f"{scripts['zsh'].rstrip()}\n{call}\n"


def _half_typed() -> list[str]:
    """Return the words that the shell asks to complete, without the program's name."""
    names = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")
    return next((os.environ[name] for name in names if name in os.environ), "").split()[1:]


def _fail(error: RewriterError, arguments: list[str]) -> int:
    typer.echo(f"rewriter: {visible(str(error))}", err=True)
    if "--json" in arguments:
        from rewriter.report.jsons import document

        typer.echo(document(_verb(arguments), None, exit_code=error.exit_code, error=str(error)))
    return error.exit_code


def _bug() -> None:
    import traceback

    traceback.print_exc()
    typer.echo("rewriter: this is a bug of the tool; nothing more was written", err=True)
    sys.exit(3)


if __name__ == "__main__":
    main()
