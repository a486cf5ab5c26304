"""A reduced GLM-5 on disk: real MLA head sizes, everything else cut, seeded random weights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Shape:
    """What is cut; the KV cache row stays GLM-5's own 512 + 64.

    GLM-5 itself has 78 layers (3 dense), hidden size 6144, 64 heads, 256 experts of which 8 are
    taken, and a vocabulary of 154,880.
    """

    layers: int = 8
    hidden: int = 1024
    heads: int = 16
    experts: int = 8
    experts_taken: int = 2
    vocabulary: int = 4096
    draft_layer: bool = False
    """Whether a next-token-prediction layer comes along, for speculative decoding."""


def write(folder: Path, shape: Shape, *, weights: bool, seed: int = 0) -> None:
    """Write config, tokenizer and, if asked, weights.

    Args:
        folder: made if need be.
        weights: write a seeded random checkpoint. Without it serve with ``--load-format dummy``:
            enough to time, but dummy weights give two distinct tokens and compare nothing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _dump(folder / "config.json", config(shape))
    _tokenizer(folder, shape.vocabulary)
    if weights:
        _weights(folder, shape, seed)


def config(shape: Shape) -> dict[str, Any]:
    """Return the Hugging Face configuration.

    The type is ``deepseek_v3`` because transformers' own class for GLM-5 insists on an indexer
    (``index_topk``), with which sglang takes another attention backend; sglang picks the model
    class by architecture, which is GLM-5's.
    """
    return {
        "architectures": ["GlmMoeDsaForCausalLM"],
        "model_type": "deepseek_v3",
        "torch_dtype": "bfloat16",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 1,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "intermediate_size": 2 * shape.hidden,
        "moe_intermediate_size": 512,
        "initializer_range": 0.02,
        "max_position_embeddings": 202752,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "first_k_dense_replace": min(3, max(1, shape.layers // 2)),
        "moe_layer_freq": 1,
        "n_group": 1,
        "topk_group": 1,
        "n_routed_experts": shape.experts,
        "n_shared_experts": 1,
        "num_experts_per_tok": shape.experts_taken,
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "kv_lora_rank": 512,
        "q_lora_rank": 2048,
        "qk_nope_head_dim": 192,
        "qk_rope_head_dim": 64,
        "v_head_dim": 256,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "use_cache": True,
        "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"},
        "vocab_size": shape.vocabulary,
        "index_topk": None,
        "num_nextn_predict_layers": 1 if shape.draft_layer else 0,
    }


def _dump(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")


def _tokenizer(folder: Path, vocabulary: int) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    special = ["<s>", "</s>", "<unk>"]
    words = special + [f"w{i}" for i in range(len(special), vocabulary)]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(special)
    tokenizer.save(str(folder / "tokenizer.json"))
    _dump(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "unk_token": "<unk>",
            "pad_token": "</s>",
            "model_max_length": 202752,
        },
    )
    _dump(
        folder / "generation_config.json", {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    )


def _weights(folder: Path, shape: Shape, seed: int) -> None:
    import torch
    from safetensors.torch import save_file

    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device=device).manual_seed(seed)

    def normal(size: tuple[int, ...], scale: float) -> torch.Tensor:
        drawn = torch.randn(size, generator=generator, device=device) * scale
        return drawn.to(torch.bfloat16).cpu()

    index: dict[str, str] = {}
    for part, tensors in enumerate(_parts(shape)):
        name = f"model-{part:05d}.safetensors"
        made: dict[str, torch.Tensor] = {}
        for key, (kind, size) in tensors.items():
            if kind == "ones":
                made[key] = torch.ones(size, dtype=torch.bfloat16)
            elif kind == "zeros":
                made[key] = torch.zeros(size)
            else:
                # 0.04 spreads the keys over e4m3's range; the embedding carries the signal.
                made[key] = normal(size, 1.0 if kind == "embedding" else 0.04)
        save_file(made, str(folder / name), metadata={"format": "pt"})
        index.update(dict.fromkeys(made, name))
    _dump(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": index})


Tensors = dict[str, tuple[str, tuple[int, ...]]]


def _parts(shape: Shape) -> Iterator[Tensors]:
    """Yield the tensors of each file: kind and size by name."""
    hidden, vocabulary = shape.hidden, shape.vocabulary
    yield {
        "model.embed_tokens.weight": ("embedding", (vocabulary, hidden)),
        "model.norm.weight": ("ones", (hidden,)),
        "lm_head.weight": ("normal", (vocabulary, hidden)),
    }
    dense = config(shape)["first_k_dense_replace"]
    for layer in range(shape.layers):
        yield _layer(shape, f"model.layers.{layer}.", moe=layer >= dense)
    if shape.draft_layer:
        base = f"model.layers.{shape.layers}."
        yield {
            **_layer(shape, base, moe=True),
            base + "eh_proj.weight": ("normal", (hidden, 2 * hidden)),
            base + "enorm.weight": ("ones", (hidden,)),
            base + "hnorm.weight": ("ones", (hidden,)),
            base + "shared_head.norm.weight": ("ones", (hidden,)),
        }


def _layer(shape: Shape, base: str, *, moe: bool) -> Tensors:
    values = config(shape)
    hidden, heads = shape.hidden, shape.heads
    nope, rope, v = values["qk_nope_head_dim"], values["qk_rope_head_dim"], values["v_head_dim"]
    q_rank, kv_rank = values["q_lora_rank"], values["kv_lora_rank"]
    attention = base + "self_attn."
    tensors: Tensors = {
        base + "input_layernorm.weight": ("ones", (hidden,)),
        base + "post_attention_layernorm.weight": ("ones", (hidden,)),
        attention + "q_a_proj.weight": ("normal", (q_rank, hidden)),
        attention + "q_a_layernorm.weight": ("ones", (q_rank,)),
        attention + "q_b_proj.weight": ("normal", (heads * (nope + rope), q_rank)),
        attention + "kv_a_proj_with_mqa.weight": ("normal", (kv_rank + rope, hidden)),
        attention + "kv_a_layernorm.weight": ("ones", (kv_rank,)),
        attention + "kv_b_proj.weight": ("normal", (heads * (nope + v), kv_rank)),
        attention + "o_proj.weight": ("normal", (hidden, heads * v)),
    }
    if not moe:
        tensors.update(_mlp(base + "mlp.", hidden, values["intermediate_size"]))
        return tensors
    inner = values["moe_intermediate_size"]
    tensors[base + "mlp.gate.weight"] = ("normal", (shape.experts, hidden))
    tensors[base + "mlp.gate.e_score_correction_bias"] = ("zeros", (shape.experts,))
    for expert in range(shape.experts):
        tensors.update(_mlp(f"{base}mlp.experts.{expert}.", hidden, inner))
    tensors.update(_mlp(base + "mlp.shared_experts.", hidden, inner))
    return tensors


def _mlp(base: str, hidden: int, inner: int) -> Tensors:
    return {
        base + "gate_proj.weight": ("normal", (inner, hidden)),
        base + "up_proj.weight": ("normal", (inner, hidden)),
        base + "down_proj.weight": ("normal", (hidden, inner)),
    }
