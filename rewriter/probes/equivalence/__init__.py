"""Equivalence: the patched backend gives the same bits as the original, with fewer rows converted.

Everything runs on the CPU, with neither sglang nor FlashInfer installed: the release's own file
is loaded among stand-ins (``loading``, ``externals``), served by a stand-in server (``serving``,
``driving``, ``graph``) in every mode of a table (``modes``), twice, and compared (``verifying``).
A backend with page tables has a server, an attention kernel and modes of its own
(``paged_serving``, ``flash_attention``, ``paged_modes``). Torch is imported by the modules below
this one, not by this one.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from rewriter.errors import UsageError
from rewriter.probes.equivalence.rows import ModeRow

__all__ = ["PROVED", "ModeRow", "prepare", "verify"]

PROVED = ("mla_kv_gather", "fa3_kv_gather")
"""Codemods whose effect the stand-ins can show."""


def prepare() -> None:
    """Import what a proof needs, before anything of it is told.

    Raises:
        UsageError: torch is not installed.
    """
    try:
        import_module("rewriter.probes.equivalence.verifying")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise UsageError(
            "verify runs the patched code on the CPU and needs torch, which is not installed here; "
            "pip install 'sglang-rewriter[verify]'"
        ) from error


def verify(
    original: bytes,
    patched: bytes,
    companion: bytes,
    told: Callable[[ModeRow], None] = lambda row: None,
    codemod: str = PROVED[0],
) -> tuple[ModeRow, ...]:
    """Prove a patched release on the CPU, mode by mode; it takes a few seconds.

    Args:
        original: the backend's file as the release has it. Its code is run.
        patched: the same with the codemod's sites.
        companion: the module that the codemod brings along.
        told: is given each row as soon as it is known.
        codemod: which one of PROVED.

    Raises:
        UsageError: torch is not installed.
    """
    prepare()
    from rewriter.probes.equivalence.verifying import scenarios_of
    from rewriter.probes.equivalence.verifying import verify as run

    return run(original, patched, companion, scenarios_of(codemod), told=told)
