"""What ``rewriter matrix`` costs beside the parts that it is made of.

    python benchmarks/matrix.py REPOSITORY [--revs A..B] [--runs N]

Measures whole processes with the git processes that they start, CPU time (user and system) and
peak memory, in turns, so that a machine that slows down slows all of them; each figure is the
median, and figures that are compared are compared round by round. REPOSITORY is a clone of sglang;
nothing is written to it.

- log: ``git log --raw`` over the path of the codemod's file.
- judging: a Python that reads every distinct source of that log, and judges each once.
- start: ``python -c "import typer"``, which every verb pays before it does anything.
- cold: the cache is emptied before each run. Bound: 1.5 times log and judging together. Told as
  well, and harder: what is left beside judging, with and without the start, in units of the log.
- warm: nothing changed since the run before. Bound: the log, plus 150 ms.
- memory: the largest process of a cold run, git's left out. Bound: 300 MB.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from rewriter import catalog

CODEMOD = "mla_kv_gather"
COLD, WARM, MEMORY = 1.5, 150.0, 300.0

JUDGING = """
import gc
import subprocess, sys
gc.disable()  # as the tool itself does
from rewriter import catalog
from rewriter.judge import judge

repository, *ids = sys.argv[1:]
codemod = catalog.load("mla_kv_gather")
command = ["git", "cat-file", "--batch"]
with subprocess.Popen(
    command, cwd=repository, stdin=subprocess.PIPE, stdout=subprocess.PIPE
) as git:
    for oid in ids:
        git.stdin.write(oid.encode() + b"\\n")
        git.stdin.flush()
        size = int(git.stdout.readline().split()[2])
        raw = git.stdout.read(size + 1)[:size]
        judge(codemod, {codemod.target: raw}.get, None)
    git.stdin.close()
gc.freeze()
"""


def main() -> None:
    """Measure, and print a Markdown table; exit 1 where a bound is broken."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("repository", type=Path)
    parser.add_argument("--revs", default="HEAD")
    parser.add_argument("--runs", type=int, default=9)
    options = parser.parse_args()
    repository: Path = options.repository
    log = log_command(repository, options.revs)
    ids = distinct(subprocess.run(log, capture_output=True, check=True).stdout.decode())
    commits = git(repository, "rev-list", "--count", options.revs)
    with tempfile.TemporaryDirectory(prefix="rewriter-") as cache:
        matrix = [sys.executable, "-m", "rewriter", "matrix", CODEMOD]
        matrix += ["--repo", str(repository), "--revs", options.revs]
        found = in_turns(
            {
                "log": lambda: measured(log),
                "judging": lambda: measured([*PYTHON, JUDGING, str(repository), *ids]),
                "start": lambda: measured([*PYTHON, "import typer"]),
                "cold": lambda: measured(matrix, emptied(Path(cache, "cold"))),
                "warm": lambda: measured(matrix, Path(cache, "warm")),
            },
            options.runs,
        )
    print(f"{commits} commits, {len(ids)} distinct sources; {options.runs} runs of each\n")
    sys.exit(report(found, len(ids)))


PYTHON = [sys.executable, "-c"]


def log_command(repository: Path, revs: str) -> list[str]:
    """Return the log that the matrix is compared with."""
    path = f"python/{catalog.load(CODEMOD).target}"
    log = ["log", "--raw", "--no-abbrev", revs]
    return ["git", "-C", str(repository), *log, "--", path]


def distinct(log: str) -> list[str]:
    """Return the blobs that a raw log brings, each once."""
    lines = [line.split() for line in log.splitlines() if line.startswith(":")]
    return list(dict.fromkeys(oid for *_, oid, _status, _path in lines if set(oid) != {"0"}))


def git(repository: Path, *arguments: str) -> str:
    """Run git and return what it printed."""
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, capture_output=True, check=True).stdout.decode().strip()


def emptied(cache: Path) -> Path:
    """Return a cache directory after removing what it holds."""
    subprocess.run(["rm", "-rf", str(cache)], check=True)
    return cache


def measured(command: list[str], cache: Path | None = None) -> tuple[float, float]:
    """Run a command; return its CPU time in ms, with its children's, and peak memory in MB.

    The kernel's figure of memory is the largest of the process and its children. Git maps its
    packs into memory, which counts though nothing is held; so Python's own peak is read apart.
    """
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    if cache is not None:
        environment["REWRITER_CACHE_DIR"] = str(cache)
        command = [*PYTHON, PEAK, *command[3:]]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=errors
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        told = errors.read().decode()
    if process.returncode not in (0, 1):
        sys.exit(f"{command[0]} failed: {told}")
    peak = float(told.split()[-1]) if cache is not None else usage.ru_maxrss
    return (usage.ru_utime + usage.ru_stime) * 1000, peak / 1024


PEAK = """
import resource, sys
from rewriter.cli import main
try:
    main(sys.argv[1:])
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""


Figures = dict[str, list[tuple[float, float]]]
"""CPU time in ms and memory in MB of each part, a pair a round."""


def in_turns(parts: dict[str, Callable[[], tuple[float, float]]], runs: int) -> Figures:
    """Measure every part once a round, after a round that does not count."""
    figures: Figures = {name: [] for name in parts}
    for number in range(runs + 1):
        for name, run in parts.items():
            figure = run()
            if number:
                figures[name].append(figure)
    return figures


def report(found: Figures, sources: int) -> int:
    """Print the figures beside their bounds; return 1 where one is broken."""
    times = {name: [time for time, _ in each] for name, each in found.items()}
    log, judging, start, cold, warm = (
        statistics.median(times[name]) for name in ("log", "judging", "start", "cold", "warm")
    )
    rounds = list(
        zip(*(times[n] for n in ("log", "judging", "start", "cold", "warm")), strict=True)
    )
    whole = statistics.median(c / (g + j) for g, j, _, c, _ in rounds)
    beside = statistics.median((c - j) / g for g, j, _, c, _ in rounds)
    started = statistics.median((c - j - s) / g for g, j, s, c, _ in rounds)
    later = statistics.median(w - g for g, _, _, _, w in rounds)
    memory = max(megabytes for name in ("cold", "warm") for _, megabytes in found[name])
    print("| what | CPU | bound |")
    print("| --- | --- | --- |")
    print(f"| `git log --raw` over the path | {log:.0f} ms | |")
    print(f"| judging {sources} sources alone | {judging:.0f} ms | |")
    print(f"| `import typer` | {start:.0f} ms | |")
    print(f"| cold | {cold:.0f} ms = {whole:.2f} × (log + judging) | {COLD} × (log + judging) |")
    print(f"| cold, beside judging | {beside:.2f} × log; without the start {started:.2f} × log | |")
    print(f"| warm | {warm:.0f} ms = log {later:+.0f} ms | log + {WARM:.0f} ms |")
    print(f"| memory | {memory:.0f} MB | {MEMORY:.0f} MB |")
    return 0 if whole <= COLD and later <= WARM and memory < MEMORY else 1


if __name__ == "__main__":
    main()
