"""Diagnoses as plain values, for ``--json``. Times are milliseconds a step; shares are 0 to 1."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rewriter.probes.trace.comparison import Comparison
from rewriter.probes.trace.facts import Fact, Judgement
from rewriter.probes.trace.findings import Diagnosis
from rewriter.probes.trace.pool import Pool
from rewriter.probes.trace.prediction import Prediction
from rewriter.probes.trace.tabled import TableDiagnosis
from rewriter.probes.trace.usage import FamilyUse, KernelUse

_MOST_KERNELS = 40


def diagnosis_value(found: Diagnosis) -> dict[str, Any]:
    """Return one rank's diagnosis."""
    device = found.head.device
    health = found.health
    return {
        "file": str(found.path),
        "rank": found.rank or None,
        "verdict": found.verdict.value,
        "reason": found.cause.reason if found.cause else _largest_reason(found),
        "device": None
        if device is None
        else {"name": device.name, "memory_bytes": device.memory, "capability": device.capability},
        "world_size": found.head.world_size,
        "recorded": {
            "events": health.events,
            "kernels": found.kernels_read,
            "repaired": health.repaired,
            "unreadable": health.unreadable,
            "truncated": health.truncated,
            "gzip": health.cut,
            "negative_durations": found.negative,
            "zero_durations": found.zero,
            "without_time": found.unplaced,
            "overlap_on_a_stream": found.busy.overlap,
            "with_stack": found.head.with_stack,
            "record_shapes": found.head.record_shapes,
            "graph_share": found.graph_share,
            "unattributed_share": found.unattributed,
        },
        "known": _known(found),
        "steps": _steps(found),
        "gpu_ms": found.gpu_us / 1e3,
        "period_ms": None if found.period_us is None else found.period_us / 1e3,
        "idle": found.idle,
        "cast": None if found.cause is None else cast_value(found.cause),
        "pool": _pool(found.pool),
        "families": [_family(use, found.gpu_us) for use in found.families],
        "kernels": [_kernel(use) for use in found.kernels[:_MOST_KERNELS]],
        "rejected": [{"hypothesis": r.hypothesis, "reason": r.reason} for r in found.rejected],
        "prediction": prediction_value(found.prediction),
        "remedies": [{"action": r.action, "effect": r.effect} for r in found.remedies],
    }


def _largest_reason(found: Diagnosis) -> str | None:
    return found.judgements[0].reason if found.judgements else None


def _pool(pool: Pool | None) -> dict[str, Any] | None:
    if pool is None:
        return None
    return {
        "tokens": pool.tokens,
        "layers": pool.layers,
        "row_values": pool.row,
        "layer_read_bytes": pool.layer_read,
        "layer_written_bytes": pool.layer_written,
        "step_moved_bytes": pool.layers * pool.layer_moved,
        "fp8_bytes": pool.fp8,
        "index_bytes": pool.index,
        "bf16_bytes": pool.bf16,
        "tokens_bf16_in_the_same_memory": pool.tokens_bf16,
        "tokens_with_a_copy_in_the_same_memory": pool.tokens_shadow,
    }


def _known(found: Diagnosis) -> dict[str, Any]:
    known = found.known
    return {
        "model": known.model.name if known.model else None,
        "layers": known.attention_layers,
        "pool_tokens": known.pool,
        "page": known.page,
        "kv_cache_dtype": known.kv_dtype,
        "attention_backend": known.backend,
        "sglang": known.version,
        "source": known.source or None,
    }


def _steps(found: Diagnosis) -> dict[str, Any]:
    steps = found.steps
    return {
        "by": steps.way.value if steps.way else None,
        "label": str(steps.label),
        "whole": len(steps.whole),
        "seen": steps.seen,
        "left_out": list(steps.dropped),
        "others": {str(label): count for label, count in steps.others.items()},
        "proofs": [
            {"way": p.way.value, "steps": p.steps, "agrees": p.agrees, "note": p.note}
            for p in steps.proofs
        ],
    }


def cast_value(judgement: Judgement) -> dict[str, Any]:
    """Return a group of casts with its facts."""
    group = judgement.group
    elements = group.elements
    return {
        "kernel": group.kind.name,
        "grid": list(group.kind.grid),
        "block": list(group.kind.block),
        "elements": elements.count if elements else None,
        "rows": judgement.rows,
        "row_width": elements.width if elements else None,
        "calls_a_step": group.calls_a_step,
        "us_a_call": group.mean_us,
        "ms_a_step": group.step_us / 1e3,
        "share_of_gpu_time": judgement.share,
        "elements_a_second": group.rate,
        "followed_by": group.follower or None,
        "facts": [fact_value(fact) for fact in judgement.facts],
    }


def fact_value(fact: Fact) -> dict[str, Any]:
    """Return a fact; ``holds`` is null where the trace cannot tell."""
    return {"fact": fact.key, "title": fact.title, "holds": fact.holds, "number": fact.number}


def _family(use: FamilyUse, gpu_us: float) -> dict[str, Any]:
    share = use.us / gpu_us if gpu_us else 0.0
    return {"family": use.family.value, "ms": use.us / 1e3, "calls": use.calls, "share": share}


def _kernel(use: KernelUse) -> dict[str, Any]:
    return {
        "name": use.name,
        "family": use.family.value,
        "ms": use.us / 1e3,
        "calls": use.calls,
        "us_a_call": use.each_us,
    }


def prediction_value(prediction: Prediction | None) -> dict[str, Any] | None:
    """Return the predicted step, and what it is made of."""
    if prediction is None:
        return None
    return {
        "step_ms": prediction.step_ms,
        "measured_without_profiler": prediction.measured,
        "cast_ms": prediction.cast_ms,
        "stays_ms": prediction.stays_ms,
        "gpu_ms": prediction.gpu_ms,
        "gpu_left_ms": prediction.gpu_left_ms,
        "gpu_time_ratio": prediction.amdahl,
        "gpu_bound_ms": prediction.gpu_bound_ms,
        "host_ms": prediction.host_ms,
        "host_counts": prediction.host_counts,
        "predicted_ms": prediction.new_ms,
        "host_bound": prediction.host_bound,
        "speedup": prediction.speedup,
        "tokens_a_second": {
            "before": prediction.tokens_before,
            "predicted": prediction.tokens_after,
        },
    }


def table_value(found: TableDiagnosis) -> dict[str, Any]:
    """Return what a key_averages table shows."""
    return {
        "file": str(found.path),
        "table": found.number,
        "verdict": found.verdict.value,
        "reason": found.reason,
        "steps": {"whole": found.steps, "by": found.steps_by},
        "gpu_ms_in_all": found.table.device_us / 1e3,
        "hidden_ms_in_all": found.table.hidden_us / 1e3,
        "eager": found.eager,
        "facts": [fact_value(fact) for fact in found.facts],
        "prediction": prediction_value(found.prediction),
    }


def comparison_value(found: Comparison) -> dict[str, Any]:
    """Return a comparison; the two diagnoses stand beside it."""
    return {
        "step_before_ms": found.step_before_ms,
        "step_after_ms": found.step_after_ms,
        "measured_without_profiler": found.measured,
        "predicted_saving_ms": found.predicted_ms,
        "realised_saving_ms": found.realised_ms,
        "realised_over_predicted": found.realised,
        "cast_ms": found.cast_ms,
        "realised_gpu_saving_ms": found.realised_gpu_ms,
        "realised_gpu_over_cast": found.realised_gpu,
        "unexplained_ms": found.unexplained_ms,
        "families": [
            {
                "family": change.family.value,
                "before_ms": change.before_us / 1e3,
                "after_ms": change.after_us / 1e3,
            }
            for change in found.families
        ],
        "vanished": _kernels(found.vanished),
        "new": _kernels(found.new),
        "cautions": list(found.cautions),
        "hypotheses": [
            {"hypothesis": h.name, "fits": h.fits, "number": h.number} for h in found.hypotheses
        ],
    }


def _kernels(uses: Iterable[KernelUse]) -> list[dict[str, Any]]:
    return [_kernel(use) for use in uses]
