"""What ``rewriter check`` costs beside the parts that it is made of.

    python benchmarks/check.py [RELEASE] [--runs N]

Measures whole processes, CPU time (user and system) and peak memory, in turns, so that a machine
that slows down slows all of them; each figure is the median. The release is fetched once, unpacked
as pip would install it, and found through PYTHONPATH as this interpreter's sglang.

- cold: the verdict cache is emptied before each run; against a Python that imports LibCST, finds
  the definitions that hold sites and parses just these. Bound: 1.3 times.
- warm: nothing changed since the run before; against ``python -c "import typer"``. Bound: 1.5.
- memory: the peak of the cold run. Bound: 120 MB.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from rewriter import catalog
from rewriter.definition import IMPORTS
from rewriter.targets.release import Release

CODEMOD = "mla_kv_gather"
COLD, WARM, MEMORY = 1.3, 1.5, 120.0

REFERENCE = """
import ast, sys
import libcst

path, *wanted = sys.argv[1:]
raw = open(path, "rb").read()
lines = raw.decode().splitlines(True)

def walk(body, prefix):
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from walk(node.body, prefix + node.name + ".")

tree = ast.parse(raw)
for name, node in walk(tree.body, ""):
    if name in wanted:
        code = "".join(lines[node.lineno - 1 : node.end_lineno])
        libcst.parse_module("class _:\\n" + code)
imports = [n for n in tree.body if isinstance(n, (ast.Import, ast.ImportFrom))]
libcst.parse_module("".join(lines[imports[0].lineno - 1 : imports[-1].end_lineno]))
"""


def measure(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Run a command; return its CPU time in ms and its peak memory in MB."""
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed: {status}")
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return (used.ru_utime + used.ru_stime) * 1000, used.ru_maxrss / unit


def main() -> int:
    """Measure, print a table, and exit 1 if a bound is broken."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("release", nargs="?", default="0.5.23")
    parser.add_argument("--runs", type=int, default=15)
    options = parser.parse_args()
    codemod = catalog.load(CODEMOD)
    with tempfile.TemporaryDirectory() as scratch:
        site, cache = Path(scratch) / "site", Path(scratch) / "cache"
        with zipfile.ZipFile(Release(options.release).path) as wheel:
            wheel.extractall(site)
        environment = {
            **os.environ,
            "PYTHONPATH": str(site),
            "REWRITER_CACHE_DIR": str(cache),
            "PYTHONPYCACHEPREFIX": str(Path(scratch) / "pyc"),
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # pip writes byte code as it installs
        definitions = sorted({s.within for s in codemod.sites} - {IMPORTS})
        tool = [shutil.which("rewriter", path=str(Path(sys.executable).parent)) or "rewriter"]
        python = [sys.executable, "-c"]
        commands: dict[str, tuple[list[str], Callable[[], object]]] = {
            "python": ([*python, "pass"], _nothing),
            "import typer": ([*python, "import typer"], _nothing),
            "import libcst": ([*python, "import libcst"], _nothing),
            "import libcst, parse": (
                [*python, REFERENCE, str(site / codemod.target), *definitions], _nothing,
            ),
            "check, cold": (
                [*tool, "check"], lambda: shutil.rmtree(cache / "verdicts", ignore_errors=True),
            ),
            "check, warm": ([*tool, "check"], _nothing),
        }  # fmt: skip
        figures: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for turn in range(options.runs + 1):
            for name, (command, before) in commands.items():
                before()
                figure = measure(command, environment)
                if turn:  # the first turn writes byte code and fills the disk cache
                    figures[name].append(figure)
    time = {name: statistics.median(t for t, _ in runs) for name, runs in figures.items()}
    peak = {name: max(m for _, m in runs) for name, runs in figures.items()}
    for name in commands:
        print(f"{name:<22} {time[name]:6.0f} ms {peak[name]:6.0f} MB")
    bounds = (
        ("cold / import libcst, parse", time["check, cold"] / time["import libcst, parse"], COLD),
        ("warm / import typer", time["check, warm"] / time["import typer"], WARM),
        ("peak memory, MB", peak["check, cold"], MEMORY),
    )
    for name, value, bound in bounds:
        print(f"{name:<28} {value:6.2f}   bound {bound}")
    return int(any(value > bound for _, value, bound in bounds))


def _nothing() -> None:
    """Prepare nothing."""


if __name__ == "__main__":
    sys.exit(main())
