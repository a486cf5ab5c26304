"""Draw the plots of docs/performance.md from the saved results; needs matplotlib.

python benchmarks/gpu/plot.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
RESULTS = HERE / "results"
COLOURS = {"unpatched": "#b33", "patched": "#27a", "bf16": "#888", "native": "#c80"}
KINDS = ("unpatched", "patched", "bf16")
NAMES = {"unpatched": "unpatched", "patched": "patched", "bf16": "BF16 KV cache"}
POOL = 495_552


def main() -> None:
    mpl.rcParams.update({"svg.hashsalt": "rewriter", "font.size": 10})
    older, newer = (
        json.loads((RESULTS / f"h200-{release}.json").read_text())
        for release in ("0.5.12.post1", "0.5.17")
    )
    figure, places = plt.subplots(3, 2, figsize=(9.4, 10.6), layout="constrained")
    (served, fa3), (points, attention), (kernels, paged) = places
    serving(
        served,
        [(older["sglang"], older["serve"]), (newer["sglang"], newer["serve"])],
        "FlashInfer, pool of 495,552, one stream",
    )
    first, second = older["fa3"]["first"], older["fa3"]["second"]
    unpatched = [row for row in first["serve"] if row["kind"] == "unpatched"]
    serving(
        fa3,
        [(older["sglang"], unpatched + second["serve"])],
        "FlashAttention 3 (unpatched: pool of 327,680)",
    )
    grid(points, older)
    rows_alone(kernels, newer)
    pages_alone(paged, older)
    peers(attention, newer)
    for axes in places.flat:
        axes.spines[["top", "right"]].set_visible(False)
    target = ROOT / "docs" / "images" / "gpu.svg"
    target.parent.mkdir(exist_ok=True)
    figure.savefig(target, metadata={"Date": None})
    print(target.relative_to(ROOT))


def serving(axes: Axes, found: list[tuple[str, list[dict[str, Any]]]], title: str) -> None:
    """Draw the time per token of one stream, release by release and prompt by prompt."""
    labels: list[str] = []
    for release, (name, served) in enumerate(found):
        rows = {row["kind"]: row for row in served}
        for number, kind in enumerate(KINDS):
            values = [time["tpot_ms"] for time in rows[kind]["times"]]
            at = [2 * release + place + 0.27 * (number - 1) for place in range(len(values))]
            bars = axes.bar(
                at, values, 0.25, color=COLOURS[kind],
                label=None if release else NAMES[kind],
            )  # fmt: skip
            axes.bar_label(bars, fmt="%.1f", fontsize=7)
        labels += [f"{name}\n{t['prompt']:,} tokens" for t in rows["bf16"]["times"]]
    axes.set_xticks(range(len(labels)), labels, fontsize=7)
    axes.set_ylim(0, 92)
    axes.set_ylabel("ms per token (TPOT)")
    axes.set_title(title, fontsize=10)
    axes.legend(frameon=False, loc="upper center", ncols=3, fontsize=8)


def grid(axes: Axes, found: dict[str, Any]) -> None:
    """Draw the time per token over batches and contexts, of the pool that all servers had."""
    taken = [point for point in found["grid"] if point["pool"] == POOL]
    at = list(dict.fromkeys((point["batch"], point["context"]) for point in taken))
    for number, kind in enumerate(KINDS):
        values = [point["tpot_ms"] for point in taken if point["kind"] == kind]
        bars = axes.bar(
            [place + 0.29 * (number - 1) for place in range(len(at))], values, 0.27,
            color=COLOURS[kind], label=NAMES[kind],
        )  # fmt: skip
        axes.bar_label(bars, fmt="%.0f", fontsize=6)
    axes.set_xticks(range(len(at)), [f"{b} ×\n{c:,}" for b, c in at], fontsize=7)
    axes.set_ylim(0, 96)
    axes.set_xlabel("streams × tokens of context")
    axes.set_ylabel("ms per token (TPOT)")
    axes.set_title(f"FlashInfer, {found['sglang']}, pool of {POOL:,}", fontsize=10)
    axes.legend(frameon=False, loc="upper center", ncols=3, fontsize=8)


def rows_alone(axes: Axes, found: dict[str, Any]) -> None:
    """Draw the conversion's kernel time by rows, for FlashInfer's index lists."""
    for form, kind, style in (
        ("compact", "random", "o-"), ("scatter", "random", "s--"), ("scatter", "neighbours", "^:"),
    ):  # fmt: skip
        taken = [
            k for k in found["kernel"]
            if (k["form"], k["rows_are"], k["l2"]) == (form, kind, "clean")
        ]  # fmt: skip
        label = f"{form}, {'random' if kind == 'random' else 'neighbouring'} rows"
        axes.plot([k["rows"] for k in taken], [k["us"] for k in taken], style, label=label)
    logarithmic(axes, found["whole_cast_us"])
    axes.set_title("mla_kv_gather's kernel alone", fontsize=10)


def pages_alone(axes: Axes, found: dict[str, Any]) -> None:
    """Draw the conversion's kernel time by rows, for FlashAttention's page tables."""
    for page, style in ((1, "o-"), (64, "s--")):
        taken = [
            k for k in found["pages"]
            if k["page"] == page and k["l2"] == "clean" and k["batch"].startswith("1 x")
        ]  # fmt: skip
        label = f"page size {page}"
        axes.plot([k["rows"] for k in taken], [k["us"] for k in taken], style, label=label)
    logarithmic(axes, found["whole_cast_us"])
    axes.set_title("fa3_kv_gather's kernel alone, random pages", fontsize=10)


def logarithmic(axes: Axes, whole_us: float) -> None:
    """Set both axes of a kernel's plot, with torch's cast of the whole pool as a line."""
    axes.axhline(whole_us, color=COLOURS["unpatched"], lw=1)
    axes.text(512, whole_us * 0.65, "torch's cast of the whole pool", color=COLOURS["unpatched"])
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks([512, 8192, 65536, 262144], ["512", "8,192", "65,536", "262,144"])
    axes.set_yticks([2, 10, 100, 1000], ["2", "10", "100", "1,000"])
    axes.minorticks_off()
    axes.set_xlabel("rows that the batch reads")
    axes.set_ylabel("µs a layer")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(0.0, 0.85), fontsize=8)


def peers(axes: Axes, found: dict[str, Any]) -> None:
    """Draw conversion and BF16 MLA, stacked, beside FlashInfer's native FP8 MLA."""
    rows = found["mla"]
    at = range(len(rows))
    left, right = [p - 0.2 for p in at], [p + 0.2 for p in at]
    convert, read = [r["convert_us"] for r in rows], [r["in_place_us"] for r in rows]
    axes.bar(left, convert, 0.38, color=COLOURS["patched"], label="conversion")
    axes.bar(left, read, 0.38, bottom=convert, color="#9bd", label="MLA over BF16 rows")
    bars = axes.bar(
        right, [r["native_us"] for r in rows], 0.38, color=COLOURS["native"],
        label="FlashInfer's native FP8 MLA",
    )  # fmt: skip
    axes.bar_label(bars, fmt="%.0f", fontsize=7)
    for place, one, other in zip(left, convert, read, strict=True):
        axes.text(place, one + other + 2, f"{one + other:.0f}", ha="center", fontsize=7)
    axes.set_xticks(list(at), [f"{r['batch']} ×\n{r['rows']:,}" for r in rows], fontsize=7)
    axes.set_xlabel("batch × rows a request, random rows")
    axes.set_ylabel("µs a layer")
    axes.set_title("attention of one layer, 16 heads", fontsize=10)
    axes.legend(frameon=False, loc="upper left", fontsize=8)


if __name__ == "__main__":
    main()
