"""Engine, extractor, viewers and orders use one file at once, each over its own connection."""

from collections.abc import Callable
from pathlib import Path
from threading import Thread

from eagletui.ledger import commands
from eagletui.ledger.orders import Feature
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer import LedgerWriter
from eagletui.ledger.writer_extract import ExtractorWriter
from tests.ledger.build import answered_sample, make_ledger, queue
from tests.ledger.truth import counters, recount

SAMPLES = 40


def test_everyone_writes_and_reads_at_once_and_nothing_is_lost(tmp_path: Path) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite", stop_at=10**9, cap=10**9)
    with LedgerWriter(path) as writer:
        queue(writer, *(f"k{n}" for n in range(SAMPLES)))
    failures: list[BaseException] = []

    def engine() -> None:
        with LedgerWriter(path) as writer:
            for sample in range(1, SAMPLES + 1):
                answered_sample(writer, sample)
                for order in writer.next_commands():
                    writer.apply_command(order.id, True, "Done.")

    def extractor() -> None:
        sealed = 0
        with ExtractorWriter(path) as writer, LedgerReader(path) as reader:
            while sealed < SAMPLES:
                waiting = reader.to_extract(3)
                features = [Feature(item.sample_id, n, 5, item.tokens_revision) for n, item in enumerate(waiting)]
                if features:
                    writer.commit_shard(f"{sealed}.safetensors", features, size_bytes=1, xxh3="0")
                sealed += len(features)
                writer.beat("extractor", ready=True)

    def viewer() -> None:
        with LedgerReader(path) as reader:
            while (snapshot := reader.snapshot()).extracted < SAMPLES:
                assert snapshot.samples == SAMPLES
                assert snapshot.spend.books.settled_pico == 100 * snapshot.answered

    def person() -> None:
        for number in range(20):
            commands.issue(path, "in-flight", {"n": number})

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                failures.append(error)
                raise

        return run

    threads = [Thread(target=guarded(work)) for work in (engine, extractor, viewer, viewer, person)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert counters(path) == recount(path)
    with LedgerReader(path) as reader:
        snapshot = reader.snapshot()
    assert (snapshot.answered, snapshot.extracted, snapshot.extract.pending) == (SAMPLES, SAMPLES, 0)
