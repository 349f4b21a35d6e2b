from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, Qwen3Config

from eagletui.core.features import feature_layers
from eagletui.extract import attention
from eagletui.extract.capture import TOLERANCE, Capture
from eagletui.models.load import load_target
from tests.tiny_models import KINDS, LAYERS, Kind, random_samples, save_tiny_model, streams_of_transformers

# What does not depend on the kind is asked of a dense model and of one with experts.
SOME_KINDS = [
    kind if kind in ("llama", "deepseek_v3") else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS
]
LENGTHS = (1, 2, 33, 64, 5, 129, 17, 200)


def _capture(folder: Path, dtype: str) -> Capture:
    target = load_target(folder, dtype="bfloat16" if dtype == "bfloat16" else "float32", device="cpu")
    return Capture(target, feature_layers(target.num_layers))


def _tensors(lengths: tuple[int, ...] = LENGTHS) -> list[torch.Tensor]:
    return [torch.tensor(ids) for ids in random_samples(lengths)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_a_lone_forward_equals_transformers_to_the_bit(tiny_models: dict[Kind, Path], kind: Kind, dtype: str) -> None:
    capture = _capture(tiny_models[kind], dtype)
    for ids in random_samples(LENGTHS):
        streams = capture.one_by_one(torch.tensor(ids))
        aux, last = streams_of_transformers(tiny_models[kind], ids, dtype=getattr(torch, dtype))
        assert streams.shape == (len(ids), 4, 64)
        assert torch.equal(streams[:, :3], aux)
        with torch.inference_mode():
            assert torch.equal(capture.target.norm(streams[None, :, 3])[0], last)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [pytest.param("float32", marks=pytest.mark.slow), "bfloat16"])
def test_packed_samples_are_within_the_stated_tolerance(tiny_models: dict[Kind, Path], kind: Kind, dtype: str) -> None:
    result = _capture(tiny_models[kind], dtype).self_test(_tensors())
    assert result.failure is None
    assert result.median_error <= result.tolerance == TOLERANCE["bfloat16" if dtype == "bfloat16" else "float32"]


@pytest.mark.parametrize("kind", SOME_KINDS)
def test_a_sample_does_not_see_its_neighbours(tiny_models: dict[Kind, Path], kind: Kind) -> None:
    capture = _capture(tiny_models[kind], "float32")
    first, second, third, *_ = _tensors((40, 60, 80))
    alike = capture.packed([first, second])[1]
    other = capture.packed([third[:40], second])[1]
    assert torch.equal(alike, other)


@pytest.mark.parametrize("kind", SOME_KINDS)
def test_the_self_test_fails_when_samples_see_each_other(
    tiny_models: dict[Kind, Path], kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = _capture(tiny_models[kind], "float32")
    plain = capture._run

    def as_one_sample(ids: torch.Tensor, extra: dict[str, Any]) -> torch.Tensor:
        return plain(ids, {**extra, "segment_lengths": [len(ids)]} if extra else {})

    monkeypatch.setattr(capture, "_run", as_one_sample)
    failure = capture.self_test(_tensors((40, 60, 80))).failure
    assert failure is not None
    assert "median relative error" in failure


@pytest.mark.parametrize("kind", SOME_KINDS)
def test_the_self_test_fails_when_positions_run_on_although_each_sample_sees_only_itself(
    tiny_models: dict[Kind, Path], kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The states hardly change, because RoPE sees distances alone; so the rotations themselves are compared."""
    capture = _capture(tiny_models[kind], "float32")
    plain = capture._run

    def without_reset(ids: torch.Tensor, extra: dict[str, Any]) -> torch.Tensor:
        return plain(ids, {**extra, "position_ids": torch.arange(len(ids))[None]} if extra else {})

    monkeypatch.setattr(capture, "_run", without_reset)
    result = capture.self_test(_tensors((40, 60, 80)))
    assert result.failure == "positions do not start anew in each sample"
    assert result.median_error <= result.tolerance


def test_a_model_that_drops_the_segments_fails_the_self_test_instead_of_leaking(
    tiny_models: dict[Kind, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = _capture(tiny_models["llama"], "float32")
    plain = capture._run

    def without_segments(ids: torch.Tensor, extra: dict[str, Any]) -> torch.Tensor:
        return plain(ids, {key: value for key, value in extra.items() if key != "segment_lengths"})

    monkeypatch.setattr(capture, "_run", without_segments)
    failure = capture.self_test(_tensors((40, 60))).failure
    assert failure is not None
    assert "the packed forward failed" in failure


def test_the_self_test_counts_choices_of_experts_and_fails_when_too_many_change(tmp_path: Path) -> None:
    target = load_target(save_tiny_model(tmp_path / "model", "deepseek_v3"), dtype="float32", device="cpu")
    capture = Capture(target, feature_layers(target.num_layers))
    assert capture.self_test(_tensors((40, 60))).moved == 0.0
    capture.close()

    def choose_others_in_packs(_module: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        states, chosen, weights = args
        return states, (chosen + 1) % 8 if len(states) > 60 else chosen, weights

    last = target.layers[LAYERS - 1].mlp.experts.register_forward_pre_hook(choose_others_in_packs)
    result = Capture(target, feature_layers(target.num_layers)).self_test(_tensors((40, 60)))
    last.remove()
    assert result.median_error <= result.tolerance  # three of four streams lie below the layer that was disturbed
    assert result.moved is not None
    assert result.moved == pytest.approx(1 / 7)  # one of seven layers of experts
    assert result.failure is not None
    assert "go to other experts" in result.failure


def test_a_dense_model_has_no_choices_to_count(tiny_models: dict[Kind, Path]) -> None:
    assert _capture(tiny_models["llama"], "float32").self_test(_tensors((40, 60))).moved is None


def test_the_model_is_left_as_it_was(tiny_models: dict[Kind, Path]) -> None:
    capture = _capture(tiny_models["qwen3"], "float32")
    ids = _tensors((50,))[0]
    before = capture.one_by_one(ids)
    capture.packed(_tensors((20, 30)))
    assert torch.equal(capture.one_by_one(ids), before)
    capture.close()
    assert not any(layer._forward_pre_hooks for layer in capture.target.layers)


def test_custom_layers_are_captured(tiny_models: dict[Kind, Path]) -> None:
    target = load_target(tiny_models["llama"], dtype="float32", device="cpu")
    ids = _tensors((30,))[0]
    default = Capture(target, feature_layers(LAYERS))
    streams = default.one_by_one(ids)
    default.close()
    shifted = Capture(target, feature_layers(LAYERS, (3, 4, 5))).one_by_one(ids)
    assert not torch.equal(shifted[:, 0], streams[:, 0])
    assert torch.equal(shifted[:, 1:], streams[:, 1:])


@pytest.mark.parametrize(
    ("config", "found", "phrase"),
    [
        (LlamaConfig(), "sdpa", None),
        (LlamaConfig(), "eager", "its attention is eager"),
        (Qwen3Config(use_sliding_window=True, sliding_window=64, max_window_layers=2), "sdpa", "sliding_attention"),
        (
            LlamaConfig(rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}),
            "sdpa",
            "longest sample beside it",
        ),
        (LlamaConfig(rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}), "sdpa", None),
    ],
)
def test_models_whose_attention_is_not_plainly_causal_are_not_packed(
    config: object, found: str, phrase: str | None
) -> None:
    reason = attention.obstacle(config, found)
    assert reason is None if phrase is None else reason is not None and phrase in reason


def test_float32_on_a_cpu_is_not_packed_and_bfloat16_is(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "model", "llama")
    reason = _capture(folder, "float32").packing_obstacle()
    assert reason is not None
    assert "exact to the bit" in reason
    assert _capture(folder, "bfloat16").packing_obstacle() is None
