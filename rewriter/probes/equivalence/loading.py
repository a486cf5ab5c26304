"""Make a module of a release's file, with neither sglang nor FlashInfer installed.

The source runs in a namespace of its own whose ``__import__`` hands out stand-ins; ``sys.modules``
is not touched. So an original and a patched copy live side by side, each with its own companion.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import linecache
import os
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import torch

from rewriter.probes.equivalence.externals import placeholder
from rewriter.probes.equivalence.graph import launch

COMPANION = "_rewriter_kv_gather"

_REAL = (sys.stdlib_module_names | {"torch", "numpy", "typing_extensions"}) - {"os"}
"""What is imported as it is; all else of a target's imports is a stand-in."""

_serial = itertools.count()


class _Room(ModuleType):
    """A stand-in for any module: it has every name, known or placeholder."""

    def __init__(self, name: str, known: Mapping[str, Any]) -> None:
        super().__init__(name)
        self._known = known

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in self._known:
            setattr(self, name, placeholder(name))
            return vars(self)[name]
        return self._known[name]


def load_target(
    source: bytes, stand_ins: Mapping[str, Any], companion: ModuleType | None
) -> ModuleType:
    """Run the backend's file and return its module.

    Args:
        source: the file, original or patched.
        stand_ins: what its imports get, by name.
        companion: what a patched file imports as ``_rewriter_kv_gather``; None for an original.
    """
    known = dict(stand_ins)
    if companion is not None:
        known[COMPANION] = companion

    def import_(
        name: str,
        globals_: Any = None,
        locals_: Any = None,
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> Any:
        if level == 0 and name.partition(".")[0] in _REAL:
            return builtins.__import__(name, globals_, locals_, fromlist or (), level)
        return _Room(name, {**vars(os), **known} if name == "os" else known)

    return _run(source, "attention_backend", import_)


def load_companion(source: bytes, *, switch: str = "on", triton: bool = False) -> ModuleType:
    """Run the companion's file and return its module.

    Args:
        source: the file.
        switch: the value of ``SGLANG_KV_GATHER`` that it finds.
        triton: whether it may import Triton where that is installed.
    """

    def import_(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == "triton" and not triton:
            raise ImportError("Triton is left out here")
        if name == "os":
            return _Room("os", {"environ": {"SGLANG_KV_GATHER": switch}})
        return builtins.__import__(name, *rest)

    return _run(source, COMPANION, import_)


def on_a_gpu(companion: ModuleType) -> None:
    """Make a loaded companion take the paths of a GPU with Triton.

    Its conversion becomes one launch, which a capture records as a whole: the pure-torch form of
    the same work, or the Triton kernel in Triton's interpreter where the module has it.
    """
    kernel = companion._convert_fused if companion.triton is not None else companion._convert_torch
    pages = (
        companion._convert_pages_fused if companion.triton is not None
        else companion._convert_pages_torch
    )  # fmt: skip

    def into_used_memory(pool: torch.Tensor, *others: Any) -> None:
        others[2].fill_(float("nan"))  # a replay finds there what others left
        pages(pool, *others)

    companion._fused = lambda tensor: True  # type: ignore[attr-defined]
    companion._capturing = lambda: True  # type: ignore[attr-defined]
    companion._convert_fused = lambda *arguments: launch(kernel, *arguments)  # type: ignore[attr-defined]
    companion._convert_pages_fused = lambda *arguments: launch(into_used_memory, *arguments)  # type: ignore[attr-defined]
    companion.narrow = lambda *keys: tuple(k.to(torch.float8_e4m3fn) for k in keys)  # type: ignore[attr-defined]


def _run(source: bytes, name: str, import_: Any) -> ModuleType:
    module = ModuleType(f"{name}#{next(_serial)}")
    path = f"<{module.__name__}>"
    text = source.decode("utf-8-sig")
    # Tracebacks show the lines, and Triton finds the source of its kernels.
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    module.__file__ = path
    vars(module)["__builtins__"] = {**vars(builtins), "__import__": import_}
    code = compile(ast.parse(text, path), path, "exec", dont_inherit=True)
    sys.modules[module.__name__] = module  # dataclasses look their module up while they are made
    try:
        exec(code, vars(module))
    finally:
        del sys.modules[module.__name__]
    return module
