"""The sources that equivalence is tested on: one release for each distinct file that is patched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import codemods.runtime
from rewriter import catalog
from rewriter.engine import apply
from rewriter.model import State
from rewriter.pins import load
from rewriter.targets.release import Release

COMPANION = Path(codemods.runtime.__file__).with_name("kv_gather.py").read_bytes()

Releases = Callable[[str], Release]


@dataclass(frozen=True)
class Sources:
    """One file as shipped, and with the codemod's sites."""

    original: bytes
    patched: bytes


@cache
def versions(codemod: str = "mla_kv_gather") -> tuple[str, ...]:
    """Return the first release of every pinned source that a codemod patches."""
    return tuple(pin.releases[0] for pin in load(codemod) if pin.state is State.READY)


_kept: dict[tuple[str, str], Sources] = {}


def sources(release: Releases, version: str, codemod: str = "mla_kv_gather") -> Sources:
    """Return a release's file, original and patched."""
    if (version, codemod) not in _kept:
        patch = catalog.load(codemod)
        original = release(version).read(patch.target)
        assert original is not None
        _kept[version, codemod] = Sources(original, apply(patch, patch.target, original))
    return _kept[version, codemod]
