"""Orders for many samples leave room for others, close their endpoint at once and outlive their engine."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from eagletui.engine.dispatch import Dispatcher
from eagletui.engine.gates import Gates
from eagletui.engine.ledger_thread import LedgerThread
from eagletui.engine.long_orders import LongOrders
from eagletui.engine.market import Market
from eagletui.engine.open_files import OpenFiles
from eagletui.engine.pace import Pace
from eagletui.engine.steering import Steering
from eagletui.ledger import commands, writer_bulk
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer import LedgerWriter
from tests.ledger.build import answered_sample, make_ledger, queue


class Engine:
    """What takes orders in an engine, over a real ledger."""

    def __init__(self, path: Path) -> None:
        self.reader = LedgerReader(path)
        self.ledger = LedgerThread(path)
        self.pace = Pace({"alpha": 1.0, "beta": 1.0}, 8)
        self.queued = 0
        self.steering = Steering(
            reader=self.reader,
            ledger=self.ledger,
            gates=Gates(self.ledger, "running", None),
            pace=self.pace,
            files=cast(OpenFiles, None),
            market=Market("auto"),
            dispatcher=cast(Dispatcher, SimpleNamespace(flights={})),
            money_moved=lambda: None,
            long_orders=LongOrders(self.reader, self.ledger, self.pace, self._queue_moved),
            rekey=self._no_key,
        )

    def _queue_moved(self) -> None:
        self.queued += 1

    async def _no_key(self) -> str:
        return ""

    def close(self) -> None:
        self.ledger.close()
        self.reader.close()


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ledger with seven answers of `alpha`; an order takes three of them at a time."""
    monkeypatch.setattr(writer_bulk, "SLICE_ROWS", 3)
    path = make_ledger(tmp_path / "ledger.sqlite")
    with LedgerWriter(path) as writer:
        writer.upsert_endpoint("alpha", "Alpha")
        queue(writer, *(f"s{number}" for number in range(7)))
        for sample in range(1, 8):
            answered_sample(writer, sample, cost=10)
    return path


def result(path: Path, order: int) -> str | None:
    row = commands.wait_applied(path, order, timeout_s=0)
    return None if row is None else row.result


async def test_a_pause_is_applied_between_two_slices_of_a_quarantine(path: Path) -> None:
    engine = Engine(path)
    aside = commands.issue(path, "quarantine", {"endpoint": "alpha", "since": 0.0})
    await engine.steering.poll()
    assert engine.steering.is_busy
    assert engine.pace.lanes["alpha"].quarantined, "from the first slice on nothing is bought there"
    pause = commands.issue(path, "pause", {"now": False})
    await engine.steering.poll()
    assert result(path, pause) == "Paused; 0 requests under way come to their end."
    assert result(path, aside) is None
    await engine.steering.poll()
    assert "7 samples of it set aside. They cost $0.0000" in (result(path, aside) or "")
    assert not engine.steering.is_busy
    engine.close()


async def test_orders_for_many_samples_keep_their_order_and_another_engine_goes_on_with_them(path: Path) -> None:
    first = Engine(path)
    aside = commands.issue(path, "quarantine", {"endpoint": "alpha", "since": 0.0})
    again = commands.issue(path, "retry", {"samples": [], "suspect": True})
    await first.steering.poll()
    first.close()
    second = Engine(path)
    assert second.steering.is_busy is False
    while result(path, again) is None:
        await second.steering.poll()
    assert "7 samples of it set aside" in (result(path, aside) or ""), "what the first engine moved is counted"
    assert result(path, again) == "7 samples queued again."
    assert second.queued == 3, "each slice can be asked for at once"
    assert second.reader.snapshot().states["queued"] == 7
    second.close()


async def test_an_endpoint_is_closed_at_once_while_a_retry_is_half_done(path: Path) -> None:
    with LedgerWriter(path) as writer:
        writer.quarantine("alpha")
    engine = Engine(path)
    again = commands.issue(path, "retry", {"samples": [], "suspect": True})
    await engine.steering.poll()
    assert engine.steering.is_busy
    done = engine.reader.snapshot().states["queued"]
    aside = commands.issue(path, "quarantine", {"endpoint": "alpha", "since": 0.0})
    back = commands.issue(path, "release", {"endpoint": "alpha"})
    await engine.steering.poll()
    assert engine.pace.lanes["alpha"].quarantined, "it does not wait for the retry"
    assert engine.reader.snapshot().states["queued"] == done
    while result(path, back) is None:
        await engine.steering.poll()
    assert "set aside" in (result(path, aside) or ""), "orders about an endpoint keep their order"
    assert result(path, again) is None
    assert not engine.pace.lanes["alpha"].quarantined
    while engine.steering.is_busy:
        await engine.steering.poll()
    assert result(path, again) is not None
    engine.close()


async def test_a_quarantine_waits_for_no_other_endpoint(path: Path) -> None:
    with LedgerWriter(path) as writer:
        writer.upsert_endpoint("beta", "Beta")
    engine = Engine(path)
    long = commands.issue(path, "quarantine", {"endpoint": "alpha", "since": 0.0})
    await engine.steering.poll()
    short = commands.issue(path, "quarantine", {"endpoint": "beta", "since": 0.0})
    back = commands.issue(path, "release", {"endpoint": "alpha"})
    await engine.steering.poll()
    assert engine.pace.lanes["beta"].quarantined, "closed before the next slice of any order"
    await engine.steering.poll()
    assert (result(path, long), result(path, back)) == (None, None)
    assert "beta" in (result(path, short) or ""), "it has nothing to move and is done"
    while result(path, back) is None:
        assert engine.pace.lanes["alpha"].quarantined or result(path, long) is not None
        await engine.steering.poll()
    assert "7 samples of it set aside" in (result(path, long) or ""), "orders about one endpoint keep their order"
    assert not engine.pace.lanes["alpha"].quarantined
    assert not engine.steering.is_busy
    engine.close()


async def test_a_quarantine_that_was_left_half_done_does_not_undo_a_later_release(path: Path) -> None:
    first = Engine(path)
    aside = commands.issue(path, "quarantine", {"endpoint": "alpha", "since": 0.0})
    await first.steering.poll()
    first.close()
    with LedgerWriter(path) as writer:
        release = commands.issue(path, "release", {"endpoint": "alpha"})
        while not writer.carry_on(release, "release", {"endpoint": "alpha"}).is_done:
            pass
        writer.apply_command(release, True, "Released.")
    second = Engine(path)
    await second.steering.poll()
    assert result(path, aside) == "A later order about alpha was applied before this one."
    assert second.reader.snapshot().states["tokenized"] == 7
    second.close()
