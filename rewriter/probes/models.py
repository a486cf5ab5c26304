"""Figures of the MLA models that the probes know, and a reader of ``config.json``.

The table's figures are the defaults of transformers 5.17's configurations (Kimi-K2: its own
``config.json``). A byte count is bytes, a row is one token's entry of one layer's KV pool.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rewriter.errors import UsageError


@dataclass(frozen=True)
class Model:
    """The sizes of a model with multi-head latent attention (MLA).

    Attributes:
        name: how people call it.
        layers: attention layers (``num_hidden_layers``), without the NextN draft layers.
        moe_layers: layers with routed experts; 0 for a dense model.
        heads: query heads.
        kv_lora_rank: values of a row's latent part.
        qk_rope_head_dim: values of a row's rotary part.
        qk_nope_head_dim: values of a head's part without position.
        v_head_dim: values of a head's output.
        index_bytes_per_token: bytes of the sparse attention's index cache, over all layers; it
            stays FP8 with a scale whatever the KV cache's dtype. 0 without an indexer.
        max_context: tokens of the longest sequence; None where releases of the model differ.
        nextn_layers: draft layers for multi-token prediction that the checkpoint carries; the
            server adds them to the pool only when it speculates.
    """

    name: str
    layers: int
    moe_layers: int
    heads: int
    kv_lora_rank: int
    qk_rope_head_dim: int
    qk_nope_head_dim: int
    v_head_dim: int
    index_bytes_per_token: int
    max_context: int | None
    nextn_layers: int = 1

    @property
    def row(self) -> int:
        """Values of one pool row: one head of latent and rotary parts, on every TP rank."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    @property
    def indexed(self) -> bool:
        """Whether the model's attention is sparse, with an index cache (DSA)."""
        return self.index_bytes_per_token > 0


def index_bytes(layers: int, index_head_dim: int) -> int:
    """Return bytes a token of DSA's index cache.

    One byte a value and one float32 scale a block of 128 values, in every layer.
    """
    return layers * (index_head_dim + index_head_dim // 128 * 4)


# name, layers, MoE layers, heads, kv rank, rope, nope, v, index bytes, longest context, NextN
_TABLE = (
    Model("GLM-5", 78, 75, 64, 512, 64, 192, 256, index_bytes(78, 128), 202_752),
    Model("DeepSeek-V3", 61, 58, 128, 512, 64, 128, 128, 0, 163_840),
    Model("DeepSeek-R1", 61, 58, 128, 512, 64, 128, 128, 0, 163_840),
    Model("DeepSeek-V3.2", 61, 58, 128, 512, 64, 128, 128, index_bytes(61, 128), 163_840),
    Model("Kimi-K2", 61, 60, 64, 512, 64, 128, 128, 0, None, nextn_layers=0),
    Model("GLM-4.7-Flash", 47, 46, 20, 512, 64, 192, 256, 0, 202_752),
)

MODELS: Mapping[str, Model] = {model.name: model for model in _TABLE}


def named(name: str) -> Model:
    """Return a known model, by its name in any case and with or without its publisher.

    A checkpoint's name may say more than the model's (``zai-org/GLM-5-FP8``): the longest known
    name that it starts with, at a boundary, counts.

    Raises:
        UsageError: the model is not in the table.
    """
    wanted = name.rstrip("/").rsplit("/", 1)[-1].casefold().replace("_", "-")
    fitting = [known for known in MODELS if _starts(wanted, known.casefold())]
    if not fitting:
        raise UsageError(
            f"model {name!r} is not one of {', '.join(MODELS)}; give its config.json instead"
        )
    return MODELS[max(fitting, key=len)]


def _starts(wanted: str, known: str) -> bool:
    # `glm-5.1` and `deepseek-v3.1` are other models, of which nothing is known here.
    return wanted == known or wanted.startswith(known + "-")


def from_config(config: Mapping[str, Any], name: str | None = None) -> Model:
    """Return the figures of a Hugging Face ``config.json`` that was read with ``json``.

    Args:
        config: the document; a multimodal model's ``text_config`` is looked into.
        name: how to call the model; default the config's own ``_name_or_path``, else its
            architecture.

    Raises:
        UsageError: it is not a model with MLA, or a figure is missing or no positive number.
    """
    inner = config.get("text_config")
    text = inner if isinstance(inner, Mapping) and "kv_lora_rank" in inner else config
    layers = _figure(text, "num_hidden_layers")
    return Model(
        name=name or _name(config),
        layers=layers,
        moe_layers=_moe_layers(text, layers),
        heads=_figure(text, "num_attention_heads"),
        kv_lora_rank=_figure(text, "kv_lora_rank"),
        qk_rope_head_dim=_figure(text, "qk_rope_head_dim"),
        qk_nope_head_dim=_figure(text, "qk_nope_head_dim"),
        v_head_dim=_figure(text, "v_head_dim"),
        index_bytes_per_token=_index(text, layers),
        max_context=_optional(text, "max_position_embeddings"),
        nextn_layers=_optional(text, "num_nextn_predict_layers") or 0,
    )


def _name(config: Mapping[str, Any]) -> str:
    path = config.get("_name_or_path")
    if isinstance(path, str) and path:
        return path.rstrip("/").rsplit("/", 1)[-1]
    architectures = config.get("architectures")
    if isinstance(architectures, list) and architectures:
        return str(architectures[0])
    return str(config.get("model_type", "model"))


def _figure(config: Mapping[str, Any], key: str) -> int:
    value = _optional(config, key)
    if not value:
        raise UsageError(
            f"config.json has no {key}: the model has no multi-head latent attention, or the "
            "file is not a model's configuration"
        )
    return value


def _optional(config: Mapping[str, Any], key: str) -> int | None:
    value = config.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise UsageError(f"config.json: {key} is {value!r}, expected a whole number")
    return value


def _moe_layers(config: Mapping[str, Any], layers: int) -> int:
    """Count as sglang's DeepseekV2DecoderLayer does: from the first sparse one, every freq-th."""
    if not _optional(config, "n_routed_experts"):
        return 0
    first = _optional(config, "first_k_dense_replace") or 0
    every = config.get("moe_layer_freq", 1)
    if isinstance(every, list):
        return sum(1 for at, sparse in enumerate(every[:layers]) if sparse and at >= first)
    step = _optional(config, "moe_layer_freq") or 1
    return sum(1 for at in range(first, layers) if at % step == 0)


def _index(config: Mapping[str, Any], layers: int) -> int:
    # A checkpoint can switch its indexer off with `index_topk: null`.
    size = _optional(config, "index_head_dim")
    if not size or not _optional(config, "index_topk"):
        return 0
    return index_bytes(layers, size)
