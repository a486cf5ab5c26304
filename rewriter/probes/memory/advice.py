"""Which ways out to take: those that can be done, that meet the needs and that none dominates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from rewriter.errors import UsageError
from rewriter.probes.memory.deployment import Deployment
from rewriter.probes.memory.ways import Kind, Way, ways
from rewriter.probes.trace.pool import GB, GIB


@dataclass(frozen=True)
class Needs:
    """What a server must do; None where nothing is asked.

    Attributes:
        tokens: of the pool on each GPU.
        ms: a token.
    """

    tokens: int | None = None
    ms: float | None = None


class Fate(Enum):
    """What becomes of a way."""

    ADVISED = "advised"
    SHORT = "short of the needs"
    DOMINATED = "dominated"
    IMPOSSIBLE = "not possible"


@dataclass(frozen=True)
class Option:
    """A way, weighed.

    Attributes:
        way: what to do.
        ms: ms a token, at least; None where the step is not known.
        fate: what becomes of it.
        why: in words; empty for an advised one.
    """

    way: Way
    ms: float | None
    fate: Fate
    why: str = ""


@dataclass(frozen=True)
class Advice:
    """The answer.

    Attributes:
        at: the server as it is.
        needs: what was asked.
        options: the advised ones first, the best first.
        healthy: why nothing need be done; empty if something must.
        met: whether the server as it is meets the needs.
    """

    at: Deployment
    needs: Needs
    options: tuple[Option, ...]
    healthy: str
    met: bool

    @property
    def advised(self) -> list[Option]:
        """The ways to take, the best first."""
        return [option for option in self.options if option.fate is Fate.ADVISED]

    @property
    def idle(self) -> bool:
        """Whether nothing need be done."""
        return bool(self.healthy) and self.met

    @property
    def answered(self) -> bool:
        """Whether there is something to do, or nothing need be done."""
        return self.idle or bool(self.advised)


def advise(at: Deployment, needs: Needs) -> Advice:
    """Weigh every way out.

    Raises:
        UsageError: ms are asked for and the step's time is not known, or no token fits.
    """
    if needs.ms is not None and at.step_ms is None:
        raise UsageError("--need-ms: give the step as it is too, --step-ms (ms a token, measured)")
    if at.tokens <= 0:
        raise UsageError(
            "no token fits beside the weights; check --weights, --gpu-memory and --mem-fraction"
        )
    wanted = needs.tokens if needs.tokens is not None else at.batch * at.context or None
    needs = Needs(wanted, needs.ms)
    found = ways(at, _pools_for(at, needs))
    rivals = [*(way for way in found if not _unable(way)), as_it_is(at)]
    options = [_weigh(at, way, needs, rivals) for way in found]
    options.sort(key=lambda option: _rank(option, needs))
    return Advice(at, needs, tuple(options), _healthy(at), _met(at, needs))


def as_it_is(at: Deployment) -> Way:
    """Return the way of doing nothing."""
    return Way(Kind.POOL, "as it is", at.tokens, at.cell, at.cast_ms, True, "", "")


def ms_of(at: Deployment, way: Way) -> float | None:
    """Return ms a token: ``max(host, step - cast + what the way adds)``, if the step is known."""
    return None if at.rest_ms is None else max(at.host_ms, at.rest_ms + way.added_ms)


def dominates(at: Deployment, one: Way, other: Way) -> bool:
    """Whether one way is at least as good in tokens and time, and better in one of them.

    Only a time that is certain rules anything out; another's is taken at its least.
    """
    if not one.certain:
        return False
    ours, theirs = _cost(at, one), _cost(at, other)
    as_good = one.tokens >= other.tokens and ours <= theirs
    return as_good and (one.tokens > other.tokens or ours < theirs)


def _cost(at: Deployment, way: Way) -> float:
    ms = ms_of(at, way)
    return way.added_ms if ms is None else ms


def _pools_for(at: Deployment, needs: Needs) -> tuple[int, ...]:
    """Return the pools that just meet the needs."""
    found = []
    if needs.tokens:
        found.append(-(-needs.tokens // at.page) * at.page)
    if needs.ms is not None and at.rest_ms is not None and at.cast_ms:
        found.append(int(at.tokens * (needs.ms - at.rest_ms) / at.cast_ms))
    return tuple(found)


def _unable(way: Way) -> bool:
    return bool(way.obstacle) or way.tokens <= 0


def _weigh(at: Deployment, way: Way, needs: Needs, rivals: Sequence[Way]) -> Option:
    ms = ms_of(at, way)
    if _unable(way):
        return Option(way, ms, Fate.IMPOSSIBLE, way.obstacle or "no token fits")
    rival = next((each for each in rivals if each is not way and dominates(at, each, way)), None)
    if rival is not None:
        return Option(way, ms, Fate.DOMINATED, _by(at, rival))
    if way.kind is Kind.SHADOW:
        return Option(way, ms, Fate.DOMINATED, way.source)
    short = _short(at, way, ms, needs)
    return Option(way, ms, Fate.SHORT if short else Fate.ADVISED, short)


def _by(at: Deployment, rival: Way) -> str:
    ms = ms_of(at, rival)
    time = f"{rival.added_ms:.1f} ms added" if ms is None else f"{ms:.1f} ms"
    return f"{rival.action} gives {rival.tokens:,} tokens at {time}"


def _short(at: Deployment, way: Way, ms: float | None, needs: Needs) -> str:
    found = []
    if needs.tokens is not None and way.tokens < needs.tokens:
        wanted, there = needs.tokens * way.cell, at.memory
        found.append(
            f"{needs.tokens - way.tokens:,} tokens short of {needs.tokens:,}, which take "
            f"{wanted / GB:.2f} GB ({wanted / GIB:.2f} GiB) of the {there / GB:.2f} GB "
            f"({there / GIB:.2f} GiB) there are"
        )
    if needs.ms is not None and ms is not None and ms > needs.ms:
        found.append(f"{ms - needs.ms:.1f} ms over {needs.ms:g}")
    return ", ".join(found)


def _rank(option: Option, needs: Needs) -> tuple[float, ...]:
    """Order: the advised first; by ms if tokens are needed, by tokens if ms are, else by kind."""
    way = option.way
    fate = list(Fate).index(option.fate)
    order, tokens, cost = way.kind.order, -way.tokens, round(way.added_ms, 6)
    if needs.tokens is not None:
        return fate, cost, order, tokens
    if needs.ms is not None:
        return fate, tokens, cost, order
    return fate, order, tokens, cost


def _met(at: Deployment, needs: Needs) -> bool:
    enough = needs.tokens is None or at.tokens >= needs.tokens
    return enough and (needs.ms is None or at.step_ms is None or at.step_ms <= needs.ms)


def _healthy(at: Deployment) -> str:
    """Say why nothing is converted; empty if the pool is."""
    if at.casts:
        return ""
    if at.kv == "bf16":
        return "a BF16 pool is never converted"
    limits = f"; {at.backend.limits}" if at.backend.limits else ""
    return (
        f"the {at.backend.name} backend of sglang {at.release} reads FP8 itself "
        f"({at.backend.source}{limits})"
    )
