"""The smoke test's page and its JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rewriter.probes.serve.smoke import Observed, Report


def lines(report: Report) -> Iterator[str]:
    """Yield the report, in 80 columns."""
    yield f"{'mode':<8} {'scenario':<16} {'tokens':>7}  greedy tokens, patched against unpatched"
    for row in report.rows:
        told = {
            "equal": "equal",
            "differs": "DIFFER",
            "unsteady": "unsteady: the unpatched server does not repeat itself",
        }[row.outcome]
        if row.first is not None:
            told += f" (request {row.first[0]}, token {row.first[1]})"
        yield f"{row.mode:<8} {row.scenario:<16} {row.tokens:>7}  {told}"
    yield ""
    heads = f"{'TPOT ms':>8} {'e2e ms':>8} {'GPU ms':>8} {'pool casts':>11} {'ms':>8}"
    yield f"{'mode':<8} {'':<10} {heads}"
    for mode in report.before:
        for kind, seen in (("unpatched", report.before[mode]), ("patched", report.after[mode])):
            yield from _measured(mode, kind, seen)
    yield ""
    yield f"pool of {report.pool:,} tokens; TPOT without the first token, e2e with it; GPU time"
    yield "and casts a decode step, from the profile, by kernel name and launch geometry"


def _measured(mode: str, kind: str, seen: Observed) -> Iterator[str]:
    if seen.timing is None or seen.profile is None:
        return
    time, prof = seen.timing, seen.profile
    yield (
        f"{mode:<8} {kind:<10} {time.tpot_ms:>8.3f} {time.e2e_ms:>8.3f} {prof.gpu_us / 1e3:>8.3f} "
        f"{prof.cast_calls:>11.1f} {prof.cast_us / 1e3:>8.3f}"
    )


def as_json(report: Report) -> dict[str, Any]:
    """Return the report as JSON holds it."""
    return {
        "pool": report.pool,
        "fine": report.fine,
        "rows": [
            {
                "mode": row.mode,
                "scenario": row.scenario,
                "outcome": row.outcome,
                "tokens": row.tokens,
                "first_difference": row.first,
            }
            for row in report.rows
        ],
        "servers": {
            kind: {mode: _server(seen) for mode, seen in group.items()}
            for kind, group in (("unpatched", report.before), ("patched", report.after))
        },
    }


def _server(seen: Observed) -> dict[str, Any]:
    value: dict[str, Any] = {"ready_s": seen.ready_s, "repeatable": sorted(seen.repeatable)}
    if seen.timing is not None:
        value["timing"] = {
            "tpot_ms": seen.timing.tpot_ms,
            "tpot_trials": list(seen.timing.tpot_trials),
            "e2e_ms_per_token": seen.timing.e2e_ms,
        }
    if seen.profile is not None:
        value["profile"] = {
            "steps": seen.profile.steps,
            "gpu_us": seen.profile.gpu_us,
            "cast_us": seen.profile.cast_us,
            "cast_calls": seen.profile.cast_calls,
        }
    return value
