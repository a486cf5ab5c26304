"""Generated sources: what a codemod makes of one, proved by running it before and after."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Mapping
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from rewriter import catalog, engine
from rewriter.model import State


class Played(NamedTuple):
    """What happened as a source ran.

    Attributes:
        log: what was handed on, in order.
        whole: how often a whole pool was converted.
    """

    log: list[Any]
    whole: int


class Shape(NamedTuple):
    """The sources of one codemod.

    Attributes:
        codemod: its name.
        path: the file that the sources stand for.
        choices: spellings by what is spelled; the first of each is the plain one.
        build: makes a source of a choice.
        play: runs a source, with the companion if it is patched.
        refused: the spellings of a part that are refused where all else is plain.
    """

    codemod: str
    path: str
    choices: dict[str, tuple[str, ...]]
    build: Callable[[Mapping[str, str]], str]
    play: Callable[[str, ModuleType | None], Played]
    refused: Callable[[str], frozenset[str]]

    @property
    def plain(self) -> dict[str, str]:
        """The choice of the plain spelling everywhere."""
        return {part: spellings[0] for part, spellings in self.choices.items()}


class Outcome(NamedTuple):
    """What came of one source: rewritten, upstream or refused; and why."""

    word: str
    reason: str = ""


@cache
def _companion(codemod: str) -> ModuleType:
    from rewriter.probes.equivalence.loading import load_companion

    (companion,) = catalog.load(codemod).companions
    return load_companion(catalog.companion_bytes(companion))


def outcome(shape: Shape, choice: Mapping[str, str]) -> Outcome:
    """Examine a source, and prove what is said of it by running it.

    Raises:
        AssertionError: what is said is not true: a silent miss, or a wrong rewrite.
    """
    source = shape.build(choice)
    before = shape.play(source, None)
    codemod = catalog.load(shape.codemod)
    found = engine.examine(codemod, shape.path, source.encode())
    told = f"{dict(choice)}: {found.state}: {found.reason}"
    if found.state is State.UPSTREAM:
        assert before.whole == 0, f"silent miss, {told}"
        return Outcome("upstream", found.reason)
    if found.state is not State.READY:
        assert found.state in (State.DRIFTED, State.PARTIAL, State.TAMPERED), told
        assert found.reason, told
        assert found.patched is None, told
        return Outcome("refused", found.reason)
    patched = engine.apply(codemod, shape.path, source.encode())
    after = shape.play(patched.decode(), _companion(shape.codemod))
    assert after.log == before.log, f"handed on something else, {told}"
    assert after.whole == 0, f"silent miss: the whole pool is still converted, {told}"
    assert before.whole > 0, f"rewritten where nothing was converted, {told}"
    return Outcome("rewritten")


# --- what sources are put together from, and run with ---


def indented(text: str, by: int) -> str:
    """Return a text with every line that is not empty indented."""
    return "\n".join(" " * by + line if line else "" for line in text.split("\n"))


def renamed(text: str, names: Mapping[str, str]) -> str:
    """Return a text with other names for locals; keywords, attributes and strings stay."""
    for old, new in names.items():
        text = re.sub(rf"(?<![\w.']){old}(?!\w|=(?!=))", new, text)
    return text


def executed(source: str, path: str, **given: Any) -> dict[str, Any]:
    """Run a module's text and return its names; what it imports from elsewhere is given."""

    def importer(name: str, *arguments: Any) -> Any:
        if name.partition(".")[0] not in ("sglang", "kernels"):
            return builtins.__import__(name, *arguments)
        return SimpleNamespace(**given)

    namespace: dict[str, Any] = {
        "__name__": "module", "__builtins__": {**vars(builtins), "__import__": importer},
    }  # fmt: skip
    exec(compile(source, path, "exec", dont_inherit=True), namespace)
    return namespace


def bits(tensor: torch.Tensor, at: torch.Tensor | None = None) -> list[Any]:
    """Return a tensor's bytes, or those of some of its rows, as numbers."""
    found = tensor.contiguous().view(torch.uint8)
    return (found if at is None else found[at]).tolist()  # type: ignore[no-any-return]


class Conversions(TorchDispatchMode):
    """Writes down every conversion of elements of the pool: how many at once."""

    def __init__(self, pool: list[torch.Tensor]) -> None:
        super().__init__()
        self.storages = {buffer.untyped_storage().data_ptr() for buffer in pool}
        self.sizes: list[int] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        source = args[1] if name == "copy_" else args[0] if args else None
        if name in ("_to_copy", "copy_") and isinstance(source, torch.Tensor):
            mine = source.untyped_storage().data_ptr() in self.storages
            if mine and out.dtype != source.dtype:
                self.sizes.append(source.numel())
        return out
