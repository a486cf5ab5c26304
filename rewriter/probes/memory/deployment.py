"""The question: which model on which GPUs, served how, and what is known of its step."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from packaging.version import Version

from rewriter.probes.memory import backends, formulas
from rewriter.probes.models import Model
from rewriter.probes.trace.prediction import CAST_RATE

SHORT_PROMPT = 15
"""Tokens of the field report's prompt."""


@dataclass(frozen=True)
class Deployment:
    """A server as it is.

    Attributes:
        model: its sizes.
        arch: of its GPUs, ``sm90``, ``sm120``, …
        release: of sglang.
        memory: bytes of the KV pool on one GPU, index cache included.
        bandwidth: GB/s of a GPU, peak.
        kv: ``fp8`` or ``bf16``.
        backend: of decoding.
        page: tokens of a page.
        gpus: how many; a tensor-parallel rank each. More ranks make no pool smaller.
        data_parallel: ranks with a pool of their own (DP attention).
        drafts: whether NextN layers have rows too.
        batch, context: requests at a time, and tokens that each has; 0 where not said.
        step_ms: ms a token as measured at a short context, if known.
        measured_cast_ms: ms a step of the cast (`diagnose`); without it, by ``rate``.
        rate: values a second of the cast.
        host_ms: a floor under any step, 0 where not known.
        codemods: names of ours that exist.
        gpu: its name, for the report.
    """

    model: Model
    arch: str
    release: Version
    memory: float
    bandwidth: float
    kv: str
    backend: backends.Backend
    page: int = 1
    gpus: int = 1
    data_parallel: int = 1
    drafts: bool = False
    batch: int = 1
    context: int = 0
    step_ms: float | None = None
    measured_cast_ms: float | None = None
    rate: float = CAST_RATE
    host_ms: float = 0.0
    codemods: Collection[str] = field(default=())
    gpu: str = ""

    @property
    def layers(self) -> int:
        """Layers with a KV row."""
        return formulas.layers_of(self.model, self.drafts)

    @property
    def cell(self) -> int:
        """Bytes a token of the pool as it is."""
        return cell_of(self.model, self.backend, self.kv, self.drafts)

    @property
    def tokens(self) -> int:
        """Tokens of the pool as it is."""
        return formulas.tokens_in(self.memory, self.cell, self.page)

    @property
    def casts(self) -> bool:
        """Whether the whole pool is converted in every layer of every step."""
        return self.backend.casts(self.release, self.kv)

    @property
    def cast_ms(self) -> float:
        """ms a step of the cast as it is; 0 without one."""
        return self.cast_of(self.tokens) if self.casts else 0.0

    def cast_of(self, tokens: int) -> float:
        """Return ms a step of the cast of a pool of so many tokens.

        ``layers * (tokens + page) * row / rate``, or the measured time in proportion to tokens.
        """
        if self.measured_cast_ms is not None:
            return self.measured_cast_ms * tokens / self.tokens
        return formulas.cast_ms(self.layers, tokens + self.page, self.model.row, self.rate)

    @property
    def rest_ms(self) -> float | None:
        """ms of the step besides the cast, if the step is known."""
        return None if self.step_ms is None else max(self.step_ms - self.cast_ms, 0.0)

    @property
    def rows(self) -> int:
        """Rows that a step reads: ``batch * context``; the report's 15 if no context is said."""
        return self.batch * (self.context or SHORT_PROMPT)


def cell_of(model: Model, backend: backends.Backend, kv: str, drafts: bool) -> int:
    """Return bytes a token of the pool under a backend and a KV dtype."""
    if kv == "bf16":
        return formulas.cell(model, 2 * model.row, drafts)
    row = formulas.packed_row(model) if backend.packed else model.row
    return formulas.cell(model, row, drafts)
