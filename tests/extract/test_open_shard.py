"""How much a shard takes, and that its header fits into the room reserved for it."""

import json
from collections.abc import Sequence

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from eagletui.core.features import SLOTS, STORED_BYTES, Stored, folder_bytes, rows_per_shard
from eagletui.extract.open_shard import OpenShard, ShardKind
from eagletui.extract.shards import IdsSample
from tests.extract.small_shards import kind_of

KEYS = st.text(max_size=60) | st.sampled_from(['"\\' * 30, "\x00\x1f\x7f", "\ud800 alone", "日本語" * 20, "😀" * 40])


def _sample(key: str, rows: int) -> IdsSample:
    return IdsSample(key, (7,) * rows, (1,) * rows)


def _fill(kind: ShardKind, samples: Sequence[IdsSample]) -> list[OpenShard]:
    """Put samples into shards as a writer does."""
    shards: list[OpenShard] = []
    for sample in samples:
        if not shards or not shards[-1].has_room(sample):
            shards.append(OpenShard(kind, [sample.key]))
        rows = len(sample.token_ids)
        shards[-1].add(sample, torch.ones(rows, 1, 1) if kind.stored == "fp8" else None)
    return shards


@settings(max_examples=25)
@given(keys=st.lists(KEYS, min_size=1, max_size=30), stored=st.sampled_from(list(STORED_BYTES)))
def test_whatever_the_ids_the_header_is_as_long_as_reserved_and_names_them(keys: list[str], stored: Stored) -> None:
    shards = _fill(kind_of(10**6, stored), [_sample(key, 3) for key in keys])
    named: list[str] = []
    for shard in shards:
        header, tail = shard.rest()
        assert (len(header), len(tail)) == (shard.header_bytes, shard.tail_bytes)
        assert int.from_bytes(header[:8], "little") == len(header) - 8
        assert len(header) % 8 == 0
        named += json.loads(json.loads(header[8:])["__metadata__"]["sample_ids"])
    assert named == keys


def test_a_header_without_room_for_the_next_id_ends_the_shard_early() -> None:
    samples = [_sample(f"{number:0500}", 1) for number in range(20)]
    shards = _fill(kind_of(1000), samples)
    assert [len(shard.samples) for shard in shards] == [6, 6, 6, 2]
    # 4,096 and a part in 1,024 of 80,000 bytes, rounded up to a multiple of 8.
    assert {shard.header_bytes for shard in shards} == {4176}


def test_an_empty_shard_takes_an_id_and_a_record_of_any_length() -> None:
    sample = _sample("k" * 100_000, 9)
    shard = OpenShard(kind_of(4), [sample.key])
    assert shard.has_room(sample)
    shard.add(sample, None)
    assert not shard.has_room(_sample("a", 1))
    header, _ = shard.rest()
    assert 100_000 < len(header) == shard.header_bytes < 101_000


def test_the_ids_that_a_job_names_beforehand_all_fit() -> None:
    samples = [_sample(f"{number:0500}", 1) for number in range(20)]
    shard = OpenShard(kind_of(20), [sample.key for sample in samples])
    for sample in samples:
        assert shard.has_room(sample)
        shard.add(sample, None)
    assert len(shard.rest().header) == shard.header_bytes


@settings(max_examples=25)
@given(
    lengths=st.lists(st.integers(16, 400), min_size=1, max_size=60),
    hidden_size=st.sampled_from([64, 576, 4096]),
    stored=st.sampled_from(list(STORED_BYTES)),
    shard_mib=st.sampled_from([1, 8, 256]),
)
def test_the_space_that_is_asked_for_beforehand_covers_every_file(
    lengths: list[int], hidden_size: int, stored: Stored, shard_mib: int
) -> None:
    rows = sum(lengths)
    capacity = rows_per_shard(shard_mib, hidden_size, stored)
    kind = ShardKind(hidden_size, "float32", stored, capacity, expected_rows=rows)
    shards = _fill(kind, [_sample(f"sample-{number:06}", length) for number, length in enumerate(lengths)])
    states = SLOTS * hidden_size * STORED_BYTES[stored]
    files = sum(shard.header_bytes + shard.rows * states + shard.tail_bytes for shard in shards)
    assume(files > 200_000)  # less than that is a few tokens
    assert files <= folder_bytes(rows, hidden_size, stored)
