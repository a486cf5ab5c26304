"""Version pins: for each distinct source, its hash, the releases that have it, the sites found in
it and the hash of the patched file. Facts only: no line of upstream's source is kept."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rewriter.errors import UsageError
from rewriter.model import State

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class PinnedSite:
    """One place: the definition, what kind of site, and its line as shipped."""

    definition: str
    kind: str
    line: int


@dataclass(frozen=True)
class Pin:
    """What one file of one or more releases is to a codemod.

    Attributes:
        file: path relative to the package's parent.
        source: SHA-256 of the file as shipped.
        releases: the releases that ship exactly this file, oldest first.
        state: ready, or upstream where there is nothing to patch.
        sites: the places, in the order of the codemod.
        patched: SHA-256 of the patched file; empty for upstream.
    """

    file: str
    source: str
    releases: tuple[str, ...]
    state: State
    sites: tuple[PinnedSite, ...]
    patched: str


_SHA256 = re.compile("[0-9a-f]{64}")


def sha256(raw: bytes) -> str:
    """Return the hash that pins and manifests use."""
    return hashlib.sha256(raw).hexdigest()


def shipped() -> Path:
    """Return where the pins lie: package data of the wheel, or beside the packages."""
    inside = Path(__file__).parent / "fixtures"
    return inside if inside.is_dir() else Path(__file__).parent.parent / "fixtures"


def load(codemod: str, directory: Path | None = None) -> list[Pin]:
    """Return a codemod's pins, oldest release first; none where there are no pins.

    Raises:
        UsageError: a pin file is malformed.
    """
    folder = (directory or shipped()) / codemod
    pins = [_read(path) for path in sorted(folder.glob("*.toml"))]
    return sorted(pins, key=lambda pin: _release_order(pin.releases[0]))


def lookup(codemod: str, path: str, raw: bytes, directory: Path | None = None) -> Pin | None:
    """Return the pin whose source or patched file has these bytes, or None."""
    digest = sha256(raw)
    for pin in load(codemod, directory):
        if pin.file == path and digest in (pin.source, pin.patched):
            return pin
    return None


def merge(pins: Iterable[Pin], new: Iterable[Pin]) -> list[Pin]:
    """Add pins: one with a known source adds its releases and renews what was found."""
    merged = {(pin.file, pin.source): pin for pin in pins}
    for pin in new:
        known = merged.get((pin.file, pin.source))
        releases = {*pin.releases, *(known.releases if known else ())}
        ordered = tuple(sorted(releases, key=_release_order))
        merged[pin.file, pin.source] = replace(pin, releases=ordered)
    return list(merged.values())


def save(codemod: str, pins: Iterable[Pin], directory: Path) -> list[Path]:
    """Write a codemod's pins, one file each, and remove pin files that are no longer any's."""
    import tomli_w

    folder = directory / codemod
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for pin in pins:
        path = folder / f"{pin.releases[0]}-{pin.source[:10]}.toml"
        # A table a site, whatever their number: the library puts few short ones in one line.
        sites = [f"\n[[sites]]\n{tomli_w.dumps(_site_toml(site))}" for site in pin.sites]
        text = "".join([tomli_w.dumps(_as_toml(pin)), *sites])
        path.write_text(text, encoding="utf-8", newline="\n")
        written.append(path)
    for path in set(folder.glob("*.toml")) - set(written):
        path.unlink()
    return written


def _as_toml(pin: Pin) -> dict[str, Any]:
    value: dict[str, Any] = {
        "file": pin.file,
        "source": pin.source,
        "releases": list(pin.releases),
        "state": pin.state.value,
    }
    if pin.patched:
        value["patched"] = pin.patched
    return value if pin.sites else {**value, "sites": []}


def _site_toml(site: PinnedSite) -> dict[str, Any]:
    return {"definition": site.definition, "kind": site.kind, "line": site.line}


def _read(path: Path) -> Pin:
    try:
        value = tomllib.loads(path.read_text(encoding="utf-8"))
        sites = tuple(PinnedSite(s["definition"], s["kind"], s["line"]) for s in value["sites"])
        pin = Pin(
            value["file"], value["source"], tuple(value["releases"]), State(value["state"]),
            sites, value.get("patched", ""),
        )  # fmt: skip
        if not pin.releases:
            raise ValueError("it names no release")
        if not all(_SHA256.fullmatch(digest) for digest in (pin.source, pin.patched or pin.source)):
            raise ValueError("a hash is not 64 hexadecimal digits")
        min(pin.releases, key=_release_order)  # raises where one is no version
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: malformed pin: {error!r}") from error
    return pin


def _release_order(release: str) -> Any:
    from packaging.version import Version

    return Version(release)
