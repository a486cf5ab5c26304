"""What an overlay costs every Python process that it is on the path of.

    python benchmarks/overlay.py [RELEASE] [--runs N]

CPU time (user and system) of ``python -c pass`` as whole processes, in turns, so that a machine
that slows down slows all of them; medians. The overlay is made of a real release and its default
codemod. Against an empty directory on PYTHONPATH, which is searched as well:

- with byte code: the start-up file's is written with it, for the Python that rewriter runs on, and
  for others at their first start. Bound: 2 ms more.
- without: a read-only overlay that another Python has made. Bound: 3 ms more.
- chained: with another sitecustomize further down the path, which an overlay has to run itself;
  against that one alone. Bound: 2 ms more.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

COMPILED, UNCOMPILED = 2.0, 3.0
"""Milliseconds of CPU time."""


def measure(path: list[Path], *flags: str) -> float:
    """Run ``python -c pass`` with a search path; return its CPU time in ms."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    process = subprocess.Popen([sys.executable, *flags, "-c", "pass"], env=environment)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"python failed: {status}")
    return (used.ru_utime + used.ru_stime) * 1000


def make(scratch: Path, release: str) -> tuple[Path, Path, Path, Path]:
    """Return an empty directory, an overlay, one without byte code, and another sitecustomize."""
    empty, overlay, bare, other = (scratch / n for n in ("empty", "overlay", "bare", "other"))
    command = [sys.executable, "-m", "rewriter", "apply", "--release", release, "--overlay"]
    subprocess.run([*command, str(overlay)], check=True, stdout=subprocess.DEVNULL)
    empty.mkdir()
    shutil.copytree(overlay, bare, ignore=shutil.ignore_patterns("__pycache__"))
    other.mkdir()
    (other / "sitecustomize.py").write_text("seen = True\n", encoding="utf-8")
    return empty, overlay, bare, other


def main() -> int:
    """Measure, print a table, and exit 1 if a bound is broken."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("release", nargs="?", default="0.5.12.post1")
    parser.add_argument("--runs", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        empty, overlay, bare, other = make(Path(scratch), options.release)
        commands: dict[str, tuple[list[Path], tuple[str, ...]]] = {
            "an empty directory": ([empty], ()),
            "overlay, with byte code": ([overlay], ()),
            "overlay, without": ([bare], ("-B",)),
            "another sitecustomize": ([empty, other], ()),
            "overlay in front of it": ([overlay, other], ()),
        }
        figures: dict[str, list[float]] = {name: [] for name in commands}
        for turn in range(options.runs + 1):
            for name, (path, flags) in commands.items():
                figure = measure(path, *flags)
                if turn:  # the first turn writes byte code and fills the disk cache
                    figures[name].append(figure)
    time = {name: statistics.median(runs) for name, runs in figures.items()}
    for name, value in time.items():
        print(f"{name:<26} {value:6.2f} ms")
    broken = 0
    for name, reference, bound in (
        ("overlay, with byte code", "an empty directory", COMPILED),
        ("overlay, without", "an empty directory", UNCOMPILED),
        ("overlay in front of it", "another sitecustomize", COMPILED),
    ):
        more = time[name] - time[reference]
        broken += more > bound
        ratio = time[name] / time[reference]
        print(f"{name:<26} {more:+6.2f} ms   {ratio:5.2f} times   bound {bound:+} ms")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
