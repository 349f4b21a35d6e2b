"""Samples that wait for features, while another thread commits those that were handed out."""

from collections.abc import Callable
from pathlib import Path

from eagletui.extract.ledger_source import LedgerSource
from eagletui.ledger.orders import Feature, TokensResult
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.reader_samples import ToExtract
from eagletui.ledger.writer import LedgerWriter
from eagletui.ledger.writer_extract import ExtractorWriter
from eagletui.runs.folder import RunFolder
from tests.extract.small_run import answer_samples, create_run


class _PagedReader(LedgerReader):
    """A reader after whose next page something happens before that page is looked at."""

    after_page: Callable[[], None] | None = None
    rows_read = 0

    def to_extract(self, limit: int, after: int = 0) -> list[ToExtract]:
        page = super().to_extract(limit, after)
        self.rows_read += len(page)
        act, self.after_page = self.after_page, None
        if act is not None:
            act()
        return page


def _commit(folder: RunFolder, source: LedgerSource, sample_id: int, revision: int) -> None:
    with ExtractorWriter(folder.ledger_path) as writer:
        writer.commit_shard(
            f"shards/{revision:06d}.safetensors", [Feature(sample_id, 0, 5, revision)], size_bytes=1, xxh3="00"
        )
    source.give_back([sample_id])


def _run(path: Path, samples: int) -> RunFolder:
    folder = create_run(path, None)
    answer_samples(folder, [((1, 2), (3, 4, 5))] * samples)
    return folder


def test_a_sample_that_is_committed_while_a_page_with_it_is_looked_at_is_not_handed_out_again(tmp_path: Path) -> None:
    folder = _run(tmp_path / "run", 2)
    with _PagedReader(folder.ledger_path) as reader:
        source = LedgerSource(reader)
        (first,) = source.take(1)
        assert first.sample_id is not None
        assert first.revision is not None
        sample_id, revision = first.sample_id, first.revision
        reader.after_page = lambda: _commit(folder, source, sample_id, revision)
        assert [sample.key for sample in source.take(10)] == ["s1"]
        assert source.take(10) == []
        assert not source.has_waiting()


def test_a_sample_that_was_rebuilt_before_its_features_came_is_handed_out_again_with_its_new_ids(
    tmp_path: Path,
) -> None:
    folder = _run(tmp_path / "run", 1)
    with _PagedReader(folder.ledger_path) as reader:
        source = LedgerSource(reader)
        (old,) = source.take(10)
        assert old.sample_id is not None
        assert old.revision is not None
        sample_id, revision = old.sample_id, old.revision
        with LedgerWriter(folder.ledger_path) as writer:
            writer.store_tokens(sample_id, TokensResult((6, 7), "text", "served", "usable", prompt_ids=(1, 2)))
        reader.after_page = lambda: _commit(folder, source, sample_id, revision)
        assert source.take(10) == []
        (new,) = source.take(10)
        assert (new.token_ids, new.revision) == ((1, 2, 6, 7), revision + 1)
        assert source.take(10) == []


def test_samples_that_are_left_out_are_read_once_and_not_at_every_look(tmp_path: Path) -> None:
    folder = _run(tmp_path / "run", 320)
    with _PagedReader(folder.ledger_path) as reader, ExtractorWriter(folder.ledger_path) as writer:
        source = LedgerSource(reader, only=frozenset(range(8, 321, 8)))
        found = []
        while samples := source.take(2):
            found += [sample.sample_id for sample in samples]
            writer.event("info", "extractor", "test", "the ledger changes all the time")
        assert found == list(range(8, 321, 8))
        assert reader.rows_read <= 20 * 64 + 320, "a page at each of 20 looks, and a last pass"
        answer_samples(folder, [((1, 2), (3, 4, 5))], first=320)
        source.only = None
        assert [sample.key for sample in source.take(3)] == ["s0", "s1", "s2"]
        assert len(source.take(400)) == 320 + 1 - 40 - 3


def test_a_sample_that_comes_back_while_a_pass_is_under_way_is_looked_for_in_the_next_one(
    tmp_path: Path,
) -> None:
    folder = _run(tmp_path / "run", 3)
    with _PagedReader(folder.ledger_path) as reader:
        source = LedgerSource(reader)
        assert len(source.take(2)) == 2
        with LedgerWriter(folder.ledger_path) as writer:
            writer.store_tokens(1, TokensResult((6, 7), "text", "served", "usable", prompt_ids=(1, 2)))
        reader.after_page = lambda: _commit(folder, source, 1, 1)
        assert [sample.key for sample in source.take(1)] == ["s2"], "the pass goes on behind s1"
        (again,) = source.take(3)
        assert (again.key, again.token_ids) == ("s0", (1, 2, 6, 7))
        assert source.take(3) == []
