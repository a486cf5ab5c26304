"""Where an interpreter would import sglang from; run here, or as a script by another Python.

Self-contained and written for Python 3.8 and later, because the script runs in the environment
that is to be patched. sglang is never imported: that would take seconds and want a GPU.
"""

# ruff: noqa: PTH100, PTH109, PTH120
# os.path only: pathlib would add to the start of the interpreter that is asked.

from __future__ import annotations

import importlib.machinery
import json
import os
import sys

MARK = "rewriter-probe:"
"""Starts the line that carries the answer: a sitecustomize may print lines of its own."""


def locate(name: str, search: list[str]) -> dict[str, object]:
    """Tell where ``name`` would be imported from with ``search`` as the search path.

    Returns:
        ``origin``: the package's ``__init__.py``, or None when there is no regular package;
        ``namespace``: folders of that name without ``__init__.py``;
        ``path``: the search path, made absolute;
        ``python``: the interpreter's version.
    """
    origin = None
    namespace: list[str] = []
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        overlay = getattr(finder, "rewriter_overlay", None)
        if overlay is not None:  # serves patched modules: the package is what lies beneath
            search = [entry for entry in search if os.path.abspath(entry) != overlay]
        if find is None or overlay is not None:
            continue
        # The finders that editable installs add hold a mapping and ignore the search path.
        on_path = finder is importlib.machinery.PathFinder
        spec = find(name, search if on_path else None)
        if spec is None:
            continue
        if spec.origin and spec.has_location:
            origin = os.path.abspath(spec.origin)
            break
        namespace += [os.path.abspath(place) for place in spec.submodule_search_locations or ()]
    return {
        "origin": origin,
        "namespace": namespace,
        "path": [os.path.abspath(entry) for entry in search],
        "python": ".".join(str(part) for part in sys.version_info[:3]),
    }


def without_working_directory(search: list[str]) -> list[str]:
    """Drop the working directory that ``python -m`` and ``python -c`` put in front.

    Run from beside a checkout it would hide the installed package, which is not what a
    console script, or a server started elsewhere, imports.
    """
    if not search or getattr(sys.flags, "safe_path", False):
        return search
    here = os.path.abspath(search[0]) == os.getcwd()
    return search[1:] if here else search


def main() -> None:
    """Print the answer as JSON, with this script's own folder off the search path."""
    own = os.path.dirname(os.path.abspath(__file__))
    search = list(sys.path)
    if search and os.path.abspath(search[0]) == own:
        search = search[1:]
    print("\n" + MARK + json.dumps(locate(sys.argv[1], search)))


if __name__ == "__main__":
    main()
