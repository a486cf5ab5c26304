"""Warm-ups and trials: what is sent, and what the replies come to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import fmean

from rewriter.probes.load.failures import LoadError
from rewriter.probes.load.reply import Reply
from rewriter.probes.load.statistics import Summary, percentile, summarise
from rewriter.probes.load.streams import Endpoint

Send = Callable[[Sequence[int], int], Reply]
"""Send a prompt (token ids), ask for so many tokens, return the reply."""

METRICS = {
    "e2e_ms_per_token": "ms a token end to end, prefill included",
    "tpot_ms": "ms a token after the first",
    "itl_p50_ms": "gap between chunks, median",
    "itl_p90_ms": "gap between chunks, 90 of 100 below",
    "itl_p99_ms": "gap between chunks, 99 of 100 below",
    "ttft_ms": "ms to the first token",
    "tokens_per_s": "tokens a second, all streams",
}
"""The quantities of a trial, in the order of the reports, and what they mean."""


@dataclass(frozen=True)
class Plan:
    """What a bench does at every context; the defaults are those of the field report.

    Attributes:
        contexts: prompt lengths in tokens, one point each.
        tokens: of a trial's reply.
        trials: at each context.
        warmups, warmup_tokens: replies before the trials of a context, and their length.
        concurrency: streams at a time, each with a prompt of its own.
        endpoint: ``native`` or ``openai``.
        check_lengths: prompt lengths of the replies whose tokens are kept for comparison.
        check_tokens: the length of those replies.
        logprobs: whether they carry log-probabilities.
    """

    contexts: tuple[int, ...] = (15,)
    tokens: int = 200
    trials: int = 3
    warmups: int = 3
    warmup_tokens: int = 20
    concurrency: int = 1
    endpoint: Endpoint = "native"
    check_lengths: tuple[int, ...] = (33, 257)
    check_tokens: int = 64
    logprobs: bool = False


@dataclass(frozen=True)
class Trial:
    """The replies of the streams of one trial."""

    replies: tuple[Reply, ...]

    def metric(self, name: str) -> float | None:
        """Return one of ``METRICS``: the mean over the streams, gaps pooled, or None."""
        if name == "tokens_per_s":
            return self.tokens_per_s
        if name.startswith("itl"):
            gaps = [gap for reply in self.replies for gap in reply.itl_ms]
            return percentile(gaps, int(name[5:7]) / 100) if gaps else None
        values = [getattr(reply, name) for reply in self.replies]
        return None if None in values else fmean(values)

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second from the first request to the last token, prefill included."""
        first = min(reply.started for reply in self.replies)
        last = max(reply.arrivals[-1] for reply in self.replies)
        return sum(reply.completion_tokens for reply in self.replies) / (last - first)


@dataclass(frozen=True)
class Point:
    """The trials at one context (prompt length in tokens)."""

    context: int
    trials: tuple[Trial, ...]

    def summary(self, name: str) -> Summary | None:
        """Return the statistics of a metric over the trials, or None where it has no value."""
        values = [value for t in self.trials if (value := t.metric(name)) is not None]
        return summarise(values) if values else None


@dataclass(frozen=True)
class Check:
    """A prompt's length and its reply, kept for the comparison of tokens."""

    context: int
    reply: Reply


def prompt_ids(length: int, stream: int = 0) -> tuple[int, ...]:
    """Return a prompt of token ids below 4,096; streams differ from the first token on."""
    return tuple(7 + (37 * at + 613 * stream) % 4000 for at in range(length))


def warm_up(send: Send, plan: Plan, context: int) -> None:
    """Send the warm-up requests of a context; raises LoadError."""
    for _ in range(plan.warmups):
        together(send, plan, context, plan.warmup_tokens)


def together(send: Send, plan: Plan, context: int, tokens: int) -> Trial:
    """Send all streams at once and return their replies.

    Raises:
        LoadError: the first that failed; it waits for the others, so that none runs on.
    """
    prompts = [prompt_ids(context, stream) for stream in range(plan.concurrency)]
    if plan.concurrency == 1:
        return Trial((send(prompts[0], tokens),))
    with ThreadPoolExecutor(plan.concurrency) as pool:
        running = [pool.submit(send, prompt, tokens) for prompt in prompts]
        failures = [error for r in running if (error := r.exception()) is not None]
    if failures:
        raise next((e for e in failures if isinstance(e, LoadError)), failures[0])
    return Trial(tuple(r.result() for r in running))


def faults(reply: Reply, asked: int) -> list[str]:
    """Say what is wrong with a complete reply: its end, its length, NaN."""
    found = []
    if reply.finish_reason != "length":
        found.append(f"finish_reason is {reply.finish_reason!r}, expected 'length'")
    if reply.completion_tokens != asked:
        found.append(f"{reply.completion_tokens} tokens came, {asked} were asked for")
    if reply.output_ids is not None and len(reply.output_ids) != reply.completion_tokens:
        found.append(
            f"{len(reply.output_ids)} token ids came with a count of {reply.completion_tokens}"
        )
    if reply.logprobs is not None and None in reply.logprobs:
        found.append(f"the log-probability of token {reply.logprobs.index(None)} is NaN")
    return found
