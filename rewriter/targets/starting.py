"""Serves the patched modules of an overlay; made by rewriter, which is not needed to run it.

Run by Python at the start of every process that has the overlay on PYTHONPATH. So it imports
nothing that is not loaded already, and what finds the modules is a text until one is asked for:
in a read-only overlay this file is compiled at every start.
"""

import sys

TYPE_CHECKING = False  # importing typing would cost more than all the rest
if TYPE_CHECKING:
    from typing import Any

VERSION = "unknown"
SERVED: "dict[str, tuple[str, str, str, bool]]" = {}
FINDER = ""


class Finder:
    """Finds exactly the served modules."""

    def __init__(self, overlay: str) -> None:
        self.rewriter_overlay = overlay

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        """Return the spec of a served module; None for all others."""
        if name not in SERVED:
            return None
        found: dict[str, Any] = {"__name__": "rewriter_overlay_finder"}
        exec(FINDER, found)
        return found["Search"](self.rewriter_overlay, VERSION, name, SERVED[name]).spec(path)


def _chain(overlay: str) -> None:
    """Run the sitecustomize that this one hides, if there is one further down the path."""
    from _frozen_importlib import module_from_spec
    from _frozen_importlib_external import PathFinder

    if overlay in sys.path:
        after = sys.path[sys.path.index(overlay) + 1 :]
        spec = PathFinder.find_spec("sitecustomize", after)
        if spec is not None and spec.loader is not None:
            module = sys.modules["sitecustomize"] = module_from_spec(spec)
            spec.loader.exec_module(module)


def _start() -> None:
    overlay = __file__.replace("\\", "/").rpartition("/")[0]
    try:
        _chain(overlay)
    finally:  # in front of those of overlays further down the path
        sys.meta_path.insert(0, Finder(overlay))


if __name__ == "sitecustomize":
    _start()
