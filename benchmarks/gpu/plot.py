"""Draw the plots of docs/performance.md from the saved results; needs matplotlib.

python benchmarks/gpu/plot.py
"""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
RESULTS = HERE / "results" / "h200-0.5.12.post1.json"
COLOURS = {"unpatched": "#b33", "patched": "#27a", "bf16": "#888"}


def main() -> None:
    mpl.rcParams.update({"svg.hashsalt": "rewriter", "font.size": 10})
    found = json.loads(RESULTS.read_text())
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    rows = found["serve"]
    places = range(len(rows[0]["times"]))
    names = {"bf16": "BF16 KV cache"}
    for number, row in enumerate(rows):
        values = [time["tpot_ms"] for time in row["times"]]
        bars = left.bar(
            [p + 0.27 * (number - 1) for p in places], values, 0.25,
            color=COLOURS[row["kind"]], label=names.get(row["kind"], row["kind"]),
        )  # fmt: skip
        left.bar_label(bars, fmt="%.1f", fontsize=8)
    left.set_xticks(list(places), [f"after {t['prompt']:,} tokens" for t in rows[0]["times"]])
    left.set_ylabel("ms per token (TPOT)")
    left.set_title("78 layers, FP8 pool of 495,552, CUDA graphs", fontsize=10)
    left.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.37, 0.95), fontsize=8)
    for form, kind, style in (
        ("compact", "random", "o-"), ("scatter", "random", "s--"), ("scatter", "neighbours", "^:"),
    ):  # fmt: skip
        taken = [
            k for k in found["kernel"]
            if (k["form"], k["rows_are"], k["l2"]) == (form, kind, "clean")
        ]  # fmt: skip
        right.plot(
            [k["rows"] for k in taken],
            [k["us"] for k in taken],
            style,
            label=f"{form}, {'random' if kind == 'random' else 'neighbouring'} rows",
        )
    right.axhline(found["whole_cast_us"], color="#b33", lw=1)
    right.text(512, found["whole_cast_us"] * 0.65, "torch's cast of the whole pool", color="#b33")
    right.set_xscale("log", base=2)
    right.set_yscale("log")
    right.set_xticks([512, 8192, 65536, 262144], ["512", "8,192", "65,536", "262,144"])
    right.set_yticks([2, 10, 100, 1000], ["2", "10", "100", "1,000"])
    right.minorticks_off()
    right.set_xlabel("rows that the batch reads")
    right.set_ylabel("µs a layer")
    right.set_title("the kernel alone", fontsize=10)
    right.legend(frameon=False, loc="upper left", bbox_to_anchor=(0.0, 0.85), fontsize=8)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    target = ROOT / "docs" / "images" / "gpu.svg"
    target.parent.mkdir(exist_ok=True)
    figure.savefig(target, metadata={"Date": None})
    print(target.relative_to(ROOT))


if __name__ == "__main__":
    main()
