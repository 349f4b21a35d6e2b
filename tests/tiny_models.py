"""Random models of the kinds that targets have, small enough to run in milliseconds.

Their norm weights are far from one, so that a wrong or missing norm shows.
"""

from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    DeepseekV3Config,
    Kimi_K25Config,
    LlamaConfig,
    Qwen3Config,
)

Kind = Literal["llama", "qwen3", "deepseek_v3", "kimi_k25"]

KINDS: Final[tuple[Kind, ...]] = ("llama", "qwen3", "deepseek_v3", "kimi_k25")
VOCAB: Final = 512
FIRST_IMAGE_ID: Final = VOCAB - 4
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
    if kind == "kimi_k25":
        vision = {"num_hidden_layers": 1, "hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2}
        text = _config("deepseek_v3").to_dict()
        return Kimi_K25Config(
            text_config=text,
            vision_config=vision,
            projection_hidden_size=32,
            image_token_id=FIRST_IMAGE_ID,
            video_token_id=VOCAB - 3,
            vision_start_token_id=VOCAB - 2,
            vision_end_token_id=VOCAB - 1,
            tie_word_embeddings=False,
        )
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


@lru_cache(maxsize=8)
def _random_model(kind: Kind, dtype: Any, seed: int) -> Any:
    torch.manual_seed(seed)
    auto = AutoModelForImageTextToText if kind == "kimi_k25" else AutoModelForCausalLM
    model = auto.from_config(_config(kind), dtype=dtype)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.uniform_(0.5, 2.0)
    return model


def save_tiny_model(folder: Path, kind: Kind, *, dtype: Any = torch.float32, seed: int = 7) -> Path:
    """Write a random model as safetensors with its index, and return the folder."""
    model = _random_model(kind, dtype, seed)
    torch.manual_seed(seed)
    model.save_pretrained(folder, max_shard_size="200KB")
    return folder


def random_samples(lengths: tuple[int, ...], *, seed: int = 11) -> list[tuple[int, ...]]:
    """Make token ids of the given lengths, below the ids that stand for images."""
    generator = torch.Generator().manual_seed(seed)
    return [tuple(torch.randint(0, FIRST_IMAGE_ID, (length,), generator=generator).tolist()) for length in lengths]


@lru_cache(maxsize=2)
def _plain_model(folder: Path, dtype: Any) -> Any:
    """Load a model that no test writes anew in its folder: a test compares many samples with one."""
    auto = AutoModelForImageTextToText if "kimi" in folder.name else AutoModelForCausalLM
    return auto.from_pretrained(str(folder), dtype=dtype, local_files_only=True).eval()


def streams_of_transformers(folder: Path, token_ids: tuple[int, ...], *, dtype: Any = torch.float32) -> tuple[Any, Any]:
    """Compute the reference with transformers alone: a plain forward of one sample.

    Returns:
        the residual streams entering layers 2, L//2, L-3, float [T, 3, H], and the post-norm output [T, H].
    """
    model = _plain_model(folder, dtype)
    with torch.inference_mode():
        states = model(torch.tensor([token_ids]), output_hidden_states=True).hidden_states
    aux = torch.stack([states[index][0] for index in (2, LAYERS // 2, LAYERS - 3)], dim=1)
    return aux, states[-1][0]
