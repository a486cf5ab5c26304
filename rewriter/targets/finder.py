"""Find one served module of an overlay; this text is carried by the overlay's start-up file.

The installed original must have the hash that the overlay was made from, and the overlay's own
file the one that was written; if not, the process ends with a message: a module that is missing,
or old, would be taken for the real one. Self-contained: rewriter need not be installed there.
"""

import sys
from hashlib import sha256
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from typing import Any


class Search:
    """The search for one module.

    Attributes:
        overlay: the overlay's directory.
        version: of sglang, when the overlay was made.
        name: the module's.
        file: where it lies below the overlay.
        ours: SHA-256 of that file; empty where the module is taken away.
        before: SHA-256 of the installed original; empty for a new module.
        beside: whether the module looks for files beside itself, so that it is told the original's
            place for its own.
    """

    def __init__(
        self, overlay: str, version: str, name: str, row: "tuple[str, str, str, bool]"
    ) -> None:
        self.overlay = overlay
        self.version = version
        self.name = name
        self.file, self.ours, self.before, self.beside = row

    def spec(self, path: Any) -> "ModuleSpec | None":
        """Return the module's spec; end the process where it must not be served.

        Raises:
            ModuleNotFoundError: it is taken away; the finders behind this one would find it.
        """
        original = self._original(path) if self.before else None
        if self.before and (self.ours or original is not None):
            self._check(original)
        if not self.ours:
            reason = f"No module named {self.name!r}: the overlay {self.overlay} takes it away"
            raise ModuleNotFoundError(reason, name=self.name)
        place = f"{self.overlay}/{self.file}"
        told = original.origin if original is not None and self.beside else None
        inner = original.submodule_search_locations if original else None
        if not self.before and place.endswith("/__init__.py"):
            inner = [place.rpartition("/")[0]]  # a package that is new
        return spec_from_file_location(
            self.name, place, loader=Loader(self, place, told), submodule_search_locations=inner
        )

    def refuse(self, what: str) -> None:
        """End the process: an ImportError would be taken for a missing optional module."""
        sys.stderr.write(
            f"rewriter: {self.name}: {what}; refusing to run. Make the overlay anew with "
            f"`rewriter apply --overlay {self.overlay}`, or take it off PYTHONPATH\n"
        )
        sys.stderr.flush()
        raise SystemExit(1)

    def _original(self, path: Any) -> "ModuleSpec | None":
        if path is None:  # a top-level package: the overlay itself may look like it
            path = [entry for entry in sys.path if entry != self.overlay]
        for finder in sys.meta_path:
            an_overlays = hasattr(finder, "rewriter_overlay")  # this one's, or another's
            find = None if an_overlays else getattr(finder, "find_spec", None)
            found: ModuleSpec | None = find(self.name, path) if find else None
            if found is not None and found.loader is not None:
                return found
        return None

    def _check(self, original: "ModuleSpec | None") -> None:
        origin = original.origin if original else None
        read = getattr(original.loader, "get_data", None) if original else None
        if origin is None or read is None:
            self.refuse("the installed sglang does not have it any more")
            return
        try:
            found = sha256(read(origin)).hexdigest()
        except OSError as error:
            self.refuse(f"{origin}: {error.strerror or error}")
            return
        if found != self.before:
            self.refuse(
                f"{origin} is not the file that the overlay was made from (sglang {self.version}; "
                f"expected sha256 {self.before[:12]}, found {found[:12]})"
            )


class Loader(SourceFileLoader):
    """Loads a file of the overlay if it is as written; byte code is kept by its hash."""

    def __init__(self, search: Search, place: str, told: "str | None") -> None:
        super().__init__(search.name, place)
        self.search = search
        self.told = told

    def get_data(self, path: str) -> bytes:
        """Return a file's bytes, the module's own only if they are as written."""
        if path != self.path:
            return super().get_data(path)
        raw = b""
        try:
            raw = super().get_data(path)
        except OSError as error:
            self.search.refuse(f"{path}: {error.strerror or error}")
        if sha256(raw).hexdigest() != self.search.ours:
            self.search.refuse(f"{path} was changed since the overlay was made")
        return raw

    def path_stats(self, path: str) -> "dict[str, Any]":
        """Return a piece of the hash in the place of a time, which two versions may share.

        So byte code of another version is never taken for this one's.
        """
        return {"mtime": int(self.search.ours[:8], 16), "size": len(self.get_data(path))}

    def exec_module(self, module: Any) -> None:
        """Run the module."""
        if self.told:
            module.__file__ = self.told
        super().exec_module(module)
