"""A bar for steps that can be counted, on a terminal; nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def counting(what: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None] | None]:
    """Give a callback for steps done and steps in all, or None where nobody watches.

    Args:
        what: the word before the bar.
        quiet: show nothing.
    """
    if quiet or not sys.stderr.isatty():
        yield None
        return
    state: dict[str, Any] = {}

    def report(done: int, total: int) -> None:
        if not state:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            bar = Progress(
                TextColumn(what), BarColumn(), MofNCompleteColumn(),
                console=Console(stderr=True), transient=True,
            )  # fmt: skip
            bar.start()
            state.update(bar=bar, task=bar.add_task(what, total=total))
        state["bar"].update(state["task"], completed=done, total=total)

    try:
        yield report
    finally:
        if state:
            state["bar"].stop()
