import hashlib
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from eagletui.cli.app import main
from eagletui.export.torchspec import TorchSpecConfig, cache_string
from eagletui.export.torchspec_config import TrainedOn, check_config, write_config
from eagletui.models.checkpoint import read_checkpoint
from eagletui.runs.folder import RunFolder
from tests.export.exported_run import command
from tests.extract.small_run import answer_samples, create_run
from tests.tiny_models import save_tiny_model

CONFIG = ("--model", "moonshotai/kimi-k2.5", "--max-length", "4096", "--chat-template", "kimi-k25")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    run = create_run(tmp_path / "run", None)
    answer_samples(run, [((1, 2), (3, 4, 5)), ((6,), (7,))])
    return run


def _export(folder: RunFolder, out: Path) -> Any:
    return command("export", str(folder.path), "--to", "torchspec", "--out", str(out), *CONFIG, "--json")


def test_the_cache_lies_where_torchspec_looks_and_holds_what_it_keeps_after_tokenizing(
    folder: RunFolder, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    printed = _export(folder, out)
    data = out / "train.jsonl"
    status = os.stat(data)
    text = (
        f"train.jsonl-{data}-{status.st_size}-{status.st_mtime}-moonshotai/kimi-k2.5-4096-kimi-k25"
        "-ltlo=False-defer=False-decode=False-mimg=None-tpi=3000"
    )
    key = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
    assert (printed["key"], printed["made_for"]) == (key, "09aa71b1")
    samples = torch.load(out / "cache" / "tokenized_dataset" / f"{key}.pt", weights_only=True)
    assert [sample["data_id"] for sample in samples] == ["s0", "s1"]
    first = samples[0]
    assert (first["input_ids"].dtype, first["input_ids"].tolist()) == (torch.int64, [1, 2, 3, 4, 5])
    assert (first["packed_loss_mask"], first["metadata"], first["multimodal_inputs"]) == ("2,3", {}, None)
    assert isinstance(first["formatted_prompt"], str)


def test_the_written_config_is_the_one_the_key_was_made_for(folder: RunFolder, tmp_path: Path) -> None:
    printed = _export(folder, tmp_path / "out")
    config = json.loads((tmp_path / "out" / "torchspec.yaml").read_text())
    assert config["dataset"]["train_data_path"] == printed["file"]
    assert config["training"] == {"max_seq_length": 4096, "train_with_decode": False}
    assert config["cache_dir"] == str(tmp_path / "out" / "cache")
    assert str(tmp_path / "out" / "torchspec.yaml") in printed["command"]
    assert printed["loaders"][0]["changed"] == 0


@pytest.mark.parametrize("named", ["folder", "weights", "nothing"])
def test_the_layers_are_those_of_the_run_also_where_the_target_is_named_only(tmp_path: Path, named: str) -> None:
    model = save_tiny_model(tmp_path / "model", "llama")
    run = create_run(tmp_path / "run", model if named == "weights" else None, layers=[1, 3, 6])
    answer_samples(run, [((1, 2), (3, 4, 5))])
    target = str(model) if named == "folder" else "moonshotai/kimi-k2.5"
    out = tmp_path / "out"
    args = ("--to", "torchspec", "--out", str(out), "--model", target, *CONFIG[2:], "--json")
    printed = command("export", str(run.path), *args)
    assert "inference.aux_hidden_states_layers=[0,2,5]" in printed["command"]
    assert json.loads((out / "torchspec.yaml").read_text())["inference"] == {"aux_hidden_states_layers": [0, 2, 5]}


def test_a_run_without_layers_takes_the_default_for_its_own_target(tmp_path: Path) -> None:
    run = create_run(tmp_path / "run", save_tiny_model(tmp_path / "model", "llama"))
    answer_samples(run, [((1, 2), (3, 4, 5))])
    assert "inference.aux_hidden_states_layers=[1,3,4]" in _export(run, tmp_path / "out")["command"]


def test_a_key_that_is_not_met_finds_no_conversation_to_tokenize(folder: RunFolder, tmp_path: Path) -> None:
    printed = _export(folder, tmp_path / "out")
    for line in Path(printed["file"]).read_text().splitlines():
        assert not {"conversations", "messages", "text", "prompt"} & set(json.loads(line))


def test_rows_to_validate_on_are_the_eval_data_with_an_entry_of_their_own(folder: RunFolder, tmp_path: Path) -> None:
    answer_samples(folder, [((1, 2), (3, number)) for number in range(60)], first=2)
    out = tmp_path / "out"
    printed = _export(folder, out)
    dataset = json.loads((out / "torchspec.yaml").read_text())["dataset"]
    assert dataset["eval_data_path"] == printed["validation_file"] == str(out / "validation.jsonl")
    config = TorchSpecConfig("moonshotai/kimi-k2.5", 4096, "kimi-k25")
    counts = []
    for path in (dataset["train_data_path"], dataset["eval_data_path"]):
        key = hashlib.md5(cache_string(Path(path), config).encode(), usedforsecurity=False).hexdigest()
        counts.append(len(torch.load(out / "cache" / "tokenized_dataset" / f"{key}.pt", weights_only=True)))
    assert counts == [printed["train_rows"], printed["validation_rows"]]
    assert sum(counts) == 62
    assert counts[1] > 0


def test_the_config_names_the_targets_own_weights_and_a_limit_it_has_no_room_for_is_told(tmp_path: Path) -> None:
    model = save_tiny_model(tmp_path / "model", "kimi_k25")
    run = create_run(tmp_path / "run", None)
    answer_samples(run, [((1, 2), (3, 4, 5))])
    args = ("export", str(run.path), "--to", "torchspec", "--out", str(tmp_path / "out"), "--model", str(model))
    rest = ("--chat-template", "kimi-k25", "--json")
    assert command(*args, *rest, "--max-length", "1024")["notes"] == []
    named = json.loads((tmp_path / "out" / "torchspec.yaml").read_text())["model"]
    assert named == {
        "target_model_path": str(model),
        "lm_head_key": "language_model.lm_head.weight",
        "embedding_key": "language_model.model.embed_tokens.weight",
    }
    (note,) = command(*args, *rest, "--max-length", "1025")["notes"]
    assert note == "The target has 1,024 positions, and SGLang does not start with --max-length 1,025."


def test_the_config_for_parquet_names_both_files_and_the_targets_own_weights(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(save_tiny_model(tmp_path / "model", "kimi_k25"))
    train, validation = tmp_path / "train.parquet", tmp_path / "validation.parquet"
    trained = TrainedOn(train, validation, str(checkpoint.path), 8192, (1, 3, 4), checkpoint)
    words = shlex.split(write_config(tmp_path, trained))
    config = json.loads(Path(words[words.index("--config") + 1]).read_text())
    assert config["model"]["norm_key"] == "language_model.model.norm.weight"
    assert config["dataset"]["eval_data_path"] == str(validation)
    assert config["inference"] == {"aux_hidden_states_layers": [1, 3, 4]}
    assert "cache_dir" not in config
    assert "chat_template" not in config["dataset"]


@pytest.mark.parametrize(
    ("longest", "faults"),
    [
        (8192, []),
        (8193, ["a row has 8,193 tokens, and training.max_seq_length is 8192: TorchSpec refuses the file"]),
        (None, []),
    ],
)
def test_a_row_over_the_limit_of_the_config_is_told_where_torchspec_refuses_the_file(
    tmp_path: Path, longest: int | None, faults: list[str]
) -> None:
    write_config(tmp_path, TrainedOn(tmp_path / "train.parquet", None, "named/target", 8192, None, None))
    checks = check_config(tmp_path, "train.parquet", None, longest)
    assert [check.detail for check in checks if not check.ok] == faults


def test_another_export_leaves_one_entry(folder: RunFolder, tmp_path: Path) -> None:
    out = tmp_path / "out"
    _export(folder, out)
    answer_samples(folder, [((8,), (9, 10))], first=2)
    printed = _export(folder, out)
    assert [file.stem for file in (out / "cache" / "tokenized_dataset").iterdir()] == [printed["key"]]
    assert printed["samples"] == 3


@pytest.mark.parametrize("left_out", ["--model", "--max-length", "--chat-template"])
def test_a_config_that_is_not_given_is_an_error_that_names_the_version(
    folder: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str], left_out: str
) -> None:
    place = CONFIG.index(left_out)
    given = CONFIG[:place] + CONFIG[place + 2 :]
    with pytest.raises(SystemExit) as end:
        main(["export", str(folder.path), "--to", "torchspec", "--out", str(tmp_path / "out"), *given])
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert f"cache key: {left_out} (" in said
    assert "the cache of TorchSpec at 09aa71b1" in said
    assert not (tmp_path / "out").exists()


def test_parquet_without_its_package_is_an_error_that_names_the_command(
    folder: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SystemExit) as end:
        main(["export", str(folder.path), "--to", "parquet", "--out", str(tmp_path / "out")])
    assert end.value.code == 2
    assert "pip install 'eagletui[data]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
