"""The options that most commands share, declared once."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from rewriter.errors import NotInstalledError, TargetError

if TYPE_CHECKING:
    from rewriter.targets import Target
    from rewriter.targets.pip import Progress

_PANEL = "Target (default: the sglang of this interpreter)"


def _target(*names: str, help: str, metavar: str) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, rich_help_panel=_PANEL)


class TargetOptions(NamedTuple):
    """Which sglang a command is about."""

    python: Annotated[
        Path | None, _target("--python", help="Another interpreter's sglang.", metavar="PATH")
    ] = None
    site_packages: Annotated[
        Path | None,
        _target("--site-packages", help="A directory that holds the package.", metavar="DIR"),
    ] = None
    checkout: Annotated[
        Path | None, _target("--checkout", help="A working tree of sglang.", metavar="DIR")
    ] = None
    repo: Annotated[
        Path | None, _target("--repo", help="A git repository; with --rev.", metavar="DIR")
    ] = None
    rev: Annotated[
        str | None, _target("--rev", help="A commit of --repo, from its objects.", metavar="REV")
    ] = None
    release: Annotated[
        str | None,
        _target("--release", help="A release, fetched from the package index.", metavar="V"),
    ] = None
    wheel: Annotated[Path | None, _target("--wheel", help="A wheel file.", metavar="FILE")] = None
    overlay: Annotated[
        Path | None,
        _target("--overlay", help="Leave it be; write this for PYTHONPATH.", metavar="DIR"),
    ] = None

    def resolve(self, progress: Progress | None = None) -> Target:
        """Return the target; raises UsageError or TargetError."""
        from rewriter.targets import resolve

        try:
            return resolve(**self._asdict(), progress=progress)
        except NotInstalledError as error:
            raise TargetError(
                f"{error}; name a target with --python, --site-packages, --checkout, --repo and "
                "--rev, --release or --wheel"
            ) from error


def _known(incomplete: str) -> list[str]:
    """Return the codemods whose names begin with what was typed."""
    from rewriter import catalog

    return [name for name in catalog.names() if name.startswith(incomplete)]


Codemods = Annotated[
    list[str] | None,
    typer.Argument(
        help="Codemods; default: the configuration's, else mla_kv_gather.", autocompletion=_known
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
ForceVersion = Annotated[
    bool,
    typer.Option("--force-version", help="Ignore the supported range; demand the structure."),
]


Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Say why, site by site, with the nearest thing seen."),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print nothing but errors: the exit code answers.")
]


_PLACEHOLDERS = {"int": "N", "int range": "N", "float": "N", "float range": "N", "str": "TEXT",
                 "path": "FILE"}  # fmt: skip


class Command(TyperCommand):
    """A command whose help is short: plain placeholders, the options of a target in a few lines."""

    def format_options(self, ctx: Any, formatter: Any) -> None:  # Click's, or typer's own copy
        """Write the options, those of the target last."""
        every: list[Any] = list(self.params)
        for option in every:
            if option.param_type_name == "option" and option.metavar is None:
                option.metavar = _PLACEHOLDERS.get(option.type.name)
        shared = [p for p in every if getattr(p, "rich_help_panel", None) == _PANEL]
        for parameter in shared:
            parameter.hidden = True
        super().format_options(ctx, formatter)
        for parameter in shared:
            parameter.hidden = False
        if shared:
            with formatter.section(_PANEL):
                formatter.write_text(_TARGETS)


SECTIONS: dict[str, tuple[str, ...]] = {
    "Look": ("list", "check", "diff", "status", "doctor", "explain"),
    "Change": ("apply", "revert", "sync", "lock", "run"),
    "Follow upstream": ("matrix", "bisect", "pin", "new", "carry"),
    "Measure": ("verify", "smoke", "diagnose", "advise", "bench"),
}
"""What the verbs are for, as the help and the documentation have it."""


class Group(TyperGroup):
    """The command itself, whose help has the verbs by what they are for."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the verbs, section by section."""
        width = max(map(len, self.commands)) + 2
        for title, verbs in SECTIONS.items():
            there = [verb for verb in verbs if verb in self.commands]
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (
                            verb.ljust(width),
                            self.commands[verb].get_short_help_str(formatter.width - width - 4),
                        )
                        for verb in there
                    ],
                    col_spacing=0,
                )


_TARGETS = (
    "--python PATH, --site-packages DIR, --checkout DIR, --repo DIR --rev REV, --release V or "
    "--wheel FILE. With --overlay DIR that stays as it is: DIR is for PYTHONPATH."
)


def with_target(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the target options, flattened into its own for typer, and -v and -q.

    The command takes one parameter ``options: TargetOptions``; one that has a ``verbose`` or
    ``quiet`` of its own keeps it.
    """
    signature = inspect.signature(command, eval_str=True)
    kept = [p for p in signature.parameters.values() if p.name != "options"]
    kept = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in kept]
    common = {
        name: hint for name, hint in (("verbose", Verbose), ("quiet", Quiet))
        if name not in signature.parameters
    }  # fmt: skip
    hints = get_type_hints(TargetOptions, include_extras=True)
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)
        for hint_set, default in ((hints, None), (common, False))
        for name, hint in hint_set.items()
    ]

    @functools.wraps(command)
    def wrapper(**values: Any) -> Any:
        options = TargetOptions(**{name: values.pop(name) for name in TargetOptions._fields})
        asked = {name: values.pop(name) for name in common}
        with contextlib.ExitStack() as stack:
            if asked.get("verbose"):
                from rewriter.report import text

                stack.enter_context(text.more())
            if asked.get("quiet") and not values.get("as_json"):
                nowhere = stack.enter_context(Path(os.devnull).open("w"))
                stack.enter_context(contextlib.redirect_stdout(nowhere))
            return command(options=options, **values)

    parameters = [*kept, *added]
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapper
