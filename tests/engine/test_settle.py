"""How the cost of a broken request is found, against accounting answers of every kind."""

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from eagletui.config.sections import BILL_WAITS_S
from eagletui.engine import settle
from eagletui.engine.key_account import KeyAccount
from eagletui.engine.ledger_thread import LedgerThread
from eagletui.engine.settle import Settler
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer import LedgerWriter
from eagletui.providers.openai_compatible import OpenAiCompatible
from tests.engine.accounts import (
    BACKOFF_S,
    HOLD_PICO,
    TIMEOUTS,
    Accounts,
    make_ledger,
    money,
    quiet,
    router,
    settler_on,
)
from tests.providers.scripted_server import scripted_server

T = TypeVar("T")


async def test_a_generation_is_asked_for_until_its_cost_is_known(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    make_ledger(path, ["gen-1"])
    accounts = Accounts([None, None, "0.0000003"], ["0"])
    async with settler_on(path, accounts) as (settler, heard):
        assert money(path) == (0, HOLD_PICO, 0)
        await quiet(settler, heard)
        assert settler.is_explained
    assert accounts.asked == 3
    assert money(path) == (300_000, 0, 0)


async def test_a_cost_above_its_bound_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    make_ledger(path, ["gen-1"])
    async with settler_on(path, Accounts(["0.0000011"], ["0"])) as (settler, heard):
        await quiet(settler, heard)
    (overrun,) = heard.overruns
    assert (overrun.attempt_id, overrun.sample_key, overrun.endpoint) == (1, "p0", "e")
    assert overrun.charge[:2] == (HOLD_PICO, 1_100_000)


async def test_what_has_no_id_is_settled_in_sum_once_the_key_is_at_rest(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    make_ledger(path, ["gen-1", None, None])
    usage = ["0.0000000005", "0.0000008", "0.0000010", "0.0000015005"]
    async with settler_on(path, Accounts(["0.0000003"], list(usage))) as (settler, heard):
        await quiet(settler, heard)
        assert not settler.is_explained
        await settler.reconcile(lambda: True)
        assert settler.is_explained
    assert money(path) == (300_000, 0, 1_200_000)
    with LedgerReader(path) as reader:
        (adjustment,) = reader.adjustments()
    assert (adjustment.amount_pico, adjustment.attempts) == (1_200_000, 2)


async def test_a_generation_that_is_never_known_is_settled_in_sum(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    make_ledger(path, ["gen-1"])
    accounts = Accounts([None], ["0.0000000005"])
    async with settler_on(path, accounts) as (settler, heard):
        await quiet(settler, heard)
        await settler.reconcile(lambda: True)
        assert settler.is_explained
    assert accounts.asked == len(BACKOFF_S)
    assert money(path) == (0, 0, 0)


async def test_a_hold_is_kept_as_long_as_a_late_bill_may_come_although_the_key_is_at_rest(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    make_ledger(path, [None, None])
    accounts = Accounts([None], ["0.0000000005"])
    accounts.bill_at = (time.monotonic() + 0.2, "0.0000015005")
    async with settler_on(path, accounts, [0.01, 0.01, 0.01, 0.01, 0.3]) as (settler, _heard):
        await settler.reconcile(lambda: True)
    assert money(path) == (0, 0, 1_500_000)


async def test_what_ended_before_any_late_bill_is_asked_about_once_and_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    make_ledger(path, ["gen-1", None])
    accounts = Accounts([None], ["0.0000000005"])
    async with settler_on(path, accounts, [0.01, 900.0], ended_s_ago=1000.0) as (settler, heard):
        await quiet(settler, heard)
        await settler.reconcile(lambda: True)
    assert accounts.asked == 1
    assert money(path) == (0, 0, 0)


async def test_a_question_that_meets_a_limit_uses_up_no_step_and_waits_as_long_as_it_is_told(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    make_ledger(path, ["gen-1"])
    accounts = Accounts([429, None, 500, None, 429, None, "0.0000003"], ["0"])
    async with settler_on(path, accounts) as (settler, heard):
        await quiet(settler, heard)
    assert accounts.asked == 7
    assert money(path) == (300_000, 0, 0)
    gaps = [later - at for at, later in itertools.pairwise(accounts.asked_at)]
    assert gaps[0] >= 0.06
    assert gaps[4] >= 0.06


async def test_questions_that_fail_for_good_are_left_to_the_sum(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    make_ledger(path, ["gen-1"])
    async with settler_on(path, Accounts([500], ["0.0000009005"])) as (settler, heard):
        await quiet(settler, heard)
        assert money(path) == (0, HOLD_PICO, 0)
        await settler.reconcile(lambda: True)
    assert money(path) == (0, 0, 900_000)


async def test_a_long_wait_for_costs_is_explained_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settle, "SAID_AFTER_S", 0.0)
    path = tmp_path / "ledger.sqlite"
    make_ledger(path, ["gen-1", None])
    async with settler_on(path, Accounts([None], ["0.0000000005"]), BILL_WAITS_S) as (settler, _heard):
        for _ in range(3):
            await settler.say_wait()
        assert settler.is_long_wait
    with LedgerReader(path) as reader:
        (event,) = reader.events()
    assert event.message.startswith(
        "2 broken requests have no known cost, and the provider may bill 15 min late: $0.0000 stays unsettled and the "
        "cost is asked for 15 min more. To wait no longer, end the engine (Ctrl-C"
    )


async def test_a_wait_for_nothing_but_the_key_names_no_time(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    make_ledger(path, [None])
    async with settler_on(path, Accounts([None], ["0"]), BILL_WAITS_S, ended_s_ago=1000.0) as (settler, _heard):
        assert "$0.0000 stays unsettled and the key is read until it is at rest. To" in settler.wait_words()


async def test_an_attempt_is_asked_about_once_its_id_is_found_in_what_had_arrived(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    make_ledger(path, [None, None])
    async with settler_on(path, Accounts(["0.0000003"], ["0"])) as (settler, heard):
        first, second = settler.nameless.values()
        settler.add([replace(first, generation_id="gen-1", hold_pico=0)])
        await quiet(settler, heard)
        assert list(settler.nameless.values()) == [second]
        settler.forget([second.id])
        assert settler.is_explained, "its cost came with its reply"
    assert money(path) == (300_000, HOLD_PICO, 0)


async def test_a_sum_above_the_holds_is_booked_up_to_them_and_named(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    make_ledger(path, [None])
    async with settler_on(path, Accounts([None], ["7.00"])) as (settler, _heard):
        await settler.reconcile(lambda: True)
    assert money(path) == (0, 0, HOLD_PICO)
    with LedgerReader(path) as reader:
        (finding,) = reader.findings()
    assert finding.kind == "key_usage"
    assert "$7.0000 more" in finding.sentence


@pytest.mark.parametrize(("shown", "named"), [("0.0000010000", 0), ("0.0000010015", 1)])
async def test_a_key_that_rounds_what_it_adds_up_is_no_finding(tmp_path: Path, shown: str, named: int) -> None:
    path = tmp_path / "ledger.sqlite"
    make_ledger(path, [])
    async with settler_on(path, Accounts([None], [shown])) as (settler, _heard):
        await settler.cross_check()
    with LedgerReader(path) as reader:
        assert len(reader.findings()) == named


async def test_a_key_that_cannot_be_read_leaves_the_holds_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    make_ledger(path, [None])
    async with settler_on(path, Accounts([None], [None])) as (settler, _heard):
        await settler.reconcile(lambda: True)
        assert settler.unexplained
        assert settler.is_explained
    assert money(path) == (0, HOLD_PICO, 0)
    with LedgerReader(path) as reader:
        assert [finding.kind for finding in reader.findings()] == ["unsettled"]


async def test_a_sum_is_given_up_when_requests_go_out_again(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    make_ledger(path, [None])
    async with settler_on(path, Accounts([None], ["0.0000009"])) as (settler, _heard):
        await settler.reconcile(lambda: False)
        assert not settler.is_explained
    assert money(path) == (0, HOLD_PICO, 0)


class Interrupted(LedgerThread):
    """A ledger thread in whose acts something else happens."""

    during_adjustment: Callable[[], None] | None = None

    async def do(self, act: Callable[[LedgerWriter], T], *, urgent: bool = False) -> T:
        """Do it, and let the other thing happen if it was an adjustment."""
        adjustments = await super().do(_adjustments)
        done = await super().do(act, urgent=urgent)
        if self.during_adjustment is not None and await super().do(_adjustments) > adjustments:
            self.during_adjustment()
        return done


def _adjustments(writer: LedgerWriter) -> int:
    with LedgerReader(writer.path) as reader:
        return len(reader.adjustments())


async def test_an_attempt_that_breaks_off_while_others_are_booked_keeps_its_hold_and_its_question(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.sqlite"
    make_ledger(path, [None, None])
    ledger = Interrupted(path)
    async with scripted_server(Accounts([None], ["0.0000009"]).act) as server:
        provider = router(server)
        settler = Settler(provider, ledger, BACKOFF_S, lambda overruns: None, KeyAccount(provider, ledger, 500))
        with LedgerReader(path) as reader:
            first, second = reader.open_attempts()
        settler.add([first])
        ledger.during_adjustment = lambda: settler.add([second])
        await settler.reconcile(lambda: True)
        assert list(settler.nameless) == [second.id]
        assert not settler.is_explained
        await provider.aclose()
    ledger.close()
    assert money(path) == (0, HOLD_PICO, 899_500)


@pytest.mark.parametrize(
    ("generations", "late_usd", "expected"),
    [
        (["gen-1", None], "0.0000003", (300_000, 0, 0)),
        ([None, None], None, (0, 0, 300_000)),
        ([None], None, (0, 0, 300_000)),
    ],
)
async def test_a_bill_that_comes_after_its_hold_was_released_is_found_at_the_end(
    tmp_path: Path, generations: list[str | None], late_usd: str | None, expected: tuple[int, int, int]
) -> None:
    path = tmp_path / "ledger.sqlite"
    make_ledger(path, generations)
    accounts = Accounts([*[None] * len(BACKOFF_S), late_usd], ["0.0000000005"])
    async with settler_on(path, accounts) as (settler, heard):
        await quiet(settler, heard)
        await settler.reconcile(lambda: True)
        assert money(path) == (0, 0, 0)
        accounts.bill_late("0.0000003005")
        await settler.cross_check()
        assert money(path) == expected
        await settler.cross_check()
    assert money(path) == expected
    with LedgerReader(path) as reader:
        assert reader.findings() == []


async def test_a_bill_that_was_booked_in_sum_is_moved_to_its_generation_once_that_is_known(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    make_ledger(path, ["gen-1", None])
    accounts = Accounts([*([None] * len(BACKOFF_S)), "0.0000003"], ["0.0000005005"])
    async with settler_on(path, accounts) as (settler, heard):
        await quiet(settler, heard)
        await settler.reconcile(lambda: True)
        assert money(path) == (0, 0, 500_000)
        await settler.cross_check()
    assert money(path) == (300_000, 0, 200_000)


async def test_a_server_without_accounts_is_taken_at_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    make_ledger(path, [None, "chatcmpl-1"])
    ledger = LedgerThread(path)
    provider = OpenAiCompatible("vllm", None, model_id="m", key="", timeouts=TIMEOUTS, typed_price=None)
    settler = Settler(provider, ledger, BACKOFF_S, lambda overruns: None, KeyAccount(provider, ledger, None))
    with LedgerReader(path) as reader:
        settler.add(reader.open_attempts())
    assert settler.is_quiet, "it has nothing to say, so it is not asked"
    await settler.reconcile(lambda: True)
    await provider.aclose()
    ledger.close()
    assert settler.is_explained
    assert money(path) == (2 * HOLD_PICO, 0, 0)
