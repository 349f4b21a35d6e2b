"""Random models of the three kinds that targets have, small enough to run in milliseconds.

Their norm weights are far from one, so that a wrong or missing norm shows.
"""

from pathlib import Path
from typing import Any, Final, Literal

import torch
from transformers import AutoModelForCausalLM, DeepseekV3Config, LlamaConfig, Qwen3Config

Kind = Literal["llama", "qwen3", "deepseek_v3"]

KINDS: Final[tuple[Kind, ...]] = ("llama", "qwen3", "deepseek_v3")
VOCAB: Final = 512
HIDDEN: Final = 64
LAYERS: Final = 8

_COMMON: Final[dict[str, Any]] = {
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": 128,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "max_position_embeddings": 1024,
    "initializer_range": 0.2,
    "tie_word_embeddings": False,
}


def _config(kind: Kind) -> Any:
    if kind == "llama":
        return LlamaConfig(**_COMMON, num_key_value_heads=2)
    if kind == "qwen3":
        return Qwen3Config(**_COMMON, num_key_value_heads=2, head_dim=16)
    return DeepseekV3Config(
        **_COMMON,
        num_key_value_heads=4,
        moe_intermediate_size=32,
        n_routed_experts=8,
        num_experts_per_tok=2,
        n_group=2,
        topk_group=1,
        first_k_dense_replace=1,
        kv_lora_rank=16,
        q_lora_rank=24,
        qk_nope_head_dim=16,
        qk_rope_head_dim=8,
        v_head_dim=16,
    )


def save_tiny_model(folder: Path, kind: Kind, *, dtype: Any = torch.float32, seed: int = 7) -> Path:
    """Write a random model as safetensors with its index, and return the folder."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(_config(kind), dtype=dtype)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.uniform_(0.5, 2.0)
    model.save_pretrained(folder, max_shard_size="200KB")
    return folder


def random_samples(lengths: tuple[int, ...], *, seed: int = 11) -> list[tuple[int, ...]]:
    """Make token ids of the given lengths."""
    generator = torch.Generator().manual_seed(seed)
    return [tuple(torch.randint(0, VOCAB, (length,), generator=generator).tolist()) for length in lengths]


def streams_of_transformers(folder: Path, token_ids: tuple[int, ...], *, dtype: Any = torch.float32) -> tuple[Any, Any]:
    """Compute the reference with transformers alone: a plain forward of one sample.

    Returns:
        the residual streams entering layers 2, L//2, L-3, float [T, 3, H], and the post-norm output [T, H].
    """
    model = AutoModelForCausalLM.from_pretrained(str(folder), dtype=dtype, local_files_only=True)
    model.eval()
    with torch.inference_mode():
        states = model(torch.tensor([token_ids]), output_hidden_states=True).hidden_states
    aux = torch.stack([states[index][0] for index in (2, LAYERS // 2, LAYERS - 3)], dim=1)
    return aux, states[-1][0]
