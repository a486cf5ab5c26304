"""Modes of torch under which a release's code runs here: on the host, counted, compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from typing_extensions import Self

FP8 = frozenset({torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz})
HALF = frozenset({torch.bfloat16, torch.float16})


_UNWRITTEN = frozenset(
    {torch.empty, torch.empty_like, torch.Tensor.new_empty, torch.Tensor.new_empty_strided}
)

_TO_HOST = frozenset({torch.Tensor.to, torch.Tensor.cpu})


class OnHost(TorchFunctionMode):
    """Send what asks for CUDA or pinned memory to plain host memory.

    A copy to the host is a copy: it does not follow what is written on the "device" later.
    Memory that nobody has written yet holds NaN, or the largest integer, so that reading it shows.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if str(given.get("device", "")).startswith("cuda"):
            given["device"] = "cpu"
        given.pop("pin_memory", None)
        result = func(*args, **given)
        if func in _TO_HOST and result is args[0] and ("cpu" in args or func is torch.Tensor.cpu):
            return result.clone()
        if func in _UNWRITTEN:
            if result.dtype in FP8:
                result.view(torch.uint8).fill_(0x7F)
            elif result.is_floating_point():
                result.fill_(float("nan"))
            elif result.dtype != torch.bool:
                result.fill_(torch.iinfo(result.dtype).max)
        return result


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode with types: sees every operator that runs while it is entered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()  # type: ignore[no-untyped-call]

    def __enter__(self) -> Self:
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)  # type: ignore[no-untyped-call]


_counting: list[Conversions] = []


class Conversions(Watch):
    """Count the elements that are converted from FP8 to 16-bit floats while this is entered.

    Attributes:
        elements: all of them.
        before_runs: how many of them there were before each attention kernel ran.
    """

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0
        self.before_runs: list[int] = []

    def __enter__(self) -> Self:
        _counting.append(self)
        return super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        _counting.remove(self)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._to_copy.default:
            source, target = args[0], result
        elif func is torch.ops.aten.copy_.default:
            source, target = args[1], args[0]
        else:
            return result
        if source.dtype in FP8 and target.dtype in HALF:
            self.elements += source.numel()
        return result


def attention_runs() -> None:
    """Tell whoever counts that an attention kernel runs now."""
    for counter in _counting:
        counter.before_runs.append(counter.elements)


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors hold the same values bit for bit, any NaN equal to any NaN."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    differs = (one != other) & ~(one.isnan() & other.isnan())
    signs = one.signbit() != other.signbit()
    return not bool((differs | (signs & ~one.isnan())).any())
