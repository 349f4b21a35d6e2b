"""What a shard's file holds, read by the format's own library and by ours."""

import json
import os
from pathlib import Path

import pytest
import torch
import xxhash
from safetensors import safe_open

from eagletui.core.errors import RunError
from eagletui.core.features import STORED_BYTES, Stored
from eagletui.extract import fp8
from eagletui.extract.shard_file import ShardFile
from eagletui.extract.shards import ShardReader, orphan_bytes, remove_orphans, shard_files
from eagletui.extract.space import size_text
from tests.extract.small_shards import HIDDEN, KIND, kind_of, record, records, write_shard


def test_a_sealed_shard_has_the_promised_layout_and_names_its_hash(tmp_path: Path) -> None:
    sealed = write_shard(tmp_path, records(5, 1, 7), number=3)
    file = tmp_path / "shards" / "000003.safetensors"
    assert sealed.path == "shards/000003.safetensors"
    assert (sealed.rows, sealed.bytes) == (13, file.stat().st_size)
    assert [(placed.sample.key, placed.position) for placed in sealed.samples] == [
        ("sample-0", 0),
        ("sample-1", 1),
        ("sample-2", 2),
    ]
    assert sealed.xxh3 == xxhash.xxh3_128(file.read_bytes()).hexdigest()
    assert file.stat().st_mode & 0o777 == 0o600
    with safe_open(file, framework="pt") as tensors:
        assert json.loads(tensors.metadata()["sample_ids"]) == ["sample-0", "sample-1", "sample-2"]
        assert tensors.get_tensor("offsets").tolist() == [0, 5, 6, 13]
        assert tensors.get_tensor("token_ids").dtype == tensors.get_tensor("loss_mask").dtype == torch.int64
        assert tensors.get_tensor("hidden_states").shape == (13, 4, HIDDEN)


def test_records_come_back_to_the_bit(tmp_path: Path) -> None:
    write_shard(tmp_path, records(5, 1, 7))
    with ShardReader(tmp_path / "shards" / "000000.safetensors") as reader:
        found = reader.record(2)
    assert found.key == "sample-2"
    assert found.token_ids.tolist() == list(range(2, 9))
    assert found.loss_mask.tolist() == [0, 1, 1, 1, 1, 1, 1]
    assert torch.equal(found.hidden_states, record(2, 7)[1])


@pytest.mark.parametrize("stored", STORED_BYTES)
@pytest.mark.parametrize("hidden_size", [8, 7])
@pytest.mark.parametrize("rows", [4, 5])
def test_the_library_reads_every_type_at_any_width_and_length(
    tmp_path: Path, stored: Stored, hidden_size: int, rows: int
) -> None:
    """Readers view tensors in place, so none may lie beside a multiple of its numbers' size."""
    contents = [record(0, rows, hidden_size=hidden_size), record(1, 2, hidden_size=hidden_size)]
    kind = kind_of(64, stored, hidden_size)._replace(dtype="bfloat16" if stored == "fp8" else stored)
    sealed = write_shard(tmp_path, contents, kind=kind)
    exact = torch.cat([states for _, states in contents]).to(getattr(torch, kind.dtype))
    with safe_open(tmp_path / sealed.path, framework="pt") as tensors:
        held = {name: tensors.get_tensor(name) for name in tensors.keys()}
    assert held["token_ids"].tolist() == [*range(rows), 1, 2]
    assert held["loss_mask"].tolist() == [0, *(1,) * (rows - 1), 0, 1]
    assert held["offsets"].tolist() == [0, rows, rows + 2]
    if stored == "fp8":
        rounded = fp8.quantize(exact)
        assert torch.equal(held["hidden_states"].float(), rounded.states.float())
        assert torch.equal(held[fp8.SCALES], rounded.scales)
    else:
        assert torch.equal(held["hidden_states"], exact)


def test_states_are_written_in_the_type_that_the_header_names(tmp_path: Path) -> None:
    sample, states = record(0, 3)
    write_shard(tmp_path, [(sample, states.float().transpose(0, 2).contiguous().transpose(0, 2))])
    with ShardReader(tmp_path / "shards" / "000000.safetensors") as reader:
        assert torch.equal(reader.record(0).hidden_states, states)


def test_states_of_another_shape_are_no_record_of_a_sample() -> None:
    with pytest.raises(ValueError, match=r"Sample sample-0 has states of shape \[2, 4, 8\], not \(3, 4, 8\)"):
        KIND.encode(record(0, 3)[0], record(0, 2)[1])


def test_a_failed_flush_leaves_neither_a_shard_nor_a_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match=r"000000\.safetensors\.tmp could not be flushed: .*No space left"):
        write_shard(tmp_path, records(5))
    assert list((tmp_path / "shards").iterdir()) == []


def test_a_folder_whose_new_name_cannot_be_flushed_keeps_no_shard_that_nobody_will_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(folder: Path) -> None:
        raise OSError(5, "Input/output error", str(folder))

    monkeypatch.setattr("eagletui.extract.shard_file.flush_folder", broken)
    with pytest.raises(OSError, match="Input/output error"):
        write_shard(tmp_path, records(5))
    assert list((tmp_path / "shards").iterdir()) == []


def test_a_file_that_cannot_be_begun_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space left"):
        ShardFile(tmp_path, 0, 4096)
    assert list((tmp_path / "shards").iterdir()) == []


@pytest.mark.parametrize("damage", ["cut", "empty", "text"])
def test_a_damaged_shard_is_named(tmp_path: Path, damage: str) -> None:
    write_shard(tmp_path, records(5, 4))
    file = tmp_path / "shards" / "000000.safetensors"
    content = file.read_bytes()
    file.write_bytes({"cut": content[:-8], "empty": b"", "text": b"not a tensor in sight, but long enough"}[damage])
    with pytest.raises(RunError, match=r"000000\.safetensors cannot be read"):
        ShardReader(file)


def test_only_uncommitted_files_are_removed(tmp_path: Path) -> None:
    for number in range(3):
        write_shard(tmp_path, records(2), number)
    (tmp_path / "shards" / "000003.safetensors.tmp").write_bytes(b"half")
    (tmp_path / "shards" / "notes.txt").write_text("mine")
    known = ["shards/000000.safetensors", "shards/000002.safetensors"]
    before = _disk_bytes(tmp_path)
    foreseen = orphan_bytes(tmp_path, known)
    removed = remove_orphans(tmp_path, known)
    assert before - _disk_bytes(tmp_path) == foreseen > 0
    assert removed == ("shards/000001.safetensors", "shards/000003.safetensors.tmp")
    assert list(shard_files(tmp_path)) == ["shards/000000.safetensors", "shards/000002.safetensors"]
    assert (tmp_path / "shards" / "notes.txt").exists()


def _disk_bytes(folder: Path) -> int:
    return sum(int(file.stat().st_blocks) * 512 for file in (folder / "shards").iterdir())


def test_sizes_are_written_with_units() -> None:
    assert [size_text(n) for n in (0, 1023, 1536, 7 * 1024**4)] == ["0 bytes", "1023 bytes", "1.5 KiB", "7.0 TiB"]
