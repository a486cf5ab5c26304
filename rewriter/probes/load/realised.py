"""A gain against its prediction: what share came, and what a shortfall would need."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from rewriter.errors import UsageError
from rewriter.probes.load.compare import Comparison
from rewriter.probes.load.identity import Server
from rewriter.probes.load.statistics import Interval, Summary, difference
from rewriter.probes.models import Model
from rewriter.probes.trace.prediction import CAST_RATE, cast_ms

CASTING_BACKENDS = ("flashinfer", "fa3")
"""Decode backends that convert the whole FP8 pool, in 0.4.6.post5 (fa3: 0.4.8.post1) to 0.5.23."""

SHORTFALL = 0.9
"""A realised share below this, with its whole interval, is worth an explanation."""

_GATHER_RATES = (1.5e12, 0.9e12)
"""Bytes a second of gathering FP8 rows into a new tensor, two bytes a value."""


@dataclass(frozen=True)
class Prediction:
    """What a cure was to bring.

    Attributes:
        saved_ms: ms a token that were to go.
        source: who says so.
        model: the model, where known; for the explanation of a shortfall.
    """

    saved_ms: float
    source: str
    model: Model | None = None


@dataclass(frozen=True)
class Realised:
    """The gain that came, over the gain predicted.

    Attributes:
        before, after: TPOT in ms over the trials.
        saved: ms a token with the 95 % interval.
    """

    before: Summary
    after: Summary
    prediction: Prediction

    @property
    def saved(self) -> Interval:
        return difference(self.before, self.after)

    @property
    def share(self) -> Interval:
        """Saved over predicted; 1 is all of it."""
        return self.saved.scaled(1 / self.prediction.saved_ms)

    @property
    def missing_ms(self) -> float:
        """ms a token of the prediction that did not come."""
        return self.prediction.saved_ms - self.saved.value

    @property
    def short(self) -> bool:
        """Whether clearly less came than was predicted."""
        high = self.share.high
        return (self.share.value if high is None else high) < SHORTFALL

    def hypotheses(self) -> list[str]:
        """Say what would explain a shortfall, with its number, and how to tell."""
        if not self.short:
            return []
        found = []
        model = self.prediction.model
        if model is not None:
            found.append(_rows_hypothesis(model, self.missing_ms))
        found.append(
            f"the host sets the pace: {self.after.mean:.1f} ms of its work a step. "
            "A trace shows the GPU idle for more than half of the step"
        )
        found.append("`rewriter diagnose` on a trace of the server as it is now separates them")
        return found


def _rows_hypothesis(model: Model, missing_ms: float) -> str:
    """Rows that, gathered and cast in every layer, take the missing time.

    ``rows = missing / (L W (1 / cast rate + 2 B / gather bandwidth))``.
    """
    values = model.layers * model.row
    most, least = (missing_ms / 1e3 / (1 / CAST_RATE + 2 / rate) / values for rate in _GATHER_RATES)
    told = f"some {least:,.0f} to {most:,.0f} rows are still gathered and cast in every layer"
    longest = model.max_context
    if longest and 0.8 * least <= longest <= 1.25 * most:
        told += (
            f"; {longest:,}, one longest context, fits: a static CUDA-graph index buffer. "
            f"A trace shows casts of {-(-longest * model.row // 512):,} blocks"
        )
    return told


def whole_cast(model: Model, pool: int, page: int, draft: bool = False) -> float:
    """Return ms a step that converting the whole pool takes, at 0.34e12 elements a second.

    Args:
        model: its sizes.
        pool: tokens; the buffer has one page more.
        page: tokens of a page.
        draft: whether the pool holds the NextN layers too.
    """
    layers = model.layers + (model.nextn_layers if draft else 0)
    return cast_ms(layers, pool + page, model.row)


def expected_cast(server: Server, model: Model | None) -> float | None:
    """Return ms a step that the whole pool's conversion takes or would take, or None.

    None unless the model and the pool are known, the KV cache is FP8 and the backend is one that
    casts, or is not known.
    """
    if model is None or not server.pool or not server.kv_dtype.startswith("fp8"):
        return None
    if server.backend and server.backend not in CASTING_BACKENDS:
        return None
    page = int(server.arg("page_size") or 1)
    return whole_cast(model, server.pool, page, bool(server.arg("speculative_algorithm")))


def diagnosed(path: Path, model: Model | None) -> Prediction:
    """Return the prediction in a file of ``diagnose --json``: of its first rank that has one.

    Raises:
        UsageError: the file holds none.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        found = next(r["prediction"] for r in document["ranks"] if r["prediction"])
        saved, left = found["step_ms"] - found["predicted_ms"], found["predicted_ms"]
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, LookupError, TypeError, StopIteration) as error:
        raise UsageError(f"{path}: holds no prediction of `diagnose --json`") from error
    return Prediction(saved, f"{path.name}: {found['step_ms']:.1f} ms to {left:.1f}", model)


def realised(
    comparison: Comparison, stated: Prediction | float | None, model: Model | None
) -> Realised | None:
    """Return what came of a prediction: the stated one, or the one that can be made.

    Args:
        comparison: of two benches.
        stated: a prediction, or the TPOT in ms that was predicted, if somebody did.
        model: its figures, if known. Without a stated prediction the first server must convert
            its pool: FP8 KV in a backend that casts.
    """
    gain = comparison.gain("tpot_ms")
    if gain is None:
        return None
    if isinstance(stated, Prediction):
        prediction = replace(stated, model=stated.model or model)
    elif stated is not None:
        saved = gain.before.mean - stated
        prediction = Prediction(saved, f"{stated:g} ms a token, as stated", model)
    else:
        server = comparison.before.server
        cast = expected_cast(server, model)
        if cast is None or model is None:
            return None
        if cast >= gain.before.mean:
            return None  # the step was shorter than the cast: there was none
        prediction = Prediction(
            cast,
            f"the cast of {model.layers} layers x {server.pool:,} tokens x {model.row} values "
            f"at {CAST_RATE / 1e12:g}e12 a second",
            model,
        )
    if prediction.saved_ms <= 0:
        return None
    return Realised(gain.before, gain.after, prediction)
