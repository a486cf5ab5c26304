"""The values of `rewriter bench --json`: statistics, not raw times, which ``--save`` keeps."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rewriter.probes.load.compare import Comparison
from rewriter.probes.load.measure import METRICS, Point
from rewriter.probes.load.realised import Realised
from rewriter.probes.load.statistics import Summary
from rewriter.probes.load.sweep import Sweep
from rewriter.report.benchmark import Outcome


def values(outcome: Outcome) -> dict[str, Any]:
    """Return what JSON shows."""
    record = outcome.record
    found: dict[str, Any] = {
        "complete": record.complete,
        "failure": record.failure or None,
        "when": record.when,
        "server": asdict(record.server),
        "plan": asdict(record.plan),
        "metrics": dict(METRICS),
        "points": [_point_values(point) for point in record.points],
        "wrong": list(outcome.wrong),
        "notes": list(record.notes),
    }
    if outcome.sweep is not None:
        found["sweep"] = _sweep_values(outcome.sweep)
    if outcome.comparison is not None:
        found["comparison"] = _comparison_values(outcome.comparison)
    if outcome.realised is not None:
        found["realised"] = _realised_values(outcome.realised)
    return found


def _summary_values(summary: Summary) -> dict[str, float | None]:
    return {**asdict(summary), "cv": summary.cv, "low": summary.low, "high": summary.high}


def _point_values(point: Point) -> dict[str, Any]:
    return {
        "context": point.context,
        "trials": len(point.trials),
        "metrics": {
            name: _summary_values(summary)
            for name in METRICS
            if (summary := point.summary(name)) is not None
        },
    }


def _sweep_values(sweep: Sweep) -> dict[str, Any]:
    return {
        "growth": asdict(sweep.growth),
        "at_zero_ms": sweep.at_zero_ms,
        "us_per_1k_tokens": sweep.us_per_1k,
        "whole_cast_ms": sweep.cast_ms,
        "full_pool_cast": None if sweep.cast_ms is None else not sweep.refuted,
    }


def _comparison_values(comparison: Comparison) -> dict[str, Any]:
    return {
        "before": {"when": comparison.before.when, "server": asdict(comparison.before.server)},
        "changed": [asdict(difference) for difference in comparison.changed],
        "gains": [
            {
                "context": gain.context,
                "metric": gain.metric,
                "before": gain.before.mean,
                "after": gain.after.mean,
                "change": gain.change,
                "better": asdict(gain.better),
                "real": gain.real,
            }
            for gain in comparison.gains
        ],
        "same_tokens": comparison.same_tokens,
        "tokens": [asdict(tokens) for tokens in comparison.tokens],
    }


def _realised_values(realised: Realised) -> dict[str, Any]:
    return {
        "predicted_ms": realised.prediction.saved_ms,
        "source": realised.prediction.source,
        "saved_ms": asdict(realised.saved),
        "share": asdict(realised.share),
        "missing_ms": realised.missing_ms,
        "hypotheses": realised.hypotheses(),
    }
