"""Writes synthetic profiler traces of a decoding server, of any size, layout and defect.

The byte layouts are torch's: ``torch`` (2.11: an event over several lines), ``fields`` (kineto from
2026-04: one field a line, blank lines between events), ``compact`` (sglang's merged traces: one
line). What is written is counted, so that a reader can be held to the exact truth.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

from trace_kernels import (
    AFTER,
    ATTENTION,
    ATTENTION_PART,
    BEFORE,
    CAST,
    DENSE,
    EXPERTS,
    FRAMES,
    STRIDED,
)


@dataclass
class Recipe:
    """What a trace shows. Times are microseconds unless a name says otherwise.

    Attributes:
        fault: ``pool`` (all rows cast in each layer), ``none`` (the batch's rows), ``experts``
            (a copy in each MoE layer), ``weights`` (dequantised before a product), ``no cast``.
        elements: of one cast; default: the pool with its page.
        other_ms: a step's GPU time besides the cast.
        step_ms: from step to step; the rest of it is idle.
        launch: host time a kernel.
        defects: see ``Writer._damaged``.
    """

    steps: int = 2
    layers: int = 6
    dense: int = 2
    pool: int = 495_552
    page: int = 64
    mode: str = "eager"
    fault: str = "pool"
    backend: str = "flashinfer"
    elements: int | None = None
    cast: float = 828.2
    other_ms: float = 2.2
    step_ms: float | None = None
    launch: float = 8.0
    style: str = "torch"
    stack: int = 0
    shapes: bool = False
    annotations: str | None = "step[DECODE bs=1]"
    partial: int = 0
    rank: int = 0
    device: str = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
    capability: tuple[int, int] = (12, 0)
    merged: bool = False
    correlations: bool = True
    defects: frozenset[str] = frozenset()
    seed: int = 0
    marks: bool = False


@dataclass
class Truth:
    """What was written: what a reader must find."""

    events: int = 0
    kernels: int = 0
    gpu_us: float = 0.0
    casts: int = 0
    cast_us: float = 0.0
    elements: int = 0
    negative: int = 0
    bytes: int = 0
    by_step: list[float] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """Where each event ends, in bytes; only with ``marks``."""


class Writer:
    """One trace, event by event."""

    def __init__(self, recipe: Recipe, sink: BinaryIO) -> None:
        self.recipe = recipe
        self.truth = Truth()
        self._sink = sink
        self._first = True
        self._random = random.Random(recipe.seed)
        self._pending: list[str] = []
        self._gpu_at = 5101958737989.422
        self._host_at = self._gpu_at - 3000.0
        self._external = 1
        self._correlation = 11
        self._python = 1
        self._pid: Any = 455
        self._gpu: Any = 0
        if recipe.merged:
            self._pid, self._gpu = f"[TP{recipe.rank:02d}] 455", f"[TP{recipe.rank:02d}] 0"
        elements = recipe.elements or (recipe.pool + recipe.page) * 576
        self.truth.elements = 215 * 576 if recipe.fault == "none" else elements

    def head(self) -> None:
        recipe = self.recipe
        fields: dict[str, Any] = {
            "schemaVersion": 1,
            "deviceProperties": [
                {"id": 0, "name": recipe.device, "totalGlobalMem": 101973131264,
                 "computeMajor": recipe.capability[0], "computeMinor": recipe.capability[1]}
            ],
            "distributedInfo": {"backend": "nccl", "rank": recipe.rank, "world_size": 8},
            "displayTimeUnit": "ms",
        }  # fmt: skip
        if recipe.stack:
            fields["with_stack"] = 1
        if recipe.shapes:
            fields["record_shapes"] = 1
        text = json.dumps(fields, indent=None if recipe.style == "compact" else 2)
        self._raw(text[:-1].rstrip() + ', "traceEvents": [')

    def tail(self) -> None:
        for number in range(3):
            self._event({"name": "process_labels", "ph": "M", "ts": 5101958737349.59,
                         "pid": number, "tid": 0}, {"labels": f"GPU {number}"})  # fmt: skip
        self._event({"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "",
                     "ts": self._gpu_at})  # fmt: skip
        defects = self.recipe.defects
        if "cut" in defects:
            self._raw(',\n  {\n    "ph": "X", "cat": "kernel", "name": "void at::native::unroll')
        else:
            comma = "," if "trailing" in defects else ""
            self._raw(f'{comma}\n  ],\n  "traceName": "out/1-TP-{self.recipe.rank}.trace.json"\n}}')
        self._flush()

    def steps(self) -> None:
        recipe = self.recipe
        if recipe.partial:
            self._step(limit=recipe.partial)
        for number in range(recipe.steps):
            self._step(limit=None)
            if number == 0:
                self._damaged_events()

    def _step(self, limit: int | None) -> None:
        recipe = self.recipe
        host, gpu, external = self._host_at, self._gpu_at, self._external
        self._external += 1
        before = self.truth.gpu_us
        graph = self._correlation if recipe.mode == "graph" else None
        if graph is not None:
            self._correlation += 9
            self._event({"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch",
                         "pid": self._pid, "tid": 455, "ts": host, "dur": 143.301},
                        {"cbid": 311, "correlation": graph})  # fmt: skip
        for number, (name, duration) in enumerate(self._sequence()):
            if limit is not None and number >= limit:
                break
            self._launched(name, duration, graph)
        length = 0.0 if limit is not None else 1e3 * (recipe.step_ms or 0.0)
        self._gpu_at = max(self._gpu_at + 20.0, gpu + length)
        # The host runs one step ahead of the GPU, and no further.
        self._host_at = max(self._host_at, self._gpu_at - 2500.0)
        if recipe.annotations:
            self._annotated(recipe.annotations, host, gpu, external)
        self.truth.by_step.append(self.truth.gpu_us - before)

    def _annotated(self, name: str, host: float, gpu: float, external: int) -> None:
        self._event({"ph": "X", "cat": "user_annotation", "name": name, "pid": self._pid,
                     "tid": 455, "ts": host, "dur": self._host_at - host},
                    {"External id": external, "Record function id": 0, "Ev Idx": 0})  # fmt: skip
        self._event({"ph": "X", "cat": "gpu_user_annotation", "name": name, "pid": self._gpu,
                     "tid": 7, "ts": gpu, "dur": self._gpu_at - gpu - 1},
                    {"External id": external})  # fmt: skip

    def _sequence(self) -> Iterator[tuple[str, float]]:
        """Yield the kernels of one step, and their times before noise."""
        recipe = self.recipe
        layer_us = 1e3 * recipe.other_ms / max(recipe.layers, 1)
        for layer in range(recipe.layers):
            last = EXPERTS if layer >= recipe.dense else DENSE
            for part in (BEFORE, None, AFTER, last):
                if part is None:
                    if recipe.fault in ("pool", "none"):
                        yield CAST, recipe.cast if recipe.fault == "pool" else 2.1
                    yield ATTENTION[recipe.backend], ATTENTION_PART * layer_us
                    continue
                if recipe.fault == "weights" and part is AFTER:
                    yield CAST, recipe.cast
                if recipe.fault == "experts" and part is EXPERTS:
                    yield CAST, recipe.cast
                for name, share, calls in part:
                    yield from ((name, share * layer_us / calls) for _ in range(calls))

    def _launched(self, name: str, duration: float, graph: int | None) -> None:
        if graph is not None:
            self._kernel(name, duration, graph, None)
            return
        self._host(name)
        self._kernel(name, duration, self._correlation, self._external - 1)
        self._correlation += 14
        self._host_at += self.recipe.launch

    def _host(self, name: str) -> None:
        recipe = self.recipe
        for depth in range(recipe.stack):
            self._event({"ph": "X", "cat": "python_function", "name": self._frame(depth),
                         "pid": self._pid, "tid": 455, "ts": self._host_at + 0.1 * depth,
                         "dur": recipe.launch - 0.2 * depth / recipe.stack - 0.1 * depth},
                        {"Python parent id": self._python - 1, "Python id": self._python,
                         "Ev Idx": 0})  # fmt: skip
            self._python += 1
        args: dict[str, Any] = {"External id": self._external, "Record function id": 0}
        if recipe.shapes:
            rows = self.truth.elements // 576
            casting = name == CAST
            args["Input type"] = ["c10::BFloat16", "c10::Float8_e4m3fn" if casting else
                                  "c10::BFloat16", "Scalar"]  # fmt: skip
            args["Input Dims"] = [[rows, 1, 576], [rows, 1, 576], []] if casting else [[1, 64]] * 2
        copying = name in (CAST, STRIDED)
        self._event(
            {
                "ph": "X",
                "cat": "cpu_op",
                "name": "aten::copy_" if copying else "aten::mm",
                "pid": self._pid,
                "tid": 455,
                "ts": self._host_at + 1.0,
                "dur": 5.0,
            },
            args,
        )
        self._external += 1  # fmt: skip
        self._event({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel",
                     "pid": self._pid, "tid": 455, "ts": self._host_at + 2.0, "dur": 3.0},
                    {"External id": self._external - 1, "cbid": 211,
                     "correlation": self._correlation})  # fmt: skip
        self._event({"ph": "s", "id": self._correlation, "pid": self._pid, "tid": 455,
                     "ts": self._host_at + 2.0, "cat": "ac2g", "name": "ac2g"})  # fmt: skip

    def _frame(self, depth: int) -> str:
        number, defects = self._python, self.recipe.defects
        if "backslash" in defects and number % 53 == 0:
            return "\x00raw:torch\\cuda\\nn\\__init__.py(219): _lazy_init"
        if "quote" in defects and number % 61 == 0:
            return '\x00raw:{"device": "cpu", "dtype": "float32"}(12): run'
        if "newline" in defects and number % 71 == 0:
            return "\x00raw:_lib = Library(\n(1): <module>\x01"
        if "utf8" in defects and number % 59 == 0:
            return "\x00raw:bad \udcff\udcfe bytes"
        return FRAMES[(number + depth) % len(FRAMES)]

    def _kernel(self, name: str, duration: float, correlation: int, external: int | None) -> None:
        truth, recipe = self.truth, self.recipe
        casting = name == CAST
        lasted = round(max(0.5, duration * (1 + self._random.gauss(0, 0.0006))), 3)
        written = -1.0 if "negative" in recipe.defects and truth.kernels % 37 == 5 else lasted
        blocks = -(-truth.elements // 512) if casting else self._random.choice((12, 24, 96))
        args: dict[str, Any] = {"queued": 0, "device": 0, "context": 1, "stream": 7}
        if external is not None:
            args["External id"] = external
        alone = "unlinked" in recipe.defects and truth.kernels % 11 == 7
        if recipe.correlations and not alone:
            args["correlation"] = correlation
        args |= {"grid": [blocks, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %": 100}
        if "huge" in recipe.defects and truth.kernels % 13 == 3:
            args["Comms Id"] = 2**70 + truth.kernels
        self._event({"ph": "X", "cat": "kernel", "name": name, "pid": self._gpu, "tid": 7,
                     "ts": self._gpu_at, "dur": written}, args)  # fmt: skip
        self._event({"ph": "f", "id": correlation, "pid": self._gpu, "tid": 7, "ts": self._gpu_at,
                     "cat": "ac2g", "name": "ac2g", "bp": "e"})  # fmt: skip
        truth.kernels += 1
        truth.casts += casting
        truth.negative += written < 0
        if written > 0:
            truth.gpu_us += written
            truth.cast_us += written if casting else 0.0
        self._gpu_at += lasted + 0.9

    def _damaged_events(self) -> None:
        defects = self.recipe.defects
        if "nan" in defects:
            self._event(
                {
                    "ph": "C",
                    "cat": "counter",
                    "name": "GPU power",
                    "pid": 0,
                    "tid": 0,
                    "ts": self._gpu_at,
                },
                {"watts": float("nan"), "limit": float("inf")},
            )
        if "nul" in defects:
            self._event(
                {
                    "ph": "X",
                    "cat": "user_annotation",
                    "name": "\x00raw:nccl:\x00\x00all",
                    "pid": 1,
                    "tid": 1,
                    "ts": 1.0,
                    "dur": 1.0,
                }
            )
        if "log" in defects:
            self._raw("\nWARNING: log text {between} events\n")
        if "comma" in defects:
            self._first = True  # no comma before the next event
        if "commas" in defects:
            self._raw(" ,,\n")

    def _event(self, head: dict[str, Any], args: dict[str, Any] | None = None) -> None:
        if args is not None:
            head["args"] = args
        name = str(head.get("name"))
        raw = name.removeprefix("\x00raw:") if name.startswith("\x00raw:") else None
        if raw is not None:
            head["name"] = "@@@"
        text = self._laid_out(head)
        if raw is not None:
            text = text.replace("@@@", raw)
        self._raw(("" if self._first else ",") + text)
        self._first = False
        self.truth.events += 1
        if self.recipe.marks:
            self._flush()
            self.truth.ends.append(self.truth.bytes)

    def _laid_out(self, event: dict[str, Any]) -> str:
        if self.recipe.style == "compact":
            return json.dumps(event)
        if self.recipe.style == "fields":
            return "\n\n" + json.dumps(event, indent=2)
        args = event.pop("args", None)
        flat = json.dumps(event)[1:-1].replace(', "ts"', ',\n    "ts"')
        inner = (
            "" if args is None else ',\n    "args": {\n      ' + json.dumps(args)[1:-1] + "\n    }"
        )
        return "\n  {\n    " + flat + inner + "\n  }"

    def _raw(self, text: str) -> None:
        self._pending.append(text)
        if len(self._pending) > 4096:
            self._flush()

    def _flush(self) -> None:
        data = "".join(self._pending).encode("utf-8", "surrogateescape")
        self._pending.clear()
        self.truth.bytes += len(data)
        self._sink.write(data)


def write_trace(path: Path, recipe: Recipe) -> Truth:
    """Write a trace, gzipped if the name says so, and return what is in it."""
    with ExitStack() as stack:
        sink: BinaryIO = stack.enter_context(path.open("wb"))
        if path.name.endswith(".gz"):
            sink = cast(BinaryIO, stack.enter_context(gzip.GzipFile("", "wb", 1, sink, 0)))
        writer = Writer(recipe, sink)
        writer.head()
        writer.steps()
        writer.tail()
    return writer.truth


SEED = Recipe(
    steps=3, layers=78, dense=3, other_ms=28.63, step_ms=95.6, cast=828.2, launch=6.0, shapes=True
)
"""The field report: 78 layers, 64.6 ms of cast in a step of 95.6 ms. (Three of its 30 steps.)"""

ISSUE = Recipe(
    steps=5, layers=61, dense=3, pool=131_008, page=64, cast=225.7, other_ms=16.6, step_ms=31.52,
    launch=4.0, backend="fa3", device="NVIDIA H200", capability=(9, 0),
)  # fmt: skip
"""sglang#35291: 61 layers, 305 launches in 5 steps, 13.77 ms of cast in a step of 31.52 ms."""
