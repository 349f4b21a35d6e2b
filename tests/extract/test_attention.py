from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from eagletui.extract.attention import NAME, register

register()

_LAYER = SimpleNamespace(is_causal=True, num_key_value_groups=2)


class _States(NamedTuple):
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor


class _Scores(TorchFunctionMode):  # type: ignore[misc]  # torch is untyped here
    """Counts the scores that calls of attention multiply."""

    def __init__(self) -> None:
        super().__init__()
        self.per_head = 0

    def __torch_function__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is scaled_dot_product_attention:
            self.per_head += args[0].shape[2] * args[1].shape[2]
        return function(*args, **(kwargs or {}))


def _states(tokens: int, dtype: torch.dtype) -> _States:
    """Four heads that share two of keys, laid out as a model's projections are."""
    dice = torch.Generator().manual_seed(tokens)
    return _States(
        *(torch.randn((1, tokens, heads, 16), generator=dice).to(dtype).transpose(1, 2) for heads in (4, 2, 2))
    )


def _attend(states: _States, lengths: list[int], scale: float | None = None) -> torch.Tensor:
    rows: torch.Tensor = ALL_ATTENTION_FUNCTIONS[NAME](_LAYER, *states, None, segment_lengths=lengths, scaling=scale)[0]
    return rows


def _plain(states: _States, scale: float | None = None) -> torch.Tensor:
    return scaled_dot_product_attention(*states, is_causal=True, scale=scale, enable_gqa=True).transpose(1, 2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("tokens", [127, 128, 129, 191, 193, 383, 384, 512, 895, 1024, 1025])
def test_a_segment_attends_as_torch_s_causal_attention_whatever_its_length(tokens: int, dtype: torch.dtype) -> None:
    states = _states(tokens, dtype)
    found, expected = _attend(states, [tokens], 0.3), _plain(states, 0.3)
    assert (found.shape, found.dtype, found.is_contiguous()) == ((1, tokens, 4, 16), dtype, True)
    assert (found - expected).abs().max() <= 2 * torch.finfo(dtype).eps * expected.abs().max()
    assert (found != expected).float().mean() < (0.001 if dtype != torch.float32 else 1)


def test_segments_in_steps_do_not_see_each_other() -> None:
    lengths = [130, 40, 300, 1]
    states = _states(sum(lengths), torch.bfloat16)
    at = 0
    for length in lengths:
        other = _States(*(part.clone() for part in states))
        for part in other:
            part[:, :, :at] = 7.0
            part[:, :, at + length :] = -3.0
        segment = slice(at, at + length)
        assert torch.equal(_attend(states, lengths)[:, segment], _attend(other, lengths)[:, segment])
        at += length


@pytest.mark.parametrize("tokens", [256, 512, 1024])
def test_scores_that_are_masked_anyway_are_mostly_not_multiplied(tokens: int) -> None:
    with _Scores() as scores:
        _attend(_states(tokens, torch.bfloat16), [tokens])
    assert scores.per_head <= 0.7 * tokens**2
