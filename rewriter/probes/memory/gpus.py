"""GPUs by name: architecture and memory; their bandwidth is in the room of traces."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rewriter.errors import UsageError
from rewriter.probes.trace.bandwidth import peak_bandwidth
from rewriter.probes.trace.pool import GB, GIB, MIB


@dataclass(frozen=True)
class Gpu:
    """One GPU.

    Attributes:
        name: as people call it.
        arch: ``sm90``, ``sm120``, …
        memory: bytes, as ``nvidia-smi`` shows them (less than the label says).
        bandwidth: GB/s, the vendor's peak.
    """

    name: str
    arch: str
    memory: int
    bandwidth: float


# name, architecture, MiB that nvidia-smi shows
_KNOWN = (
    ("RTX PRO 6000", "sm120", 97_887),
    ("RTX 5090", "sm120", 32_607),
    ("RTX 4090", "sm89", 24_564),
    ("L40S", "sm89", 46_068),
    ("B200", "sm100", 183_359),
    ("H200", "sm90", 143_771),
    ("H100", "sm90", 81_559),
    ("H20", "sm90", 97_871),
    ("A100 80GB PCIe", "sm80", 81_920),
    ("A100-SXM4-80GB", "sm80", 81_920),
)
ARCHITECTURES = ("sm80", "sm86", "sm89", "sm90", "sm100", "sm103", "sm120", "sm121")


def known() -> dict[str, Gpu]:
    """Return the GPUs by name."""
    return {
        name: Gpu(name, arch, int(mib * MIB), float(peak_bandwidth(name) or 0))
        for name, arch, mib in _KNOWN
    }


def gpu_named(name: str) -> Gpu:
    """Return a GPU by a name whose words are among a known one's, or the other way round.

    Whole words: an H20 is no H200, and an L40 no L40S.

    Raises:
        UsageError: none is like it.
    """
    wanted = _words(name)
    for each, gpu in known().items():
        words = _words(each)
        model = next(word for word in words if any(map(str.isdigit, word)))
        if model in wanted and (set(wanted) <= set(words) or set(words) <= set(wanted)):
            return gpu
    raise UsageError(
        f"GPU {name!r} is not one of {', '.join(known())}; "
        "give --arch, --gpu-memory and --bandwidth instead"
    )


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", name.casefold())


def architecture(name: str) -> str:
    """Return ``sm120`` for that, ``SM120``, ``12.0`` or ``120``; raises UsageError."""
    digits = re.sub(r"[^0-9]", "", name)
    if f"sm{digits}" not in ARCHITECTURES:
        raise UsageError(f"--arch {name!r} is not one of {', '.join(ARCHITECTURES)}")
    return f"sm{digits}"


_UNITS = {"GB": GB, "GIB": GIB, "MB": 1e6, "MIB": MIB, "TB": 1e12, "B": 1.0}


def size(text: str, option: str) -> float:
    """Return bytes in ``96GB`` or ``95.6 GiB``. GB is 10^9 bytes, GiB is 2^30: a unit is needed.

    Raises:
        UsageError: no number, or no unit.
    """
    found = re.fullmatch(r"\s*([0-9][0-9_,]*(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*", text)
    if found is None or found[2].upper() not in _UNITS:
        raise UsageError(
            f"{option} {text!r}: give a number with its unit, e.g. 96GB (10^9 bytes) or 96GiB "
            "(2^30)"
        )
    return float(found[1].replace(",", "").replace("_", "")) * _UNITS[found[2].upper()]
