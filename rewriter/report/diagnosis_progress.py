"""A progress bar while a large trace is read; nothing where nobody watches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_WORTH_IT = 64 << 20


@contextmanager
def reading(name: str) -> Iterator[Callable[[int, int], None] | None]:
    """Give a callback for bytes read of a file's size, or None where nobody watches."""
    if not sys.stderr.isatty():
        yield None
        return
    state: dict[str, Any] = {}

    def report(done: int, total: int) -> None:
        if total < _WORTH_IT:
            return
        if not state:
            # rich takes memory and time to import: only where there is something to show.
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

            bar = Progress(
                TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(),
                console=Console(stderr=True), transient=True,
            )  # fmt: skip
            bar.start()
            state.update(bar=bar, task=bar.add_task(name, total=total))
        state["bar"].update(state["task"], completed=done)

    try:
        yield report
    finally:
        if state:
            state["bar"].stop()
