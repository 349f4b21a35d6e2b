import json
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import xxhash
from safetensors import safe_open

from eagletui.core.errors import RunError
from eagletui.extract.sealer import Sealer
from eagletui.extract.shards import IdsSample, OpenShard, SealedShard, ShardReader, remove_orphans, seal, shard_files
from eagletui.extract.space import DiskSpace, size_text

HIDDEN = 8


def _sample(number: int, rows: int) -> IdsSample:
    return IdsSample(f"sample-{number}", tuple(range(number, number + rows)), (0,) + (1,) * (rows - 1))


def _states(number: int, rows: int) -> torch.Tensor:
    return torch.randn(rows, 4, HIDDEN, generator=torch.Generator().manual_seed(number)).to(torch.bfloat16)


def _shard(*lengths: int, capacity_rows: int = 64) -> OpenShard:
    shard = OpenShard(HIDDEN, "bfloat16", "bfloat16", capacity_rows)
    for number, rows in enumerate(lengths):
        shard.add(_sample(number, rows), _states(number, rows))
    return shard


def test_a_sealed_shard_has_the_promised_layout_and_names_its_hash(tmp_path: Path) -> None:
    sealed = seal(tmp_path, 3, _shard(5, 1, 7))
    file = tmp_path / "shards" / "000003.safetensors"
    assert sealed.path == "shards/000003.safetensors"
    assert (sealed.rows, sealed.bytes) == (13, file.stat().st_size)
    assert sealed.xxh3 == xxhash.xxh3_128(file.read_bytes()).hexdigest()
    assert file.stat().st_mode & 0o777 == 0o600
    with safe_open(file, framework="pt") as tensors:
        assert json.loads(tensors.metadata()["sample_ids"]) == ["sample-0", "sample-1", "sample-2"]
        assert tensors.get_tensor("offsets").tolist() == [0, 5, 6, 13]
        assert tensors.get_tensor("token_ids").dtype == tensors.get_tensor("loss_mask").dtype == torch.int64
        assert tensors.get_tensor("hidden_states").shape == (13, 4, HIDDEN)


def test_records_come_back_to_the_bit(tmp_path: Path) -> None:
    seal(tmp_path, 0, _shard(5, 1, 7))
    with ShardReader(tmp_path / "shards" / "000000.safetensors") as reader:
        record = reader.record(2)
    assert record.key == "sample-2"
    assert record.token_ids.tolist() == list(range(2, 9))
    assert record.loss_mask.tolist() == [0, 1, 1, 1, 1, 1, 1]
    assert torch.equal(record.hidden_states, _states(2, 7))


def test_a_record_longer_than_a_shard_gets_a_shard_of_its_own(tmp_path: Path) -> None:
    shard = OpenShard(HIDDEN, "bfloat16", "bfloat16", 4)
    assert shard.has_room(9)
    shard.add(_sample(0, 9), _states(0, 9))
    assert not shard.has_room(1)
    assert seal(tmp_path, 0, shard).rows == 9


def test_a_failed_write_leaves_neither_a_shard_nor_a_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        seal(tmp_path, 0, _shard(5))
    assert list((tmp_path / "shards").iterdir()) == []


@pytest.mark.parametrize("damage", ["cut", "empty", "text"])
def test_a_damaged_shard_is_named(tmp_path: Path, damage: str) -> None:
    seal(tmp_path, 0, _shard(5, 4))
    file = tmp_path / "shards" / "000000.safetensors"
    content = file.read_bytes()
    file.write_bytes({"cut": content[:-8], "empty": b"", "text": b"not a tensor in sight, but long enough"}[damage])
    with pytest.raises(RunError, match=r"000000\.safetensors cannot be read"):
        ShardReader(file)


def test_only_uncommitted_files_are_removed(tmp_path: Path) -> None:
    for number in range(3):
        seal(tmp_path, number, _shard(2))
    (tmp_path / "shards" / "000003.safetensors.tmp").write_bytes(b"half")
    (tmp_path / "shards" / "notes.txt").write_text("mine")
    removed = remove_orphans(tmp_path, ["shards/000000.safetensors", "shards/000002.safetensors"])
    assert removed == ("shards/000001.safetensors", "shards/000003.safetensors.tmp")
    assert list(shard_files(tmp_path)) == ["shards/000000.safetensors", "shards/000002.safetensors"]
    assert (tmp_path / "shards" / "notes.txt").exists()


class Disk:
    """A disk whose free space a test decides."""

    def __init__(self, free_bytes: int) -> None:
        self.free_bytes = free_bytes

    def statvfs(self, _folder: Path) -> Any:
        return SimpleNamespace(f_bavail=self.free_bytes, f_frsize=1)


def test_shards_are_committed_in_order(tmp_path: Path) -> None:
    committed: list[SealedShard] = []
    sealer = Sealer(tmp_path, 5, DiskSpace(tmp_path, 0), committed.append, lambda *_: None)
    for _ in range(4):
        sealer.submit(_shard(3))
    sealer.finish()
    assert [shard.path for shard in committed] == [f"shards/00000{number}.safetensors" for number in (5, 6, 7, 8)]


def test_a_shard_is_taken_when_the_one_before_is_committed(tmp_path: Path) -> None:
    """A death costs the shard that is written and the one that is filled, never a third."""
    taken = threading.Event()
    was_taken: list[bool] = []

    def commit(_shard: SealedShard) -> None:
        was_taken.append(taken.wait(0.05))

    with Sealer(tmp_path, 0, DiskSpace(tmp_path, 0), commit, lambda *_: None) as sealer:
        sealer.submit(_shard(3))
        sealer.submit(_shard(3))
        taken.set()
    assert was_taken == [False, True]


def test_a_full_disk_pauses_sealing_and_freed_space_resumes_it_with_nothing_lost(tmp_path: Path) -> None:
    disk = Disk(0)
    said: list[str] = []
    low = threading.Event()

    def report(level: str, kind: str, sentence: str) -> None:
        said.append(kind)
        low.set()

    committed: list[SealedShard] = []
    space = DiskSpace(tmp_path, 1000, disk.statvfs)
    sealer = Sealer(tmp_path, 0, space, committed.append, report, space_poll_s=0.01)
    sealer.submit(_shard(3))
    assert low.wait(10)
    assert sealer.waits_for_space
    assert committed == []
    disk.free_bytes = 10**9
    sealer.submit(_shard(4))
    sealer.finish()
    assert [shard.rows for shard in committed] == [3, 4]
    assert said == ["disk_low", "disk_freed"]
    assert not sealer.waits_for_space


def test_a_process_that_must_stop_does_not_wait_for_a_full_disk(tmp_path: Path) -> None:
    low = threading.Event()
    space = DiskSpace(tmp_path, 0, Disk(0).statvfs)
    sealer = Sealer(tmp_path, 0, space, lambda _: None, lambda *_: low.set(), space_poll_s=3600)
    sealer.submit(_shard(3))
    assert low.wait(10)
    sealer.abandon()
    assert shard_files(tmp_path) == {}


def test_a_write_that_fails_with_room_left_is_raised_to_the_caller(tmp_path: Path) -> None:
    (tmp_path / "shards").write_text("a file where the folder should be")
    sealer = Sealer(tmp_path, 0, DiskSpace(tmp_path, 0), lambda _: None, lambda *_: None)
    sealer.submit(_shard(3))
    with pytest.raises(RunError, match="A shard could not be written"):
        sealer.finish()


def test_sizes_are_written_with_units() -> None:
    assert [size_text(n) for n in (0, 1023, 1536, 7 * 1024**4)] == ["0 bytes", "1023 bytes", "1.5 KiB", "7.0 TiB"]
