"""The fields of a trace besides its events: device, rank, what was recorded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewriter.probes.trace.lenient import UnreadableError, read_object
from rewriter.probes.trace.problems import TraceError

_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_BOM = b"\xef\xbb\xbf"
_LONGEST_HEAD = 64 << 20


@dataclass(frozen=True)
class Device:
    """A GPU as the trace describes it.

    Attributes:
        name: as CUDA calls it.
        memory: bytes, 0 when unknown.
        capability: compute capability, (0, 0) when unknown.
    """

    name: str
    memory: int = 0
    capability: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Head:
    """What a trace says about itself.

    Attributes:
        device: the first GPU, or None.
        rank: of this process in its group, or None.
        world_size: processes in the group, or None.
        with_stack: Python frames were recorded, which slows the host.
        record_shapes: the shapes of operators were recorded.
        trace_name: the name that the profiler gave the file.
    """

    device: Device | None = None
    rank: int | None = None
    world_size: int | None = None
    with_stack: bool = False
    record_shapes: bool = False
    trace_name: str = ""


def start_of_events(path: Path, chunks: Iterator[bytes]) -> tuple[bytes, bytes]:
    """Return what stands before the first event, and the text from there on.

    Raises:
        TraceError: there is no array of events.
    """
    text = b""
    for chunk in chunks:
        text += chunk
        plain = text.removeprefix(_BOM).lstrip()
        if plain.startswith(b"["):
            return b"", plain[1:]
        if found := _EVENTS.search(text):
            return text[: found.start()], text[found.end() :]
        if len(text) > _LONGEST_HEAD or (plain and not plain.startswith(b"{")):
            break
    what = "an empty file" if not text.strip() else "neither an array nor a `traceEvents` field"
    raise TraceError(
        f"{path}: not a profiler trace: {what}; expected a Chrome trace of torch.profiler "
        "(sglang's /start_profile and /stop_profile write one), plain or gzip, or a "
        "key_averages table"
    )


def parsed_head(before: bytes, after: bytes) -> Head:
    """Return the fields in the texts before and after the array of events.

    Both ends are read: kineto moved its fields to the front in 2025-03. A damaged end counts as
    empty: nothing in it changes a sum.
    """
    fields = {**_fields(before.strip()), **_fields(b"{" + after.lstrip(b" \t\r\n,]"))}
    group = _mapping(fields.get("distributedInfo"))
    return Head(
        device=_device(fields.get("deviceProperties")),
        rank=_whole(group.get("rank")),
        world_size=_whole(group.get("world_size")),
        with_stack=bool(fields.get("with_stack")),
        record_shapes=bool(fields.get("record_shapes")),
        trace_name=str(fields.get("traceName", "")),
    )


def _fields(text: bytes) -> dict[str, Any]:
    closed = text.rstrip(b" \t\r\n,")
    for ending in (b"", b"}"):
        try:
            return read_object((closed + ending).decode("latin-1"), 0)[0]
        except UnreadableError:
            continue
    return {}


def _device(properties: Any) -> Device | None:
    if not isinstance(properties, list) or not properties:
        return None
    first = _mapping(properties[0])
    capability = (_whole(first.get("computeMajor")) or 0, _whole(first.get("computeMinor")) or 0)
    return Device(
        name=str(first.get("name", "unknown GPU")),
        memory=_whole(first.get("totalGlobalMem")) or 0,
        capability=capability,
    )


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
