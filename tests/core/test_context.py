from collections.abc import Mapping
from typing import Any

import pytest

from eagletui.core.context import batched_tokens, positions_reached, served_length, stated_context, vllm_context

LLAMA_31 = {
    "max_position_embeddings": 131_072,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192},
}
QWEN3 = {"max_position_embeddings": 40_960, "rope_scaling": None}
QWEN3_LONG = {
    "max_position_embeddings": 40_960,
    "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768},
}
KIMI = {
    "max_position_embeddings": 262_144,
    "rope_scaling": {"type": "yarn", "factor": 64.0, "original_max_position_embeddings": 4096},
}
GEMMA_2 = {"max_position_embeddings": 8192}


@pytest.mark.parametrize(
    ("config", "stated", "vllm"),
    [
        (LLAMA_31, 131_072, 131_072),
        (QWEN3, 40_960, 40_960),
        (QWEN3_LONG, 40_960, 131_072),
        (KIMI, 262_144, 262_144),
        (GEMMA_2, 8192, 8192),
        ({}, None, None),
    ],
)
def test_the_context_is_what_servers_derive_from_the_config(
    config: Mapping[str, Any], stated: int | None, vllm: int | None
) -> None:
    assert (stated_context(config), vllm_context(config)) == (stated, vllm)


GEMMA_3 = {
    "max_position_embeddings": 131_072,
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default"},
        "full_attention": {"rope_type": "linear", "factor": 8.0},
    },
}
LINEAR = {"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 4}}


@pytest.mark.parametrize(
    ("config", "positions"),
    [
        (LLAMA_31, 131_072),
        (QWEN3, 40_960),
        (QWEN3_LONG, 131_072),
        (KIMI, 262_144),
        (LINEAR, 16_384),
        (GEMMA_3, 1_048_576),
        ({}, None),
    ],
)
def test_positions_count_what_a_scaling_adds_and_are_never_fewer_than_a_server_takes(
    config: Mapping[str, Any], positions: int | None
) -> None:
    assert positions_reached(config) == positions
    served = vllm_context(config)
    assert (served or 0) <= (positions or 0)


@pytest.mark.parametrize("longest", [None, 40, 8191, 8192, 50_000, 262_144])
@pytest.mark.parametrize("config", [LLAMA_31, QWEN3, KIMI, GEMMA_2, {}])
def test_a_server_is_started_with_a_length_that_it_and_its_scheduler_take(
    config: Mapping[str, Any], longest: int | None
) -> None:
    context = vllm_context(config)
    length = served_length(longest, context)
    assert context is None or length <= context
    assert batched_tokens(length) >= length
    assert longest is None or length in (longest + 1, context)
