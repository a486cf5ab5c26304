"""What a step's annotation says: stage and batch, in sglang's and vLLM's forms."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SGLANG = re.compile(r"step\[(\w+)(?:[^\]]*?bs=(\d+))?([^\]]*)\]?")
_CONTEXT = re.compile(r"g_sk=?(\d+)")
_VLLM = re.compile(r"execute_(?:context_)?(\d+)\((\d+)\)_generation_(\d+)\((\d+)\)")


@dataclass(frozen=True, order=True)
class Label:
    """The stage of a step and its batch.

    Attributes:
        stage: ``DECODE``, ``EXTEND``, ``VERIFY``…, or ``STEP`` where the annotation is silent.
        batch: requests in the step, or None.
    """

    stage: str
    batch: int | None = None

    def __str__(self) -> str:
        return self.stage if self.batch is None else f"{self.stage} bs={self.batch}"


def read_label(name: str) -> Label:
    """Return what an annotation says: ``step[DECODE bs=1]``,
    ``execute_context_0(0)_generation_1(1)``, ``ProfilerStep#3``."""
    if found := _SGLANG.match(name):
        return Label(found[1].upper(), int(found[2]) if found[2] else None)
    if found := _VLLM.match(name):
        contexts, generations = int(found[1]), int(found[3])
        return Label("EXTEND" if contexts else "DECODE", generations or contexts)
    return Label("STEP")


def context_tokens(name: str) -> int | None:
    """Return the tokens in the batch's contexts, where detailed annotations (0.5.19+) say so."""
    found = _CONTEXT.search(name)
    return int(found[1]) if found else None
