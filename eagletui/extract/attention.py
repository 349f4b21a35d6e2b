"""Attention over several samples in one row, each seeing only itself.

transformers' own packing builds one T x T mask over the whole row: quadratic in the pack, and in low precision not the
numbers of a lone forward. Here every sample's slice goes through the very kernel that a lone forward would call.
"""

from collections.abc import Callable, Sequence
from functools import cache
from inspect import signature
from itertools import accumulate
from typing import Any, Final, NamedTuple

import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

NAME: Final = "eagletui_segments"

_LARGEST_HEAD: Final = 256

_FULL: Final = "full_attention"

_ROTATED_BY_LENGTH: Final = ("dynamic", "longrope")
"""Kinds of rotation that look at the longest sample of a row (transformers' `dynamic_rope_update`)."""

_STEP: Final = 64
"""Queries that attend in one call on a CPU, at least."""

_LARGEST_STEP: Final = 256

_STEPPED: Final = range(2 * _STEP, 1025)
"""Lengths of samples that attend in steps."""

_KEYS_IN_BLOCK: Final = 512
"""torch's kernel for CPUs takes keys so many at a time, and leaves out blocks whose keys all come after its queries."""

_KEYS_IN_SUM: Final = 192
"""oneMKL sums so many products of a block at a time, or half of them where there are less than twice as many."""

_OTHER_RULES: Final = ("softcap", "s_aux", "position_bias", "sliding_window")
"""What models hand to their attention that changes it, and that neither way here knows."""


def register() -> None:
    """Make the attention known to transformers under `NAME`. Repeating it changes nothing.

    No mask goes with it: a sample's own slice is causal and nothing else. So transformers does not look for samples in
    the positions either, for which the host would wait until the device has computed all that was launched.
    """
    ALL_ATTENTION_FUNCTIONS.register(NAME, _attend_by_segment)


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
    rotation = (getattr(text_config, "rope_parameters", None) or {}).get("rope_type", "default")
    if any(kind in rotation for kind in _ROTATED_BY_LENGTH):
        return f"its rotations ({rotation}) depend on the longest sample beside it"
    return None


class Kernel(NamedTuple):
    """What attends over a whole row at once."""

    call: Callable[..., Any] | None
    """With the signature of `varlen_attn`; None: segment after segment."""
    said: str
    """In manifests and the log."""


def choose_kernel(device_kind: str, dtype: str, capability: tuple[int, int] | None, text_config: Any) -> Kernel:
    """Choose how samples of one row attend: in one call of flash attention where it can be, else one call each.

    Args:
        device_kind: `cpu` or `cuda`.
        dtype: of the computation.
        capability: of the CUDA device.
        text_config: transformers' config of the decoder.
    """
    why = _kernel_obstacle(device_kind, dtype, capability, text_config)
    if why is None:
        try:
            from torch.nn.attention.varlen import varlen_attn
        except ImportError:
            why = "this torch has no torch.nn.attention.varlen"
        else:
            if {"scale", "window_size", "enable_gqa"} <= set(signature(varlen_attn).parameters):
                return Kernel(varlen_attn, "attention in one call of torch.nn.attention.varlen")
            why = "torch.nn.attention.varlen of this version takes other arguments"
    return Kernel(None, f"attention by segment: {why}")


def _kernel_obstacle(device_kind: str, dtype: str, capability: tuple[int, int] | None, text_config: Any) -> str | None:
    if device_kind != "cuda":
        return "no CUDA device"
    if capability is None or capability < (8, 0):
        return "the device is older than flash attention"
    if dtype not in ("bfloat16", "float16"):
        return f"flash attention has no {dtype}"
    if getattr(text_config, "attn_logit_softcapping", None) is not None:
        return "the model caps its attention logits"
    width = _head_size(text_config)
    if (getattr(text_config, "v_head_dim", None) or width) > width:
        return "its values are longer than its keys"
    if width % 8 or width > _LARGEST_HEAD:
        return f"heads of {width} do not fit flash attention"
    return None


def _head_size(text_config: Any) -> int:
    latent = getattr(text_config, "qk_nope_head_dim", None)
    if latent is not None:
        return int(latent + text_config.qk_rope_head_dim)
    given = getattr(text_config, "head_dim", None)
    return int(given or text_config.hidden_size // text_config.num_attention_heads)


def starts_of(lengths: Sequence[int]) -> torch.Tensor:
    """Return where segments begin and the last one ends, int32 [segments + 1], as flash attention wants them."""
    return torch.tensor(list(accumulate(lengths, initial=0)), dtype=torch.int32)


def _attend_by_segment(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    segment_lengths: Sequence[int],
    segment_starts: torch.Tensor | None = None,
    segment_kernel: Callable[..., Any] | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attend within each segment.

    Args:
        module: the attention layer.
        query: [1, heads, N, head_dim]; key and value alike, with their own heads and dims.
        attention_mask: always None, see `register`.
        segment_lengths: tokens of each sample in row order; their sum is N.
        segment_starts: see `starts_of`, on the row's device; with the kernel alone.
        segment_kernel: attends over all segments in one call; None: one call each.
        kwargs: whatever the model hands to its attention.

    Returns:
        [1, N, heads, value_dim] and None.

    Raises:
        ValueError: the model asks for another attention than this one; the self-test tells of it.
    """
    rules = [rule for rule in _OTHER_RULES if kwargs.get(rule) is not None]
    if rules:
        raise ValueError(f"its attention takes {', '.join(rules)}")
    if segment_kernel is not None and segment_starts is not None:
        longest = max(segment_lengths)
        return _attend_at_once(segment_kernel, query, key, value, segment_starts, longest, kwargs.get("scaling")), None
    may_step = query.device.type == "cpu" and key.shape[-1] == value.shape[-1]
    if may_step:
        # In steps keys and values are read again and again; side by side they are read faster.
        key, value = key.contiguous(), value.contiguous()
    parts: list[torch.Tensor] = []
    for q, k, v in zip(*(states.split(segment_lengths, dim=2) for states in (query, key, value)), strict=True):
        if may_step and q.shape[2] in _STEPPED:
            parts += _attend_in_steps(q, k, v, kwargs.get("scaling"))
        else:
            parts.append(sdpa_attention_forward(module, q, k, v, attention_mask, **kwargs)[0])
    return (parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)), None


def _attend_in_steps(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None
) -> list[torch.Tensor]:
    """Attend within one segment, some queries at a time, each step over the keys up to its end.

    torch's kernel for CPUs leaves out blocks of 512 keys alone: shorter samples multiply all their queries with all
    their keys, of which half are masked. Steps leave out most of those, in the same kernel. With 12 heads of 64 in
    bfloat16 steps of 64 take 0.70 to 0.93 of the time for 160 to 1,024 tokens, least at 512, but 1.08 for 2,048 (torch
    2.13, one thread of Zen 4).

    Returns:
        what each step's queries attended, [1, queries, heads, dim], in order.
    """
    later, parts, start = _later_keys(query.dtype), [], 0
    for end in _step_ends(query.shape[2]):
        column = _STEPPED.stop - start
        attended = torch.nn.functional.scaled_dot_product_attention(
            query[:, :, start:end],
            key[:, :, :end],
            value[:, :, :end],
            attn_mask=later[: end - start, column : column + end],
            scale=scale,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        parts.append(attended.transpose(1, 2))
        start = end
    return parts


@cache
def _step_ends(tokens: int) -> tuple[int, ...]:
    """Choose where steps end: every 64 queries where the numbers stay those of one call, to the bit.

    A sum of products of floats depends on where it is cut. So a step ends where its keys are cut as those of the whole
    segment are, which holds for oneMKL 2024.2 on Zen 4; elsewhere other numbers may be rounded otherwise.
    """
    return (*(end for end in range(_STEP, tokens, _STEP) if _is_cut_alike(end, tokens)), tokens)


def _is_cut_alike(end: int, tokens: int) -> bool:
    """Tell whether sums over the keys up to `end` are cut as sums over all tokens are, in the last block of keys."""
    before = (end - 1) // _KEYS_IN_BLOCK * _KEYS_IN_BLOCK
    some, whole = end - before, min(tokens - before, _KEYS_IN_BLOCK)
    return whole <= _KEYS_IN_SUM or some >= 2 * _KEYS_IN_SUM or some <= min(_KEYS_IN_SUM, whole // 2)


@cache
def _later_keys(dtype: torch.dtype) -> torch.Tensor:
    """Return -inf where a key comes after a query and 0 elsewhere, to be added to scores.

    Row `i` and column `1025 + j` are the `i`-th query and `j`-th key of a step; columns before are earlier keys.
    """
    with torch.inference_mode(False):
        places = torch.zeros((_LARGEST_STEP, _STEPPED.stop + _LARGEST_STEP), dtype=dtype)
        places[:, _STEPPED.stop :].fill_(-torch.inf).triu_(1)
        return places


def _attend_at_once(
    kernel: Callable[..., Any],
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    starts: torch.Tensor,
    longest: int,
    scale: float | None,
) -> torch.Tensor:
    """Attend within all segments in one call; shapes as in `_attend_by_segment`.

    The kernel wants [N, heads, dim] and one dim for all: values of latent attention are shorter than its keys, and
    are filled up with zeros that are cut off the result.
    """
    q, k, v = (states[0].transpose(0, 1).contiguous() for states in (query, key, value))
    missing = q.shape[-1] - v.shape[-1]
    if missing:
        v = torch.nn.functional.pad(v, (0, missing))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    is_grouped = q.shape[1] != k.shape[1]
    causal = (-1, 0)
    out = kernel(q, k, v, starts, starts, longest, longest, scale=scale, window_size=causal, enable_gqa=is_grouped)
    attended: torch.Tensor = out[None, ..., : value.shape[-1]]
    return attended
