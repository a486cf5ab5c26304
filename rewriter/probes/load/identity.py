"""Which server a bench ran against, and in what two servers differ."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

_SECRET = ("api_key", "password", "secret", "auth_token", "hf_token")
_OF_THE_MOMENT = frozenset(
    {
        "base_gpu_id", "dist_init_addr", "download_dir", "host", "internal_states",
        "max_req_input_len", "max_total_num_tokens", "model_path", "nccl_port", "port",
        "random_seed", "served_model_name", "show_time_cost", "startup_time", "status",
        "tokenizer_path", "version",
    }
)  # fmt: skip
_PREFIXES_OF_THE_MOMENT = (
    "crash_dump_", "decode_log_", "enable_metrics", "file_storage_", "hicache_object_",
    "kv_event", "log_", "metrics_", "soft_watchdog", "uvicorn_", "watchdog",
)  # fmt: skip
"""Fields that differ between two starts of one server, or are compared by a rule of their own."""

POOL_TOLERANCE = 0.02
"""The pool is sized by what memory is free at the start: two starts differ by some pages."""


@dataclass(frozen=True)
class Server:
    """What a server says about itself.

    Attributes:
        version: of sglang.
        model: what it serves, the last part of its path.
        gpu: its GPU, as ``nvidia-smi`` or the user names it; empty where not known.
        pool: tokens of the KV pool, 0 where not known.
        args: its other arguments that can change a time, without secrets.
    """

    version: str
    model: str
    gpu: str
    pool: int
    args: Mapping[str, Any]

    def arg(self, name: str) -> str:
        """Return an argument as text, empty where it is unset."""
        value = self.args.get(name)
        return "" if value is None else str(value)

    @property
    def kv_dtype(self) -> str:
        """The KV cache's dtype as ``--kv-cache-dtype`` names it."""
        return self.arg("kv_cache_dtype")

    @property
    def backend(self) -> str:
        """The attention backend of decoding."""
        return self.arg("decode_attention_backend") or self.arg("attention_backend")


@dataclass(frozen=True)
class Difference:
    """What two benches do not share."""

    name: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.name}: {self.before or 'unset'} before, {self.after or 'unset'} now"


def described(info: Mapping[str, Any], gpu: str) -> Server:
    """Return the identity in an answer of ``/server_info``."""
    path = info.get("model_path") or info.get("served_model_name") or ""
    return Server(
        version=str(info.get("version", "")),
        model=str(path).rstrip("/").rsplit("/", 1)[-1],
        gpu=gpu,
        pool=_pool(info),
        args={key: value for key, value in sorted(info.items()) if _telling(key)},
    )


def _telling(key: str) -> bool:
    """Whether an argument can change a time, and may be written to a file."""
    return not (
        key in _OF_THE_MOMENT
        or key.startswith(_PREFIXES_OF_THE_MOMENT)
        or any(word in key for word in _SECRET)
    )


def _pool(info: Mapping[str, Any]) -> int:
    tokens = info.get("max_total_num_tokens")
    if not isinstance(tokens, int):
        states = info.get("internal_states")
        state = states[0] if isinstance(states, list) and states else {}
        usage = state.get("memory_usage") if isinstance(state, Mapping) else None
        tokens = usage.get("token_capacity") if isinstance(usage, Mapping) else None
    return tokens if isinstance(tokens, int) else 0


def differences(before: Server, after: Server) -> list[Difference]:
    """Return in what two servers differ, what matters most first.

    The release is no difference: to compare two is what one does at an upgrade. Arguments that
    only one of two releases knows are none either.
    """
    found = []
    if before.model != after.model:
        found.append(Difference("model", before.model, after.model))
    if before.gpu and after.gpu and before.gpu != after.gpu:
        found.append(Difference("GPU", before.gpu, after.gpu))
    if abs(before.pool - after.pool) > POOL_TOLERANCE * max(before.pool, after.pool):
        found.append(Difference("KV pool", f"{before.pool:,} tokens", f"{after.pool:,} tokens"))
    same_release = before.version == after.version
    names: Collection[str] = {*before.args, *after.args} if same_release else before.args
    found += [
        Difference(name, _short(before.args.get(name)), _short(after.args.get(name)))
        for name in sorted(names)
        if (same_release or name in after.args) and before.args.get(name) != after.args.get(name)
    ]
    return found


def _short(value: object) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= 60 else text[:59] + "…"


def local_gpu(host: str) -> str:
    """Return this machine's GPUs, e.g. ``8 x NVIDIA H200``, if the server runs on it; else ``""``.

    ``/server_info`` does not name the GPU.
    """
    program = shutil.which("nvidia-smi")
    if program is None or not (host == "localhost" or host == "::1" or host.startswith("127.")):
        return ""
    try:
        done = subprocess.run(
            [program, "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    names = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    return ", ".join(f"{names.count(name)} x {name}" for name in sorted(set(names)))
