"""A provider's accounts from a script, and a settler that asks them."""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from eagletui.core.chat import Message, Prompt
from eagletui.engine.key_account import KeyAccount
from eagletui.engine.ledger_thread import LedgerThread
from eagletui.engine.settle import Settler
from eagletui.ledger.orders import AdmitRequest, Failed, Finished, NewPrompt, Overrun
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer import LedgerWriter
from eagletui.providers.base import Timeouts
from eagletui.providers.offer import Routing
from eagletui.providers.openrouter import OpenRouter
from tests.empty_ledger import empty_ledger
from tests.providers.scripted_server import Exchange, ScriptedServer, scripted_server

TIMEOUTS = Timeouts(connect_s=2.0, first_event_s=2.0, event_s=2.0, total_s=5.0)
BACKOFF_S = [0.01, 0.02, 0.02, 0.02]
HOLD_PICO = 1_000_000


def make_ledger(path: Path, generations: list[str | None]) -> None:
    """A ledger with an unsettled attempt per generation id."""
    empty_ledger(path, cap_pico=10**12)
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
