"""Events of a Chrome trace, typed: the fields that a diagnosis reads, all others skipped.

Field names are kineto's, as torch 1.10 to 2.11 write them. Times are microseconds.
"""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

Identity = int | float | str | None
"""A process or thread: a number, a text in merged traces, empty in metadata."""


class Arguments(msgspec.Struct, gc=False):
    """``args`` of an event. ``types`` and ``dims`` stay undecoded: few of them are looked at."""

    correlation: int | None = None
    stream: int | None = None
    device: int | None = None
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    external: int | None = msgspec.field(name="External id", default=None)
    types: msgspec.Raw = msgspec.field(name="Input type", default=msgspec.Raw())
    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=msgspec.Raw())


class Event(msgspec.Struct, gc=False):
    """One event; what it does not have keeps the default."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: float = 0.0
    dur: float = 0.0
    tid: Identity = None
    pid: Identity = None
    args: Arguments | None = None


FAILED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises: no JSON, a field of another type, no UTF-8, too deep."""

_many = msgspec.json.Decoder(list[Event])
_one = msgspec.json.Decoder(Event)


def decode_many(array: bytes) -> list[Event]:
    """Decode a JSON array of events.

    Raises:
        msgspec.DecodeError: it is not proper JSON, or a field has another type.
        UnicodeDecodeError: a field that is read is not UTF-8.
    """
    return _many.decode(array)


def decode_one(text: bytes) -> Event:
    """Decode one event; raises as decode_many."""
    return _one.decode(text)


def coerced(value: dict[str, Any]) -> Event:
    """Return the event in a document of other types: numbers as text, null, out of range."""
    return Event(
        ph=_text(value.get("ph")),
        cat=_text(value.get("cat")),
        name=_text(value.get("name")).replace("\0", ""),
        ts=_float(value.get("ts")),
        dur=_float(value.get("dur")),
        tid=_identity(value.get("tid")),
        pid=_identity(value.get("pid")),
        args=_arguments(value.get("args")),
    )


def _arguments(value: Any) -> Arguments | None:
    if not isinstance(value, dict):
        return None
    return Arguments(
        correlation=_int(value.get("correlation")),
        stream=_int(value.get("stream")),
        device=_int(value.get("device")),
        grid=_ints(value.get("grid")),
        block=_ints(value.get("block")),
        external=_int(value.get("External id")),
        types=_raw(value.get("Input type")),
        dims=_raw(value.get("Input Dims")),
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _float(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return number if math.isfinite(number) else 0.0


def _int(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _ints(value: Any) -> tuple[int, ...]:
    numbers = [_int(item) for item in value] if isinstance(value, list) else []
    whole = tuple(number for number in numbers if number is not None)
    return whole if len(whole) == len(numbers) else ()


def _identity(value: Any) -> Identity:
    return value if isinstance(value, (int, float, str)) else None


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(b"" if value is None else json.dumps(value).encode())
