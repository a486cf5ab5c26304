"""A progress bar on a terminal, nothing elsewhere. rich is imported when there is progress."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def fetching() -> Callable[[int, int | None], None] | None:
    """Return a callback for bytes that arrive, or None where nobody watches."""
    if not sys.stderr.isatty():
        return None
    state: dict[str, Any] = {}

    def report(done: int, total: int | None) -> None:
        if not state:
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

            bar = Progress(
                TextColumn("fetching"), BarColumn(), DownloadColumn(),
                console=Console(stderr=True), transient=True,
            )  # fmt: skip
            bar.start()
            state.update(bar=bar, task=bar.add_task("fetch", total=total))
        state["bar"].update(state["task"], completed=done, total=total)
        if total is not None and done >= total:
            state["bar"].stop()

    return report
