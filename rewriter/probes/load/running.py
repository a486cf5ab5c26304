"""One bench from the first warm-up to the last check, kept state by state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rewriter.probes.load.failures import LoadError
from rewriter.probes.load.measure import (
    Check,
    Send,
    Trial,
    faults,
    prompt_ids,
    together,
    warm_up,
)
from rewriter.probes.load.record import Record, relative
from rewriter.probes.load.reply import Reply


@dataclass(frozen=True)
class Driver:
    """How a bench reaches its server and its reader.

    Attributes:
        send: a request of a trial.
        send_check: a request whose tokens are kept.
        flush: empties the prefix cache; called before every trial and check.
        keep: takes each new state of the record.
        tell: takes a line of progress.
    """

    send: Send
    send_check: Send
    flush: Callable[[], None]
    keep: Callable[[Record], None] = lambda record: None
    tell: Callable[[str], None] = lambda line: None


def run(record: Record, driver: Driver) -> Record:
    """Measure what the record's plan says; return it, complete or with its ``failure``.

    A LoadError ends the bench and is not raised: what was measured before it stays.
    """
    kept = record

    def keep(state: Record) -> None:
        nonlocal kept
        kept = state
        driver.keep(state)

    try:
        _measure(record, driver, keep)
    except LoadError as error:
        left = (relative(error.reply),) if error.reply is not None else ()
        kept = replace(kept, failure=str(error), partial=left)
    else:
        kept = replace(kept, complete=True)
    kept = replace(kept, notes=(*kept.notes, *observations(kept)))
    driver.keep(kept)
    return kept


def _measure(record: Record, driver: Driver, keep: Callable[[Record], None]) -> None:
    """Measure at every context, then ask for the tokens that are compared."""
    plan = record.plan
    for context in plan.contexts:
        where = f"prompt of {context:,}"
        driver.tell(f"{where}: {plan.warmups} warm-ups of {plan.warmup_tokens} tokens")
        warm_up(driver.send, plan, context)
        for number in range(1, plan.trials + 1):
            driver.flush()
            trial = together(driver.send, plan, context, plan.tokens)
            record = record.with_trial(context, trial)
            keep(record)
            ms = trial.metric("tpot_ms") or trial.metric("e2e_ms_per_token")
            driver.tell(f"{where}: trial {number} of {plan.trials}: {ms:.2f} ms a token")
    for length in plan.check_lengths:
        driver.tell(f"tokens after a prompt of {length:,}")
        driver.flush()
        reply = driver.send_check(prompt_ids(length), plan.check_tokens)
        record = replace(record, checks=(*record.checks, Check(length, relative(reply))))
        keep(record)


def wrong(record: Record) -> list[str]:
    """Say what is wrong with the replies; empty if all is well."""
    asked: list[tuple[str, Reply, int]] = [
        (f"prompt of {point.context:,}, trial {number}", reply, record.plan.tokens)
        for point in record.points
        for number, trial in enumerate(point.trials, 1)
        for reply in trial.replies
    ]
    asked += [
        (f"check after a prompt of {check.context:,}", check.reply, record.plan.check_tokens)
        for check in record.checks
    ]
    return [f"{where}: {fault}" for where, reply, n in asked for fault in faults(reply, n)]


def observations(record: Record) -> list[str]:
    """Return what a reader of the numbers has to know."""
    replies = [r for point in record.points for trial in point.trials for r in trial.replies]
    found = []
    if cached := max((reply.cached_tokens or 0 for reply in replies), default=0):
        found.append(
            f"up to {cached:,} tokens of a prompt came from the prefix cache: "
            "TTFT and the end-to-end figure are too good"
        )
    told = {
        (p.context, r.prompt_tokens) for p in record.points for t in p.trials for r in t.replies
    }
    found += [
        f"the server counts {counted:,} tokens in a prompt of {context:,}"
        for context, counted in sorted((c, n) for c, n in told if n not in (None, c) and n)
    ]
    if any(len(reply.arrivals) < reply.completion_tokens for reply in replies):
        found.append("some chunks held several tokens: the gaps are gaps between chunks")
    if not _steady(record):
        found.append(
            "the trials' greedy tokens differ from each other: the server is not deterministic"
        )
    ids = [reply.output_ids for reply in replies if reply.output_ids]
    if ids and max(len(set(each)) for each in ids) <= 2:
        found.append("at most two distinct tokens came: equal tokens prove little (dummy weights?)")
    return found


def _steady(record: Record) -> bool:
    """Whether the trials of each context gave the same tokens."""
    return all(_alike([_tokens(trial) for trial in point.trials]) for point in record.points)


def _tokens(trial: Trial) -> tuple[object, ...]:
    return tuple(reply.output_ids or reply.text for reply in trial.replies)


def _alike(values: Sequence[object]) -> bool:
    return all(value == values[0] for value in values)
