"""A window that does not decode, read piece by piece; only what is damaged is repaired."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator

from rewriter.probes.trace.events import FAILED, Event, coerced, decode_many, decode_one
from rewriter.probes.trace.lenient import UnreadableError, read_object

_FIRST_KEYS = rb"ph|name|cat|pid|tid|ts|dur|id|args|bp|s|sf|cname|tts"
# A brace that follows a colon opens a value inside an event.
_HEAD = re.compile(rb'[^:\s](\s*)\{\s*"(?:' + _FIRST_KEYS + rb')"\s*:')
# Writers other than kineto may begin an event with any field.
_ANY_HEAD = re.compile(rb'[\]}",](\s*)\{\s*"[^"\\\s]{1,40}"\s*:')
_BETWEEN = re.compile(rb"[\s,\0]*")
# After a whole event: the array's own end, then the document's, or its next field.
_ARRAY_END = re.compile(rb'\]\s*(?:\Z|\}|,\s*(?:\Z|\}|"))')

_FIELDS_FOLLOW = re.compile(
    rb'\](\s*,\s*)"(?:traceName|displayTimeUnit|baseTimeNanoseconds|schemaVersion|otherData|metadata'
    rb'|deviceProperties|distributedInfo|pg_config|trace_id|record_shapes|with_\w+|\w+_version)"'
)

_BLOCK = 64
"""Events that are decoded together: most of a damaged window is whole."""
_CARRIED = 8
"""So many heads before a window's end, what does not end there may end in the next window."""
_SPANS = (1, 4, 64)
"""Heads that an event may contain (nested objects, text that looks like events)."""

_scanner = json.JSONDecoder(strict=False)


_SPARSE = 64 << 10
"""Bytes an event, on average, from which its heads are taken for unknown ones."""


def heads_in(text: bytes, start: int, end: int, *, known: bool = True) -> Iterator[int]:
    """Yield the positions where an event may start, except one at ``start`` itself.

    Args:
        text, start, end: what is searched.
        known: look for the first fields that kineto writes, else for any.
    """
    for found in (_HEAD if known else _ANY_HEAD).finditer(text, start, end):
        yield found.end(1)


class Pieces:
    """One reading of a window.

    Attributes:
        at: how far it was read; what follows belongs to the next window.
        ended: whether the array's end was met there.
        repaired: places that were no proper JSON, and were read.
        unreadable: places that could not be read.
    """

    def __init__(self, text: bytes, end: int, *, final: bool) -> None:
        self.at = 0
        self.ended = False
        self.repaired = 0
        self.unreadable = 0
        self._text = text
        self._latin = text.decode("latin-1")
        self._end = end
        self._final = final
        self._heads = [*heads_in(text, 0, len(text)), len(text)]
        if len(text) > _SPARSE * len(self._heads):
            self._heads = [*heads_in(text, 0, len(text), known=False), len(text)]
        self._carry = False

    def read(self) -> list[Event]:
        """Return the events of the window."""
        events: list[Event] = []
        self._separated(first=True)
        while self.at < self._end and not self.ended and not self._carry:
            block = min(self._after(self.at, _BLOCK), self._end)
            whole = self._block(block)
            if whole is not None:
                events += whole
                self.at = block
                self._separated(first=True)
                continue
            while self.at < block and not self.ended and not self._carry:
                event = self._piece()
                if event is not None:
                    events.append(event)
        return events

    def _block(self, end: int) -> list[Event] | None:
        body = self._text[self.at : end].rstrip(b" \t\r\n,")
        try:
            return decode_many(b"[" + body + b"]")
        except FAILED:
            return None

    def _piece(self) -> Event | None:
        """Read what starts here, and go behind it and its comma."""
        end = self._object_end()
        event: Event | None
        if end is not None:
            event = self._whole(self._text[self.at : end])
        elif not self._final and len(self._heads) - self._index() <= _CARRIED:
            self._carry = True
            return None
        else:
            event, end = self._repaired()
        self.at = end
        self._separated(first=event is None)
        return event if event is not None and event.ph else None

    def _whole(self, raw: bytes) -> Event:
        """Decode an object whose end is known."""
        try:
            return decode_one(raw)
        except FAILED:
            self.repaired += 1
            return coerced(json.loads(raw.decode("utf-8", "replace"), strict=False))

    def _object_end(self) -> int | None:
        """Return where the object that starts here ends, if its brackets and quotes do."""
        if not self._latin.startswith("{", self.at):
            return None
        for heads in _SPANS:
            # Slices: the scanner counts lines from the text's start for each error.
            text = self._latin[self.at : self._after(self.at, heads)]
            try:
                return self.at + _scanner.raw_decode(text)[1]
            except (ValueError, RecursionError):
                continue
        return None

    def _repaired(self) -> tuple[Event | None, int]:
        """Read a damaged object; without success go to the next head."""
        following = self._after(self.at, 1)
        if not self._latin.startswith("{", self.at):
            self.repaired += 1  # text of a log between two events
            return None, following
        try:
            value, end = read_object(self._latin, self.at)
        except UnreadableError:
            return None, self._lost(following)
        if self._final and not self._goes_on(end):
            # Where a file was cut, its last event cannot be told from a damaged one.
            return None, len(self._text)
        self.repaired += 1
        return coerced(value), end

    def _lost(self, following: int) -> int:
        if not self._final or following < len(self._text):
            self.unreadable += 1
            return following
        end = self._closing()
        if end is None:
            return len(self._text)
        self.unreadable += 1
        return end

    def _closing(self) -> int | None:
        """Return where the array ends behind a last event that cannot be read.

        Proved by the rest: it must be the document's fields and close it. A list inside the event
        has the event's fields behind it.
        """
        for found in _FIELDS_FOLLOW.finditer(self._text, self.at):
            if _is_object(b"{" + self._text[found.end(1) :].strip()):
                return found.start()
        return None

    def _goes_on(self, end: int) -> bool:
        between = _BETWEEN.match(self._text, end)
        at = between.end() if between else end
        return at in self._heads[:-1] or bool(_ARRAY_END.match(self._text, at))

    def _separated(self, *, first: bool) -> None:
        """Go behind a comma, and see whether the array ends."""
        between = _BETWEEN.match(self._text, self.at)
        commas = between.group().count(b",") if between else 0
        self.at = between.end() if between else self.at
        if _ARRAY_END.match(self._text, self.at):
            self.ended = True
            self.repaired += commas > 0
        elif not first and commas != 1 and self.at < len(self._text):
            self.repaired += 1

    def _index(self) -> int:
        return bisect_right(self._heads, self.at)

    def _after(self, at: int, heads: int) -> int:
        """Return the position of the head so many heads behind a position, or the end."""
        index = bisect_right(self._heads, at) + heads - 1
        return self._heads[min(index, len(self._heads) - 1)]


def _is_object(text: bytes) -> bool:
    try:
        return isinstance(json.loads(text.decode("latin-1"), strict=False), dict)
    except (ValueError, RecursionError):
        return False
