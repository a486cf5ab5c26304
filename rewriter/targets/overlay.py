"""A directory that serves patched modules through PYTHONPATH; the installed package stays as it is.

``DIR/sitecustomize.py`` is ``starting`` with ``finder`` and a table of what it serves; the patched
files lie below ``DIR/sglang``, which has no ``__init__.py`` and so is no package; the record in
``DIR/.rewriter``.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rewriter.errors import RefusedError, TargetError, UsageError
from rewriter.targets.disk import absolute, inside, read_bytes
from rewriter.targets.home import Home, beside, home_of

if TYPE_CHECKING:
    from rewriter.targets import Target

START = "sitecustomize.py"
"""The file that Python runs at its start when the overlay is on PYTHONPATH."""


class Served(NamedTuple):
    """One file of an overlay.

    Attributes:
        after: SHA-256 of the file; empty for a module that is taken away.
        before: SHA-256 of the installed original; empty for a new module.
        beside: whether the module looks for files beside itself.
    """

    after: str
    before: str
    beside: bool = False


class Overlay:
    """A package as it is with an overlay on PYTHONPATH: its own files, else those of the package.

    A file that would not be served, because the original is another one by now, is read from the
    package: an import of it is refused, and the states say that the package was changed.

    Attributes:
        base: the package that is left as it is.
        root: the overlay's directory.
    """

    kind = "overlay"
    diff_prefix = ""
    writable = True

    def __init__(self, directory: str | os.PathLike[str], base: Target) -> None:
        """Describe an overlay; the directory need not exist yet.

        Raises:
            TargetError: it is a file.
            UsageError: it holds the package, or could not be on PYTHONPATH.
        """
        self.base = base
        self.root = absolute(directory)
        if self.root.exists() and not self.root.is_dir():
            raise TargetError(f"{self.root}: expected a directory for an overlay, found a file")
        if os.pathsep in os.fspath(self.root):
            raise UsageError(f"{self.root}: a path with {os.pathsep!r} cannot be on PYTHONPATH")
        if getattr(base, "root", None) == self.root:
            raise UsageError(f"{self.root} is where the package lies; give a directory of its own")

    @property
    def location(self) -> str:
        """The overlay's directory, and what it lies over."""
        return f"overlay {self.root} of {self.base.location}"

    @property
    def version(self) -> str | None:
        """That of the package."""
        return self.base.version

    @property
    def home(self) -> Home:
        """Where manifest and journal lie."""
        return beside(self.root)

    def read(self, path: str) -> bytes | None:
        """Read what would be imported, or, where that is refused, the package's own file.

        Raises:
            TargetError: it is there and cannot be read.
        """
        own, entry = read_bytes(self.root, inside(path)), self.table().get(path)
        gone = entry is not None and not entry.after
        if own is None and not gone:
            return self.base.read(path)
        original = self.base.read(path)
        if entry is not None and gone:
            return None if original is not None and _hash(original) == entry.before else original
        if entry is None or not entry.before:
            return own if original is None else original
        return own if original is not None and _hash(original) == entry.before else original

    def files(self, under: str = "sglang") -> Iterator[str]:
        """Yield the paths of the package's files as changed by those that come and go."""
        table = self.table()
        added = {p for p in table if p.startswith(under) and self.base.read(p) is None}
        gone = {p for p, entry in table.items() if not entry.after and self.read(p) is None}
        yield from sorted({*self.base.files(under), *added} - gone)

    def check_base(self) -> None:
        """Refuse to lie over a package that is itself patched: which of the two would be meant?

        Raises:
            RefusedError: the package has a record of ours.
        """
        home = home_of(self.base)
        if home is not None and home.manifest_path.exists():
            raise RefusedError(
                f"{home.root}: the package itself has codemods applied, so an overlay would be of "
                "patched files; nothing was written. Run `rewriter revert` on the package first, "
                "or apply the others to it as well"
            )

    @property
    def stale(self) -> str:
        """Say why what is on record is not served any more."""
        served = self._stated()
        if not served:
            return f"{self.root / START} is missing or was edited, so nothing of it is served"
        for path, entry in served.items():
            if not self._is_whole(path, entry):
                return f"{self.root / path} was edited, so an import of it is refused"
        return "the package was changed since the overlay was made, so its modules refuse to run"

    def compile_start(self) -> None:
        """Write the start-up file's byte code: where the overlay is read-only, nobody else can."""
        import py_compile

        if (self.root / START).exists():
            py_compile.compile(os.fspath(self.root / START), doraise=True)

    def table(self) -> dict[str, Served]:
        """Return what the overlay serves, by path; empty where a file of it is not whole."""
        served = self._stated()
        return served if all(self._is_whole(path, s) for path, s in served.items()) else {}

    def _is_whole(self, path: str, entry: Served) -> bool:
        if not entry.after:
            return True  # whatever lies there is not looked at
        own = read_bytes(self.root, path)
        return own is not None and _hash(own) == entry.after

    def _stated(self) -> dict[str, Served]:
        raw = read_bytes(self.root, START)
        return {} if raw is None else parse(raw) or {}


def _hash(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def start_file(version: str | None, served: dict[str, Served]) -> bytes:
    """Return the start-up file of an overlay: what it serves, as ``finder`` reads it."""
    rows = {module_of(path): (path, s.after, s.before, s.beside) for path, s in served.items()}
    table = "".join(f"    {name!r}: {row!r},\n" for name, row in sorted(rows.items()))
    text, finder = (
        (Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8")
        for name in ("starting", "finder")
    )
    text = _put(text, "FINDER = ", f"FINDER = {finder!r}")
    text = _put(text, "VERSION = ", f"VERSION = {version or 'unknown'!r}")
    text = _put(text, "SERVED: ", f"SERVED = {{\n{table}}}")
    return f"# rewriter overlay sha256:{_hash(text.encode())} (do not edit)\n{text}".encode()


def _put(text: str, start: str, line: str) -> str:
    """Replace the one line that begins with ``start``."""
    replaced, count = re.subn(rf"^{re.escape(start)}.*$", lambda _: line, text, flags=re.MULTILINE)
    assert count == 1, start
    return replaced


def parse(raw: bytes) -> dict[str, Served] | None:
    """Return the table of a start-up file of ours; None where it is not ours, or was edited."""
    head, _, body = raw.partition(b"\n")
    found = re.match(rb"# rewriter overlay sha256:([0-9a-f]{64}) ", head)
    if found is None or _hash(body) != found[1].decode():
        return None
    table = re.search(rb"^SERVED = (\{\n.*?^\})$", body, re.MULTILINE | re.DOTALL)
    if table is None:
        return None
    rows = ast.literal_eval(table[1].decode()).values()
    return {path: Served(after, before, beside) for path, after, before, beside in rows}


def is_start_file(raw: bytes) -> bool:
    """Tell whether a sitecustomize is one of ours, edited or not."""
    return raw.startswith(b"# rewriter overlay sha256:")


def looks_beside_itself(raw: bytes) -> bool:
    """Tell whether a module asks where it lies, to find files next to it."""
    return re.search(rb"\b__file__\b", raw) is not None


def module_of(path: str) -> str:
    """Return the name under which a file is imported."""
    name = path.removesuffix(".py").replace("/", ".")
    return name.removesuffix(".__init__")
