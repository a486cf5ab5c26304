"""What `rewriter advise` prints: text for people, and the values of its JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rewriter.probes.memory import backends, formulas
from rewriter.probes.memory.advice import Advice, Fate, Option
from rewriter.probes.memory.deployment import Deployment
from rewriter.probes.trace.pool import GB, GIB
from rewriter.report.benchmark import paragraph


def lines(advice: Advice, *, all_formulas: bool = False) -> Iterator[str]:
    """Yield the advice in 80 columns.

    Args:
        advice: the answer.
        all_formulas: whether what is not advised gets its formula and source too.
    """
    for words in situation_words(advice.at):
        yield from paragraph(words)
    yield ""
    yield from paragraph(answer(advice))
    shown = [] if advice.idle else advice.options
    for fate in Fate:
        options = [option for option in shown if option.fate is fate]
        if not options:
            continue
        yield ""
        yield from _section(advice, fate, options, all_formulas)
    if shown and any(not option.way.certain for option in advice.advised):
        yield ""
        yield from paragraph(
            ">=: another kernel reads the pool; its own time is not known here. Measure it: "
            "rewriter bench --save before.json, change, rewriter bench --against before.json "
            "--changed attention_backend"
        )


def situation_words(at: Deployment) -> list[str]:
    """Say what is served, the pool's memory, and what the cast costs."""
    index = at.tokens * (at.model.index_bytes_per_token * at.layers // at.model.layers)
    rows = at.tokens * at.cell - index
    parts = f": {memory(rows)} of rows, {memory(index)} of index cache" if index else ""
    found = [
        f"{at.model.name} on {at.gpus} x {at.gpu or 'GPU'} ({at.arch.upper()}, "
        f"{at.bandwidth:,.0f} GB/s), sglang {at.release}, {at.backend.name} backend, "
        f"{at.kv.upper()} KV",
        f"pool on each GPU: {at.tokens:,} tokens x {at.cell:,} B = "
        f"{memory(at.tokens * at.cell)}{parts}",
    ]
    if at.data_parallel > 1:
        found.append(f"all ranks: {at.data_parallel * at.tokens:,} tokens (DP attention)")
    if at.casts:
        found.append(cast_words(at))
    return found


def memory(count: float) -> str:
    """Return bytes in both units."""
    return f"{count / GB:.2f} GB ({count / GIB:.2f} GiB)"


def cast_words(at: Deployment) -> str:
    """Say what the cast costs, and of what."""
    rows = at.tokens + at.page
    how = "as measured" if at.measured_cast_ms is not None else f"at {at.rate / 1e12:g}e12 a second"
    floor = formulas.floor_cast_ms(at.layers, rows, at.model.row, at.bandwidth)
    told = (
        f"the cast: {at.layers} layers x {rows:,} rows x {at.model.row} values a step: "
        f"{at.cast_ms:.1f} ms {how} (its bytes alone: {floor:.1f} ms)"
    )
    if at.step_ms is None or at.rest_ms is None:
        return told
    times = f", x{at.step_ms / at.rest_ms:.2f}" if at.rest_ms else ""
    return f"{told}; of {at.step_ms:g} ms a token, {at.rest_ms:.1f} without it{times}"


def answer(advice: Advice) -> str:
    """Say in a sentence what to do."""
    at, needs = advice.at, advice.needs
    asked = []
    if needs.tokens is not None:
        asked.append(f"{needs.tokens:,} tokens")
    if needs.ms is not None:
        asked.append(f"{needs.ms:g} ms a token")
    wanted = " and ".join(asked)
    if advice.idle:
        met = f"; {wanted} are met" if wanted else ""
        return f"Nothing need be done: {advice.healthy}{met}."
    if not advice.advised:
        return f"No way gives {wanted or 'a pool without the cast'}."
    best = advice.advised[0]
    why = f" for {wanted}" if wanted else ""
    healthy = f"Nothing is converted ({advice.healthy}), but {wanted} are not met. "
    lead = healthy if advice.healthy else ""
    met = (
        " The server as it is meets them, with the cast."
        if at.casts and asked and advice.met
        else ""
    )
    return f"{lead}Advised{why}: {best.way.action}.{met}"


def ms_words(option: Option) -> str:
    """Return ms a token, or what is added to a step without a cast."""
    least = "" if option.way.certain else ">= "
    if option.ms is None:
        return f"{least}+{option.way.added_ms:.1f}"
    return f"{least}{option.ms:.1f}"


_TITLES = {
    Fate.ADVISED: "advised, the best first",
    Fate.SHORT: "possible, but short of the needs",
    Fate.DOMINATED: "never: something else gives more for less",
    Fate.IMPOSSIBLE: "not possible here",
}


def title(fate: Fate) -> str:
    """Return the heading of a group of ways."""
    return _TITLES[fate]


def _section(
    advice: Advice, fate: Fate, options: list[Option], all_formulas: bool
) -> Iterator[str]:
    if fate is Fate.IMPOSSIBLE and not all_formulas:
        yield title(fate)
        for option in options:
            yield from paragraph(f"{option.way.short}: {option.why}", "  ")
        return
    unit = "ms/token" if advice.at.step_ms is not None else "ms added"
    yield f"{'tokens':>12}{unit:>12}  {title(fate)}"
    for option in options:
        way = option.way
        first, *more = paragraph(way.action, " " * 26)
        yield f"{way.tokens:>12,}{ms_words(option):>12}  {first.strip()}"
        yield from more
        told = details(option) if fate is Fate.ADVISED or all_formulas else (option.why,)
        for words in told:
            yield from paragraph(words, " " * 8)


def details(option: Option) -> tuple[str, ...]:
    """Say why, by what formula, what else to know, and where that stands."""
    way = option.way
    found = (
        option.why,
        way.formula,
        way.limits and f"note: {way.limits}",
        f"source: {way.source}" if way.source != option.why else "",
    )
    return tuple(words for words in found if words)


def values(advice: Advice) -> dict[str, Any]:
    """Return what JSON shows. Bytes are bytes; ``ms_certain`` false means at least."""
    at = advice.at
    return {
        "model": asdict(at.model),
        "gpu": {
            "name": at.gpu or None,
            "count": at.gpus,
            "arch": at.arch,
            "bandwidth_gb_per_s": at.bandwidth,
        },
        "sglang": str(at.release),
        "facts_until": str(backends.NEWEST),
        "now": {
            "backend": at.backend.name,
            "kv": at.kv,
            "page": at.page,
            "tokens": at.tokens,
            "bytes_per_token": at.cell,
            "bytes": at.tokens * at.cell,
            "casts": at.casts,
            "cast_ms": at.cast_ms,
            "step_ms": at.step_ms,
            "step_without_cast_ms": at.rest_ms,
        },
        "needs": asdict(advice.needs),
        "nothing_to_do": advice.idle,
        "why": advice.healthy or None,
        "needs_met_now": advice.met,
        "advised": [_option_values(option) for option in advice.advised],
        "not_advised": [
            _option_values(option) for option in advice.options if option.fate is not Fate.ADVISED
        ],
    }


def _option_values(option: Option) -> dict[str, Any]:
    way = option.way
    return {
        "kind": way.kind.name.lower(),
        "action": way.action,
        "tokens": way.tokens,
        "ms": option.ms,
        "added_ms": way.added_ms,
        "ms_certain": way.certain,
        "fate": option.fate.name.lower(),
        "reason": option.why or None,
        "formula": way.formula,
        "source": way.source,
        "limits": way.limits or None,
    }
