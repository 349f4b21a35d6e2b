"""Requests that are broken off before they begin: each ends once, nothing was sent, and nothing is held for it."""

import asyncio
from types import SimpleNamespace
from typing import cast

from eagletui.core.drift import Verdict
from eagletui.engine.answers import ReadySample
from eagletui.engine.dispatch import Dispatcher, Flight, Landing, RetryRule
from eagletui.engine.fleet import Fleet
from eagletui.engine.ledger_thread import LedgerThread
from eagletui.engine.market import unlisted
from eagletui.engine.pace import Pace
from eagletui.engine.spread import Manner
from eagletui.ledger.orders import Failed
from eagletui.providers.base import Provider


async def test_a_flight_that_is_broken_off_before_its_first_step_lands_and_is_void() -> None:
    landings: list[Landing] = []
    landed = asyncio.Event()

    def land(landing: Landing) -> None:
        landings.append(landing)
        landed.set()

    def crashed(error: BaseException) -> None:
        raise error

    pace = Pace({"a": 1.0}, 10)
    dispatcher = Dispatcher(
        provider=cast(Provider, None),
        model_id="m",
        pace=pace,
        fleet=cast(Fleet, None),
        ledger=cast(LedgerThread, None),
        retry=RetryRule(7, 3),
        landed=land,
        crashed=crashed,
        verdict_of=lambda tag: Verdict(),
        clock=lambda: 100.0,
    )
    ready = cast(ReadySample, SimpleNamespace(sample=SimpleNamespace(key="s1", attempts=0, excused=0)))
    manner = Manner("text", stream=False, logprobs=False)
    assert pace.choose(0.0) == "a"
    dispatcher.launch(Flight(ready, unlisted("a"), manner, attempt_id=1, hold_pico=5, sent_at=0.0))
    assert len(dispatcher.abort()) == 1
    async with asyncio.timeout(5.0):
        await landed.wait()
    (landing,) = landings
    outcome = landing.finished.outcome
    assert isinstance(outcome, Failed)
    assert (outcome.attempt_state, outcome.cost_pico, outcome.retry_at) == ("void", None, 100.0)
    assert dispatcher.flights == {}
    assert pace.in_flight == 0
    assert dispatcher.abort() == []
