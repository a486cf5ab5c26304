"""A package in small that stands in for sglang: our own text, in the packagers' shapes."""

from __future__ import annotations

from collections.abc import Mapping

from rewriter.targets.record import digest

FILES: Mapping[str, bytes] = {
    "sglang/__init__.py": b'"""A stand-in for the package."""\n',
    "sglang/version.py": b'__version__ = "0.5.2"\n',
    "sglang/srt/__init__.py": b"",
    "sglang/srt/layers/norm.py": b"class Norm:\n    def forward(self, x):\n        return x**2\n",
    "sglang/srt/crlf.py": b"\xef\xbb\xbfx = 1\r\ny = 2\r\n\r\n",
}
"""Among them an empty file, and one with a BOM and carriage returns."""


def metadata(version: str, name: str = "sglang") -> bytes:
    """Return a METADATA file, with a line in its body that looks like a header."""
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nSummary: no header\n"
    return text.encode()


def record(files: Mapping[str, bytes], own: str) -> bytes:
    """Return a RECORD of ``files`` that also lists itself, at the path ``own``."""
    rows = [f"{path},{digest(data)},{len(data)}" for path, data in files.items()]
    return "\n".join([*rows, f"{own},,", ""]).encode()


def installed_files(
    version: str = "0.5.2", files: Mapping[str, bytes] = FILES, name: str = "sglang"
) -> dict[str, bytes]:
    """Return what a wheel holds and an install leaves: the package and its dist-info."""
    folder = f"{name.replace('-', '_')}-{version}.dist-info"
    wheel = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    own = {f"{folder}/METADATA": metadata(version, name), f"{folder}/WHEEL": wheel}
    everything = {**files, **own}
    return {**everything, f"{folder}/RECORD": record(everything, f"{folder}/RECORD")}
