"""The ``.dist-info`` directory beside, or pointing at, an installed package."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from rewriter.errors import TargetError
from rewriter.targets.disk import PACKAGE
from rewriter.targets.record import parse_record


def dist_infos(directory: Path) -> list[Path]:
    """Return the package's ``.dist-info`` directories in ``directory``, by name.

    Only those with METADATA count: an uninstall may leave an empty directory behind.
    """
    try:
        names = sorted(path.name for path in directory.iterdir())
    except OSError:
        return []
    prefix, suffix = f"{PACKAGE}-", ".dist-info"
    found = [directory / n for n in names if n.startswith(prefix) and n.endswith(suffix)]
    return [path for path in found if (path / "METADATA").is_file()]


def metadata_field(metadata: bytes, name: str) -> str | None:
    """Return a header of METADATA by name, e.g. ``Version``; None when it is not there."""
    for line in metadata.decode("utf-8", "replace").splitlines():
        if not line.strip():
            return None
        key, colon, value = line.partition(":")
        if colon and key.strip().lower() == name.lower():
            return value.strip()
    return None


def beside(root: Path) -> Path | None:
    """Return the ``.dist-info`` that describes the package in ``root``, or None.

    ``pip install --target`` leaves the old one behind on an upgrade; then the one whose RECORD
    agrees with the version files on disk is the true one.

    Raises:
        TargetError: several are there and their RECORDs do not settle which is true.
    """
    found = dist_infos(root)
    if len(found) < 2:
        return found[0] if found else None
    agreeing = [path for path in found if _agrees(path, root)]
    if len(agreeing) == 1:
        return agreeing[0]
    names = ", ".join(path.name for path in found)
    raise TargetError(
        f"{root}: expected one .dist-info of {PACKAGE}, found {names}, and their RECORDs do not "
        "tell which one the files belong to; remove the stale one or reinstall the package"
    )


def editable(places: Iterable[Path], root: Path) -> Path | None:
    """Return the ``.dist-info`` of an editable install whose source holds ``root``, or None."""
    for place in places:
        for path in dist_infos(place):
            source = editable_source(path)
            if source is not None and _same_or_within(root, source):
                return path
    return None


def editable_source(dist_info: Path) -> Path | None:
    """Return the project directory that ``direct_url.json`` names, for editable installs only."""
    import json
    from urllib.parse import unquote, urlsplit

    try:
        stated = json.loads((dist_info / "direct_url.json").read_bytes())
        if not stated["dir_info"]["editable"]:
            return None
        url = urlsplit(stated["url"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Path(unquote(url.path)) if url.scheme == "file" else None


def _agrees(dist_info: Path, root: Path) -> bool:
    """Tell whether RECORD lists the version files on disk with the hashes that they have."""
    try:
        record = parse_record((dist_info / "RECORD").read_bytes())
    except (OSError, ValueError):
        return False
    compared = 0
    for name in ("version.py", "_version.py", "__init__.py"):
        try:
            data = (root / PACKAGE / name).read_bytes()
        except OSError:
            data = None
        row = record.get(f"{PACKAGE}/{name}")
        if (row is None) != (data is None):
            return False
        if row is not None and data is not None:
            compared += 1
            if not row.matches(data):
                return False
    return compared > 0


def _same_or_within(path: Path, ancestor: Path) -> bool:
    """Tell whether ``path`` is ``ancestor`` or below it, with links resolved on both sides."""
    real, above = Path(os.path.realpath(path)), Path(os.path.realpath(ancestor))
    return real == above or above in real.parents
