"""A trace file's bytes in chunks of bounded size, gunzipped where they are gzip's."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from rewriter.probes.trace.problems import TraceError

CHUNK = 1 << 20
"""Bytes of a window's text. Windows of 8 MiB took a half more CPU time on a 550 MB trace, because
they and their events do not fit a processor's cache, and 70 MiB more memory."""

_GZIP = b"\x1f\x8b"
_READ = 256 << 10
_RESCUE = 512

Progress = Callable[[int, int], None]
"""Called with the bytes read of the file, compressed as they are, and the bytes it has."""


class TraceFile:
    """The bytes of one file, read once from front to back.

    Attributes:
        path: where it stands.
        compressed: whether it is gzip, by its first bytes: names lie (``.json`` written by gzip).
        cut: why a gzip stream stopped early, or None. Plain text cannot tell.
        read: bytes read so far, as they stand on disk.
    """

    def __init__(self, path: Path, progress: Progress | None = None) -> None:
        self.path = path
        self.compressed = False
        self.cut: str | None = None
        self.read = 0
        self._progress = progress

    def chunks(self) -> Iterator[bytes]:
        """Yield the text in pieces of at most CHUNK bytes.

        Raises:
            TraceError: the file cannot be opened or read.
        """
        try:
            size = self.path.stat().st_size
            with self.path.open("rb") as stream:
                self.compressed = stream.read(2) == _GZIP
                stream.seek(0)
                yield from (
                    self._gunzipped(stream, size)
                    if self.compressed
                    else (self._plain(stream, size))
                )
        except OSError as error:
            reason = error.strerror or error
            raise TraceError(f"{self.path}: cannot be read: {reason}") from error

    def _plain(self, stream: BinaryIO, size: int) -> Iterator[bytes]:
        while data := stream.read(CHUNK):
            self._count(len(data), size)
            yield data

    def _gunzipped(self, stream: BinaryIO, size: int) -> Iterator[bytes]:
        """Gunzip member after member; a stream that stops early gives all that it holds."""
        member = _Member()
        while data := stream.read(_READ):
            self._count(len(data), size)
            while data:
                yield from member.feed(data)
                if member.broken:
                    self.cut = f"gzip data is damaged ({member.broken})"
                    return
                if not member.ended:
                    break
                # zlib hands back what follows the end: another member, or padding.
                data = member.rest.lstrip(b"\0")
                if data and not data.startswith(_GZIP[: len(data)]):
                    return
                member = _Member()
        if member.fed and not member.ended:
            self.cut = "gzip data has no end marker"

    def _count(self, more: int, size: int) -> None:
        self.read += more
        if self._progress is not None:
            self._progress(self.read, size)


class _Member:
    """One gzip member. Its output is cut too: 1 MB of gzip can be 1 GB of text."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(wbits=31)
        self.broken: str | None = None
        self.fed = False

    @property
    def ended(self) -> bool:
        return self._inflate.eof

    @property
    def rest(self) -> bytes:
        return self._inflate.unused_data

    def feed(self, data: bytes) -> Iterator[bytes]:
        self.fed = True
        while data and not self.ended:
            before = self._inflate.copy()
            try:
                out = self._inflate.decompress(data, CHUNK)
            except zlib.error as error:
                self.broken = str(error)
                yield from _rescued(before, data)
                return
            data = self._inflate.unconsumed_tail
            if out:
                yield out


def _rescued(inflate: zlib._Decompress, data: bytes) -> Iterator[bytes]:
    """Yield what stands before the damage: an error takes the output of its whole call.

    A byte of gzip can be a hundred of text, so that the last pieces are single bytes.
    """
    size = _RESCUE
    start = 0
    while start < len(data):
        before = inflate.copy()
        piece = data[start : start + size]
        try:
            out = inflate.decompress(piece)
        except zlib.error:
            if size == 1:
                return
            inflate, size = before, 1
            continue
        start += len(piece)
        if out:
            yield out
