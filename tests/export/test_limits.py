"""Limits in the commands for a target whose context is shorter than a trainer's own limit, or than a sample."""

import json
import shlex
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import gguf
import pytest

from eagletui.core.loaders import (
    SPECFORGE_OFFLINE,
    SPECFORGE_ONLINE,
    SPECULATORS_ONLINE,
    TORCHSPEC_PARQUET,
    SampleLength,
)
from eagletui.export.limits import Limits, refused_note, trainer_limits
from eagletui.models.checkpoint import Checkpoint, read_checkpoint
from tests.export.exported_run import ExportedRun, add_samples, export, make_run
from tests.extract.small_run import create_run
from tests.tiny_models import save_tiny_model


@pytest.fixture
def made(tmp_path: Path) -> ExportedRun:
    """Samples of 12 to 40 tokens of a target with 40 positions, no features."""
    model = save_tiny_model(tmp_path / "model", "qwen3")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 40}))
    run = ExportedRun(create_run(tmp_path / "run", model), model, {})
    add_samples(run, (12, 30, 36, 40), extracted=False)
    return run


@pytest.fixture
def checkpoint(made: ExportedRun) -> Checkpoint:
    return read_checkpoint(made.model)


def test_specforges_server_starts_within_the_positions_and_what_is_cut_is_counted(
    made: ExportedRun, tmp_path: Path
) -> None:
    printed = export(made, "specforge", tmp_path / "out", "--online")
    config = json.loads((tmp_path / "out" / "specforge.json").read_text())
    assert (config["model"]["sglang_context_length"], config["data"]["max_length"]) == (40, 33)
    (effect,) = printed["loaders"]
    assert (effect["truncated"], effect["dropped"]) == (2, 0)


def test_a_limit_that_the_server_would_not_start_with_is_lowered_and_told(made: ExportedRun, tmp_path: Path) -> None:
    printed = export(made, "specforge", tmp_path / "out", "--online", "--max-length", "34")
    config = json.loads((tmp_path / "out" / "specforge.json").read_text())
    assert (config["model"]["sglang_context_length"], config["data"]["max_length"]) == (40, 33)
    assert printed["notes"][-1].startswith("--max-length 34 is more than SGLang starts with for this target")


def test_the_server_for_whole_rows_has_the_targets_positions_and_refused_rows_are_told(checkpoint: Checkpoint) -> None:
    lengths = [SampleLength(4, total - 4) for total in (12, 30, 36, 40)]
    limits = trainer_limits(SPECULATORS_ONLINE, None, 40, checkpoint, online=True)
    assert limits == Limits(8192, 40)
    (note,) = limits.notes(lengths)
    assert note.startswith("1 of 4 samples are longer than the 39 tokens that vLLM takes of this target")
    assert limits.notes(lengths[:3]) == ()
    assert trainer_limits(SPECULATORS_ONLINE, 33, 36, checkpoint, online=True) == Limits(33, 37)


def test_the_positions_of_a_gguf_target_are_those_its_file_states(tmp_path: Path) -> None:
    made = make_run(tmp_path, (12, 30, 40))
    path = tmp_path / "target.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(40)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    manifest = made.run.features_dir / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "model_path": str(path)}))
    printed = export(made, "jsonl", tmp_path / "out")
    assert "--max-model-len 40 " in printed["commands"][1]
    assert [loader["max_length"] for loader in printed["loaders"]] == [33, 39]


def test_a_file_that_torchspec_refuses_says_how_to_make_one_that_it_takes(made: ExportedRun) -> None:
    lengths = [SampleLength(4, total - 4) for total in (12, 30, 36, 40)]
    ledger = made.run.ledger_path
    wider = refused_note(TORCHSPEC_PARQUET, lengths, 30, None, ledger)
    assert wider == (
        "TorchSpec will not load this file: 2 rows are longer than 30 tokens; it cuts none. "
        "Export with --max-length 8192."
    )
    assert str(refused_note(TORCHSPEC_PARQUET, lengths, 30, 50, ledger)).endswith("Export with --max-length 50.")
    said = refused_note(TORCHSPEC_PARQUET, lengths, 37, 37, ledger)
    assert said is not None
    assert "1 row is longer than 37 tokens" in said
    _, database, query = shlex.split(said.partition("made by ")[2].partition(" > ")[0])
    with closing(sqlite3.connect(database, uri=True)) as connection:
        assert [key for (key,) in connection.execute(query)] == ["s0", "s1"]
    assert refused_note(TORCHSPEC_PARQUET, lengths, 40, 40, ledger) is None
    assert refused_note(SPECFORGE_ONLINE, lengths, 30, 30, ledger) is None


def test_an_unknown_target_and_features_on_the_disk_know_no_positions(checkpoint: Checkpoint) -> None:
    assert trainer_limits(SPECFORGE_ONLINE, None, 50, None, online=True) == Limits(2048)
    assert trainer_limits(SPECFORGE_OFFLINE, 4000, 50, checkpoint, online=False) == Limits(4000)


def test_the_commands_for_a_file_of_ids_fit_the_target(made: ExportedRun, tmp_path: Path) -> None:
    printed = export(made, "jsonl", tmp_path / "out")
    assert [(loader["max_length"], loader["changed"]) for loader in printed["loaders"]] == [(33, 2), (39, 1)]
    prepare, server, train = printed["commands"]
    assert "--seq-length 39 " in prepare
    assert "--max-model-len 40 " in server
    assert "--total-seq-len 39 " in train
    lowered = export(made, "jsonl", tmp_path / "out", "--max-length", "36")
    assert [loader["max_length"] for loader in lowered["loaders"]] == [33, 36]
    said = [note for note in lowered["notes"] if note.startswith("--max-length")]
    assert said == [
        "--max-length 36 is more than the server of specforge starts with for this target: the limit is 33."
    ]
    shutil.rmtree(made.model)
    unknown = export(made, "jsonl", tmp_path / "out")
    assert [loader["max_length"] for loader in unknown["loaders"]] == [2048, 8192]
