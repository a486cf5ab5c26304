"""What the backend's file imports, replaced by name: modules move between releases, names stay.

A name that is not known here becomes a ``Placeholder``: fine as an annotation, a base class or
the second argument of ``isinstance``, an error that names it as soon as it is called or read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from types import SimpleNamespace
from typing import Any

import torch

from rewriter.probes.equivalence import attention, indices, spec_inputs
from rewriter.probes.equivalence.indices import Shards


class MissingStandIn(Exception):
    """The file uses something that has no stand-in, so that nothing can be said of a mode."""


class _Refusing(type):
    """Metaclass of placeholders: the class exists, using it is refused."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise MissingStandIn(f"no stand-in for {cls.__name__}(), imported by the backend's file")

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise MissingStandIn(f"no stand-in for {cls.__name__}.{name}, used by the backend's file")


def placeholder(name: str) -> type:
    """Return a class that may be named but not used."""
    return _Refusing(name, (), {})


class ForwardMode(Enum):
    """The kinds of forward pass, with the questions that backends ask of them."""

    EXTEND = auto()
    DECODE = auto()
    IDLE = auto()
    TARGET_VERIFY = auto()
    DRAFT_EXTEND = auto()
    DRAFT_EXTEND_V2 = auto()

    def is_decode(self) -> bool:
        """Return whether one token a request is computed."""
        return self is ForwardMode.DECODE

    def is_idle(self) -> bool:
        """Return whether nothing is."""
        return self is ForwardMode.IDLE

    def is_decode_or_idle(self) -> bool:
        """Return whether at most one token a request is."""
        return self in (ForwardMode.DECODE, ForwardMode.IDLE)

    def is_target_verify(self) -> bool:
        """Return whether drafted tokens are verified."""
        return self is ForwardMode.TARGET_VERIFY

    def is_draft_extend(self, include_v2: bool = False) -> bool:
        """Return whether a draft is extended by what was accepted."""
        return self is ForwardMode.DRAFT_EXTEND or (include_v2 and self.is_draft_extend_v2())

    def is_draft_extend_v2(self, **more: Any) -> bool:
        """Return whether a draft is extended by a fixed window."""
        return self is ForwardMode.DRAFT_EXTEND_V2

    def is_context_parallel_extend(self, **more: Any) -> bool:
        """Return whether several ranks may share the queries of this pass."""
        return self is ForwardMode.EXTEND

    def is_extend(self, **more: Any) -> bool:
        """Return whether several tokens a request are computed."""
        return not self.is_decode_or_idle()


@dataclass
class Settings:
    """How the stand-in server is started; read through every door that releases have for it."""

    disable_ragged: bool = False
    shards: Shards = field(default_factory=Shards)
    captured_prefill: bool = False

    def arguments(self) -> SimpleNamespace:
        """Return the server's arguments as attributes."""
        return SimpleNamespace(
            disaggregation_mode="null",
            disable_chunked_prefix_cache=False,
            flashinfer_mla_disable_ragged=self.disable_ragged,
            kernel=SimpleNamespace(flashinfer_mla_disable_ragged=self.disable_ragged),
            page_size=1,
            enable_dp_attention=False,
            dp_size=1,
            flashinfer_workspace_size=64,
            enable_flashinfer_mla=True,
            is_sm100=False,
        )

    def parallel(self) -> SimpleNamespace:
        """Return the ranks and sizes of the parallel groups."""
        size, rank = self.shards.size, self.shards.rank
        return SimpleNamespace(
            attn_tp_size=1, attn_dcp_size=size, dcp_size=size, dcp_rank=rank,
            attn_dcp_rank=rank, dcp_enabled=size > 1,
        )  # fmt: skip


class _EnvironmentVariable:
    def __init__(self, value: Any) -> None:
        self._value = value

    def get(self) -> Any:
        """Return the value."""
        return self._value


class _Environment:
    """``envs``: the workspace is small, every switch is off."""

    SGLANG_FLASHINFER_WORKSPACE_SIZE = _EnvironmentVariable(64)

    def __getattr__(self, name: str) -> _EnvironmentVariable:
        return _EnvironmentVariable(False)


class _ProcessEnvironment(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return "0"


class _AttentionBackend:
    """Base class of the backends."""

    def init_forward_metadata_in_graph(self, forward_batch: Any) -> None:
        """Do nothing inside the graph."""


class _WriteLocation:
    """``KVWriteLoc``: where a batch's new keys go."""

    @staticmethod
    def for_batch(forward_batch: Any) -> torch.Tensor:
        """Return the slots."""
        location: torch.Tensor = forward_batch.out_cache_loc
        return location

    @classmethod
    def for_layer(cls, forward_batch: Any, layer: Any, **more: Any) -> torch.Tensor:
        """Return the slots, the same for every layer."""
        return cls.for_batch(forward_batch)


def _inner_view(forward_batch: Any, *, bs: int, forward_mode: ForwardMode, **more: Any) -> Any:
    return SimpleNamespace(
        **{**vars(forward_batch), "batch_size": bs, "forward_mode": forward_mode}
    )


def _next_power_of_2(n: int) -> int:
    return 1 << (n - 1).bit_length() if n > 0 else 1


def names(settings: Settings) -> dict[str, Any]:
    """Return every name that has a stand-in, for one loaded copy of the file."""
    buffers: dict[str, torch.Tensor] = {}

    def get_buffer(name: str, make: Any) -> torch.Tensor:
        if name not in buffers:
            buffers[name] = make()
        return buffers[name]

    def hooks(allocator: Any) -> Any:
        mapping = allocator.mapping
        translate = None if mapping is None else lambda ids: mapping[ids.long()].to(torch.int64)
        return SimpleNamespace(translate_kv_loc_dense=translate, enabled=mapping is not None)

    shards = settings.shards
    return {
        "AttentionBackend": _AttentionBackend,
        "BatchMLAPagedAttentionWrapper": attention.BatchMLAPagedAttentionWrapper,
        "BatchPrefillWithRaggedKVCacheWrapper": attention.BatchPrefillWithRaggedKVCacheWrapper,
        "EagleDraftInput": spec_inputs.EagleDraftInput,
        "EagleVerifyInput": spec_inputs.EagleVerifyInput,
        "ForwardMode": ForwardMode,
        "KVWriteLoc": _WriteLocation,
        "SpecInfo": spec_inputs.SpecInput,
        "SpecInput": spec_inputs.SpecInput,
        "SpecInputType": spec_inputs.SpecInputType,
        "assert_buffer_fits": indices.assert_buffer_fits,
        "build_inner_fb_view": _inner_view,
        "create_flashinfer_kv_indices_triton": indices.create_flashinfer_kv_indices_triton,
        "dcp_enabled": lambda: shards.size > 1,
        "draft_kv_indices_buffer_width": indices.draft_kv_indices_buffer_width,
        "draft_kv_indices_used_len": indices.draft_kv_indices_used_len,
        "environ": _ProcessEnvironment(),
        "envs": _Environment(),
        "generate_draft_decode_kv_indices": indices.generate_draft_decode_kv_indices,
        "get_attention_dcp_world_size": lambda: shards.size,
        "get_attention_tp_size": lambda: 1,
        "get_buffer": get_buffer,
        "get_cuda_graph_max_batch_size": lambda size: size,
        "get_disagg": settings.arguments,
        "get_exec": settings.arguments,
        "get_global_server_args": settings.arguments,
        "get_parallel": settings.parallel,
        "get_platform": settings.arguments,
        "get_schedule": settings.arguments,
        "get_server_args": settings.arguments,
        "global_config": settings.arguments(),
        "global_server_args_dict": vars(settings.arguments()),
        "is_flashinfer_available": lambda: True,
        "is_in_breakable_cuda_graph": lambda: settings.captured_prefill,
        "is_in_piecewise_cuda_graph": lambda: settings.captured_prefill,
        "is_in_tc_piecewise_cuda_graph": lambda: settings.captured_prefill,
        "is_sm100_supported": lambda *a: False,
        "next_power_of_2": _next_power_of_2,
        "plan_dcp_decode_metadata": shards.plan_decode,
        "unified_mla_hooks": hooks,
        "update_local_kv_lens_for_dcp": shards.shorten,
    }
