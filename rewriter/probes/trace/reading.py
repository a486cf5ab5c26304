"""Events out of bytes, in one pass and a bounded space, with damage repaired where it stands.

A window of the file is cut at the last event head in it and decoded as an array. A cut that
decodes is proved right: the window starts at an event, so an end inside a string or a nested list
would leave it unbalanced. Only a window that does not decode is read piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rewriter.probes.trace.events import FAILED, Event, decode_many
from rewriter.probes.trace.files import Progress, TraceFile
from rewriter.probes.trace.heads import Head, parsed_head, start_of_events
from rewriter.probes.trace.pieces import Pieces, heads_in

_LARGEST_EVENT = 32 << 20
_TAIL = 1 << 20
_NEAR = 4 << 10
_KEPT = 64 << 10
_SEPARATORS = b" \t\r\n,"


@dataclass
class Health:
    """What was wrong with a file, counted.

    Attributes:
        events: events read, of every kind.
        repaired: places that were no proper JSON and were read nevertheless.
        unreadable: places that look like an event's start and could not be read.
        truncated: the array of events has no end: the writer died, or still writes.
        cut: why gzip data stopped early.
    """

    events: int = 0
    repaired: int = 0
    unreadable: int = 0
    truncated: bool = True
    cut: str | None = None

    @property
    def whole(self) -> bool:
        """Whether nothing had to be repaired and nothing is missing."""
        return not (self.repaired or self.unreadable or self.truncated or self.cut)


class Reading:
    """One pass over a trace file.

    Attributes:
        path: the file.
        head: the document's fields besides the events; known once the batches are read.
        health: what was wrong; known once the batches are read.
    """

    def __init__(self, path: Path, progress: Progress | None = None) -> None:
        self.path = path
        self.head = Head()
        self.health = Health()
        self._file = TraceFile(path, progress)

    def batches(self) -> Iterator[list[Event]]:
        """Yield the events, some thousands at a time, in the order of the file.

        Raises:
            TraceError: the file cannot be read, or holds no array of events.
        """
        chunks = self._file.chunks()
        before, text = start_of_events(self.path, chunks)
        ended = False
        for chunk in chunks:
            text += chunk
            end = _last_head(text)
            if end:
                events, used, ended = self._window(text, end)
                text = text[used:]
                self.health.events += len(events)
                yield events
                del events  # two windows at once do not fit a processor's cache
                if ended:
                    break
            elif len(text) > _LARGEST_EVENT:
                self.health.unreadable += 1
                text = text[-_KEPT:]
        if not ended:
            events, used, ended = self._pieces(text, len(text), final=True)
            text = text[used:]
            self.health.events += len(events)
            yield events
        self.head = parsed_head(before, _tail(text, chunks))
        self.health.truncated = not ended
        self.health.cut = self._file.cut

    def _window(self, text: bytes, end: int) -> tuple[list[Event], int, bool]:
        """Return the events before a position, how far they reach, whether the array ended."""
        before = text[max(0, end - _NEAR) : end]
        last = end - len(before) + len(before.rstrip(_SEPARATORS))
        try:
            return decode_many(b"".join((b"[", memoryview(text)[:last], b"]"))), end, False
        except FAILED:
            return self._pieces(text, end, final=False)

    def _pieces(self, text: bytes, end: int, *, final: bool) -> tuple[list[Event], int, bool]:
        pieces = Pieces(text, end, final=final)
        events = pieces.read()
        self.health.repaired += pieces.repaired
        self.health.unreadable += pieces.unreadable
        return events, pieces.at, pieces.ended


def _last_head(text: bytes) -> int:
    """Return where the last event starts that is not the first, or 0."""
    return _last(text, known=True) or _last(text, known=False)


def _last(text: bytes, *, known: bool) -> int:
    near = _NEAR
    while True:
        start = max(0, len(text) - near)
        found = 0
        for found in heads_in(text, start, len(text), known=known):  # noqa: B007
            pass
        if found or not start:
            return found
        near *= 4


def _tail(text: bytes, chunks: Iterator[bytes]) -> bytes:
    """Return what follows the events, as far as it is worth reading.

    The chunks are read to their end, so that damage behind it is seen too.
    """
    for chunk in chunks:
        if len(text) < _TAIL:
            text += chunk
    return text
