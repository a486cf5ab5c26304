"""Proof that a file is as shipped, by something that is not ours: RECORD, HEAD or a pin."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rewriter.targets.home import Home, home_of

if TYPE_CHECKING:
    from rewriter.targets import Target


class Witness(NamedTuple):
    """What proved the bytes of one file.

    Attributes:
        kind: ``RECORD``, ``HEAD``, ``pin``, ``release``, or ``unproven`` where the user accepted
            a file that nothing proves.
        source: the RECORD, the commit, or the releases.
        value: the hash as that source states it: RECORD's own form, a blob id, a SHA-256.
        also: for RECORD its own SHA-256, so that the proof names one file.
    """

    kind: str
    source: str
    value: str
    also: str = ""

    def proves(self, raw: bytes) -> bool:
        """Tell whether these are the bytes it stands for."""
        if self.kind == "RECORD":
            from rewriter.targets.record import Row

            return Row(self.value, None).matches(raw)
        if self.kind == "HEAD":
            return _blob_id(raw, self.value) or _blob_id(raw.replace(b"\r\n", b"\n"), self.value)
        return hashlib.sha256(raw).hexdigest() == self.value

    def __str__(self) -> str:
        if self.kind == "RECORD":
            return f"{self.source} ({self.value[:19]}…)"
        if self.kind == "HEAD":
            return f"HEAD {self.source[:10]} (blob {self.value[:10]})"
        if self.kind == "unproven":
            return f"nothing but the bytes that were found (sha256 {self.value[:10]})"
        return f"{self.kind} of {self.source} (sha256 {self.value[:10]})"


def take(target: Target, path: str, raw: bytes, codemods: Iterable[str]) -> Witness | None:
    """Return what proves a file's bytes now, or None.

    Args:
        target: where it lies.
        path: relative to the package's parent.
        raw: the bytes to prove, which need not be those on disk.
        codemods: whose pins are looked at.
    """
    target = getattr(target, "base", target)  # an overlay's originals lie in the package
    home = home_of(target)
    if home is not None:
        for found in (by_record(home, path), by_head(home, path)):
            if found is not None and found.proves(raw):
                return found
    elif target.version is not None and target.kind in ("release", "wheel"):
        return Witness("release", f"sglang {target.version}", hashlib.sha256(raw).hexdigest())
    return by_pin(path, raw, codemods, target.version)


def by_record(home: Home, path: str) -> Witness | None:
    """Return what RECORD says of a file, whether or not that is so."""
    raw = home.record_bytes()
    if raw is None:
        return None
    from rewriter.targets.record import parse_record

    try:
        row = parse_record(raw).get(path)
    except ValueError:
        return None
    if row is None or not row.hash:
        return None
    source = f"{home.folder.name}/{home.record}"
    return Witness("RECORD", source, row.hash, hashlib.sha256(raw).hexdigest())


def by_head(home: Home, path: str) -> Witness | None:
    """Return what the checked-out commit holds of a file, whether or not the file is so."""
    if home.top is None:
        return None
    from rewriter.targets.head import blob_at_head

    found = blob_at_head(home.top, home.prefix + path)
    return None if found is None else Witness("HEAD", *found)


def by_pin(
    path: str, raw: bytes, codemods: Iterable[str], version: str | None = None
) -> Witness | None:
    """Return the shipped pin whose source these bytes are."""
    from rewriter import pins

    digest = pins.sha256(raw)
    for name in codemods:
        pin = pins.lookup(name, path, raw)
        if pin is not None and pin.source == digest:
            return Witness("pin", f"sglang {named(pin.releases, version)}", digest)
    return None


def named(releases: Sequence[str], version: str | None) -> str:
    """Return the releases of a pin in a few words: the one at hand, where it is among them."""
    if version in releases:
        return str(version)
    return releases[0] if len(releases) == 1 else f"{releases[0]} to {releases[-1]}"


def unproven(raw: bytes) -> Witness:
    """Return the witness of a file that the user accepted without one."""
    return Witness("unproven", "", hashlib.sha256(raw).hexdigest())


def doubts(home: Home, path: str, raw: bytes) -> str:
    """Say which witness a file contradicts, and where, or that there is none."""
    found = by_record(home, path)
    if found is not None:
        return f"{found.source} says {found.value}, the file is otherwise"
    found = by_head(home, path)
    if found is not None:
        lines = _changed_lines(home, found.value, raw)
        return f"it differs from HEAD {found.source[:10]}" + (f" in {lines}" if lines else "")
    if home.record is not None or home.top is not None:
        where = home.record or "HEAD"
        return f"{where} does not list it, and it is no release's file that is pinned"
    return "there is no RECORD and no commit to compare it with, and no pin knows it"


def _changed_lines(home: Home, blob: str, raw: bytes) -> str:
    """Return which lines of a file are not those of a blob, e.g. ``lines 12, 40-44``."""
    import difflib

    from rewriter.targets.head import blob_bytes

    assert home.top is not None
    original = blob_bytes(home.top, blob)
    if original is None:
        return ""
    spans: list[str] = []
    matcher = difflib.SequenceMatcher(None, original.splitlines(), raw.splitlines(), False)
    for tag, _, _, first, last in matcher.get_opcodes():
        if tag != "equal":
            spans.append(str(first + 1) if last - first <= 1 else f"{first + 1}-{last}")
    more = f" and {len(spans) - 5} more places" if len(spans) > 5 else ""
    return f"line {', '.join(spans[:5])}{more}" if spans else ""


def _blob_id(raw: bytes, wanted: str) -> bool:
    """Tell whether git would give these bytes this id: SHA-1, or SHA-256 in newer repositories."""
    algorithm = "sha256" if len(wanted) == 64 else "sha1"
    total = hashlib.new(algorithm, b"blob %d\0" % len(raw), usedforsecurity=False)
    total.update(raw)
    return total.hexdigest() == wanted
