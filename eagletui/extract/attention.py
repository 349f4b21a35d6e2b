"""Attention over several samples in one row, each seeing only itself.

transformers' own packing builds one T x T mask over the whole row: quadratic in the pack, and in low precision not the
numbers of a lone forward. Here every sample's slice goes through the very function that a lone forward would call.
"""

from collections.abc import Sequence
from typing import Any, Final

import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

NAME: Final = "eagletui_segments"

_FULL: Final = "full_attention"


def register() -> None:
    """Make the attention known to transformers under `NAME`. Repeating it changes nothing."""
    ALL_ATTENTION_FUNCTIONS.register(NAME, _attend_by_segment)
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, _no_mask)


def obstacle(text_config: Any, attention: str) -> str | None:
    """Tell why samples of this model must not share a row, as a phrase; None where they may.

    Args:
        text_config: transformers' config of the decoder.
        attention: the attention that the model was loaded with.
    """
    if attention != "sdpa":
        return f"its attention is {attention}, not sdpa"
    kinds = sorted(set(getattr(text_config, "layer_types", None) or ()) - {_FULL})
    if kinds:
        return f"some layers use {', '.join(kinds)}"
    if getattr(text_config, "sliding_window", None) is not None:
        return "it attends through a sliding window"
    if getattr(text_config, "attention_chunk_size", None) is not None:
        return "it attends in chunks"
    return None


def _no_mask(*_args: Any, **_kwargs: Any) -> None:
    """Build no mask: a sample's own slice is causal and nothing else."""


def _attend_by_segment(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    segment_lengths: Sequence[int],
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attend within each segment.

    Args:
        module: the attention layer.
        query: [1, heads, N, head_dim]; key and value alike, with their own heads and dims.
        attention_mask: always None, see `_no_mask`.
        segment_lengths: tokens of each sample in row order; their sum is N.
        kwargs: whatever the model hands to its attention.

    Returns:
        [1, N, heads, value_dim] and None.
    """
    parts = [
        sdpa_attention_forward(module, q, k, v, attention_mask, **kwargs)[0]
        for q, k, v in zip(
            query.split(segment_lengths, dim=2),
            key.split(segment_lengths, dim=2),
            value.split(segment_lengths, dim=2),
            strict=True,
        )
    ]
    return torch.cat(parts, dim=1), None
