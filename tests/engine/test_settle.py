"""How the cost of a broken request is found, against accounting answers of every kind."""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar, cast

import pytest

from eagletui.config.sections import BILL_WAITS_S
from eagletui.core.chat import Message, Prompt
from eagletui.engine import rounds, settle
from eagletui.engine.gates import Gates
from eagletui.engine.key_account import KeyAccount
from eagletui.engine.ledger_thread import LedgerThread
from eagletui.engine.market import Market
from eagletui.engine.pace import Pace
from eagletui.engine.settle import Settler
from eagletui.ledger.create import create_ledger
from eagletui.ledger.orders import AdmitRequest, Failed, Finished, NewPrompt, Overrun
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer import LedgerWriter
from eagletui.providers.base import Timeouts
from eagletui.providers.offer import Routing
from eagletui.providers.openai_compatible import OpenAiCompatible
from eagletui.providers.openrouter import OpenRouter
from eagletui.runs.folder import RunFolder
from tests.providers.scripted_server import Exchange, ScriptedServer, scripted_server

T = TypeVar("T")

TIMEOUTS = Timeouts(connect_s=2.0, first_event_s=2.0, event_s=2.0, total_s=5.0)
BACKOFF_S = [0.01, 0.02, 0.02, 0.02]
HOLD_PICO = 1_000_000


def make_ledger(path: Path, generations: list[str | None]) -> None:
    """A ledger with an unsettled attempt per generation id."""
    create_ledger(
        path,
        name="x",
        config_json="{}",
        model_id="m",
        format="smollm2",
        stop_at_pico=10**12,
        cap_pico=10**12,
        max_in_flight=8,
    )
    with LedgerWriter(path) as writer:
        writer.set_run_state("running")
        source = writer.add_source("p", "0" * 64, len(generations))
        writer.add_prompts(
            [NewPrompt(f"p{n}", "d", Prompt((Message("user", "x"),)), "x") for n in range(len(generations))], source
        )
        samples = writer.claim(100)
        admitted = writer.admit([AdmitRequest(sample.id, "e", HOLD_PICO, True) for sample in samples])
        for admission, generation in zip(admitted, generations, strict=True):
            assert admission.attempt_id is not None
            writer.mark_sent([admission.attempt_id])
            failed = Failed("unsettled", "disconnect", "x", retry_at=0.0, generation_id=generation)
            writer.finish([Finished(admission.attempt_id, failed)])


class Accounts:
    """Answers `/generation` and `/key` from scripts: a cost, None where it is not known, a status; the last stays."""

    def __init__(self, generation: Sequence[object], key_usage: Sequence[object]) -> None:
        self.asked = 0
        self.asked_at: list[float] = []
        """Monotonic seconds."""
        self.bill_at: tuple[float, object] = (float("inf"), None)
        """Monotonic seconds, and what the key shows from then on."""
        self._generation, self._key = self._last_stays(generation), self._last_stays(key_usage)

    async def act(self, exchange: Exchange) -> None:
        if "/generation?" in exchange.head:
            self.asked += 1
            self.asked_at.append(time.monotonic())
            cost = next(self._generation)
            body = {"data": {"id": "g", "total_cost": cost, "native_tokens_completion": 5}}
        else:
            cost = self.bill_at[1] if time.monotonic() >= self.bill_at[0] else next(self._key)
            body = {"data": {"usage": cost}}
        if isinstance(cost, int):
            await exchange.reply(cost, b"{}", {"Retry-After": "0.06"})
        elif cost is None:
            await exchange.reply(404 if "/generation?" in exchange.head else 500, b"{}")
        else:
            await exchange.reply(200, json.dumps(body).encode())

    def bill_late(self, key_usage: object) -> None:
        """Let the key show another sum from now on."""
        self._key = self._last_stays([key_usage])

    def _last_stays(self, answers: Sequence[object]) -> Iterator[object]:
        return itertools.chain(answers, itertools.repeat(answers[-1]))


class Heard:
    """What the settler reported."""

    def __init__(self) -> None:
        self.overruns: list[Overrun] = []
        self.moved = asyncio.Event()

    def settled(self, overruns: Sequence[Overrun]) -> None:
        self.overruns += overruns
        self.moved.set()


@asynccontextmanager
async def settler_on(
    path: Path, accounts: Accounts, backoff_s: Sequence[float] = BACKOFF_S, *, ended_s_ago: float | None = None
) -> AsyncIterator[tuple[Settler, Heard]]:
    heard = Heard()
    ended_at = None if ended_s_ago is None else time.time() - ended_s_ago
    ledger = LedgerThread(path)
    async with scripted_server(accounts.act) as server:
        provider = router(server)
        settler = Settler(provider, ledger, backoff_s, heard.settled, KeyAccount(provider, ledger, 500))
        with LedgerReader(path) as reader:
            settler.add([replace(attempt, ended_at=ended_at) for attempt in reader.open_attempts()])
        running = asyncio.create_task(settler.run())
        try:
            yield settler, heard
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await provider.aclose()
            ledger.close()


def router(server: ScriptedServer) -> OpenRouter:
    return OpenRouter(server.base_url, "m", Routing(), key="k", timeouts=TIMEOUTS)


async def quiet(settler: Settler, heard: Heard) -> None:
    async with asyncio.timeout(10):
        while not settler.is_quiet:
            await heard.moved.wait()
            heard.moved.clear()


def money(path: Path) -> tuple[int, int, int]:
    """Settled, unsettled, unattributed."""
    with LedgerReader(path) as reader:
        books = reader.snapshot().spend.books
    return books.settled_pico, books.unsettled_pico, books.unattributed_pico


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
