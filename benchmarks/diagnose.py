"""CPU time and memory of ``rewriter diagnose`` against ``orjson.loads`` and a loop.

    python benchmarks/diagnose.py                       # 550 MB, about 2 minutes of CPU time
    python benchmarks/diagnose.py --megabytes 60
    python benchmarks/diagnose.py --trace FILE          # a trace of yours

Each reader runs in a process of its own; CPU time is its own and the system's for it, memory is
the kernel's high-water mark (VmHWM). Times by the clock say little on a machine that others use.
Promised: CPU at most 0.35 of orjson's with Python's cycle collector as it is by default, and at
most 160 MiB whatever the size.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from trace_writer import SEED, Recipe, write_trace

_REPORT = """
import os
from pathlib import Path
times = os.times()
status = Path("/proc/self/status").read_text()
peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
print(f"@ {times.user + times.system} {peak}")
"""

_ORJSON = """
import sys, orjson
{setup}
with open(sys.argv[1], "rb") as stream:
    document = orjson.loads(stream.read())
sums = {{}}
for event in document["traceEvents"]:
    if event.get("cat") == "kernel":
        one = sums.setdefault(event["name"], [0, 0.0])
        one[0] += 1
        one[1] += event["dur"]
"""

_OURS = """
import sys
sys.argv = ["rewriter", "diagnose", sys.argv[1]]
from rewriter.cli import main
try:
    main()
except SystemExit as done:
    assert not done.code, done.code
"""

READERS = {
    "orjson.loads + loop": _ORJSON.format(setup=""),
    "the same, gc.disable()": _ORJSON.format(setup="import gc; gc.disable()"),
    "rewriter diagnose": _OURS,
}


def measured(script: str, trace: Path) -> tuple[float, float]:
    """Return CPU seconds and peak MiB of a reader."""
    done = subprocess.run(
        [sys.executable, "-c", script + _REPORT, str(trace)],
        capture_output=True,
        text=True,
        check=True,
    )
    line = next(line for line in done.stdout.splitlines() if line.startswith("@ "))
    cpu, peak = line.split()[1:]
    return float(cpu), float(peak)


def recipe_of(megabytes: int, folder: Path) -> Recipe:
    """Return the recipe of a trace of about this size, with stacks and shapes as servers record."""
    recipe = replace(SEED, stack=20, shapes=True, launch=22.0)
    one = write_trace(folder / "one.json", replace(recipe, steps=1)).bytes
    return replace(recipe, steps=max(2, round(megabytes * 1e6 / one)))


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=550)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trace = options.trace
        if trace is None:
            trace = Path(folder) / "trace.json"
            truth = write_trace(trace, recipe_of(options.megabytes, Path(folder)))
            print(f"{truth.bytes:,} bytes, {truth.events:,} events, {truth.kernels:,} kernels")
        print(f"{'':<24} {'CPU s (runs)':<24} {'least':>7} {'ratio':>6} {'peak MiB':>9}")
        base = None
        for name, script in READERS.items():
            found = [measured(script, trace) for _ in range(options.runs)]
            times = sorted(cpu for cpu, _ in found)
            peak = max(peak for _, peak in found)
            base = base or times[0]
            runs = " ".join(f"{cpu:.2f}" for cpu in times)
            print(f"{name:<24} {runs:<24} {times[0]:>7.2f} {times[0] / base:>6.2f} {peak:>9.0f}")


if __name__ == "__main__":
    main()
