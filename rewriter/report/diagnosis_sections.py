"""Sections of a diagnosis that several pages share: time by family, facts, prediction, pool."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from rewriter.probes.trace.facts import Fact
from rewriter.probes.trace.pool import GB, GIB, MB, Pool
from rewriter.probes.trace.prediction import Prediction
from rewriter.probes.trace.usage import FamilyUse
from rewriter.report.text import paint

WIDTH = 80
_BAR = 22
_SMALL = 0.005


def heading(title: str, note: str = "") -> str:
    """Return a section's first line."""
    return f"{title} ({note})" if note else title


def hanging(label: str, text: str, *, indent: int, hang: int = 4) -> Iterator[str]:
    """Yield a label and its text, wrapped, later lines further in."""
    yield from textwrap.wrap(
        label + text,
        WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + hang),
        break_long_words=False,
        break_on_hyphens=False,
    )


def aligned(label: str, text: str, *, width: int, indent: int = 2) -> Iterator[str]:
    """Yield a label in a column of its own, and the text wrapped beside it."""
    yield from textwrap.wrap(
        text,
        WIDTH,
        initial_indent=" " * indent + label.ljust(width),
        subsequent_indent=" " * (indent + width),
        break_long_words=False,
        break_on_hyphens=False,
    )


def printable(text: str) -> str:
    """Return text without control characters: names in damaged traces hold escape sequences."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def milliseconds(value: float) -> str:
    """Return a time with three digits after a leading one: 0.817, 7.75, 95.6 ms."""
    digits = 0 if value == 0 else 3 if value < 1 else 2 if value < 20 else 1
    return f"{value:,.{digits}f}"


def family_lines(families: Sequence[FamilyUse], gpu_us: float, note: str) -> Iterator[str]:
    """Yield GPU time by family, with bars."""
    yield heading("Where the GPU time goes, ms", note)
    longest = max((use.us for use in families), default=0.0)
    rest = [use for use in families if use.us < _SMALL * gpu_us]
    for use in families:
        if use in rest:
            continue
        yield _family(str(use.family), use.us, use.calls, gpu_us, longest)
    if rest:
        us, calls = sum(use.us for use in rest), sum(use.calls for use in rest)
        yield _family(f"{len(rest)} more families", us, calls, gpu_us, longest)


def _family(name: str, us: float, calls: float, gpu_us: float, longest: float) -> str:
    bar = "█" * round(_BAR * us / longest) if longest else ""
    share = us / gpu_us if gpu_us else 0.0
    line = f"  {name:<20} {us / 1e3:>9.3f} {share:>6.1%} {calls:>9,.0f} calls  {bar}"
    return line.rstrip()


def fact_lines(facts: Iterable[Fact], *, colour: bool) -> Iterator[str]:
    """Yield facts: whether each holds, and its number."""
    for fact in facts:
        answer, code = {True: ("yes", "32"), False: ("no", "31"), None: ("-", "2")}[fact.holds]
        lines = list(aligned(f"{fact.key:<3} @@@ ", f"{fact.title}: {fact.number}", width=8))
        yield lines[0].replace("@@@", paint(f"{answer:<3}", code, colour=colour), 1)
        yield from lines[1:]


def pool_lines(pool: Pool) -> Iterator[str]:
    """Yield the sizes of a pool; GB and GiB side by side, since they differ by 7 %."""
    yield f"{pool.tokens:,} tokens x {pool.layers} layers x {pool.row} values"
    yield (
        f"cast of a layer: {pool.layer_read / MB:.1f} MB read + {pool.layer_written / MB:.1f} MB "
        f"written = {pool.layer_moved / MB:.1f} MB"
    )
    yield (
        f"cast of a step: {pool.layers * pool.layer_moved / GB:.1f} GB moved; scratch "
        f"{sizes(pool.layer_written)}"
    )
    beside = "; with the index cache " if pool.index else ""
    yield f"FP8: {sizes(pool.fp8)}" + (beside and f"{beside}{sizes(pool.memory)}")
    whole = pool.bf16 + pool.index
    yield f"BF16 instead: {sizes(pool.bf16)}" + (beside and f"{beside}{sizes(whole)}")
    if pool.index:
        yield f"index cache: {sizes(pool.index)}, the same beside both"


def sizes(count: int) -> str:
    """Return bytes in both units."""
    digits = 3 if count < GB else 2
    return f"{count / GB:.{digits}f} GB ({count / GIB:.{digits}f} GiB)"


def prediction_lines(prediction: Prediction) -> Iterator[str]:
    """Yield how the predicted step comes about."""
    yield heading("Prediction", "max(host, step - cast + what stays)")
    source = "without the profiler" if prediction.measured else "in the trace"
    now = f"{prediction.tokens_before:,.1f} tokens/s"
    yield from _sum("step", prediction.step_ms, f"{source}, {now}")
    yield from _sum(
        "- cast", prediction.cast_ms, f"{prediction.cast_ms / prediction.step_ms:.1%} of it"
    )
    note = "" if prediction.stays_ms else "small for short contexts (--context N)"
    yield from _sum("+ what stays", prediction.stays_ms, note)
    yield from _sum("= if the GPU limits", prediction.gpu_bound_ms, "")
    gpu = f"of {milliseconds(prediction.gpu_ms)}, {prediction.amdahl:.2f} times less"
    yield from _sum("GPU time left", prediction.gpu_left_ms, gpu)
    if prediction.host_ms is not None:
        yield from _sum("host, at least", prediction.host_ms, _host(prediction))
    after = f"{prediction.tokens_after:,.1f} tokens/s, {prediction.speedup:.2f} times as fast"
    yield from _sum("predicted", prediction.new_ms, after)


def _host(prediction: Prediction) -> str:
    if not prediction.host_counts:
        return "not counted: stacks slow the host"
    if prediction.host_bound:
        return "sets the pace, as profiled (--tpot MS)"
    return "to launch a step, as profiled"


def _sum(label: str, value: float, note: str) -> Iterator[str]:
    told = f"{label:<20} {milliseconds(value):>9} ms  "
    yield from aligned(told, note, width=len(told)) if note else [f"  {told}".rstrip()]
