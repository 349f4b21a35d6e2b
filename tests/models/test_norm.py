import json
from pathlib import Path

import pytest
import torch

from eagletui.core.errors import ModelError
from eagletui.core.features import DType
from eagletui.models.checkpoint import read_checkpoint
from eagletui.models.load import load_target
from eagletui.models.norm import load_norm
from tests.tiny_models import KINDS, Kind, save_tiny_model


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_norm_alone_is_the_models_norm_bit_for_bit(tmp_path: Path, kind: Kind, dtype: DType) -> None:
    folder = save_tiny_model(tmp_path / kind, kind, dtype=getattr(torch, dtype))
    states = torch.randn(5, 64).to(getattr(torch, dtype))
    with torch.inference_mode():
        expected = load_target(folder, dtype=dtype, device="cpu").norm(states)
        assert torch.equal(load_norm(folder, dtype)(states), expected)


def test_a_folder_without_the_norm_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"No model at .*absent"):
        load_norm(tmp_path / "absent", "float32")


def test_a_checkpoint_says_what_trainers_ask(tmp_path: Path) -> None:
    plain = read_checkpoint(save_tiny_model(tmp_path / "qwen3", "qwen3"))
    assert (plain.num_layers, plain.hidden_size, plain.vocab_size, plain.has_index) == (8, 64, 512, True)
    assert (plain.head_key, plain.embedding_key) == ("lm_head.weight", "model.embed_tokens.weight")
    nested = read_checkpoint(save_tiny_model(tmp_path / "kimi", "kimi_k25"))
    assert (nested.num_layers, nested.vocab_size) == (8, 512)
    assert nested.head_key.endswith("lm_head.weight")
    assert nested.embedding_key.endswith("embed_tokens.weight")


def test_a_tied_head_is_the_embedding(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "qwen3", "qwen3")
    index = folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    del content["weight_map"]["lm_head.weight"]
    index.write_text(json.dumps(content))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    assert read_checkpoint(folder).head_key == "model.embed_tokens.weight"


def test_a_config_that_says_too_little_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="no 'num_hidden_layers' in its config"):
        read_checkpoint(tmp_path)
