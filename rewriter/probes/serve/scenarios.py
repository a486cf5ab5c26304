"""What a server is asked, so that an unpatched and a patched one can be compared token by token.

Each scenario is deterministic on one server: what runs together is sent together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean

from rewriter.probes.load.client import LoadError, flush_cache, generate
from rewriter.probes.load.connection import exchange, read_whole

Tokens = tuple[tuple[int, ...], ...]
"""Output ids, request by request."""


@dataclass(frozen=True)
class Timing:
    """One stream's times in milliseconds, the mean of the trials.

    ``tpot_ms`` leaves out the first token, as serving tools define it; ``e2e_ms`` divides the
    whole latency by the tokens, as the field report does.
    """

    prompt: int
    tokens: int
    tpot_ms: float
    tpot_trials: tuple[float, ...]
    e2e_ms: float


def prompt(length: int, seed: int = 0, vocabulary: int = 4000) -> list[int]:
    """Return a fixed prompt of token ids, none of them special."""
    return [3 + (seed * 104729 + i * 7919) % (vocabulary - 3) for i in range(length)]


def together(url: str, requests: Sequence[tuple[Sequence[int], int]]) -> Tokens:
    """Send prompts in one call, so that they are scheduled together; return their tokens.

    Args:
        requests: prompt and number of tokens, request by request.

    Raises:
        LoadError: the server failed, or gave fewer tokens than asked.
    """
    body: dict[str, object] = {
        "input_ids": [list(ids) for ids, _ in requests],
        "sampling_params": [
            {"temperature": 0, "max_new_tokens": count, "ignore_eos": True} for _, count in requests
        ],
    }
    where = f"POST {url}/generate"
    with exchange(url, "POST", "/generate", body, timeout_s=180.0) as (response, _):
        answers = json.loads(read_whole(response, where, 180.0))
    found = tuple(tuple(answer["output_ids"]) for answer in answers)
    for ids, (_, count) in zip(found, requests, strict=True):
        if len(ids) != count:
            raise LoadError("garbage", f"{where}: {len(ids)} tokens, asked for {count}")
    return found


def one_stream(url: str) -> Tokens:
    """A short prompt, 120 tokens."""
    return together(url, [(prompt(15), 120)])


def interleaved(url: str) -> Tokens:
    """Eight requests of different lengths that run together and end one by one."""
    lengths = (7, 64, 333, 15, 900, 128, 2, 511)
    return together(url, [(prompt(n, seed), 24 + 8 * seed) for seed, n in enumerate(lengths)])


def prefix_reuse(url: str) -> Tokens:
    """A prompt, then three that begin with it and find its rows in the pool, all at once."""
    shared = prompt(700, 11)
    first = together(url, [(shared, 8)])
    more = [(shared + prompt(40 + 60 * k, 20 + k), 32) for k in range(3)]
    return first + together(url, more)


def chunked_prefill(url: str) -> Tokens:
    """A prompt of several chunks, then one that continues it by several more."""
    long = prompt(3000, 31)
    return together(url, [(long, 16)]) + together(url, [(long + prompt(2100, 32), 32)])


SCENARIOS: dict[str, Callable[[str], Tokens]] = {
    "one stream": one_stream,
    "interleaved": interleaved,
    "prefix reuse": prefix_reuse,
    "chunked prefill": chunked_prefill,
}


def run_all(url: str) -> dict[str, Tokens]:
    """Run every scenario on an empty prefix cache."""
    found: dict[str, Tokens] = {}
    for name, scenario in SCENARIOS.items():
        flush_cache(url)
        found[name] = scenario(url)
    return found


def time_stream(url: str, length: int, tokens: int, *, trials: int = 3, warmups: int = 2) -> Timing:
    """Time one stream after warm-ups; the cache holds the prompt, so prefill is short."""
    ids = prompt(length)
    for _ in range(warmups):
        generate(url, ids, 20)
    replies = [generate(url, ids, tokens) for _ in range(trials)]
    tpots = tuple(reply.tpot_ms for reply in replies if reply.tpot_ms is not None)
    return Timing(
        length, tokens, mean(tpots), tpots, mean(reply.e2e_ms_per_token for reply in replies)
    )
