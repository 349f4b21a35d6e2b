"""A million samples: what a screen asks for stays under 50 ms, from the first to the last page."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from eagletui.ledger.filters import FAILED, UNPROVED, Compared, SampleFilter
from eagletui.ledger.orders import AdmitRequest
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.reader_samples import PageEnd, page_end
from eagletui.ledger.writer import LedgerWriter
from tests.ledger.build import Clock
from tests.ledger.million import ANSWERED, SAMPLES, make_million

LIMIT_S = 0.050

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def million(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_million(tmp_path_factory.mktemp("million") / "ledger.sqlite")


def _best(query: Callable[[], object]) -> float:
    """Return the best of three times, because other work on the machine only ever adds."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        query()
        times.append(time.perf_counter() - start)
    return min(times)


def test_a_snapshot_takes_under_50_ms(million: Path) -> None:
    with LedgerReader(million, lambda: 1_200_000.0) as reader:
        snapshot = reader.snapshot()
        assert snapshot.samples == SAMPLES
        assert snapshot.answered == ANSWERED - ANSWERED // 1000
        assert snapshot.rate is not None
        assert _best(reader.snapshot) < LIMIT_S


VIEWS = {
    "all": SampleFilter(),
    "newest first": SampleFilter(reverse=True),
    "failed": SampleFilter(states=FAILED),
    "two data sets": SampleFilter(datasets=("set1", "set3")),
    "unproved": SampleFilter(evidence=UNPROVED),
    "endpoint": SampleFilter(endpoints=("endpoint-3",)),
    "mismatched": SampleFilter(preset="mismatched"),
    "drifting": SampleFilter(preset="drifting"),
    "waiting": SampleFilter(preset="waiting"),
    "two kinds by drift": SampleFilter(evidence=("streamed", "counted"), sort="drift", reverse=True),
    "slow ones by cost": SampleFilter(compared=(Compared("latency", ">", 29.9),), sort="cost"),
    "more than five off": SampleFilter(compared=(Compared("drift", ">", 5),)),
    "by drift": SampleFilter(sort="drift", reverse=True),
    "by cost": SampleFilter(sort="cost", reverse=True),
    "by output": SampleFilter(sort="output"),
    "by latency": SampleFilter(sort="latency", reverse=True),
}


@pytest.mark.parametrize("view", VIEWS)
def test_the_first_and_the_next_page_of_every_view_take_under_50_ms(million: Path, view: str) -> None:
    wanted = VIEWS[view]
    with LedgerReader(million) as reader:
        first = reader.page(wanted, None, 100)
        assert len(first) == 100
        end = page_end(first[-1], wanted)
        assert _best(lambda: reader.page(wanted, None, 100)) < LIMIT_S
        assert _best(lambda: reader.page(wanted, end, 100)) < LIMIT_S


def test_the_last_page_costs_what_the_first_does(million: Path) -> None:
    with LedgerReader(million) as reader:
        end = PageEnd(SAMPLES - 100, SAMPLES - 100)
        assert [row.id for row in reader.page(SampleFilter(), end, 100)] == list(range(SAMPLES - 99, SAMPLES + 1))
        assert _best(lambda: reader.page(SampleFilter(), end, 100)) < LIMIT_S


def test_the_small_lists_and_one_sample_take_under_50_ms(million: Path) -> None:
    with LedgerReader(million) as reader:
        for query in (
            lambda: reader.attention(50),
            lambda: reader.last_events(200),
            lambda: reader.ticks(1_199_000),
            lambda: reader.sample("k500003"),
            lambda: reader.rows(range(500_000, 500_100)),
            lambda: reader.to_extract(100),
            lambda: reader.to_export(500_000, 100),
            reader.open_attempts,
        ):
            assert _best(query) < LIMIT_S


def test_claiming_and_admitting_do_not_slow_down_with_the_queue(million: Path) -> None:
    with LedgerWriter(million, Clock()) as writer:
        assert _best(lambda: writer.claim(100)) < LIMIT_S
        queued = writer.claim(100)
        admissions = writer.admit([AdmitRequest(sample.id, "endpoint-1", 1_000, streamed=True) for sample in queued])
        assert all(admission.verdict == "admit" for admission in admissions)
        assert writer.recover().requeued == 100
