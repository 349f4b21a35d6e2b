import pytest

from eagletui.core.errors import ModelError
from eagletui.core.features import (
    feature_layers,
    folder_bytes,
    row_bytes,
    rows_per_shard,
    sampled_mask,
    shard_number,
    shard_path,
)


@pytest.mark.parametrize(
    ("num_layers", "entering", "outputs"),
    [(32, (2, 16, 29), (1, 15, 28)), (36, (2, 18, 33), (1, 17, 32)), (61, (2, 30, 58), (1, 29, 57))],
)
def test_the_default_layers_are_those_of_the_trainers(
    num_layers: int, entering: tuple[int, ...], outputs: tuple[int, ...]
) -> None:
    layers = feature_layers(num_layers)
    assert layers.entering == entering
    assert layers.outputs == outputs


@pytest.mark.parametrize("entering", [(2, 4), (2, 4, 5, 6), (0, 4, 5), (4, 2, 5), (2, 2, 5), (2, 4, 8)])
def test_layers_that_the_model_lacks_are_refused(entering: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match=r"three growing numbers from 1 to 7"):
        feature_layers(8, entering)


def test_a_model_too_shallow_for_the_default_asks_for_layers() -> None:
    assert feature_layers(7).entering == (2, 3, 4)
    with pytest.raises(ModelError, match=r"Set extract\.layers"):
        feature_layers(6)


def test_a_bfloat16_row_of_an_8b_model_takes_the_published_bytes() -> None:
    assert row_bytes(4096, "bfloat16") == 32_768 + 16
    assert folder_bytes(138_000_000, 7168, "bfloat16") == pytest.approx(7.91e12 * 1.03, rel=0.002)


def test_a_shard_holds_at_least_one_row() -> None:
    assert rows_per_shard(256, 4096, "bfloat16") == 8188
    assert rows_per_shard(1, 10**9, "bfloat16") == 1


def test_the_mask_marks_sampled_tokens_only_and_is_not_shifted() -> None:
    assert sampled_mask(3, 2) == (0, 0, 0, 1, 1)


def test_shard_names_read_back() -> None:
    assert shard_path(12) == "shards/000012.safetensors"
    assert shard_number("shards/000012.safetensors") == 12
    assert shard_number("shards/000012.safetensors.tmp") is None
    assert shard_number("../shards/000012.safetensors") is None
