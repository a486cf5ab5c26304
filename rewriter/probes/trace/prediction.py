"""The step without the cast: max(host time, step - cast + what stays)."""

from __future__ import annotations

from dataclasses import dataclass

GATHER_BYTES = 5
"""Bytes a value when rows are gathered and then cast by two kernels: FP8 read and written by the
first, read by the second, BF16 written."""

CAST_BYTES = 3
"""Bytes a value of the cast: one of FP8 read, two of BF16 written."""

CAST_RATE = 0.34e12
"""Elements a second of torch's casting copy (H200 0.338, RTX PRO 6000 0.345)."""


@dataclass(frozen=True)
class Prediction:
    """A step's time with the cast gone; milliseconds.

    Attributes:
        step_ms: the step as it is.
        measured: whether ``step_ms`` was measured without the profiler (``--tpot``).
        gpu_ms: GPU time of the step.
        cast_ms: the cast's part.
        stays_ms: what a cure puts in its place (gather and cast of the batch's rows).
        host_ms: the host's part as the trace shows it, or None.
        host_counts: whether that is taken as a floor; with Python stacks recorded it is not.
        batch: requests that get a token in a step.
    """

    step_ms: float
    measured: bool
    gpu_ms: float
    cast_ms: float
    stays_ms: float
    host_ms: float | None
    host_counts: bool
    batch: int

    @property
    def gpu_left_ms(self) -> float:
        """GPU time without the cast."""
        return max(self.gpu_ms - self.cast_ms, 0.0)

    @property
    def amdahl(self) -> float:
        """1 / (1 - share): the bound for the whole of the GPU time, not for a portion of it."""
        return self.gpu_ms / self.gpu_left_ms if self.gpu_left_ms else float("inf")

    @property
    def gpu_bound_ms(self) -> float:
        """The step if the GPU sets the pace."""
        return max(self.step_ms - self.cast_ms + self.stays_ms, 0.0)

    @property
    def floor_ms(self) -> float:
        """The host's time as far as it counts: never more than the step that was measured."""
        if self.host_ms is None or not self.host_counts:
            return 0.0
        return min(self.host_ms, self.step_ms)

    @property
    def new_ms(self) -> float:
        """max(host time, step - cast + what stays)."""
        return max(self.floor_ms, self.gpu_bound_ms)

    @property
    def host_bound(self) -> bool:
        """Whether the host would set the pace."""
        return self.floor_ms > self.gpu_bound_ms

    @property
    def saved_ms(self) -> float:
        return self.step_ms - self.new_ms

    @property
    def speedup(self) -> float:
        """The step over the new step."""
        return self.step_ms / self.new_ms if self.new_ms else float("inf")

    @property
    def tokens_before(self) -> float:
        """Tokens a second, all requests of the batch."""
        return 1000.0 * self.batch / self.step_ms

    @property
    def tokens_after(self) -> float:
        return 1000.0 * self.batch / self.new_ms if self.new_ms else float("inf")


def gather_ms(layers: int, rows: int, width: int, bandwidth: float) -> float:
    """Return milliseconds a step for a gather and cast of the batch's rows, at full bandwidth.

    Args:
        layers: attention layers.
        rows: rows that the batch reads.
        width: values of a row.
        bandwidth: GB/s.
    """
    return layers * rows * width * GATHER_BYTES / bandwidth / 1e6


def cast_ms(layers: int, rows: int, width: int, rate: float = CAST_RATE) -> float:
    """Return milliseconds a step for the cast of so many rows, at a rate in elements a second."""
    return layers * rows * width / rate * 1e3
