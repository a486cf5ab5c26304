"""One streamed reply, as it arrived."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Reply:
    """What a server sent for one request, and when.

    Attributes:
        prompt_tokens: the server's count; None where it gave none.
        completion_tokens: the server's count, never the number of chunks.
        output_ids: the tokens, where the endpoint gives them (native, sglang 0.5 and later).
        logprobs: a log-probability a token, where asked for; None inside for NaN, which JSON
            cannot hold.
        text: the text; empty when the server runs without a tokenizer.
        finish_reason: ``length``, ``stop``, …; empty in a reply that broke off.
        cached_tokens: tokens of the prompt that came from the prefix cache, where told.
        started: ``perf_counter`` in seconds just before the request was sent.
        arrivals: ``perf_counter`` in seconds of each chunk that brought at least one token.
    """

    prompt_tokens: int | None
    completion_tokens: int
    output_ids: tuple[int, ...] | None
    logprobs: tuple[float | None, ...] | None
    text: str
    finish_reason: str
    cached_tokens: int | None
    started: float
    arrivals: tuple[float, ...]

    @property
    def latency_s(self) -> float:
        """Seconds from the request to its last token."""
        return self.arrivals[-1] - self.started

    @property
    def ttft_ms(self) -> float:
        """Milliseconds from the request to its first token."""
        return 1e3 * (self.arrivals[0] - self.started)

    @property
    def tpot_ms(self) -> float | None:
        """Milliseconds a token after the first: ``(latency - ttft) / (n - 1)``.

        The definition of sglang's ``bench_serving`` and of aiperf; None below two tokens.
        """
        if self.completion_tokens < 2:
            return None
        return 1e3 * (self.arrivals[-1] - self.arrivals[0]) / (self.completion_tokens - 1)

    @property
    def e2e_ms_per_token(self) -> float:
        """Milliseconds a token end to end, prefill included: ``latency / n``."""
        return 1e3 * self.latency_s / self.completion_tokens

    @property
    def itl_ms(self) -> tuple[float, ...]:
        """Gaps between chunks in milliseconds; a chunk may hold several tokens."""
        return tuple(1e3 * (later - earlier) for earlier, later in pairwise(self.arrivals))
