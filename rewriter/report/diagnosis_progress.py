"""A progress bar while a large trace is read; nothing where nobody watches."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

_WORTH_IT = 64 << 20


def reading(name: str) -> Callable[[int, int], None] | None:
    """Return a callback for bytes read of a file's size, or None where nobody watches."""
    if not sys.stderr.isatty():
        return None
    state: dict[str, Any] = {}

    def report(done: int, total: int) -> None:
        if total < _WORTH_IT:
            return
        if not state:
            # rich takes memory and time to import: only where there is something to show.
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

            bar = Progress(
                TextColumn(name), BarColumn(), DownloadColumn(),
                console=Console(stderr=True), transient=True,
            )  # fmt: skip
            bar.start()
            state.update(bar=bar, task=bar.add_task("read", total=total))
        state["bar"].update(state["task"], completed=done)
        if done >= total:
            state["bar"].stop()

    return report
