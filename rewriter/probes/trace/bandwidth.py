"""Peak memory bandwidth of GPUs, from their vendor's data sheets, in GB/s (10^9 bytes).

Only a share of the peak is made of it. Time times bandwidth gives no bytes: the cast runs at a
fifth of an H200's bandwidth and at more than half of an RTX PRO 6000's.
"""

from __future__ import annotations

# The first fragment that a device's name contains counts.
_PEAKS = (
    ("RTX PRO 6000 Blackwell Max-Q", 1792),
    ("RTX PRO 6000", 1792),
    ("RTX 5090", 1792),
    ("RTX 4090", 1008),
    ("GB300", 8000),
    ("GB200", 8000),
    ("B300", 8000),
    ("B200", 8000),
    ("GH200 144G", 4900),
    ("GH200", 4000),
    ("H200 NVL", 4800),
    ("H200", 4800),
    ("H100 NVL", 3900),
    ("H100 PCIe", 2000),
    ("H100", 3350),
    ("H800", 3350),
    ("H20", 4000),
    ("A100-SXM4-80GB", 2039),
    ("A100 80GB PCIe", 1935),
    ("A100", 1555),
    ("L40S", 864),
    ("L20", 864),
)


def peak_bandwidth(device: str) -> int | None:
    """Return the peak in GB/s, or None for a GPU that is not in the table."""
    return next((peak for fragment, peak in _PEAKS if fragment in device), None)
