"""What is known besides the trace: the model's figures and the server's settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rewriter.errors import UsageError
from rewriter.probes.models import Model, from_config, named
from rewriter.probes.trace.problems import TraceError

SERVER_ARGS = "server_args.json"
"""What ``python -m sglang.profiler`` writes beside its traces, from ``/server_info``."""


@dataclass(frozen=True)
class Known:
    """Figures that a trace does not hold; None where nobody said.

    Attributes:
        model: sizes of the model.
        layers: attention layers, where they differ from the model's (a reduced copy).
        pool: tokens of the KV pool.
        page: tokens of a page; the pool's buffer has one page more than the pool.
        kv_dtype: as ``--kv-cache-dtype`` names it.
        backend: attention backend of decoding.
        version: of sglang.
        speculative: whether the server drafts (the pool then has a NextN layer too).
        source: where the server's settings come from, for the report.
    """

    model: Model | None = None
    layers: int | None = None
    pool: int | None = None
    page: int | None = None
    kv_dtype: str | None = None
    backend: str | None = None
    version: str | None = None
    speculative: bool = False
    source: str = ""

    @property
    def attention_layers(self) -> int | None:
        """Attention layers, if known."""
        if self.layers is not None:
            return self.layers
        return self.model.layers if self.model else None

    def over(self, other: Known) -> Known:
        """Return these figures, with another's where nothing is known here."""
        missing = {
            name: getattr(other, name)
            for name in self.__dataclass_fields__
            if not getattr(self, name) and getattr(other, name)
        }
        return replace(self, **missing)


def model_of(name: str | None, config: Path | None) -> Model | None:
    """Return the model that the command line names.

    Raises:
        UsageError: unknown, or its config is not one of an MLA model.
    """
    if config is not None:
        return from_config(_document(config), name)
    return named(name) if name else None


def server_beside(trace: Path) -> Known:
    """Return the settings that stand beside a trace, or nothing known."""
    beside = trace.parent / SERVER_ARGS
    return server_from(beside) if beside.is_file() else Known()


def server_from(path: Path) -> Known:
    """Read settings as ``/server_info`` (``/get_server_info``) answers.

    Raises:
        TraceError: the file is not such a document.
    """
    found = _document(path)
    return Known(
        model=_model(found),
        pool=_pool(found),
        page=_number(found.get("page_size")),
        kv_dtype=_text(found.get("kv_cache_dtype")),
        backend=_text(found.get("decode_attention_backend"))
        or _text(found.get("attention_backend")),
        version=_text(found.get("version")),
        speculative=bool(found.get("speculative_algorithm")),
        source=path.name,
    )


def _document(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise TraceError(f"{path}: not a JSON document: {error}") from error
    if not isinstance(found, dict):
        raise TraceError(f"{path}: expected a JSON object, found {type(found).__name__}")
    return found


def _model(settings: Mapping[str, Any]) -> Model | None:
    """Return the model of ``model_path``: a folder with a config here, or a known name."""
    path = _text(settings.get("model_path"))
    if path is None:
        return None
    config = Path(path) / "config.json"
    try:
        return from_config(_document(config)) if config.is_file() else named(path)
    except UsageError:
        return None  # another model: the trace alone has to do


def _pool(settings: Mapping[str, Any]) -> int | None:
    """Return the pool's tokens: by the scheduler, by its memory report, or as asked for."""
    direct = _number(settings.get("max_total_num_tokens"))
    if direct is not None:
        return direct
    states = settings.get("internal_states")
    for state in states if isinstance(states, list) else ():
        usage = state.get("memory_usage") if isinstance(state, dict) else None
        tokens = _number(usage.get("token_capacity")) if isinstance(usage, dict) else None
        if tokens is not None:
            return tokens
    return _number(settings.get("max_total_tokens"))


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
