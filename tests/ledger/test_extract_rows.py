"""The extractor's rows: what waits, what is sealed, what is stale."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from eagletui.ledger.orders import Feature, Finished
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer import LedgerWriter
from eagletui.ledger.writer_extract import ExtractorWriter
from tests.ledger.build import answer, answered_sample, queue, send, tokens


@pytest.fixture
def extractor(path: Path) -> Iterator[ExtractorWriter]:
    with ExtractorWriter(path) as opened:
        yield opened


def _seal(extractor: ExtractorWriter, reader: LedgerReader, name: str) -> list[str]:
    waiting = reader.to_extract(100)
    features = [Feature(item.sample_id, n, 5, item.tokens_revision) for n, item in enumerate(waiting)]
    extractor.commit_shard(f"shards/{name}.safetensors", features, size_bytes=1000, xxh3="ab")
    return [item.sample_key for item in waiting]


def _waiting(reader: LedgerReader) -> list[str]:
    return [item.sample_key for item in reader.to_extract(100)]


def test_only_trainable_ids_wait_for_features(writer: LedgerWriter, reader: LedgerReader) -> None:
    queue(writer, *"abcde")
    for sample, usability in ((1, "usable"), (2, "resegmented"), (3, "text_suspect"), (4, "unusable")):
        result = tokens(usability=usability)
        writer.finish([Finished(send(writer, sample), answer(result=result))])
    writer.finish([Finished(send(writer, 5), answer())])
    assert _waiting(reader) == ["a", "b"]
    (first, _) = reader.to_extract(2)
    assert first.prompt_ids is not None
    assert (list(first.prompt_ids), list(first.output_ids), first.tokens_revision) == ([1, 2], [5, 6, 7], 1)


def test_what_waits_is_read_in_pages_by_id(writer: LedgerWriter, reader: LedgerReader) -> None:
    queue(writer, *"abc")
    for sample in (3, 1, 2):
        answered_sample(writer, sample)
    assert [item.sample_key for item in reader.to_extract(2)] == ["a", "b"]
    assert [item.sample_key for item in reader.to_extract(2, after=2)] == ["c"]


def test_a_sealed_shard_is_recorded_once(
    writer: LedgerWriter, reader: LedgerReader, extractor: ExtractorWriter
) -> None:
    queue(writer, *"ab")
    answered_sample(writer, 1)
    answered_sample(writer, 2)
    features = [Feature(1, 0, 5, 1), Feature(2, 1, 6, 1)]
    for _ in range(2):
        extractor.commit_shard("shards/000001.safetensors", features, size_bytes=1000, xxh3="ab")
    (shard,) = reader.shards()
    assert (shard.samples, shard.rows, shard.bytes, shard.verified_at) == (2, 11, 1000, None)
    figures = reader.snapshot().extract
    assert (figures.shards, figures.rows, figures.bytes, figures.samples, figures.pending) == (1, 11, 1000, 2, 0)
    assert [row.extracted for row in reader.rows([1, 2])] == [True, True]
    extractor.mark_verified([shard.path, "shards/000009.safetensors"], is_good=True)
    assert reader.shards()[0].verified_at is not None
    extractor.mark_verified([], is_good=False)
    assert reader.shards()[0].verified_at is not None, "nobody looked at it again"
    extractor.mark_verified([shard.path], is_good=False)
    assert reader.shards()[0].verified_at is None


def test_features_are_stale_after_a_rebuild_only_where_ids_changed(
    writer: LedgerWriter, reader: LedgerReader, extractor: ExtractorWriter
) -> None:
    queue(writer, *"ab")
    answered_sample(writer, 1)
    answered_sample(writer, 2)
    assert _seal(extractor, reader, "000001") == ["a", "b"]
    writer.store_tokens(1, tokens((5, 6, 7), evidence="logprobs"))
    writer.store_tokens(2, tokens((5, 6, 8)))
    assert _waiting(reader) == ["b"]
    assert [row.extracted for row in reader.rows([1, 2])] == [True, False]
    assert _seal(extractor, reader, "000002") == ["b"]
    assert _waiting(reader) == []
    assert [shard.id for shard in reader.shards()] == [1, 2]


def test_ids_that_changed_while_the_shard_was_written_wait_again(
    writer: LedgerWriter, reader: LedgerReader, extractor: ExtractorWriter
) -> None:
    queue(writer, "a")
    answered_sample(writer, 1)
    (item,) = reader.to_extract(1)
    writer.store_tokens(1, tokens((9,)))
    extractor.commit_shard("shards/000001.safetensors", [Feature(1, 0, 5, item.tokens_revision)], size_bytes=1, xxh3="")
    assert _waiting(reader) == ["a"]


def test_samples_of_a_lost_shard_wait_again(
    writer: LedgerWriter, reader: LedgerReader, extractor: ExtractorWriter
) -> None:
    queue(writer, *"ab")
    answered_sample(writer, 1)
    _seal(extractor, reader, "000001")
    answered_sample(writer, 2)
    _seal(extractor, reader, "000002")
    assert extractor.drop_shard("shards/000001.safetensors") == 1
    assert extractor.drop_shard("shards/000001.safetensors") == 0
    assert _waiting(reader) == ["a"]
    assert reader.snapshot().extract.shards == 1


def test_answers_used_at_text_level_are_kept_and_never_extracted(writer: LedgerWriter, reader: LedgerReader) -> None:
    queue(writer, "a")
    attempt = send(writer, 1)
    writer.finish([Finished(attempt, answer(result=replace(tokens(), output_ids=None, counted=None)))])
    detail = reader.sample("a")
    assert detail is not None
    assert detail.tokens is not None
    assert (detail.tokens.output_ids, detail.row.output_tokens, detail.row.state) == (None, None, "tokenized")
    assert _waiting(reader) == []


def test_exports_come_in_pages_with_prompt_and_ids(writer: LedgerWriter, reader: LedgerReader) -> None:
    queue(writer, *"abc")
    for sample in (1, 2, 3):
        answered_sample(writer, sample)
    first = reader.to_export(0, 2)
    assert [item.row.sample_key for item in first] == ["a", "b"]
    assert [item.row.sample_key for item in reader.to_export(first[-1].row.id, 2)] == ["c"]
    assert first[0].prompt.messages[0].content == "Tell me about a"
    assert first[0].tokens.raw == "raw text"


def test_replies_come_back_for_a_rebuild(writer: LedgerWriter, reader: LedgerReader) -> None:
    queue(writer, *"abc")
    writer.finish([Finished(send(writer, 1), answer(body=b"one"))])
    answered_sample(writer, 3)
    found = reader.to_rebuild(0, 10)
    assert [(item.row.sample_key, item.reply.body) for item in found] == [("a", b"one"), ("c", b'{"id": "gen-1"}')]
    assert found[0].tokens is None
    assert found[1].tokens is not None
