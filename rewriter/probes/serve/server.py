"""Start sglang servers, several at once, and end exactly the processes that were started."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rewriter.errors import TargetError
from rewriter.probes.load.client import LoadError, wait_ready

ATTENTION = {
    "flashinfer": ("--flashinfer-mla-disable-ragged",),
    "fa3": ("--disable-chunked-prefix-cache",),
}
"""Attention backends, each with the flag that makes its prefill read the pool.

FlashInfer's ragged prefill would not, and its kernel takes half an hour to build where none is
shipped; fa3 would convert a prefix to keys of all heads, chunk by chunk.
"""


@dataclass(frozen=True)
class Serving:
    """One server to run.

    Attributes:
        name: for reports and log files.
        model: the model's folder.
        package: a directory that goes in front of PYTHONPATH, or None for what is installed.
        graphs: whether CUDA graphs are on.
        attention: one of ATTENTION.
        kv_dtype: ``fp8_e4m3``, or ``auto`` for the model's own.
        pool: tokens of the KV pool.
        draft: speculative decoding by the model's own next-token layer.
        dummy: dummy weights instead of the folder's.
        gpus: tensor-parallel size.
        flags: further flags.
    """

    name: str
    model: Path
    package: Path | None = None
    graphs: bool = True
    attention: str = "flashinfer"
    kv_dtype: str = "fp8_e4m3"
    pool: int = 495_552
    draft: bool = False
    dummy: bool = False
    gpus: int = 1
    flags: tuple[str, ...] = ()

    def arguments(self, port: int) -> list[str]:
        """Return the command line of ``sglang.launch_server``."""
        found = [
            "--model-path", str(self.model), "--host", "127.0.0.1", "--port", str(port),
            "--attention-backend", self.attention, *ATTENTION[self.attention],
            "--kv-cache-dtype", self.kv_dtype,
            "--page-size", "1", "--max-total-tokens", str(self.pool),
            "--max-running-requests", "8", "--context-length", "131072",
            "--dtype", "bfloat16", "--chunked-prefill-size", "1024",
            "--disable-piecewise-cuda-graph",
            "--sampling-backend", "pytorch", "--grammar-backend", "none",
            "--skip-server-warmup", "--disable-flashinfer-autotune", "--tp-size", str(self.gpus),
        ]  # fmt: skip
        found += ["--cuda-graph-max-bs", "8"] if self.graphs else ["--disable-cuda-graph"]
        if self.dummy:
            found += ["--load-format", "dummy"]
        if self.draft:
            found += [
                "--speculative-algorithm", "NEXTN", "--speculative-num-steps", "3",
                "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4",
            ]  # fmt: skip
        return [*found, *self.flags]


@dataclass
class Running:
    """A server that was started."""

    serving: Serving
    url: str
    log: Path
    process: subprocess.Popen[bytes]
    began: float = field(default_factory=time.monotonic)


def start(serving: Serving, logs: Path, python: str = sys.executable) -> Running:
    """Start a server; does not wait for it. Its output goes to ``logs/NAME.log``."""
    port = _free_port()
    environment = dict(os.environ)
    if serving.package is not None:
        behind = environment.get("PYTHONPATH")
        paths = [str(serving.package), *([behind] if behind else [])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"{serving.name}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [python, "-m", "sglang.launch_server", *serving.arguments(port)],
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
    return Running(serving, f"http://127.0.0.1:{port}", log, process)


def wait(running: Running, limit_s: float) -> float:
    """Wait until a server answers; return the seconds since its start.

    Raises:
        TargetError: it ended or did not come up; the end of its log stands in the message.
    """
    try:
        wait_ready(running.url, limit_s, alive=lambda: running.process.poll() is None)
    except LoadError as error:
        lines = running.log.read_text(errors="replace").splitlines()
        told = "\n".join(["the end of its log:", *lines[-25:]])
        raise TargetError(f"server {running.serving.name}: {error}; {told}") from error
    return time.monotonic() - running.began


def stop(servers: Iterable[Running]) -> None:
    """End servers and the processes that they started, by their ids."""
    groups = [(running, _descendants(running.process.pid)) for running in servers]
    for code in (signal.SIGTERM, signal.SIGKILL):
        for running, children in groups:
            for pid in [running.process.pid, *children]:
                _signal(pid, code)
        for running, _ in groups:
            _ended(running.process, 8.0)


def _ended(process: subprocess.Popen[bytes], limit_s: float) -> None:
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return


def _signal(pid: int, code: signal.Signals) -> None:
    try:
        os.kill(pid, code)
    except ProcessLookupError:
        return


def _descendants(pid: int) -> list[int]:
    """Return the ids of all processes below one, from /proc."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found: list[int] = []
    level: Sequence[int] = [pid]
    while level:
        level = [child for child, parent in parents.items() if parent in level]
        found += level
    return found


def _free_port() -> int:
    """Return a free port that leaves room above: sglang takes others 10,000 and more further up."""
    for port in random.Random().sample(range(20_000, 40_000), 50):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise TargetError("no free port between 20,000 and 40,000")
