"""A target model that finds every token as likely wherever it stands: what it says can be worked out by hand."""

import math
from collections.abc import Mapping
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

HIDDEN = 8


def save_unigram_model(folder: Path, vocab_size: int, chances: Mapping[int, float]) -> Path:
    """Write a model that gives tokens their chances and shares the rest among all others.

    Args:
        folder: made here.
        vocab_size: ids below it.
        chances: probability by token id, less than 1 in sum.
    """
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=HIDDEN,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config)
    rest = math.log((1.0 - sum(chances.values())) / (vocab_size - len(chances)))
    logits = torch.full((vocab_size,), rest)
    for token_id, chance in chances.items():
        logits[token_id] = math.log(chance)
    with torch.no_grad():
        for weight in model.model.layers.parameters():
            weight.zero_()
        # The residual stream is one everywhere, and so is what the norm makes of it.
        model.model.embed_tokens.weight.fill_(1.0)
        model.model.norm.weight.fill_(1.0)
        model.lm_head.weight.copy_((logits / HIDDEN)[:, None].expand(-1, HIDDEN))
    model.save_pretrained(folder)
    return folder
