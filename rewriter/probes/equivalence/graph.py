"""A stand-in for CUDA graphs: record what a forward launches, launch it again on the same memory.

What a real graph keeps is kept: the addresses of every tensor, the order of the launches, the
Python numbers that were baked in. What it does not keep is not: Python code does not run again.
So a stale address, a count taken from a call argument, or a row list that only the capture saw
shows in the replay as it would on a GPU. Reading a device value inside a capture is an error here
as there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

from rewriter.probes.equivalence.tensors import Watch

if TYPE_CHECKING:
    from typing_extensions import Self

_capturing: list[Graph] = []


class Graph(Watch):
    """Capture on ``with Graph() as graph:``, then ``graph.replay()``."""

    def __init__(self) -> None:
        super().__init__()
        self._launches: list[Callable[[], None]] = []
        self._opaque = False

    def __enter__(self) -> Self:
        _capturing.append(self)
        return super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        _capturing.remove(self)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if self._opaque:
            return func(*args, **given)
        if func is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("a device value is read on the host inside a graph capture")
        result = func(*args, **given)
        returned = func._schema.returns
        if any(r.alias_info is not None and r.alias_info.is_write for r in returned):
            self._launches.append(lambda: func(*args, **given))
        elif any(r.alias_info is None for r in returned) and "empty" not in str(func):
            outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
            self._launches.append(lambda: _again(func, args, given, outputs))
        return result

    def launch(self, kernel: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        """Run ``kernel`` as one launch: what it does inside is not recorded, only itself."""
        self._opaque = True
        try:
            kernel(*arguments)
        finally:
            self._opaque = False
        self._launches.append(lambda: kernel(*arguments))

    def replay(self) -> None:
        """Launch everything again, in order, on the tensors of the capture."""
        for launch in self._launches:
            launch()


def launch(kernel: Callable[..., None], *arguments: Any) -> None:
    """Run what stands for one GPU kernel; a capture that is under way records it as a whole."""
    if _capturing:
        _capturing[-1].launch(kernel, arguments)
    else:
        kernel(*arguments)


def _again(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any], outputs: list[torch.Tensor]
) -> None:
    results = [x for x in tree_leaves(func(*args, **kwargs)) if isinstance(x, torch.Tensor)]
    for output, result in zip(outputs, results, strict=True):
        output.copy_(result)
