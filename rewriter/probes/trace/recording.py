"""What a diagnosis keeps of a trace: its GPU work as columns, and what is needed to place it.

Columns (``array``) take about 40 bytes a kernel; objects would take ten times as much.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from rewriter.probes.trace.events import Arguments, Event
from rewriter.probes.trace.families import CAST_COPY, Family, family_of

MOST_KERNELS = 500_000
"""Kernels whose place in time is kept, so that memory has a bound. Later ones count in totals;
steps are read from these."""

MOST_SPANS = 50_000
"""Spans of one sort (annotations, frames of attention backends, operators on FP8) kept."""

MOST_FRAMES = 20_000
"""Frames of attention backends kept: those of the first step are looked at."""

STEP = re.compile(r"step\[|execute_(?:context|new)|execute_context_|ProfilerStep#|decode_step")
"""Annotations that mark a step: sglang 0.5.11+, vLLM, torch.profiler's schedule."""

_BACKEND_FRAME = re.compile(r"attention/(?:[\w/]*/)?(\w+)\.py\(\d+\): (\w+)")
_LAUNCH = ("cudaLaunch", "cuLaunch", "hipLaunch", "hipExtLaunch", "cudaMemcpy", "cudaMemset",
           "hipMemcpy", "hipMemset", "cuMemcpy", "cuMemset", "hipModuleLaunch")  # fmt: skip
_GRAPH = ("cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch")
_NONE = -1
_NO_ARGUMENTS = Arguments()
_LARGEST = 2**63 - 1

Shape = tuple[int, ...]


@dataclass
class Kind:
    """All launches of one kernel with one geometry.

    Attributes:
        name: the kernel's whole name.
        grid, block: launch geometry, empty where the trace has none.
        family: what it does.
        calls: launches in the trace, those without a valid duration too.
        total: microseconds of GPU time, over the launches with a valid duration.
    """

    name: str
    grid: Shape
    block: Shape
    family: Family
    calls: int = 0
    total: float = 0.0


@dataclass
class Spans:
    """Host spans of one sort: start and end in microseconds, and an index into names."""

    start: array[float] = field(default_factory=lambda: array("d"))
    end: array[float] = field(default_factory=lambda: array("d"))
    label: array[int] = field(default_factory=lambda: array("i"))
    names: dict[str, int] = field(default_factory=dict)

    def add(self, start: float, duration: float, name: str) -> None:
        if len(self.start) < MOST_SPANS:
            self.start.append(start)
            self.end.append(start + max(duration, 0.0))
            self.label.append(self.names.setdefault(name, len(self.names)))


class Recording:
    """The GPU work of one rank.

    Attributes:
        kinds: by index, all (kernel, geometry) pairs.
        start, duration, kind, stream, correlation: columns, one entry a placed kernel in the
            order of the file; a duration of -1 is invalid; a correlation of -1 is missing.
        launches: columns of what launched: ``launch_at`` (us), ``launch_for`` (us),
            ``launch_id`` (correlation), ``launch_graph`` (1 for a graph's), ``launch_thread``.
        steps, frames, waits: spans of step annotations, of attention backends' Python frames, and
            of calls in which the host waits.
        casts: ``External id`` of the placed kernels that cast, by their index.
        operators: (types, dims) of ``aten::copy_`` on FP8, by ``External id``.
        negative, zero, unplaced: kernels with a negative duration, none, or no time.
        events: events of this rank that were looked at.
    """

    def __init__(self) -> None:
        self.kinds: list[Kind] = []
        self.start = array("d")
        self.duration = array("d")
        self.kind = array("i")
        self.stream = array("i")
        self.correlation = array("q")
        self.launch_at = array("d")
        self.launch_for = array("d")
        self.launch_id = array("q")
        self.launch_graph = array("b")
        self.launch_thread = array("i")
        self.steps = Spans()
        self.device_steps = Spans()
        self.frames = Spans()
        self.waits = Spans()
        self.casts: dict[int, int] = {}
        self.operators: dict[int, tuple[str, str]] = {}
        self.kernels = self.negative = self.zero = self.unplaced = 0
        self._kinds: dict[tuple[str, Shape, Shape], int] = {}
        self._streams: dict[tuple[int | None, int | None], int] = {}
        self._threads: dict[object, int] = {}
        self._frame_names: dict[str, str | None] = {}
        self._calls: dict[str, Call] = {}
        self._casting: list[bool] = []

    @property
    def gpu_us(self) -> float:
        """GPU time of all kernels, copies and fills: the sum of durations, in microseconds."""
        return sum(kind.total for kind in self.kinds)

    @property
    def complete(self) -> bool:
        """Whether every kernel was placed."""
        return len(self.start) < MOST_KERNELS

    def take_gpu(self, event: Event) -> None:
        """Keep a kernel, copy or fill."""
        args = event.args or _NO_ARGUMENTS
        key = (event.name, args.grid, args.block)
        at = self._kinds.get(key)
        if at is None:
            at = self._kinds[key] = len(self.kinds)
            self.kinds.append(Kind(*key, family_of(event.name)))
            self._casting.append(bool(CAST_COPY.search(event.name)))
        kind = self.kinds[at]
        kind.calls += 1
        self.kernels += event.cat == "kernel"
        duration = event.dur
        if event.ts <= 0.0:
            self.unplaced += 1
            return
        if duration < 0.0:
            self.negative += 1
            duration = -1.0
        else:
            self.zero += duration == 0.0
            kind.total += duration
        if len(self.start) < MOST_KERNELS:
            self._place(event.ts, duration, at, args)

    def _place(self, start: float, duration: float, kind: int, args: Arguments) -> None:
        if self._casting[kind] and args.external is not None:
            self.casts[len(self.start)] = args.external
        self.start.append(start)
        self.duration.append(duration)
        self.kind.append(kind)
        place = (args.device, args.stream)
        stream = self._streams.get(place)
        if stream is None:
            stream = self._streams[place] = len(self._streams)
        self.stream.append(stream)
        self.correlation.append(_identifier(args.correlation))

    def take_launch(self, event: Event) -> None:
        """Keep a runtime call that launches, and one in which the host waits."""
        name = event.name
        call = self._calls.get(name)
        if call is None:
            call = self._calls[name] = _call_of(name)
        if call is Call.WAIT:
            self.waits.add(event.ts, event.dur, name)
        elif call is not Call.OTHER and event.args is not None:
            correlation = _identifier(event.args.correlation)
            if correlation != _NONE and len(self.launch_at) < MOST_KERNELS:
                self.launch_at.append(event.ts)
                self.launch_for.append(max(event.dur, 0.0))
                self.launch_id.append(correlation)
                self.launch_graph.append(call is Call.GRAPH)
                self.launch_thread.append(self._threads.setdefault(event.tid, len(self._threads)))

    def take_operator(self, event: Event) -> None:
        """Keep the types and shapes of a copy that has FP8 on one side."""
        args = event.args
        if args is None or args.external is None or len(self.operators) >= MOST_SPANS:
            return
        types = bytes(args.types)
        if b"Float8" in types:
            self.operators[args.external] = (types.decode(), bytes(args.dims).decode())

    def take_annotation(self, event: Event) -> None:
        """Keep an annotation that marks a step."""
        if STEP.match(event.name):
            spans = self.steps if event.cat == "user_annotation" else self.device_steps
            spans.add(event.ts, event.dur, event.name)

    def take_frame(self, event: Event) -> None:
        """Keep a Python frame of an attention backend."""
        if len(self.frames.start) >= MOST_FRAMES:
            return
        name = event.name
        if name not in self._frame_names:
            found = _BACKEND_FRAME.search(name)
            self._frame_names[name] = f"{found[1]}.py: {found[2]}" if found else None
        label = self._frame_names[name]
        if label is not None:
            self.frames.add(event.ts, event.dur, label)


class Call(Enum):
    """What a call of the runtime or the driver does."""

    LAUNCH = 0
    GRAPH = 1
    WAIT = 2
    OTHER = 3


def _call_of(name: str) -> Call:
    if name.startswith(_GRAPH):
        return Call.GRAPH
    if name.startswith(_LAUNCH):
        return Call.LAUNCH
    return Call.WAIT if "Synchronize" in name else Call.OTHER


def _identifier(value: int | None) -> int:
    """Return an id that fits a column; one over 64 bits (HTA pull 324) counts as missing."""
    return _NONE if value is None or not 0 <= value <= _LARGEST else value


class Recordings:
    """The recordings of a file, by rank: merged traces (sglang) hold several.

    In a merged trace ``pid`` is a text such as ``[TP00-DP00] 455`` and correlations of different
    ranks collide, so that everything is keyed by (rank, id).
    """

    _handlers: ClassVar[dict[str, Callable[[Recording, Event], None]]] = {
        "kernel": Recording.take_gpu,
        "gpu_memcpy": Recording.take_gpu,
        "gpu_memset": Recording.take_gpu,
        "cuda_runtime": Recording.take_launch,
        "cuda_driver": Recording.take_launch,
        "user_annotation": Recording.take_annotation,
        "gpu_user_annotation": Recording.take_annotation,
    }

    def __init__(self) -> None:
        self.by_rank: dict[str, Recording] = {}
        self._by_pid: dict[object, Recording] = {}

    def take(self, events: Iterable[Event]) -> None:
        """Keep what a diagnosis needs of these events.

        Written for speed: most events are Python frames and flows, of which little is kept.
        """
        handlers = self._handlers
        for event in events:
            category = event.cat
            if category == "python_function":
                if "attention/" in event.name:
                    self._of(event.pid).take_frame(event)
            elif category == "cpu_op":
                if event.name == "aten::copy_":
                    self._of(event.pid).take_operator(event)
            elif category != "ac2g" and category in handlers:
                handlers[category](self._of(event.pid), event)

    def _of(self, pid: object) -> Recording:
        found = self._by_pid.get(pid)
        if found is None:
            rank = ""
            if isinstance(pid, str) and pid.startswith("["):
                rank = pid[1:].partition("]")[0]
            found = self._by_pid[pid] = self.by_rank.setdefault(rank, Recording())
        return found
