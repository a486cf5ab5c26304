"""Figures of the models, from the table and from a config.json."""

from __future__ import annotations

from typing import Any

import pytest

from rewriter.errors import UsageError
from rewriter.probes.models import MODELS, Model, from_config, named

GLM5: dict[str, Any] = {
    "architectures": ["GlmMoeDsaForCausalLM"], "num_hidden_layers": 78, "num_attention_heads": 64,
    "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 192, "v_head_dim": 256,
    "n_routed_experts": 256, "first_k_dense_replace": 3, "moe_layer_freq": 1,
    "index_head_dim": 128, "index_topk": 2048, "max_position_embeddings": 202752,
    "num_nextn_predict_layers": 1,
}  # fmt: skip


def test_glm5_from_its_config() -> None:
    assert from_config(GLM5, "GLM-5") == MODELS["GLM-5"]
    assert from_config(GLM5).name == "GlmMoeDsaForCausalLM"
    assert from_config({"text_config": GLM5, "_name_or_path": "a/b"}).name == "b"


@pytest.mark.parametrize(
    ("name", "layers", "moe", "fp8", "index"),
    [
        ("GLM-5", 78, 75, 44_928, 10_296),
        ("DeepSeek-V3", 61, 58, 35_136, 0),
        ("DeepSeek-R1", 61, 58, 35_136, 0),
        ("DeepSeek-V3.2", 61, 58, 35_136, 8_052),
        ("Kimi-K2", 61, 60, 35_136, 0),
        ("GLM-4.7-Flash", 47, 46, 27_072, 0),
    ],
)
def test_bytes_a_token(name: str, layers: int, moe: int, fp8: int, index: int) -> None:
    model = MODELS[name]
    assert (model.layers, model.moe_layers) == (layers, moe)
    assert model.layers * model.row == fp8
    assert model.index_bytes_per_token == index
    assert model.indexed == bool(index)


def test_moe_layers_are_counted_as_sglang_does() -> None:
    every_second = {**GLM5, "moe_layer_freq": 2}
    assert from_config(every_second).moe_layers == sum(at % 2 == 0 for at in range(3, 78))
    listed = {**GLM5, "moe_layer_freq": [0, 0, 0, *[1] * 75]}
    assert from_config(listed).moe_layers == 75
    dense = {**GLM5, "n_routed_experts": None}
    assert from_config(dense).moe_layers == 0


def test_an_indexer_that_is_switched_off() -> None:
    assert from_config({**GLM5, "index_topk": None}).index_bytes_per_token == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kv_lora_rank": None}, "no kv_lora_rank"),
        ({"num_hidden_layers": 0}, "no num_hidden_layers"),
        ({"v_head_dim": "256"}, "expected a whole number"),
        ({"qk_rope_head_dim": -1}, "expected a whole number"),
        ({"num_attention_heads": True}, "expected a whole number"),
    ],
)
def test_other_configs_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        from_config({**GLM5, **change})


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("glm-5", "GLM-5"),
        ("zai-org/GLM-5-FP8", "GLM-5"),
        ("deepseek-ai/DeepSeek-V3-0324", "DeepSeek-V3"),
        ("deepseek-ai/DeepSeek-V3.2-Exp", "DeepSeek-V3.2"),
        ("moonshotai/Kimi-K2-Instruct/", "Kimi-K2"),
        ("GLM_4.7_Flash", "GLM-4.7-Flash"),
    ],
)
def test_names(name: str, model: str) -> None:
    assert named(name) is MODELS[model]


@pytest.mark.parametrize("name", ["GLM-5.1", "DeepSeek-V3.1", "Llama", "GLM-50", ""])
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"config\.json"):
        named(name)


def test_a_model_is_frozen() -> None:
    model: Model = MODELS["GLM-5"]
    with pytest.raises(AttributeError):
        model.layers = 3  # type: ignore[misc]
