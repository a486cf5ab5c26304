"""Replies without a server or a clock: known delays, noise from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence

from rewriter.probes.load.identity import Server
from rewriter.probes.load.measure import Plan
from rewriter.probes.load.record import Record
from rewriter.probes.load.reply import Reply
from rewriter.probes.load.running import Driver, run

SERVER = Server(
    version="0.5.9",
    model="GLM-5",
    gpu="8 x RTX PRO 6000",
    pool=495_552,
    args={"attention_backend": "flashinfer", "kv_cache_dtype": "fp8_e4m3", "page_size": 64},
)


class Simulated:
    """A server whose gaps are ``gap`` ms, with a spread from token to token and trial to trial."""

    def __init__(
        self, gap: float, first: float = 100.0, seed: int = 0, token_sd: float = 0.5,
        trial_sd: float = 0.1, per_1k: float = 0.0, twist: int = 0,
    ) -> None:  # fmt: skip
        self.gap, self.first, self.per_1k, self.twist = gap, first, per_1k, twist
        self.token_sd, self.trial_sd = token_sd, trial_sd
        self.dice = random.Random(seed)
        self.now = 1000.0
        self.flushed = 0

    def send(self, prompt: Sequence[int], tokens: int) -> Reply:
        """Answer at the simulated pace."""
        started = self.now
        mean = self.gap + self.per_1k * len(prompt) / 1000 + self.dice.gauss(0, self.trial_sd)
        at, arrivals = started + self.first / 1e3, []
        for _ in range(tokens):
            arrivals.append(at)
            at += max(mean + self.dice.gauss(0, self.token_sd), 0.0) / 1e3
        self.now = at + 1.0
        ids = tuple((prompt[0] + n * n) % 997 + self.twist for n in range(tokens))
        return Reply(
            len(prompt), tokens, ids, (-0.5 - self.twist / 100,) * tokens, "", "length", 0,
            started, tuple(arrivals),
        )  # fmt: skip

    def flush(self) -> None:
        self.flushed += 1


def bench(simulated: Simulated, plan: Plan | None = None, server: Server = SERVER) -> Record:
    """Run a bench on it."""
    record = Record(server, plan or Plan(), "2026-01-01T00:00:00+00:00")
    return run(record, Driver(simulated.send, simulated.send, simulated.flush))
