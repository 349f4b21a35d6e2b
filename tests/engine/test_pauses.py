"""What brings about the pauses that no refusal does, and how every pause says its way out."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple, cast

import pytest

from eagletui.core.lifecycle import PAUSE_REASONS, PauseReason
from eagletui.engine.answers import ReadySample
from eagletui.engine.breaker import BREAK_FAILURES, BREAK_S
from eagletui.engine.gates import WAY_OUT, Gates
from eagletui.engine.ledger_thread import LedgerThread
from eagletui.engine.market import Market
from eagletui.engine.pace import Pace
from eagletui.engine.rounds import Rounds
from eagletui.engine.settle import Settler
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.rows import RunRow
from eagletui.providers.base import Provider
from eagletui.runs.folder import RunFolder
from tests.engine.parts import admissions_of
from tests.ledger.build import make_ledger


class Held(NamedTuple):
    """A running run's gates over a real ledger."""

    folder: RunFolder
    ledger: LedgerThread
    gates: Gates

    def row(self) -> RunRow:
        """The run as it is on disk."""
        with LedgerReader(self.folder.ledger_path) as reader:
            return reader.run()


@pytest.fixture
async def held(tmp_path: Path) -> AsyncIterator[Held]:
    folder = RunFolder(tmp_path)
    make_ledger(folder.ledger_path)
    ledger = LedgerThread(folder.ledger_path)
    gates = Gates(ledger, "new", None)
    await gates.move("running", "The run begins.")
    yield Held(folder, ledger, gates)
    ledger.close()


@pytest.mark.parametrize("reason", PAUSE_REASONS)
async def test_a_pause_closes_admission_at_once_and_says_on_disk_what_happened_and_what_to_do(
    held: Held, reason: PauseReason
) -> None:
    held.gates.want_pause(reason, "It happened.")
    assert not held.gates.is_open
    await held.gates.write()
    run = held.row()
    assert (run.state, run.pause_reason, run.pause_detail) == ("paused", reason, f"It happened. {WAY_OUT[reason]}")
    assert "eagletui run RUN" in (run.pause_detail or ""), "also where no engine runs"
    held.gates.want_pause("breaker", "Another thing.")
    await held.gates.write()
    assert held.row().pause_reason == reason, "the first reason stays"
    await held.gates.move("running", "Resumed by hand.")
    assert held.gates.is_open
    assert (held.row().state, held.row().pause_reason, held.row().pause_detail) == ("running", None, None)


async def test_a_disk_that_runs_full_pauses_before_a_write_can_fail(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(2**40, 2**40 - 3 * 2**20, 3 * 2**20)
    )
    pace = Pace({"e": 1.0}, 4)
    rounds = Rounds(
        folder=held.folder,
        provider=cast(Provider, None),
        ledger=held.ledger,
        gates=held.gates,
        pace=pace,
        market=Market("auto"),
        settler=cast(Settler, None),
        limited_by=lambda: "prompts",
        detail=dict,
        queue_moved=lambda: None,
        receivers=tuple,
    )
    beat = asyncio.create_task(rounds.beat())
    await asyncio.sleep(0)  # up to its first write
    beat.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await beat
    await held.gates.write()
    detail = held.row().pause_detail or ""
    assert held.row().pause_reason == "disk"
    assert detail.startswith("Only 3 MiB are free on the disk of the run. Free space")


async def test_the_run_pauses_when_no_endpoint_is_left_that_works_and_names_each_with_its_last_failure(
    held: Held,
) -> None:
    pace = Pace({"e": 1.0, "f": 1.0}, 4)
    admissions = admissions_of(held.ledger, held.gates, pace)
    admissions.ready.append(cast(ReadySample, None))
    pace.lanes["e"].quarantined = True
    for number in range(BREAK_FAILURES):
        assert held.gates.is_open
        pace.failed("f", "server_error, HTTP 500: it broke", 0.0, number * BREAK_S, awaits=lambda _: False)
    await admissions.admit()
    assert not held.gates.is_open
    await held.gates.write()
    detail = held.row().pause_detail or ""
    assert held.row().pause_reason == "breaker"
    assert detail.startswith("No endpoint is left that works. f: 5 requests failed and none succeeded for ")
    assert "s; the last: server_error, HTTP 500: it broke. Look at the events" in detail


async def test_the_run_pauses_when_every_endpoint_is_quarantined(held: Held) -> None:
    pace = Pace({"e": 1.0}, 4)
    admissions = admissions_of(held.ledger, held.gates, pace)
    admissions.ready.append(cast(ReadySample, None))
    pace.lanes["e"].quarantined = True
    await admissions.admit()
    await held.gates.write()
    assert held.row().pause_reason == "check"
    assert (held.row().pause_detail or "").startswith("No endpoint is left: each is quarantined")
