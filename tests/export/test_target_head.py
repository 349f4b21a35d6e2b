"""The head of targets that SpecForge cannot read where they lie, in a folder of its own."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForImageTextToText

from eagletui.cli.app import main
from eagletui.export import target_head
from eagletui.export.head_check import check_head
from eagletui.models.checkpoint import read_checkpoint
from eagletui.models.identity import weight_places
from tests.export.exported_run import ExportedRun, add_samples, export, make_run, verify


@pytest.fixture(scope="module")
def kimi(tmp_path_factory: pytest.TempPathFactory) -> ExportedRun:
    """A run of a target whose config keeps the decoder's in `text_config`."""
    return make_run(tmp_path_factory.mktemp("kimi"), (17, 9), kind="kimi_k25")


def test_a_nested_target_gets_a_folder_with_its_head_that_the_run_config_names(
    kimi: ExportedRun, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    printed = export(kimi, "specforge", out)
    model = json.loads((out / "specforge.json").read_text())["model"]
    head = Path(model["target_model_path"])
    assert head == out / "target_head"
    config = AutoConfig.from_pretrained(str(head), local_files_only=True)
    assert (config.hidden_size, config.vocab_size, config.num_hidden_layers) == (64, 512, 8)
    places = json.loads((head / "model.safetensors.index.json").read_text())["weight_map"]
    weights = load_file(head / places[model["lm_head_key"]])
    target = AutoModelForImageTextToText.from_pretrained(str(kimi.model), local_files_only=True)
    assert torch.equal(weights[model["lm_head_key"]], target.lm_head.weight)
    assert torch.equal(weights[model["embedding_key"]], target.get_input_embeddings().weight)
    assert torch.equal(weights["model.norm.weight"], target.get_decoder().norm.weight)
    assert any("the run config names target_head in this folder" in note for note in printed["notes"])
    assert {file.stat().st_mode & 0o777 for file in head.iterdir()} == {0o600}
    assert verify(kimi, out, code=0) == {}


def test_a_head_in_eight_bits_is_refused_whose_scales_would_be_lost(kimi: ExportedRun, tmp_path: Path) -> None:
    shutil.copytree(kimi.model, tmp_path / "model")
    checkpoint = read_checkpoint(tmp_path / "model")
    file = tmp_path / "model" / weight_places(checkpoint.path)[checkpoint.head_key]
    weights = load_file(file)
    weights[checkpoint.head_key] = weights[checkpoint.head_key].to(torch.float8_e4m3fn)
    save_file(weights, file, {"format": "pt"})
    with pytest.raises(ValueError, match=r"is torch\.float8_e4m3fn, whose scales a head has no place for"):
        target_head._weights(checkpoint)


def _change(head: Path, name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    weights = load_file(head / "model.safetensors")
    weights[name] = change(weights[name]).contiguous()
    save_file(weights, head / "model.safetensors", metadata={"format": "pt"})


def _one_bit(tensor: torch.Tensor) -> torch.Tensor:
    tensor[3, 5] = -tensor[3, 5]
    return tensor


def test_a_folder_of_another_head_is_rejected_with_file_tensor_found_and_expected(
    kimi: ExportedRun, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    export(kimi, "specforge", out)
    head, checkpoint = out / "target_head", read_checkpoint(kimi.model)
    assert check_head(out, checkpoint).ok
    original = (head / "model.safetensors").read_bytes()
    for name, change, said in (
        ("lm_head.weight", _one_bit, r"lm_head\.weight differs in 1 of 32768 values .*; at \[3, 5\] found"),
        ("model.embed_tokens.weight", lambda t: t.roll(1, 0), r"embed_tokens\.weight differs in \d+ of 32768 values"),
        ("model.norm.weight", torch.ones_like, r"norm\.weight differs in \d+ of 64 values .* found 1, expected"),
        ("lm_head.weight", lambda t: t.float(), r"lm_head\.weight has type F32, expected BF16 as "),
        ("lm_head.weight", lambda t: t[:511], r"lm_head\.weight has shape \[511, 64\], expected \[512, 64\]"),
    ):
        _change(head, name, change)
        found = check_head(out, checkpoint)
        assert not found.ok
        assert re.search(rf"^target_head/model\.safetensors: .*{said}", found.detail)
        (head / "model.safetensors").write_bytes(original)
    config = json.loads((head / "config.json").read_text())
    (head / "config.json").write_text(json.dumps({**config, "vocab_size": 500}))
    assert "target_head/config.json: vocab_size is 500, expected 512" in check_head(out, checkpoint).detail
    (head / "config.json").write_text(json.dumps(config))
    _change(head, "lm_head.weight", _one_bit)
    assert "at [3, 5] found" in verify(kimi, out, code=1)["target_head"]
    shutil.rmtree(head)
    assert "target_head is missing" in check_head(out, checkpoint).detail


@pytest.mark.slow
def test_a_head_that_is_there_needs_no_room_again(
    kimi: ExportedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(kimi, "specforge", tmp_path / "out")
    head_bytes = (tmp_path / "out" / "target_head" / "model.safetensors").stat().st_size
    monkeypatch.setattr("eagletui.extract.space.DiskSpace.free_bytes", lambda _space: head_bytes // 2)
    assert export(kimi, "specforge", tmp_path / "out")["files_written"] == 0


@pytest.mark.slow
def test_another_export_of_the_same_target_leaves_the_head_and_an_interrupted_one_is_written_anew(
    kimi: ExportedRun, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    export(kimi, "specforge", out)
    weights, index = (out / "target_head" / name for name in ("model.safetensors", "model.safetensors.index.json"))
    first = weights.stat().st_ino
    export(kimi, "specforge", out)
    assert weights.stat().st_ino == first
    index.unlink()
    weights.write_bytes(b"half")
    export(kimi, "specforge", out)
    assert index.exists()
    assert sorted(load_file(weights)) == ["lm_head.weight", "model.embed_tokens.weight", "model.norm.weight"]


@pytest.mark.slow
def test_a_checkpoint_of_one_file_gets_one_too(tmp_path: Path) -> None:
    made = make_run(tmp_path, ())
    whole = {name: tensor for file in made.model.glob("*.safetensors") for name, tensor in load_file(file).items()}
    for file in (*made.model.glob("*.safetensors"), made.model / "model.safetensors.index.json"):
        file.unlink()
    save_file(whole, made.model / "model.safetensors", metadata={"format": "pt"})
    add_samples(made, (9,))
    export(made, "specforge", tmp_path / "out")
    weights = load_file(tmp_path / "out" / "target_head" / "model.safetensors")
    assert torch.equal(weights["lm_head.weight"], whole["lm_head.weight"])


def test_specforge_that_would_serve_the_nested_target_itself_is_refused_and_nothing_is_written(
    kimi: ExportedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    with pytest.raises(SystemExit) as end:
        main(
            [
                "export",
                str(kimi.run.path),
                "--to",
                "specforge",
                "--online",
                "--model",
                str(kimi.model),
                "--out",
                str(out),
            ]
        )
    assert end.value.code == 2
    assert "SpecForge 0.2.0 cannot load the head of" in capsys.readouterr().err
    assert not out.exists()
