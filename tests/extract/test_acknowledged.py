import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from eagletui.core.errors import RunError
from eagletui.export.feature_places import feature_places
from eagletui.extract import acknowledged
from eagletui.extract.acknowledged import read_acknowledged
from eagletui.extract.choices import Choices
from eagletui.extract.engines import Order
from eagletui.extract.file_run import Extracted, Watching, extract_file
from eagletui.extract.run_features import RunExtractor
from eagletui.extract.shards import MARK, ShardReader, remove_orphans, shard_files
from eagletui.extract.verify import verify
from eagletui.ledger.locks import RoleLock
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer_extract import ExtractorWriter
from tests.export.exported_run import command
from tests.extract.small_run import answer_samples, create_run, finish_run
from tests.extract.test_file_run import _write_ids
from tests.tiny_models import Kind, random_samples

SAMPLES = 8
TOKENS = 400
"""Two samples fill a shard of 1 MiB, so that eight make four shards."""


class Trainer:
    """Reads every shard that is there and acknowledges it, each time it hears that the extraction is ahead."""

    def __init__(self, folder: Path, deletes: Literal["no", "before", "after"] = "no") -> None:
        """Say whether the trainer deletes a shard itself, and whether before its mark or after."""
        self.folder = folder
        self.deletes = deletes
        self.read: dict[str, torch.Tensor] = {}
        self.most = 0

    def hear(self, _level: str, kind: str, _message: str) -> None:
        if kind == "held":
            self.take()

    def take(self) -> None:
        there = shard_files(self.folder)
        self.most = max(self.most, len(there))
        for file in there.values():
            with ShardReader(file) as reader:
                for position, key in enumerate(reader.keys):
                    self.read[key] = reader.record(position).token_ids.clone()
            if self.deletes == "before":
                file.unlink()
            Path(f"{file}{MARK}").touch()
            if self.deletes == "after":
                file.unlink()


def _ids(tmp_path: Path) -> Path:
    return _write_ids(tmp_path / "ids.jsonl", random_samples((TOKENS,) * SAMPLES))


def _extract(ids: Path, model: Path, ahead: int | None, hear: Callable[[str, str, str], None]) -> Extracted:
    order = Order(model, dtype="float32", device="cpu", threads=1)
    watching = Watching(report=hear, start=lambda _samples, _rows: None, step=lambda _progress: None)
    return extract_file(ids, order, ids.parent / "out", watching, shard_mib=1, stream_ahead=ahead)


def _silent(_level: str, _kind: str, _message: str) -> None:
    pass


def test_extraction_stays_n_shards_ahead_and_deletes_what_the_trainer_acknowledged(
    tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    ids, out = _ids(tmp_path), tmp_path / "out"
    trainer = Trainer(out)
    done = _extract(ids, tiny_models["llama"], 1, trainer.hear)
    assert (done.samples, done.computed, done.shards) == (SAMPLES, SAMPLES, 4)
    assert trainer.most == 1
    assert list(shard_files(out)) == ["shards/000003.safetensors"]
    assert done.bytes == (out / "shards/000003.safetensors").stat().st_size
    trainer.take()
    wanted = {f"s{number}": list(row) for number, row in enumerate(random_samples((TOKENS,) * SAMPLES))}
    assert {key: row.tolist() for key, row in trainer.read.items()} == wanted
    assert list(read_acknowledged(out)) == [f"shards/{number:06d}.safetensors" for number in range(3)]
    again = _extract(ids, tiny_models["llama"], 1, _silent)
    assert (again.computed, again.samples) == (0, SAMPLES)
    assert not list((out / "shards").iterdir())


@pytest.mark.parametrize("deletes", ["before", "after"])
def test_a_trainer_may_delete_what_it_acknowledges(
    tmp_path: Path, tiny_models: dict[Kind, Path], deletes: Literal["before", "after"]
) -> None:
    ids, out = _ids(tmp_path), tmp_path / "out"
    trainer = Trainer(out, deletes)
    assert _extract(ids, tiny_models["llama"], 1, trainer.hear).computed == SAMPLES
    trainer.take()
    assert verify(out, tiny_models["llama"], device="cpu").ok, "before an extractor has listed the last one"
    assert len(read_acknowledged(out)) == 3
    again = _extract(ids, tiny_models["llama"], None, _silent)
    assert (again.computed, again.samples, again.rows) == (0, SAMPLES, SAMPLES * TOKENS)
    assert [len(shard.sample_ids) for shard in read_acknowledged(out).values()] == [2] * 4
    assert not list((out / "shards").iterdir())
    assert verify(out, tiny_models["llama"], device="cpu").ok


def test_verify_knows_what_was_acknowledged(tmp_path: Path, tiny_models: dict[Kind, Path]) -> None:
    _extract(_ids(tmp_path), tiny_models["llama"], 1, Trainer(tmp_path / "out").hear)
    verdict = verify(tmp_path / "out", tiny_models["llama"], device="cpu")
    assert verdict.ok
    assert (verdict.shards, verdict.samples) == (1, 2)
    assert "acknowledged 3 more" in next(check.detail for check in verdict.checks if check.name == "files")


@pytest.mark.parametrize(
    ("step", "shards_left", "listed"), [("_append", 1, 0), ("_delete", 1, 1), ("flush_folder", 0, 1)]
)
@pytest.mark.slow
def test_a_kill_between_acknowledging_and_deleting_loses_and_repeats_nothing(
    tmp_path: Path,
    tiny_models: dict[Kind, Path],
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    shards_left: int,
    listed: int,
) -> None:
    ids, out = _ids(tmp_path), tmp_path / "out"
    plain = getattr(acknowledged, step)

    def die(*arguments: Any) -> None:
        if step == "flush_folder" and arguments[0].name != "shards":
            plain(*arguments)
            return
        os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patch:
        patch.setattr(acknowledged, step, die)
        hear = Trainer(out).hear
        process = multiprocessing.get_context("fork").Process(
            target=_extract, args=(ids, tiny_models["llama"], 1, hear)
        )
        process.start()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
    assert (len(shard_files(out)), len(read_acknowledged(out))) == (shards_left, listed)
    trainer = Trainer(out)
    done = _extract(ids, tiny_models["llama"], 1, trainer.hear)
    assert (done.samples, done.computed, done.refused) == (SAMPLES, SAMPLES - 2, 0)
    assert next(iter(read_acknowledged(out))) == "shards/000000.safetensors"
    assert not (out / "shards" / "000000.safetensors").exists()
    assert not list((out / "shards").glob(f"*{MARK}"))


def test_a_line_cut_by_a_crash_is_written_again(tmp_path: Path, tiny_models: dict[Kind, Path]) -> None:
    ids, out = _ids(tmp_path), tmp_path / "out"
    _extract(ids, tiny_models["llama"], 1, Trainer(out).hear)
    whole = (out / acknowledged.ACKNOWLEDGED).read_text()
    (out / acknowledged.ACKNOWLEDGED).write_text(whole + '{"path": "shards/00')
    assert len(read_acknowledged(out)) == 3
    Trainer(out).take()
    _extract(ids, tiny_models["llama"], 1, _silent)
    assert len(read_acknowledged(out)) == 4


def test_a_mark_of_a_shard_that_was_never_committed_does_not_acknowledge_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    for name in ("000000.safetensors", f"000000.safetensors{MARK}", f"000001.safetensors{MARK}"):
        (tmp_path / "shards" / name).touch()
    removed = remove_orphans(tmp_path, ["shards/000000.safetensors"])
    assert removed == (f"shards/000001.safetensors{MARK}",)


def test_a_run_keeps_its_rows_when_shards_are_acknowledged_and_is_not_exported_in_part(
    tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    folder = create_run(tmp_path / "run", tiny_models["llama"])
    answer_samples(folder, [(row[:100], row[100:]) for row in random_samples((TOKENS,) * SAMPLES)])
    finish_run(folder)
    trainer = Trainer(folder.features_dir)

    def run_again() -> int:
        with (
            RoleLock(folder, "extractor"),
            LedgerReader(folder.ledger_path) as reader,
            ExtractorWriter(folder.ledger_path) as writer,
        ):
            choices = Choices(follow=False, stream_ahead=2, echo=trainer.hear)
            return RunExtractor(folder, reader, writer, choices, threading.Event()).run().progress.samples

    assert run_again() == SAMPLES
    model = str(tiny_models["llama"])
    assert command("verify", str(folder.path), "--model", model, "--samples", "2", "--json")["shards"] == 2
    with LedgerReader(folder.ledger_path) as reader:
        assert [shard.verified_at is None for shard in reader.shards()] == [True, True, False, False], (
            "two were deleted"
        )
    trainer.deletes = "after"
    trainer.take()
    with LedgerReader(folder.ledger_path) as reader, pytest.raises(RunError, match="acknowledged 4 shards"):
        feature_places(folder, reader)
    assert run_again() == 0
    assert (set(trainer.read), trainer.most) == ({f"s{number}" for number in range(SAMPLES)}, 2)
    with LedgerReader(folder.ledger_path) as reader:
        assert len(reader.shards()) == 4
        assert reader.snapshot().extract.samples == SAMPLES
        assert reader.to_extract(10) == []
        assert not shard_files(folder.features_dir)
        with pytest.raises(RunError, match="acknowledged 4 shards"):
            feature_places(folder, reader)
    assert verify(folder.features_dir, tiny_models["llama"], device="cpu").samples == 0
