"""The ``.dist-info`` directory beside, or pointing at, an installed package."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from rewriter.errors import TargetError
from rewriter.targets.disk import PACKAGE, entries, read_bytes
from rewriter.targets.record import Row, parse_record


def dist_infos(directory: Path, belongs: Callable[[Path], bool]) -> list[Path]:
    """Return the ``.dist-info`` directories that ``belongs`` accepts, by name.

    Those named after the package are looked at first. Only when none of them belongs are the
    others: a fork installs the same package under another distribution name. Only those with
    METADATA count, because an uninstall may leave an empty directory behind. Those whose name
    begins with ``~`` are pip's own, what it will put back if an upgrade fails.

    Raises:
        TargetError: the directory cannot be listed.
    """
    found = [path for path in entries(directory) if is_dist_info(path)]
    own = [path for path in found if path.name.startswith(f"{PACKAGE}-")]
    for candidates in (own, found):
        belonging = [p for p in candidates if (p / "METADATA").is_file() and belongs(p)]
        if belonging:
            return belonging
    return []


def is_dist_info(path: Path) -> bool:
    """Tell by its name whether a directory describes an install; pip's stash does not."""
    return path.name.endswith(".dist-info") and not path.name.startswith("~")


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
    found = dist_infos(root, _describes_package)
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
    """Return the ``.dist-info`` of an editable install that made ``root`` importable, or None."""
    for place in places:
        with suppress(TargetError):  # one of many directories on a path; others may know
            for path in dist_infos(place, lambda path: _points_at(path, root)):
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


def record_of(dist_info: Path) -> dict[str, Row] | None:
    """Return RECORD, path → row; None when it was stripped or cannot be parsed.

    Raises:
        TargetError: it is there and cannot be read.
    """
    raw = read_bytes(dist_info, "RECORD")
    try:
        return None if raw is None else parse_record(raw)
    except ValueError:
        return None


def _describes_package(dist_info: Path) -> bool:
    """Tell whether a ``.dist-info`` is that of the files beside it.

    A stripped RECORD leaves only the name to go by. Searched as bytes, because parsing every
    RECORD of a large environment takes seconds.
    """
    own = dist_info.name.startswith(f"{PACKAGE}-")
    try:
        record = read_bytes(dist_info, "RECORD")
    except TargetError:
        if own:
            raise
        return False
    if record is None:
        return own
    return f"\n{PACKAGE}/__init__.py,".encode() in b"\n" + record


def _points_at(dist_info: Path, root: Path) -> bool:
    """Tell whether an editable install's project directory is the one that holds ``root``.

    That is ``root`` itself or its parent; setuptools' strict mode links the files into a tree
    below ``build/``. Anything further up is another project that vendors this one.
    """
    source = editable_source(dist_info)
    if source is None:
        return False
    real, project = root.resolve(), source.resolve()
    return real in (project, project / "python") or project / "build" in real.parents


def _agrees(dist_info: Path, root: Path) -> bool:
    """Tell whether RECORD lists the version files on disk with the hashes that they have."""
    record = record_of(dist_info)
    if record is None:
        return False
    compared = 0
    for name in ("version.py", "_version.py", "__init__.py"):
        data = read_bytes(root, f"{PACKAGE}/{name}")
        row = record.get(f"{PACKAGE}/{name}")
        if (row is None) != (data is None):
            return False
        if row is not None and data is not None:
            compared += 1
            if not row.matches(data):
                return False
    return compared > 0
