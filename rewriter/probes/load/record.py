"""What a bench measured, as it stands in a file: raw arrival times, never only their means."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from rewriter import __version__
from rewriter.errors import UsageError
from rewriter.probes.load.identity import Server
from rewriter.probes.load.measure import Check, Plan, Point, Trial
from rewriter.probes.load.reply import Reply

SCHEMA = 1


@dataclass(frozen=True)
class Record:
    """A bench, whole or broken off.

    Attributes:
        server, plan: what was measured, and how.
        when: start, ISO 8601 in UTC.
        points: a context each; the last may lack trials if the bench broke off.
        checks: replies kept for the comparison of tokens.
        partial: the replies that broke off, as far as they came.
        notes: what a reader of the numbers has to know.
        failure: why it broke off; empty if it did not.
        complete: whether everything planned was measured.
    """

    server: Server
    plan: Plan
    when: str
    points: tuple[Point, ...] = ()
    checks: tuple[Check, ...] = ()
    partial: tuple[Reply, ...] = ()
    notes: tuple[str, ...] = ()
    failure: str = ""
    complete: bool = False
    schema: int = SCHEMA
    tool: str = field(default=f"rewriter {__version__}")

    def with_trial(self, context: int, trial: Trial) -> Record:
        """Return the record with one more trial at a context."""
        start = min(reply.started for reply in trial.replies)
        kept = Trial(tuple(relative(reply, start) for reply in trial.replies))
        *before, last = self.points or (Point(context, ()),)
        if last.context != context:
            before, last = [*before, last], Point(context, ())
        return replace(self, points=(*before, Point(context, (*last.trials, kept))))

    def point(self, context: int) -> Point | None:
        """Return the trials at a context."""
        return next((p for p in self.points if p.context == context), None)

    @property
    def trials_missing(self) -> int:
        """Trials that were planned and not measured."""
        done = sum(len(point.trials) for point in self.points)
        return len(self.plan.contexts) * self.plan.trials - done


def relative(reply: Reply, start: float | None = None) -> Reply:
    """Return a reply whose times count from ``start``, by default its own; seconds.

    ``perf_counter`` means nothing in another process.
    """
    zero = reply.started if start is None else start
    arrivals = tuple(round(at - zero, 7) for at in reply.arrivals)
    return replace(reply, started=round(reply.started - zero, 7), arrivals=arrivals)


def save(record: Record, path: Path) -> None:
    """Write a record so that a reader sees the old one or the new one, never half.

    Raises:
        UsageError: it cannot be written there.
    """
    import msgspec

    raw = msgspec.json.format(msgspec.json.encode(asdict(record)), indent=1)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(raw + b"\n")
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error


def saver(path: Path | None) -> Callable[[Record], None]:
    """Return a function that writes each state of a record, if there is where."""
    return (lambda record: None) if path is None else (lambda record: save(record, path))


def load(path: Path) -> Record:
    """Read a record.

    Raises:
        UsageError: there is none, or it is not what ``bench --save`` writes.
    """
    import msgspec

    try:
        record = msgspec.json.decode(path.read_bytes(), type=Record)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise UsageError(f"{path}: not a file of `bench --save`: {error}") from error
    if record.schema != SCHEMA:
        raise UsageError(f"{path}: schema {record.schema}, expected {SCHEMA}; measure it again")
    return record
