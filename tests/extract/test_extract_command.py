"""What the command says in the end is what is there."""

import json
from pathlib import Path
from typing import Any

import pytest

from eagletui.cli.app import main
from eagletui.extract import file_run, run_features
from eagletui.extract.manifest import ListedShard, add_to_shard_list
from eagletui.extract.shards import MARK, shard_files
from eagletui.ledger.orders import TokensResult
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer import LedgerWriter
from tests.extract.small_run import answer_samples, create_run
from tests.extract.test_file_run import _write_ids
from tests.extract.test_run_features import _ids
from tests.tiny_models import Kind, random_samples


def _extract(*args: str) -> None:
    with pytest.raises(SystemExit) as end:
        main(["extract", *args])
    assert end.value.code == 0


def _acknowledge_at_once(patch: pytest.MonkeyPatch, module: Any) -> None:
    """Be a trainer that has read each shard the moment it counts, also the last one."""

    def listed(folder: Path, shard: ListedShard) -> None:
        add_to_shard_list(folder, shard)
        (folder / f"{shard.path}{MARK}").touch()

    patch.setattr(module, "add_to_shard_list", listed)


def test_a_run_counts_each_sample_once_and_the_tokens_that_it_has_now(
    tmp_path: Path, tiny_models: dict[Kind, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = create_run(tmp_path / "run", tiny_models["llama"])
    answer_samples(folder, _ids(15, 40))
    _extract(str(folder.path))
    with LedgerReader(folder.ledger_path) as reader, LedgerWriter(folder.ledger_path) as writer:
        detail = reader.sample("s0")
        assert detail is not None
        writer.store_tokens(detail.row.id, TokensResult((5, 6, 7), "new", "served", "usable", prompt_ids=(1, 2)))
    capsys.readouterr()
    _extract(str(folder.path), "--json")
    printed = json.loads(capsys.readouterr().out)
    assert (printed["samples"], printed["rows"], printed["computed"], printed["shards"]) == (2, 45, 1, 2)
    assert printed["bytes"] == sum(file.stat().st_size for file in shard_files(folder.features_dir).values())
    assert (printed["acknowledged"], printed["to_acknowledge"]) == (0, None)


def test_a_shard_of_a_run_that_is_acknowledged_last_is_deleted_before_the_end(
    tmp_path: Path,
    tiny_models: dict[Kind, Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = create_run(tmp_path / "run", tiny_models["llama"])
    answer_samples(folder, _ids(15, 40))
    _acknowledge_at_once(monkeypatch, run_features)
    _extract(str(folder.path), "--stream-ahead", "2")
    assert not list((folder.features_dir / "shards").iterdir())
    said = " ".join(capsys.readouterr().out.split())
    assert "shards 1, 55 tokens; none is here trainer" in said
    assert "trainer 1 acknowledged and deleted, 0 left to acknowledge capture" in said


def test_a_shard_of_a_file_that_waits_for_the_trainer_is_named_and_goes_with_the_next_call(
    tmp_path: Path,
    tiny_models: dict[Kind, Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids, model = _write_ids(tmp_path / "ids.jsonl", random_samples((12, 30))), str(tiny_models["llama"])
    _extract(str(ids), "--model", model, "--stream-ahead", "2")
    said = " ".join(capsys.readouterr().out.split())
    then = "the next call with --stream-ahead deletes what has its mark by then"
    assert f"trainer 0 acknowledged and deleted, 1 left to acknowledge: {then}" in said
    with ids.with_name("two.jsonl").open("w") as stream:
        stream.write(ids.read_text())
    _acknowledge_at_once(monkeypatch, file_run)
    _extract(str(ids.with_name("two.jsonl")), "--model", model, "--stream-ahead", "2", "--json")
    printed = json.loads(capsys.readouterr().out)
    assert (printed["acknowledged"], printed["to_acknowledge"], printed["shards"], printed["bytes"]) == (1, 0, 1, 0)
    assert not list((tmp_path / "two-features" / "shards").iterdir())
