"""Shards below a URL, and jobs that make them."""

import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from eagletui.core.errors import InputError, RunError
from eagletui.core.features import Stored, shard_number, shard_path
from eagletui.extract.computing import Computed
from eagletui.extract.host_folders import HostFolders
from eagletui.extract.shard_job import GrownShard, ShardJob, ShardMade, compute_shard, plan_jobs, publish_shard
from eagletui.extract.shards import IdsSample, SealedShard, ShardReader, hash_file
from eagletui.extract.storage import FolderStorage, Storage, UrlStorage, growing_on_host, open_storage


class MadeUp:
    """A model whose states are made up of a sample's number; it refuses what it is told to."""

    facts = SimpleNamespace(hidden_size=8, dtype="float32")
    choice = "made up"

    def __init__(self, refused: Sequence[str] = ()) -> None:
        self.refused = refused

    def compute(self, samples: Sequence[IdsSample], _go_on: Callable[[], bool]) -> Iterator[Computed]:
        for sample in samples:
            dice = torch.Generator().manual_seed(sample.token_ids[0])
            states = torch.randn(len(sample.token_ids), 4, 8, generator=dice)
            is_refused = sample.key in self.refused
            yield Computed(sample, None if is_refused else states, "too long" if is_refused else None)


def _make(storage: Storage, *numbers: int, refused: Sequence[str] = (), stored: Stored = "float32") -> ShardMade:
    samples = tuple(IdsSample(f"s{number}", (number, 2, 3), (0, 1, 1)) for number in numbers)
    return publish_shard(_grow(storage, samples, refused=refused, stored=stored), storage)


def _grow(
    storage: Storage, samples: tuple[IdsSample, ...], *, refused: Sequence[str] = (), stored: Stored = "float32"
) -> GrownShard:
    place = growing_on_host(storage, HostFolders("eagletui-seal-test-"))
    return compute_shard(MadeUp(refused), ShardJob(7, samples), stored, place)  # type: ignore[arg-type]


def _shard(made: ShardMade) -> SealedShard:
    assert made.shard is not None
    assert made.read_back_xxh3 == made.shard.xxh3
    return made.shard


@pytest.fixture(params=["folder", "url"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    url = None if request.param == "folder" else f"file://{tmp_path}/far"
    return open_storage(tmp_path / "features", url)


def test_what_was_made_is_listed_sized_hashed_and_fetched(storage: Storage, tmp_path: Path) -> None:
    sealed = _shard(_make(storage, 1, 2))
    assert (shard_number(sealed.path), sealed.rows) == (7, 6)
    assert storage.paths() == {sealed.path}
    assert (storage.size(sealed.path), storage.digest(sealed.path)) == (sealed.bytes, sealed.xxh3)
    with storage.fetched(sealed.path) as file, ShardReader(file) as reader:
        assert hash_file(file) == sealed.xxh3
        (computed,) = MadeUp().compute([IdsSample("s2", (2, 2, 3), (0, 1, 1))], lambda: True)
        assert torch.equal(reader.record(1).hidden_states, computed.hidden_states)
    assert storage.size("shards/000008.safetensors") is None
    assert not list(tmp_path.rglob("*.tmp"))


def test_two_attempts_at_a_shard_lie_side_by_side_until_the_loser_is_removed(storage: Storage) -> None:
    loser, winner = (_shard(_make(storage, number)) for number in (1, 2))
    assert storage.remove_orphans([winner.path]) == (loser.path,)
    assert storage.paths() == {winner.path}
    assert storage.digest(winner.path) == winner.xxh3


def test_a_job_names_what_was_refused_and_leaves_no_file_where_all_of_it_was(storage: Storage, tmp_path: Path) -> None:
    made = _make(storage, 1, 2, refused=["s1"])
    assert [(refused.sample.key, refused.why) for refused in made.refused] == [("s1", "too long")]
    assert [placed.sample.key for placed in _shard(made).samples] == ["s2"]
    nothing = _make(storage, 3, refused=["s3"])
    assert (nothing.shard, nothing.read_back_xxh3, len(nothing.refused)) == (None, None, 1)
    assert len(storage.paths()) == 1
    assert not list(tmp_path.rglob("*.tmp"))


def test_the_next_sample_is_computed_while_the_states_of_the_one_before_are_written(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, waited = threading.Event(), []
    write = os.pwrite

    def slow(descriptor: int, content: memoryview, offset: int) -> int:
        if offset:
            waited.append(goes_on.wait(30.0))
        return write(descriptor, content, offset)

    class Watched(MadeUp):
        def compute(self, samples: Sequence[IdsSample], go_on: Callable[[], bool]) -> Iterator[Computed]:
            for number, computed in enumerate(super().compute(samples, go_on)):
                if number:
                    goes_on.set()
                yield computed

    monkeypatch.setattr(os, "pwrite", slow)
    samples = tuple(IdsSample(f"s{number}", (number, 2, 3), (0, 1, 1)) for number in range(3))
    place = growing_on_host(storage, HostFolders("eagletui-seal-test-"))
    grown = compute_shard(Watched(), ShardJob(7, samples), "float32", place)  # type: ignore[arg-type]
    assert all(waited), "the first block was written only after the second sample came"
    assert _shard(publish_shard(grown, storage)).rows == 9


def test_a_disk_that_fails_behind_the_computation_ends_the_job_and_leaves_no_file(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write = os.pwrite

    def full(descriptor: int, content: memoryview, offset: int) -> int:
        if offset:
            raise OSError(28, "No space left on device")
        return write(descriptor, content, offset)

    monkeypatch.setattr(os, "pwrite", full)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(OSError, match="No space left"):
        _make(storage, 1, 2)
    assert not [*tmp_path.rglob("*.tmp"), *tmp_path.glob("eagletui-seal-*")]


def test_what_is_no_shard_is_left_alone(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "features", f"file://{tmp_path}/far")
    (tmp_path / "far" / "shards" / "notes.txt").write_text("mine")
    (tmp_path / "far" / "shards" / "000001.safetensors.tmp").write_text("half")
    assert storage.remove_orphans([]) == ("shards/000001.safetensors.tmp",)
    assert (tmp_path / "far" / "shards" / "notes.txt").exists()


def test_a_url_without_a_file_system_or_a_place_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected s3://, gs:// or file://"):
        UrlStorage("nowhere://x/y")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"file://.*/file/x cannot be reached"):
        UrlStorage(f"file://{tmp_path}/file/x")


def test_a_storage_that_is_gone_is_named(tmp_path: Path) -> None:
    storage = UrlStorage(f"file://{tmp_path}/far")
    with pytest.raises(RunError, match=r"cannot be read \(shards/000001"), storage.fetched("shards/000001.safetensors"):
        pass


def test_the_folder_of_a_manifest_without_storage_is_itself(tmp_path: Path) -> None:
    assert isinstance(open_storage(tmp_path, None), FolderStorage)


@given(number=st.integers(0, 10**7), attempt=st.none() | st.binary(min_size=1, max_size=8).map(bytes.hex))
def test_a_shards_number_is_read_back_from_its_name(number: int, attempt: str | None) -> None:
    assert shard_number(shard_path(number, attempt)) == number


@given(lengths=st.lists(st.integers(1, 30), max_size=40), capacity=st.integers(1, 60), first=st.integers(0, 9))
def test_jobs_take_every_sample_once_in_order_and_none_is_over_capacity_but_a_lone_long_sample(
    lengths: list[int], capacity: int, first: int
) -> None:
    samples = [IdsSample(str(index), (1,) * length, (1,) * length) for index, length in enumerate(lengths)]
    jobs = plan_jobs(samples, first, capacity)
    assert [sample for job in jobs for sample in job.samples] == samples
    assert [job.number for job in jobs] == list(range(first, first + len(jobs)))
    assert all(job.rows <= capacity or len(job.samples) == 1 for job in jobs)
