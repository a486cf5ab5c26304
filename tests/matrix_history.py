"""Histories in small for the tests of matrix and bisect: our own sources, commit by commit.

``source`` writes a backend on which ``mla_kv_gather`` is ready, upstream or drifted, as asked.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

CODEMOD = "mla_kv_gather"
FILE = "sglang/srt/layers/attention/flashinfer_mla_backend.py"
COMPANION = "sglang/srt/layers/attention/_rewriter_kv_gather.py"

_BACKEND = '''\
"""A backend in small."""

import torch

HEADER = {note!r}


class FlashInferMLAAttnBackend:
    def __init__(self, model_runner):
        super().__init__()
        self.size = model_runner.size

    def forward_extend(self, q, layer, forward_batch):
        wrapper = self.extend_wrapper
        k_buf = forward_batch.token_to_kv_pool.get_key_buffer(layer.layer_id){cast}
        return wrapper.run(q[0], q[1], k_buf[:, :, :512], k_buf[:, :, 512:])

    def forward_decode(self, q, layer, forward_batch):
        wrapper = self.decode_wrapper
        k_buf = {decode}
        return wrapper.run(q[0], q[1], k_buf[:, :, :512], k_buf[:, :, 512:])


class FlashInferMLAIndicesUpdaterDecode:
    def __init__(self, attn_backend):
        self.attn_backend = attn_backend

    def call_begin_forward(self, wrapper, lens, q_indptr, kv_indptr):
        kv_indptr[1:] = torch.cumsum(lens, dim=0)
        kv_indices = torch.empty(self.rows)
        wrapper.plan(q_indptr, kv_indptr, kv_indices, lens, 128, 512, 64, 1)


class FlashInferMLAIndicesUpdaterPrefill:
    def __init__(self, attn_backend):
        self.attn_backend = attn_backend

    def call_begin_forward(self, wrapper, lens, q_indptr, kv_indptr):
        kv_indptr[1:] = torch.cumsum(lens, dim=0)
        kv_indices = torch.empty(self.rows)
        wrapper.plan(q_indptr, kv_indptr, kv_indices, lens, 128, 512, 64, 1)
'''


def source(kind: str = "ready", note: str = "") -> bytes:
    """Return a backend.

    Args:
        kind: ``ready``; ``upstream``: nothing is cast; ``drifted``: decode reads something that
            is no buffer of the pool; ``broken``: no Python at all.
        note: makes sources that differ.
    """
    if kind == "broken":
        return b"class FlashInferMLAAttnBackend(:\n"
    cast = "" if kind == "upstream" else ".to(q.dtype)"
    pool = f"forward_batch.token_to_kv_pool.get_key_buffer(layer.layer_id){cast}"
    decode = "self.gathered_rows(layer)" if kind == "drifted" else pool
    return _BACKEND.format(note=note, cast=cast, decode=decode).encode()


@dataclass
class Repository:
    """A git repository to which tests commit; dates are a day apart from 2025-01-01 on."""

    path: Path
    prefix: str = "python/"
    days: int = 0

    def git(self, *arguments: str, cwd: Path | None = None) -> str:
        """Run git here, and return what it printed without the last newline."""
        stamp = f"{1735689600 + 86400 * self.days} +0000"
        people = {
            f"GIT_{who}_{key}": text
            for who in ("AUTHOR", "COMMITTER")
            for key, text in (("NAME", "Test"), ("EMAIL", "t@example.invalid"), ("DATE", stamp))
        }
        sealed = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "LC_ALL": "C"}
        done = subprocess.run(
            ["git", "-c", "protocol.file.allow=always", *arguments],
            cwd=cwd or self.path,
            env={"PATH": os.environ["PATH"], **sealed, **people},
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().rstrip("\n")

    def commit(self, subject: str, files: Mapping[str, bytes | None] | bytes | None = None) -> str:
        """Commit files by path inside the package's parent (None removes), and return the id.

        Bytes alone are the backend's.
        """
        self.days += 1
        changed = {FILE: files} if isinstance(files, bytes) else dict(files or {})
        for name, content in changed.items():
            place = self.path / f"{self.prefix}{name}"
            if content is None:
                place.unlink()
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", subject)
        return self.git("rev-parse", "HEAD")


def storied(path: Path) -> Repository:
    """Make a repository in which a codemod lives through everything.

    upstream ×2 (v0.4.5), ready ×3 (v0.4.7), drifted ×2 (v0.5.0), ready, no Python, ready
    (v0.5.2), and a last commit beside it. Each commit is tagged by its number as well: c1, c2, …
    """
    made = repository(path)
    kinds = ["upstream"] * 2 + ["ready"] * 3 + ["drifted"] * 2 + ["ready", "broken", "ready"]
    versions = {1: "0.4.5", 4: "0.4.7", 6: "0.5.0", 9: "0.5.2"}
    for number, kind in enumerate(kinds):
        files: dict[str, bytes | None] = {FILE: source(kind, f"n{number}")}
        if number in versions:
            text = f'__version__ = "{versions[number]}"\n'
            files["sglang/version.py"] = text.encode()
        made.commit(f"{number}: {kind}", files)
        made.git("branch", f"c{number}")
        if number in versions:
            made.git("tag", "-a", "-m", "release", f"v{versions[number]}")
    made.commit("beside it", {"sglang/other.py": b"x = 1\n"})
    return made


def repository(path: Path, prefix: str = "python/") -> Repository:
    """Make a repository whose first commit has the package, without the backend."""
    path.mkdir(parents=True)
    made = Repository(path, prefix)
    made.git("init", "-q", "-b", "main")
    made.commit("package", {"sglang/__init__.py": b"", "sglang/version.py": b""})
    return made
