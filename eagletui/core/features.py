"""What a feature record is: which residual streams it holds, their shapes and their bytes.

A record of a sample with T tokens is `token_ids` int64 [T], `loss_mask` int64 [T] (1 on sampled tokens, not shifted)
and `hidden_states` [T, 4, H]: the residual stream entering three layers, then the last layer's output before the
final norm.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal, get_args

from eagletui.core.errors import ModelError

DType = Literal["float32", "bfloat16", "float16"]

Stored = Literal["float32", "bfloat16", "float16", "fp8"]
"""How states lie on disk; `fp8` is eight bits with a scale per token, rounded from the type they were computed in."""

DTYPES: Final[tuple[DType, ...]] = get_args(DType)
STORED_BYTES: Final[dict[Stored, int]] = {"float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1}

AUX_LAYERS: Final = 3
SLOTS: Final = AUX_LAYERS + 1
"""Streams a record holds: three auxiliary layers, then the last layer before the final norm."""

SCALE_BYTES: Final = 4
"""One float32 per token in fp8."""

ID_BYTES: Final = 8
"""One int64; a row has two, its token id and its loss mask."""

SIZE_MARGIN: Final = 1.03
"""Headers, offsets and sample ids on top of the tensors, with room to spare."""

FAULTY_FEATURES: Final = "features_faulty"
"""Kind of the finding that stands while the last check of a run's features did not hold."""

SHARD_PATTERN: Final = r"\Ashards/(\d{6,})(?:-[0-9a-f]+)?\.safetensors\Z"
"""Paths of shards, relative to the features folder."""

_SHARD = re.compile(SHARD_PATTERN)


@dataclass(frozen=True, slots=True)
class FeatureLayers:
    """Which streams are captured, in both numberings that trainers use."""

    num_layers: int
    """Decoder layers of the target model, L."""
    entering: tuple[int, int, int]
    """0-based layers whose input is kept. speculators, vLLM and EAGLE count so; it is also the index into
    transformers' `hidden_states`, where 0 is the embedding."""

    @property
    def outputs(self) -> tuple[int, int, int]:
        """The same streams as 0-based layer outputs: SpecForge, SGLang, Model-Optimizer and AngelSlim count so."""
        low, middle, high = self.entering
        return (low - 1, middle - 1, high - 1)


def feature_layers(num_layers: int, entering: tuple[int, ...] | None = None) -> FeatureLayers:
    """Choose the streams to capture.

    Args:
        num_layers: decoder layers of the target model, L.
        entering: layers whose input is kept; None takes 2, L//2 and L-3, the default of every trainer.

    Raises:
        ModelError: they are not three different layers of this model, in order.
    """
    chosen = (2, num_layers // 2, num_layers - 3) if entering is None else entering
    if not are_layers(num_layers, chosen):
        given = "the default [2, L//2, L-3]" if entering is None else "the configured list"
        raise ModelError(
            f"Layers {list(chosen)} ({given}) do not fit a model of {num_layers} layers: "
            f"three growing numbers from 1 to {num_layers - 1} are expected. Set extract.layers."
        )
    low, middle, high = chosen
    return FeatureLayers(num_layers, (low, middle, high))


def are_layers(num_layers: int, entering: Sequence[int]) -> bool:
    """Tell whether three different layers of a model are named, in order, that have a layer before them."""
    return len(entering) == AUX_LAYERS and all(a < b for a, b in pairwise((0, *entering, num_layers)))


def row_bytes(hidden_size: int, stored: Stored) -> int:
    """Bytes of one token: four streams, its id and its mask."""
    scale = SCALE_BYTES if stored == "fp8" else 0
    return SLOTS * hidden_size * STORED_BYTES[stored] + scale + 2 * ID_BYTES


def folder_bytes(rows: int, hidden_size: int, stored: Stored) -> int:
    """Bytes that `rows` tokens take on disk, headers included, rounded up."""
    exact = rows * row_bytes(hidden_size, stored)
    return exact + -(-exact * round((SIZE_MARGIN - 1) * 100) // 100)


def rows_per_shard(shard_mib: int, hidden_size: int, stored: Stored) -> int:
    """Tokens that fill a shard of `shard_mib` MiB; at least one."""
    return max(1, shard_mib * 1024 * 1024 // row_bytes(hidden_size, stored))


def sampled_mask(prompt_tokens: int, output_tokens: int) -> tuple[int, ...]:
    """Mark what the model sampled: 0 over the prompt, 1 over the output with its sampled stop token."""
    return (0,) * prompt_tokens + (1,) * output_tokens


def shard_path(number: int, attempt: str | None = None) -> str:
    """Name shard `number`, relative to the features folder.

    Args:
        number: of the shard.
        attempt: hex that no other attempt at this shard has, where several may be under way; None: there is one.
    """
    return f"shards/{number:06d}{'' if attempt is None else f'-{attempt}'}.safetensors"


def shard_number(path: str) -> int | None:
    """Read the number back from a shard's relative path; None if it is not one."""
    match = _SHARD.fullmatch(path)
    return int(match.group(1)) if match else None
