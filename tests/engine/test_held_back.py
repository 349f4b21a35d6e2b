"""Samples that fit few endpoints: those that fit others go on meanwhile, and the run pauses where nothing else is left.

`narrow` takes 100 tokens of prompt, `wide` any number.
"""

import math
from array import array
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from eagletui.core.chat import Message, Prompt
from eagletui.engine.admission import HELD_BACK_ROWS, HELD_LOOK_S, READY_ROWS, Admissions
from eagletui.engine.answers import ReadySample
from eagletui.engine.dispatch import Dispatcher, Flight
from eagletui.engine.gates import Gates
from eagletui.engine.ledger_thread import LedgerThread
from eagletui.engine.market import unlisted
from eagletui.engine.pace import Pace
from eagletui.ledger.orders import QueuedSample
from eagletui.providers.base import Sampling
from tests.engine.parts import admissions_of


class Pauses:
    """Gates that note why the run should pause."""

    def __init__(self) -> None:
        self.is_open = True
        self.wanted: list[tuple[str, str]] = []

    def want_pause(self, reason: str, detail: str) -> None:
        self.wanted.append((reason, detail))


def ready(number: int, prompt_tokens: int) -> ReadySample:
    sample = QueuedSample(number, f"p{number}", "test", Prompt((Message("user", "x"),)), 0, 0, 0)
    return ReadySample(sample, array("i", [0] * prompt_tokens), prompt_tokens, Sampling(1.0, 1.0), 64)


@pytest.fixture
def waits() -> Pauses:
    return Pauses()


@pytest.fixture
def held_back(waits: Pauses) -> Admissions:
    pace = Pace({"narrow": 1.0, "wide": 1.0}, 10_000)
    pace.failed("wide", "no_endpoint, HTTP 404: gone", 1e12, 1e12, awaits=lambda _: False, at_once=True)
    admissions = admissions_of(cast(LedgerThread, None), cast(Gates, waits), pace)
    admissions.dispatcher = cast(Dispatcher, SimpleNamespace(flights={}))
    admissions.market.take([replace(unlisted("narrow"), max_prompt_tokens=100), unlisted("wide")])
    return admissions


async def test_more_prompts_are_fetched_while_those_at_hand_wait_for_a_broken_endpoint(
    held_back: Admissions, waits: Pauses
) -> None:
    held_back.ready.extend(ready(number, 900) for number in range(READY_ROWS))
    assert held_back._pick() == []
    held_back.refill()
    assert held_back._refilling is not None
    await held_back.close()
    held_back.ready.append(ready(1000, 9))
    assert [(one.sample.id, tag) for one, tag in held_back._pick()] == [(1000, "narrow")]
    assert waits.wanted == [], "there is something to do, or may be"


def test_no_more_are_fetched_than_may_be_kept(held_back: Admissions) -> None:
    held_back.ready.extend(ready(number, 900) for number in range(HELD_BACK_ROWS + READY_ROWS))
    assert held_back._pick() == []
    held_back.refill()
    assert held_back._refilling is None


def test_many_that_wait_keep_their_order_and_are_sent_once_their_endpoint_is_back(held_back: Admissions) -> None:
    held_back.ready.extend(ready(number, 900) for number in range(2 * READY_ROWS))
    assert held_back._pick() == []
    held_back.pace.mend()
    assert held_back._pick() == [], "too soon for another look"
    held_back._held_look_at -= HELD_LOOK_S
    assert [one.sample.id for one, _ in held_back._pick()] == list(range(64))
    assert len(held_back.ready) == 2 * READY_ROWS - 64


def test_the_run_pauses_when_all_that_is_left_fits_broken_endpoints_only(held_back: Admissions, waits: Pauses) -> None:
    held_back._look_at = math.inf  # the queue was looked at, and there is nothing else in it
    held_back.ready.extend(ready(number, 900) for number in range(3))
    held_back.dispatcher.flights[1] = cast(Flight, None)
    assert held_back._pick() == []
    assert waits.wanted == [], "something is under way"
    held_back.dispatcher.flights.clear()
    assert held_back._pick() == []
    ((reason, detail),) = waits.wanted
    assert reason == "breaker"
    assert detail.startswith("No endpoint is left that works among those that the next samples fit. wide: 1 request")
    assert len(held_back.ready) == 3


def test_a_full_endpoint_that_works_pauses_nothing(held_back: Admissions, waits: Pauses) -> None:
    held_back._look_at = math.inf
    held_back.pace.mend()
    held_back.pace.lanes["wide"].limit = 0.0
    held_back.ready.extend(ready(number, 900) for number in range(3))
    assert held_back._pick() == []
    assert waits.wanted == []
