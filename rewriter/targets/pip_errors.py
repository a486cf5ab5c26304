"""What pip's output means when it fails."""

from __future__ import annotations

import bisect
import re

from rewriter.errors import TargetError
from rewriter.targets.disk import PACKAGE

_OFFLINE = (
    "NewConnectionError",
    "ConnectTimeoutError",
    "ReadTimeoutError",
    "NameResolutionError",
    "Temporary failure in name resolution",
    "Connection refused",
    "ProxyError",
    "SSLError",
    "Retrying (Retry",
)
_NEAREST = 2
"""How many versions to name on either side of one that is not there."""


class IndexUnreachable(TargetError):
    """The package index cannot be asked: no network, or no pip to ask with."""


def failure(version: str | None, output: str) -> TargetError:
    """Explain a failed run of pip.

    Args:
        version: the version that was asked for; None when versions were to be listed.
        output: all that pip printed.
    """
    what = f"{PACKAGE} {version}" if version else f"the releases of {PACKAGE}"
    listed = re.search(r"\(from versions: (.*?)\)", output)
    known = [] if listed is None or listed.group(1) == "none" else listed.group(1).split(", ")
    if known and version is not None:
        near = ", ".join(nearest(version, known))
        return TargetError(
            f"{what}: the index has no wheel of it for Linux x86_64; nearest: {near}"
        )
    if any(sign in output for sign in _OFFLINE):
        return IndexUnreachable(
            f"{what}: the package index cannot be reached; check the network and pip's "
            "configuration. A wheel that you have needs neither: `rewriter check --wheel FILE`"
        )
    if listed is not None or "No matching distribution found" in output:
        return IndexUnreachable(
            f"{what}: pip found no version at all; check the network and pip's configuration "
            "(`pip config list`). A wheel that you have needs neither: "
            "`rewriter check --wheel FILE`"
        )
    if 'unknown command "index"' in output:
        return TargetError(f"{what}: this pip cannot list versions; upgrade it to 21.2 or later")
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")] or lines[-1:] or ["no output"]
    return TargetError(f"{what}: pip failed: {errors[-1].removeprefix('ERROR: ')}")


def nearest(version: str, known: list[str]) -> list[str]:
    """Return the versions around ``version`` in PEP 440 order."""
    from packaging.version import Version

    ordered = sorted(known, key=Version)
    place = bisect.bisect_left([Version(each) for each in ordered], Version(version))
    return ordered[max(0, place - _NEAREST) : place + _NEAREST]
