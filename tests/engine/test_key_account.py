"""What the key shows beyond the books: named at once, at the end, or not at all."""

import asyncio
from pathlib import Path
from typing import cast

import pytest

from eagletui.engine import rounds
from eagletui.engine.gates import Gates
from eagletui.engine.market import Market
from eagletui.engine.pace import Pace
from eagletui.ledger.reader import LedgerReader
from eagletui.runs.folder import RunFolder
from tests.engine.accounts import HOLD_PICO, Accounts, make_ledger, money, settler_on
from tests.providers.scripted_server import Exchange


async def test_a_late_bill_beyond_what_the_released_holds_bound_is_named_and_not_booked(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    make_ledger(path, [None])
    accounts = Accounts([None], ["0.0000004005"])
    async with settler_on(path, accounts) as (settler, _heard):
        await settler.reconcile(lambda: True)
        assert money(path) == (0, 0, 400_000)
        accounts.bill_late("7.00")
        await settler.cross_check()
    assert money(path) == (0, 0, HOLD_PICO)
    with LedgerReader(path) as reader:
        (finding,) = reader.findings()
    assert finding.sentence == (
        "The provider's key shows $7.0000 more than this run can have spent: $7.0000 in all, above the cap $1.0000."
    )


async def test_what_was_named_while_the_run_worked_is_no_finding_once_the_key_agrees_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    make_ledger(path, [None])
    async with settler_on(path, Accounts([None], ["0.3000000005", "0.0000009005"])) as (settler, _heard):
        for shown in (1, 0):
            await (settler.key.look_at_work() if shown else settler.cross_check())
            with LedgerReader(path) as reader:
                assert reader.snapshot().key_excess is None or shown
                assert len([finding for finding in reader.findings() if finding.closed_at is None]) == shown


async def test_a_key_that_shows_more_than_is_committed_is_named_while_the_run_works(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    make_ledger(path, [None])
    async with settler_on(path, Accounts([None], ["0.0000009005", "0.2500010005", "0.3000000005"])) as (
        settler,
        _heard,
    ):
        for shown_pico, findings in ((900_000, 0), (250_001_000_000, 0), (300_000_000_000, 1)):
            look = await settler.key.look_at_work()
            assert look is not None
            assert look.shown_pico == shown_pico
            with LedgerReader(path) as reader:
                assert len(reader.findings()) == findings


async def test_a_look_at_the_key_that_another_key_overtakes_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    make_ledger(path, [None])
    asked, go_on = asyncio.Event(), asyncio.Event()

    class Slow(Accounts):
        async def act(self, exchange: Exchange) -> None:
            asked.set()
            await go_on.wait()
            await super().act(exchange)

    async with settler_on(path, Slow([None], ["7.00"])) as (settler, _heard):
        look = asyncio.create_task(settler.key.look_at_work())
        await asked.wait()
        settler.take_key(900, [])
        go_on.set()
        assert await look is None
    with LedgerReader(path) as reader:
        assert reader.findings() == []


async def test_a_sum_accepted_of_one_key_does_not_quiet_the_alarm_about_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "KEY_LOOK_S", 0.01)
    path = tmp_path / "ledger.sqlite"
    make_ledger(path, [None])  # under a cap of one dollar
    alarms: asyncio.Queue[str] = asyncio.Queue()

    class Heeding(Gates):
        def want_pause(self, reason: str, happened: str) -> None:
            alarms.put_nowait(happened)

    accounts = Accounts([None], ["20.00"])
    async with settler_on(path, accounts) as (settler, _heard), asyncio.timeout(10):
        watch = rounds.Rounds(
            folder=cast(RunFolder, None),
            provider=settler.provider,
            ledger=settler.ledger,
            gates=Heeding(settler.ledger, "running", None),
            pace=cast(Pace, None),
            market=cast(Market, None),
            settler=settler,
            limited_by=lambda: "prompts",
            detail=dict,
            receivers=tuple,
            queue_moved=lambda: None,
        )
        watching = asyncio.create_task(watch.watch_key())
        assert "shows $20.0000 spent" in await alarms.get()
        accounts.bill_late("30.00")
        settler.take_key(500, [])
        assert "shows $30.0000 spent" in await alarms.get()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
