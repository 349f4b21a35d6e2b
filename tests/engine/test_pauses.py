"""What brings about the pauses that no refusal does, and how every pause says its way out."""

import asyncio
import contextlib
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple, cast

import pytest

from eagletui.config import CheckSection
from eagletui.core.lifecycle import PAUSE_REASONS, PauseReason
from eagletui.engine.budget import PromptBounds
from eagletui.engine.gates import WAY_OUT, Gates
from eagletui.engine.ledger_thread import LedgerThread
from eagletui.engine.lessons import Lessons
from eagletui.engine.market import Market
from eagletui.engine.pace import Pace
from eagletui.engine.rounds import Rounds
from eagletui.engine.second_look import SecondLook
from eagletui.engine.settle import Settler
from eagletui.engine.watch import Watch
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.rows import RunRow
from eagletui.providers.base import Provider, ProviderFailure
from eagletui.runs import RunFolder
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


async def test_failures_in_a_row_trip_the_breaker_only_after_a_minute_without_an_answer(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [time.monotonic()]
    monkeypatch.setattr("eagletui.engine.lessons.time.monotonic", lambda: now[0])
    lessons = Lessons(
        ledger=held.ledger,
        gates=held.gates,
        pace=Pace({"e": 1.0}, 4),
        check=CheckSection(),
        watch=Watch(CheckSection()),
        bounds=PromptBounds(),
        second_look=cast(SecondLook, None),
    )
    failure = ProviderFailure("server_error", "HTTP 500: it broke")
    for _ in range(30):
        lessons._note_failure(failure)
    assert held.gates.is_open
    now[0] += 61
    lessons._note_failure(failure)
    await held.gates.write()
    detail = held.row().pause_detail or ""
    assert held.row().pause_reason == "breaker"
    assert "31 requests in a row failed and none was answered for 61 s; the last: HTTP 500: it broke" in detail
