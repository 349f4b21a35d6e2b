"""Keys that change a run: what they ask, what they write into the ledger, what they show."""

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from textual.widgets import Input

from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.rows import CommandRow
from eagletui.tui.screens.dialogs import read_dollars
from tests.tui.driving import NARROW, WIDE, Screens, Size, opened
from tests.tui.factory import Built

LAST_WORDS = "Traceback (most recent call last):\nValueError: \x1b[31mno good\n"


def pending(built: Built) -> list[tuple[str, dict[str, object]]]:
    with LedgerReader(built.ledger) as reader:
        return [(row.verb, json.loads(row.args_json)) for row in reader.commands_pending()]


async def carried_out(built: Built, screens: Screens, *keys: str, by: Callable[[CommandRow], tuple[bool, str]]) -> None:
    """Press keys while a worker applies what they order."""

    async def work() -> None:
        with built.writer() as writer:
            while True:
                for row in writer.next_commands():
                    changed, result = by(row)
                    writer.apply_command(row.id, changed, result)
                await asyncio.sleep(0.01)

    worker = asyncio.create_task(work())
    try:
        await screens.press(*keys)
    finally:
        worker.cancel()


async def test_p_pauses_without_asking_and_shows_the_result(busy: Built) -> None:
    seen: list[tuple[str, str]] = []

    def apply(row: CommandRow) -> tuple[bool, str]:
        seen.append((row.verb, row.args_json))
        return True, "Paused; 4 in flight finish."

    async with opened(busy) as screens:
        await carried_out(busy, screens, "p", by=apply)
        assert seen == [("pause", '{"now": false}')]
        assert "pause: Paused; 4 in flight finish." in screens.text


async def test_p_resumes_a_paused_run(busy: Built) -> None:
    with busy.writer() as writer:
        writer.set_run_state("paused", "user")
    async with opened(busy) as screens:
        assert "= PAUSED by you" in screens.lines[0]
        assert "Paused by you. 4 in flight, at most $0.0016.   p resume   X stop run" in screens.text
        assert "p Resume" in screens.lines[-1]
        await carried_out(busy, screens, "p", by=lambda row: (True, f"{row.verb} done"))
        assert "resume: resume done" in screens.text


async def test_an_order_given_just_before_leaving_is_written_down(busy: Built) -> None:
    async with opened(busy) as screens:
        screens.app.action_pause()
        assert pending(busy) == [], "it is on its way"
        await screens.app.action_detach()
    assert pending(busy) == [("pause", {"now": False})]


async def test_an_order_that_no_engine_takes_says_so(busy: Built) -> None:
    with busy.writer() as writer:
        writer.set_run_state("paused", "user")
    async with opened(busy, workers=()) as screens:
        await screens.press("X")
        await screens.write("b3-magicoder")
        await screens.press("enter")
        assert pending(busy) == [("stop", {})]
        assert "stop waits in the ledger: no engine is running." in screens.text


@pytest.mark.slow
async def test_limits_of_a_run_without_an_engine_are_changed_at_once_as_ctl_does(busy: Built) -> None:
    with busy.writer() as writer:
        writer.set_run_state("paused", "cap", "The next request could pass the cap.")
    async with opened(busy, workers=()) as screens:
        await screens.press("dollar_sign", "tab", *["backspace"] * 4)
        await screens.write("20")
        assert "No engine is running: the run goes on once it is started." in screens.text
        assert re.search(r"cap rises by \$19\.\d+, to [\d.]+ times what it was", screens.text)
        await screens.press("enter", "enter")
        await screens.settle()
        assert pending(busy) == []
        with busy.writer() as writer:
            assert writer.books().cap_pico == 20 * 10**12
        assert "Start the workers" in screens.text


@pytest.mark.slow
async def test_p_on_a_run_without_an_engine_offers_to_start_it(busy: Built) -> None:
    (busy.path / "logs" / "engine.log").write_text(LAST_WORDS, encoding="utf-8")
    async with opened(busy, workers=()) as screens:
        assert "is dead: ValueError: no good." in screens.text
        await screens.press("p")
        assert "Start the workers" in screens.text
        assert pending(busy) == []


@pytest.mark.parametrize("size", [WIDE, NARROW])
@pytest.mark.slow
async def test_stopping_asks_for_the_name_and_keeps_running_by_default(busy: Built, size: Size) -> None:
    async with opened(busy, size) as screens:
        await screens.press("X")
        assert "Stop run b3-magicoder" in screens.text
        assert "16 queued samples will not be sent." in screens.text
        assert "4 in flight, at most $0.0016." in screens.text
        await screens.write("b3-magic")
        await screens.press("enter")
        assert pending(busy) == []
        await screens.press("escape")
        assert pending(busy) == []
        await screens.press("X")
        await screens.write("b3-magicoder")
        await carried_out(busy, screens, "enter", by=lambda row: (True, "Stopping."))
        assert "stop: Stopping." in screens.text


@pytest.mark.slow
async def test_pausing_now_names_the_money_at_risk_and_needs_a_yes(busy: Built) -> None:
    async with opened(busy) as screens:
        await screens.press("P")
        assert "Money at risk: at most $0.0016, billed without an answer." in screens.text
        await screens.press("enter")
        assert pending(busy) == [], "the focus is on keeping them"
        await screens.press("P", "right")
        await carried_out(busy, screens, "enter", by=lambda row: (True, row.args_json))
        assert 'pause: {"now": true}' in screens.text


async def test_limits_show_their_consequence_while_typing_and_are_ordered_as_decimals(busy: Built) -> None:
    ordered: list[tuple[str, str]] = []

    def apply(row: CommandRow) -> tuple[bool, str]:
        ordered.append((row.verb, row.args_json))
        return True, "set"

    async with opened(busy) as screens:
        await screens.press("dollar_sign")
        assert "Edit limits" in screens.text
        assert "stop-at leaves $0.0857: about 02:32:37 at this pace." in screens.text
        await screens.write("x")
        assert "stop-at must be an amount of dollars" in screens.text
        field = screens.app.screen.query_one("#stop-at", Input)
        field.value = "0.001"
        await screens.settle()
        assert "stop-at is below what is settled: nothing new is sent." in screens.text
        field.value = "12.345678"
        await screens.settle()
        assert "stop-at is above the cap: the cap holds." in screens.text
        await screens.press("enter")
        assert "Edit limits" in screens.text, "the first enter goes to the button"
        assert pending(busy) == []
        await carried_out(busy, screens, "enter", by=apply)
        assert ordered == [("stop-at", '{"usd": "12.345678"}')]


async def test_workers_are_offered_with_the_new_cap_and_only_while_samples_are_left(busy: Built) -> None:
    async with opened(busy, workers=()) as screens:
        whole = screens.app.view
        assert whole is not None
        await screens.press("dollar_sign")
        screens.app.screen.query_one("#cap", Input).value = "20"
        await screens.press("tab", "tab", "tab", "enter")
        assert "20 samples left to send, up to stop-at $0.09 and cap $20.00." in screens.text
        await screens.press("escape", "dollar_sign")
        screens.app.screen.query_one("#cap", Input).value = "30"
        states = {**whole.snapshot.states, "queued": 0, "in_flight": 0}
        screens.app.view = replace(whole, snapshot=replace(whole.snapshot, states=states))
        await screens.press("tab", "tab", "tab", "enter")
        assert "Edit limits" not in screens.text
        assert "Start the workers" not in screens.text
        with LedgerReader(busy.ledger) as reader:
            assert reader.snapshot().spend.books.cap_pico == 30 * 10**12


@pytest.mark.slow
async def test_raising_the_cap_of_a_run_that_waits_at_it_says_that_it_goes_on(busy: Built) -> None:
    with busy.writer() as writer:
        writer.set_run_state("paused", "cap", "The next request could pass the cap.")
    ordered: list[str] = []

    def apply(row: CommandRow) -> tuple[bool, str]:
        ordered.append(f"{row.verb} {row.args_json}")
        return True, "done"

    async with opened(busy) as screens:
        assert "$ PAUSED at cap" in screens.lines[0]
        assert "Cap $0.15: the next request could pass it." in screens.text
        assert "$ raise the limit   X stop run" in screens.text
        await screens.press("dollar_sign", "tab", *["backspace"] * 4)
        await screens.write("20")
        assert "The run then goes on." in screens.text
        await carried_out(busy, screens, "enter", "enter", by=apply)
        assert ordered == ['cap {"usd": "20"}']


async def test_an_engine_that_ended_on_purpose_is_not_called_dead(busy: Built) -> None:
    with busy.writer() as writer:
        writer.beat("engine", ready=True)
        writer.stop_beat("engine")
    async with opened(busy, workers=("extractor",)) as screens:
        banner = " ".join(screens.text.split())
        assert "The run was interrupted: its engine" in banner
        assert "R go on, or: eagletui run b3-magicoder --detach" in banner
        assert "is dead" not in banner


async def test_a_dead_engine_is_named_with_the_command_and_r_offers_to_start_it(busy: Built) -> None:
    async with opened(busy, workers=()) as screens:
        assert "× NO ENGINE" in screens.lines[0]
        assert "is dead. 4 in flight, at most $0.0016." in screens.text
        banner = " ".join(screens.text.split())
        assert "R start it again, or: eagletui run b3-magicoder --detach" in banner
        await screens.press("R")
        assert "Start the workers" in screens.text
        assert "20 samples left to send, up to stop-at $0.09 and cap $0.15." in screens.text
        await screens.press("escape")
        assert "Start the workers" not in screens.text


async def test_a_silent_engine_is_told_from_a_dead_one(busy: Built) -> None:
    busy.clock.now += 41
    async with opened(busy) as screens:
        assert "? STALE 42 s" in screens.lines[0]
        assert "gave no sign for 42 s. The figures below are old." in screens.text


async def test_figures_that_cannot_be_read_again_show_their_age(busy: Built) -> None:
    async with opened(busy) as screens:
        busy.clock.now += 30
        screens.app._second_passed()
        await screens.settle()
        assert "? ledger 30 s ago" in screens.lines[0]


@pytest.mark.parametrize("state", ["done", "stopped", "failed"])
@pytest.mark.slow
async def test_a_finished_run_says_how_it_ended_and_refuses_to_pause(busy: Built, state: str) -> None:
    with busy.writer() as writer:
        if state != "failed":
            writer.set_run_state("draining")
        writer.set_run_state(state)  # type: ignore[arg-type]
        writer.stop_beat("engine")
    async with opened(busy, workers=()) as screens:
        assert state.upper() in screens.lines[0]
        assert "engine ended" in screens.lines[0]
        await screens.press("p")
        assert f"Pause: the run is {state}" in screens.text
        assert pending(busy) == []


@pytest.mark.slow
async def test_a_draining_run_counts_what_is_left(busy: Built) -> None:
    with busy.writer() as writer:
        writer.set_run_state("draining")
    async with opened(busy) as screens:
        assert "◐ DRAINING 4" in screens.lines[0]
        assert "Ending. 4 in flight, at most $0.0016." in screens.text


@pytest.mark.slow
async def test_read_only_refuses_every_change_and_says_why(busy: Built) -> None:
    async with opened(busy, read_only=True) as screens:
        for key in ("p", "P", "X", "dollar_sign"):
            await screens.press(key)
            assert "read-only: attach without --read-only" in screens.text
        await screens.press("2", "n", "r")
        assert "Retry: read-only" in screens.text
        await screens.press("enter", "Y")
        assert "Save: read-only" in screens.text
        assert pending(busy) == []


async def test_failed_samples_are_retried_marked_ones_first(busy: Built) -> None:
    async with opened(busy) as screens:
        await screens.press("2", "r")
        assert "Retry: s-000000 is tokenized; only failed, refused or set-aside samples are asked again" in screens.text
        await screens.press("f", "f", "f", "space", "space")
        await screens.press("r")
        assert "2 samples asked again." in screens.text
        assert "At most $0.000800 (800,000,000 picodollars): 2 requests together," in screens.text
        assert "The cap of $0.15 leaves" in screens.text
        assert pending(busy) == []
        await screens.press("right")
        await carried_out(busy, screens, "enter", by=lambda row: (True, row.args_json))
        assert 'retry: {"samples": ["s-000011", "s-000017"]}' in screens.text


async def test_marked_answers_that_are_set_aside_are_given_up_only_after_asking(busy: Built) -> None:
    with busy.writer() as writer:
        assert writer.quarantine("embedded/stream").samples
    async with opened(busy) as screens:
        await screens.press("2", "space", "r")
        assert re.search(r"1 set-aside answer given up: \$0\.\d+ was paid", screens.text)
        await screens.press("escape")
        assert pending(busy) == []
        await screens.press("r", "right")
        await carried_out(busy, screens, "enter", by=lambda row: (True, row.args_json))
        assert 'retry: {"samples": ["s-000000"]}' in screens.text


def test_dollars_are_read_as_people_type_them() -> None:
    assert read_dollars(" $1,250.50 ") == 1_250_500_000_000_000
    assert read_dollars("0") == 0
    assert read_dollars("25.") == read_dollars("25.00") == 25 * 10**12
    assert read_dollars(".5") == 500_000_000_000
    for wrong in ("", "$", ".", "abc", "-1", "nan", "inf", "1e12", "1.2.3", "10000000"):
        assert read_dollars(wrong) is None
    for comma in ("1,5", "0,500", "1,50", "12,50", "1,2500", "1250,500", ",500", "1,,500", "1.5,000", "1,500,", "1_5"):
        assert read_dollars(comma) is None, comma
