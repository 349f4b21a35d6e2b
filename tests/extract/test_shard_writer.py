"""Records into shards from threads: order, backpressure, full disks, failures and deaths."""

import errno
import multiprocessing
import os
import signal
import threading
from pathlib import Path

import pytest
import torch

from eagletui.core.errors import RunError
from eagletui.extract.shard_writer import ShardWriter
from eagletui.extract.shards import SealedShard, ShardReader, remove_orphans, shard_files
from eagletui.extract.storage import UNSENT, UrlStorage
from tests.extract.small_shards import HIDDEN, Disk, kind_of, record, records, write_all

DEADLINE_S = 30.0
ROW_BYTES = 4 * HIDDEN * 2
"""Of states in bfloat16."""
SECOND_BLOCK = 2
"""The number of its write, behind those of the room for the header and of the first block."""


def _silent(*_said: object) -> None:
    pass


def _keys(folder: Path) -> list[list[str]]:
    found = []
    for file in shard_files(folder).values():
        with ShardReader(file) as reader:
            found.append(list(reader.keys))
    return found


def _left(folder: Path) -> list[str]:
    return sorted(file.name for file in (folder / "shards").glob("*"))


def test_records_are_cut_into_shards_that_are_committed_in_order(tmp_path: Path) -> None:
    committed: list[SealedShard] = []
    contents = records(3, 3, 3, 9, 1)
    with ShardWriter(tmp_path, 5, kind_of(7), Disk().space(tmp_path), committed.append, _silent) as writer:
        write_all(writer, contents)
    assert [shard.path for shard in committed] == [f"shards/00000{number}.safetensors" for number in (5, 6, 7, 8)]
    assert [shard.rows for shard in committed] == [6, 3, 9, 1]
    assert _keys(tmp_path) == [["sample-0", "sample-1"], ["sample-2"], ["sample-3"], ["sample-4"]]
    with ShardReader(tmp_path / "shards" / "000007.safetensors") as reader:
        assert torch.equal(reader.record(0).hidden_states, contents[3][1])


def test_what_the_caller_does_with_its_tensor_afterwards_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """States are views of a whole forward's, into whose memory the next one may go."""
    disk, gate = Disk(), threading.Event()
    disk.refuses = lambda _call: not gate.wait(DEADLINE_S)
    monkeypatch.setattr(os, "pwrite", disk.pwrite)
    sample, states = record(0, 3)
    exact = states.clone()
    with ShardWriter(tmp_path, 0, kind_of(7), disk.space(tmp_path), _silent, _silent) as writer:
        writer.add(sample, states)
        states.zero_()
        gate.set()
    with ShardReader(tmp_path / "shards" / "000000.safetensors") as reader:
        assert torch.equal(reader.record(0).hidden_states, exact)


def test_the_open_shard_grows_on_the_disk_and_is_sealed_when_asked(tmp_path: Path) -> None:
    committed: list[SealedShard] = []
    with ShardWriter(tmp_path, 0, kind_of(64), Disk().space(tmp_path), committed.append, _silent) as writer:
        assert writer.open_for_s == 0
        write_all(writer, [record(0, 3)])
        assert writer.open_for_s > 0
        writer.seal()
        writer.seal()
        assert writer.open_for_s == 0
        write_all(writer, [record(1, 2)])
    assert _keys(tmp_path) == [["sample-0"], ["sample-1"]]


def test_the_next_shard_begins_when_the_one_before_is_committed(tmp_path: Path) -> None:
    """So a death costs the rows of one shard: those of the next are not taken before."""
    taken = threading.Event()
    was_taken: list[bool] = []

    def commit(_shard: SealedShard) -> None:
        was_taken.append(taken.wait(0.05))

    with ShardWriter(tmp_path, 0, kind_of(3), Disk().space(tmp_path), commit, _silent) as writer:
        write_all(writer, records(3, 3))
        taken.set()
    assert was_taken == [False, True]


def test_below_a_url_one_shard_is_sent_while_the_next_one_grows_and_not_two(tmp_path: Path) -> None:
    second, third = threading.Event(), threading.Event()
    was_taken: list[tuple[bool, bool]] = []

    def commit(shard: SealedShard) -> None:
        assert (tmp_path / "far" / shard.path).is_file(), "sent before it counts"
        if not was_taken:
            was_taken.append((second.wait(DEADLINE_S), third.wait(0.05)))

    storage = UrlStorage(f"file://{tmp_path}/far")
    left = tmp_path / "features" / UNSENT / "shards" / "000009-0a.safetensors.tmp"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"of a process that was killed")
    space = Disk().space(tmp_path)
    with ShardWriter(tmp_path / "features", 0, kind_of(3), space, commit, _silent, storage=storage) as writer:
        write_all(writer, records(3, 3))
        second.set()
        write_all(writer, [record(2, 3)])
        third.set()
    assert was_taken == [(True, False)]
    assert len(storage.paths()) == 3
    assert not list((tmp_path / "features").iterdir())


def test_a_slow_disk_makes_the_caller_wait_and_memory_holds_no_more_than_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, gate = Disk(), threading.Event()
    fourth = threading.Event()
    disk.refuses = lambda _call: not gate.wait(DEADLINE_S)
    monkeypatch.setattr(os, "pwrite", disk.pwrite)
    contents = records(2, 2, 2, 2)
    queue_bytes = 3 * 2 * ROW_BYTES
    space = disk.space(tmp_path)
    with ShardWriter(tmp_path, 0, kind_of(64), space, _silent, _silent, queue_bytes=queue_bytes) as writer:
        write_all(writer, contents[:3])

        def add_the_fourth() -> None:
            write_all(writer, contents[3:])
            fourth.set()

        caller = threading.Thread(target=add_the_fourth)
        caller.start()
        assert not fourth.wait(0.05)
        gate.set()
        assert fourth.wait(DEADLINE_S)
        caller.join()
    assert _keys(tmp_path) == [[f"sample-{number}" for number in range(4)]]


def test_a_record_larger_than_the_queue_passes_alone(tmp_path: Path) -> None:
    space = Disk().space(tmp_path)
    with ShardWriter(tmp_path, 0, kind_of(64), space, _silent, _silent, queue_bytes=1) as writer:
        write_all(writer, records(5, 4, 3))
    assert _keys(tmp_path) == [["sample-0", "sample-1", "sample-2"]]


HEADER_BYTES = 4104
"""4,096, and a part in 1,024 of 64 rows of 80 bytes, rounded up to a multiple of 8."""


@pytest.mark.parametrize(
    ("refused", "left_bytes"),
    [
        pytest.param(0, None, id="the room for the header"),
        pytest.param(1, HEADER_BYTES, id="the first block"),
        pytest.param(2, HEADER_BYTES + 3 * ROW_BYTES, id="the second block"),
        pytest.param(3, HEADER_BYTES + 7 * ROW_BYTES, id="the tail"),
        pytest.param(4, HEADER_BYTES + 7 * ROW_BYTES, id="the header"),
    ],
)
def test_a_write_that_a_full_disk_refuses_gives_its_room_back_and_is_made_again_in_the_same_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: int, left_bytes: int | None
) -> None:
    contents = records(3, 4)
    with ShardWriter(tmp_path / "plain", 0, kind_of(64), Disk().space(tmp_path), _silent, _silent) as writer:
        write_all(writer, contents)
    disk = Disk()
    disk.refuses = lambda call: call == refused
    monkeypatch.setattr(os, "pwrite", disk.pwrite)
    out, name = tmp_path / "out", Path("shards", "000000.safetensors")
    said: list[tuple[str, list[int]]] = []

    def report(_level: str, kind: str, _sentence: str) -> None:
        said.append((kind, [file.stat().st_size for file in out.glob("shards/*.tmp")]))
        disk.free_bytes = 10**9

    committed: list[SealedShard] = []
    space = disk.space(tmp_path)
    with ShardWriter(out, 0, kind_of(64), space, committed.append, report, space_poll_s=0) as writer:
        write_all(writer, contents)
    assert said[0] == ("disk_low", [] if left_bytes is None else [left_bytes])
    assert [kind for kind, _ in said] == ["disk_low", "disk_freed"]
    assert [shard.rows for shard in committed] == [7]
    assert (out / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()
    assert _left(out) == [name.name]


def test_a_full_disk_pauses_the_writing_and_freed_space_resumes_it_with_nothing_lost(tmp_path: Path) -> None:
    disk = Disk(0)
    said: list[tuple[str, str]] = []
    low = threading.Event()

    def report(_level: str, kind: str, sentence: str) -> None:
        said.append((kind, sentence))
        low.set()

    committed: list[SealedShard] = []
    space = disk.space(tmp_path)
    with ShardWriter(tmp_path, 0, kind_of(3), space, committed.append, report, space_poll_s=0.01) as writer:
        write_all(writer, records(3))
        assert low.wait(DEADLINE_S)
        assert writer.waits_for_space
        assert committed == []
        disk.free_bytes = 10**9
        write_all(writer, [record(1, 4)])
    assert [shard.rows for shard in committed] == [3, 4]
    assert [kind for kind, _ in said] == ["disk_low", "disk_freed"]
    # A header of 4,096 bytes, 3 rows of 64 of states and 16 of ids, two offsets.
    assert said[0][1] == (
        f"Extraction waits: the next records need 4.2 KiB, and {tmp_path} has 0 bytes to give. "
        "Free space on that disk; nothing is lost."
    )
    assert not writer.waits_for_space


def test_a_full_disk_is_freed_by_what_a_trainer_acknowledges_meanwhile(tmp_path: Path) -> None:
    disk = Disk(0)
    committed: list[SealedShard] = []

    def hold() -> str | None:
        disk.free_bytes = 10**9  # as the deletion of an acknowledged shard does
        return None

    space = disk.space(tmp_path)
    with ShardWriter(tmp_path, 0, kind_of(3), space, committed.append, _silent, hold=hold, space_poll_s=0.01) as writer:
        write_all(writer, records(3))
    assert [shard.rows for shard in committed] == [3]


def test_a_process_that_must_stop_gives_the_open_shard_up_where_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk()
    disk.refuses = lambda call: call == SECOND_BLOCK
    monkeypatch.setattr(os, "pwrite", disk.pwrite)
    said: list[tuple[str, str]] = []
    low, stop = threading.Event(), threading.Event()

    def report(_level: str, kind: str, sentence: str) -> None:
        said.append((kind, sentence))
        low.set()

    committed: list[SealedShard] = []
    space = disk.space(tmp_path)
    with ShardWriter(
        tmp_path, 0, kind_of(9), space, committed.append, report, stopping=stop.is_set, space_poll_s=0.01
    ) as writer:
        write_all(writer, records(3, 3, 3))
        assert low.wait(DEADLINE_S)
        assert _left(tmp_path) == ["000000.safetensors.tmp"]
        stop.set()
        write_all(writer, [record(3, 3)])
    assert [sentence for kind, sentence in said if kind == "shard_given_up"] == [
        "3 samples must be computed again.",
        "1 samples must be computed again.",
    ]
    assert (committed, _left(tmp_path)) == ([], [])


def test_what_is_abandoned_while_the_disk_is_full_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, low = Disk(), threading.Event()
    disk.refuses = lambda call: call == SECOND_BLOCK
    monkeypatch.setattr(os, "pwrite", disk.pwrite)
    space = disk.space(tmp_path)
    writer = ShardWriter(tmp_path, 0, kind_of(64), space, _silent, lambda *_: low.set(), space_poll_s=3600)
    write_all(writer, records(3, 3))
    assert low.wait(DEADLINE_S)
    assert _left(tmp_path) == ["000000.safetensors.tmp"]
    writer.abandon()
    assert _left(tmp_path) == []


def test_a_shard_is_held_before_it_is_sealed_as_long_as_asked(tmp_path: Path) -> None:
    held = threading.Event()
    reasons: list[str | None] = [None, None, "The trainer is behind."]
    said: list[tuple[str, str]] = []

    def report(_level: str, kind: str, sentence: str) -> None:
        said.append((kind, sentence))
        held.set()

    committed: list[SealedShard] = []
    space = Disk().space(tmp_path)
    with ShardWriter(tmp_path, 0, kind_of(3), space, committed.append, report, hold=lambda: reasons[-1]) as writer:
        write_all(writer, records(3))
        writer.seal()
        assert held.wait(DEADLINE_S)
        assert writer.is_held
        assert committed == []
        reasons.append(None)
    assert len(committed) == 1
    assert said == [("held", "The trainer is behind.")]
    assert not writer.is_held


def test_a_write_that_fails_with_room_left_is_raised_to_the_caller(tmp_path: Path) -> None:
    (tmp_path / "shards").write_text("a file where the folder should be")
    space = Disk().space(tmp_path)
    writer = ShardWriter(tmp_path, 0, kind_of(64), space, _silent, _silent)
    write_all(writer, records(3))
    with pytest.raises(RunError, match=f"A shard could not be written into {tmp_path}: .*File exists"):
        writer.finish()
    with pytest.raises(RunError, match="A shard could not be written"):
        writer.check()


def test_a_disk_that_refuses_again_and_again_what_it_says_it_has_room_for_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quota, say: no look at the disk would ever tell that it has room again."""

    def over_quota(*_args: object) -> int:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(os, "pwrite", over_quota)
    writer = ShardWriter(tmp_path, 0, kind_of(64), Disk().space(tmp_path), _silent, _silent)
    write_all(writer, records(3))
    with pytest.raises(RunError, match="Disk quota exceeded"):
        writer.finish()
    assert _left(tmp_path) == []


def test_a_failed_flush_ends_the_work_and_wakes_a_caller_that_waits_for_the_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_args: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    committed: list[SealedShard] = []
    writer = ShardWriter(tmp_path, 0, kind_of(3), Disk().space(tmp_path), committed.append, _silent)
    with pytest.raises(RunError, match=r"could not be flushed: .*Input/output error"), writer:
        write_all(writer, records(3, 3))
    assert (committed, _left(tmp_path)) == ([], [])


def test_a_commit_that_fails_ends_the_work_and_no_later_shard_overtakes_it(tmp_path: Path) -> None:
    def commit(_shard: SealedShard) -> None:
        raise RunError("The ledger is gone.")

    writer = ShardWriter(tmp_path, 0, kind_of(3), Disk().space(tmp_path), commit, _silent)
    with pytest.raises(RunError, match=r"The ledger is gone\."), writer:
        write_all(writer, records(3, 3, 3))
    assert _left(tmp_path) == ["000000.safetensors"]


def _die_at_the_third_block(folder: Path) -> None:
    disk = Disk()

    def die(call: int) -> bool:
        if call == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return False

    disk.refuses = die
    os.pwrite = disk.pwrite  # type: ignore[assignment]
    with ShardWriter(folder, 0, kind_of(64), disk.space(folder), _silent, _silent) as writer:
        write_all(writer, records(3, 3, 3))


def test_a_death_while_a_shard_grows_leaves_a_temporary_file_that_the_next_start_removes(tmp_path: Path) -> None:
    process = multiprocessing.get_context("fork").Process(target=_die_at_the_third_block, args=(tmp_path,))
    process.start()
    process.join(DEADLINE_S)
    assert process.exitcode == -signal.SIGKILL
    assert _left(tmp_path) == ["000000.safetensors.tmp"]
    assert remove_orphans(tmp_path, []) == ("shards/000000.safetensors.tmp",)
    assert _left(tmp_path) == []


def test_a_sample_of_an_id_longer_than_any_header_is_a_shard_of_its_own(tmp_path: Path) -> None:
    long = record(1, 2, key="名" * 3000)
    with ShardWriter(tmp_path, 0, kind_of(64), Disk().space(tmp_path), _silent, _silent) as writer:
        write_all(writer, [record(0, 2), long, record(2, 2)])
    assert _keys(tmp_path) == [["sample-0"], ["名" * 3000], ["sample-2"]]
