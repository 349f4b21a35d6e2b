"""The bill explained, the key checked against the books, and an endpoint set aside and released by keys."""

import json
import re
from dataclasses import replace

import pytest

from eagletui.core.billing import EndpointBill
from eagletui.ledger.orders import Failed, Finished
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.reader_spend import SpendReader
from eagletui.ledger.snapshot import RateFigures, Snapshot
from eagletui.runs.folder import RunFolder
from eagletui.tui import panels
from eagletui.tui.billing_text import bill_lines, key_pieces
from eagletui.tui.orders import consequence
from eagletui.tui.run_view import RunView
from eagletui.tui.screens.dialogs import Limits
from eagletui.tui.screens.spend import books_figures, limits
from tests.tui.driving import NARROW, opened
from tests.tui.factory import COST_PICO, Built, send
from tests.tui.test_launching import plain

USD = 10**12


def bills_of(built: Built) -> dict[str, EndpointBill]:
    with SpendReader(built.ledger) as reader:
        return {bill.endpoint: bill for bill in reader.bills()}


def test_bills_are_summed_from_samples_attempts_and_prices(busy: Built) -> None:
    bills = bills_of(busy)
    text = bills["embedded/text"]
    assert (text.samples, text.cost_pico) == (11, 11 * COST_PICO)
    # Three canonical answers came without a bill: our count stands in. The conflicting one was billed three too many.
    assert (text.billed_output - text.output, text.offset, text.prices) == (3, 0, 1)
    # The refusal was billed and brought no answer.
    assert sum(bill.unanswered for bill in bills.values()) == 1
    assert sum(bill.unanswered_pico for bill in bills.values()) == COST_PICO


def test_a_bill_names_what_it_differs_by() -> None:
    bill = EndpointBill("x", 2, 1_300_000, 0, 2, 0, 0, 1, 1, 3, 77, None, 0)
    assert "no price of this endpoint is known" in plain(bill_lines(bill, []))
    assert "Nothing is billed by this endpoint yet." in plain(bill_lines(None, []))


def with_key(snapshot: Snapshot, usage_pico: int | None, start: int | None = 5 * USD) -> Snapshot:
    detail = json.dumps({"key": None if usage_pico is None else {"at": snapshot.at - 60, "usage_pico": usage_pico}})
    workers = tuple(replace(one, detail_json=detail) if one.role == "engine" else one for one in snapshot.workers)
    return replace(snapshot, workers=workers, run=replace(snapshot.run, key_usage_at_start_pico=start))


def test_the_key_is_checked_against_the_books(busy: Built) -> None:
    with LedgerReader(busy.ledger, busy.clock) as reader:
        snapshot = reader.snapshot()
    books = snapshot.spend.books

    def said(usage: int | None, start: int | None = 5 * USD) -> str:
        return plain([key_pieces(with_key(snapshot, usage, start), snapshot.at)])

    assert said(None, None) == "no accounts at this provider   nothing to check against"
    assert said(None) == "unknown   not read yet"
    assert said(5 * USD + books.spent_pico) == "$0.0043   agrees with settled, 60 s ago"
    assert "between settled and committed" in said(5 * USD + books.spent_pico + 1)
    assert "below settled; keys lag behind" in said(5 * USD)
    assert "$1.0000 more than committed" in said(6 * USD + books.committed_pico)


def test_a_cap_that_comes_before_stop_at_is_told_in_lines_that_fit_a_small_terminal(busy: Built) -> None:
    with busy.writer() as writer:
        writer.set_cap(8 * USD // 100)
    with LedgerReader(busy.ledger, busy.clock) as reader:
        snapshot = replace(reader.snapshot(), rate=RateFigures(0.0, 0.0, 0.0, USD / 10_000, 60))
    line = panels.compact_lines(snapshot, ("",))["spend-2"]
    assert plain([line]) == "held $0.0016   $3.3223 /1M usable   cap first, in 00:12:21"
    assert plain([limits(snapshot)]) == "cap $0.08   stop-at $0.09   cap first, in 00:12:21"


def test_a_cap_below_what_is_settled_is_an_alarm_on_every_screen_and_in_the_dialog(busy: Built) -> None:
    with LedgerReader(busy.ledger, busy.clock) as reader:
        before = reader.snapshot()
    with busy.writer() as writer:
        writer.set_cap(before.spend.books.spent_pico - 1)
    with LedgerReader(busy.ledger, busy.clock) as reader:
        snapshot = reader.snapshot()
    said = (
        panels.spend(snapshot)["cap"],
        panels.compact_lines(snapshot, ("",))["spend-2"],
        books_figures(snapshot)["cap"],
        limits(snapshot),
    )
    alarms = [piece for line in said for piece in line if isinstance(piece, tuple) and piece[1] == "bold $error"]
    assert len(alarms) == len(said)
    assert all("cap is below what is settled" in text for text, _ in alarms)
    assert plain([books_figures(snapshot)["committed"]]) == "$0.0059   all of it; $0.0016 above the cap"
    passed = ("cap is below what is settled: nothing new is sent.", "bold $error")
    view = RunView(RunFolder(busy.path), before, (), (), (), None, None, "", before.at)
    spent = before.spend.books.spent_pico
    assert passed in consequence(view, Limits(spent, spent - 1))
    assert passed not in consequence(view, Limits(spent, spent))


@pytest.mark.slow
async def test_an_endpoint_is_set_aside_since_a_time_with_its_price_and_released(busy: Built) -> None:
    async with opened(busy, NARROW, workers=()) as screens:
        await screens.press("3", "j", "j")
        assert "Bill of embedded/text" in screens.text
        assert "+3 tok: no cause is known" in screens.text
        await screens.press("u")
        assert "Set embedded/text aside" in screens.text
        assert "11 answers set aside, not trained on; cost $0.0012." in screens.text
        assert "Buying them again elsewhere costs about" in screens.text
        await screens.press("ctrl+u", *"soon")
        assert "found soon, expected a time such as 18:00" in screens.text
        await screens.press("ctrl+u")
        assert "0 answers set aside" in screens.text
        await screens.press(*"09:08", "down", "right", "enter")
        await screens.look()
        assert "quarantined" in screens.line_with("> embedded/text")
        assert "Release" in screens.lines[-1]
        with LedgerReader(busy.ledger, busy.clock) as reader:
            assert 0 < reader.snapshot().states["quarantined"] < 11
        await screens.press("u", "right", "enter")
        await screens.look()
        assert "open" in screens.line_with("> embedded/text")
        with LedgerReader(busy.ledger, busy.clock) as reader:
            assert reader.snapshot().states["quarantined"] == 0
        await screens.press("enter")
        assert "endpoint:embedded/text drift!=0" in screens.text


async def test_a_rate_of_429_is_told_with_its_source_and_age_and_only_while_there_is_one(busy: Built) -> None:
    built = busy
    with built.writer() as writer:
        for number in range(3):
            (attempt,) = send(writer, 1)
            failure = Failed("void", "rate_limited", "Too many requests.", http_status=429)
            writer.finish([Finished(attempt, failure if number else Failed("void", "overloaded", "Busy."))])
        built.clock.now += 5
    async with opened(built) as screens:
        assert "refused 1   HTTP 429 2.0 /min" in screens.line_with("│ failed ")
        await screens.press("3", "j", "j")
        assert "Bill of embedded/text" in screens.text
        assert "HTTP 429" not in screens.text
        await screens.press("k")
        line = screens.line_with("HTTP 429")
        assert re.search(r"2.0 /min   2 of \d+ requests of this run begun in the last 60 s, the last 5 s ago", line)
        built.clock.now += 60
        await screens.look()
        assert "HTTP 429" not in screens.text
