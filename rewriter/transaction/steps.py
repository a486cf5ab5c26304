"""The one seam: whatever a run does to a target is a named step, carried out by ``perform``.

So a test can list the steps of a run, and stop, starve or kill it at each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple


class Step(NamedTuple):
    """One thing that is done to one place.

    Attributes:
        name: one of ``NAMES``.
        place: the file or directory, for messages.
        act: does it.
    """

    name: str
    place: str
    act: Callable[[], object]


NAMES = (
    "lock",
    "make directory",
    "create",
    "write",
    "keep attributes",
    "sync",
    "sync directory",
    "sync all",
    "close",
    "back up",
    "compare",
    "rename",
    "unlink",
    "drop byte code",
    "compile",
    "wait",
    "verify",
    "remove directory",
)
"""Every kind of step there is."""

Observer = Callable[[Step], None]
"""Told of each step before it is carried out; what it raises happens instead of the step."""

_observers: list[Observer] = []


class StepFailed(Exception):
    """The operating system refused a step."""

    def __init__(self, step: Step, error: OSError) -> None:
        reason = error.strerror or str(error)
        super().__init__(f"{step.place}: {step.name}: {reason}")
        self.step = step
        self.error = error


def perform(step: Step) -> None:
    """Carry out one step.

    Raises:
        StepFailed: the operating system refused it.
    """
    try:
        for observer in _observers:
            observer(step)
        step.act()
    except OSError as error:
        raise StepFailed(step, error) from error


@contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Tell ``observer`` of every step while the context lasts."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)
