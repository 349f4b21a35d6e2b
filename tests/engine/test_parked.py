"""Samples that wait for a closed endpoint are looked at again when what may be asked changes, whenever that is.

`narrow` takes 100 tokens of prompt; `wide`, which takes any number, is quarantined.
"""

from array import array
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from eagletui.engine.admission import Admissions
from eagletui.engine.answers import AnswerDesk, ReadySample
from eagletui.engine.dispatch import Dispatcher
from eagletui.engine.gates import Gates
from eagletui.engine.ledger_thread import LedgerThread
from eagletui.engine.market import unlisted
from eagletui.engine.pace import Pace
from eagletui.ledger.orders import QueuedSample
from eagletui.ledger.writer import LedgerWriter
from eagletui.providers.base import Sampling
from tests.engine.parts import admissions_of
from tests.ledger.build import make_ledger, queue


class Desk:
    """Renders every prompt to 900 tokens."""

    async def prepare(self, samples: list[QueuedSample]) -> list[ReadySample]:
        return [ReadySample(one, array("i", [0] * 900), 900, Sampling(1.0, 1.0), 64) for one in samples]


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Admissions]:
    path = make_ledger(tmp_path / "ledger.sqlite")
    with LedgerWriter(path) as writer:
        queue(writer, "a", "b", "c")
    ledger, pace = LedgerThread(path), Pace({"narrow": 1.0, "wide": 1.0}, 10)
    pace.lanes["wide"].quarantined = True
    admissions = admissions_of(ledger, cast(Gates, SimpleNamespace(is_open=True)), pace)
    admissions.desk = cast(AnswerDesk, Desk())
    admissions.dispatcher = cast(Dispatcher, SimpleNamespace(flights={}))
    admissions.market.take([replace(unlisted("narrow"), max_prompt_tokens=100), unlisted("wide")])
    yield admissions
    ledger.close()


async def sendable(admissions: Admissions) -> int:
    """Fetch, and return how many of the samples that are ready now an endpoint is chosen for."""
    await admissions._fetch()
    return len(admissions._pick())


async def test_samples_parked_after_a_change_that_came_and_went_between_two_fetches_are_not_forgotten(
    waiting: Admissions,
) -> None:
    waiting.pace.lanes["wide"].quarantined = False
    await waiting._fetch()
    waiting.pace.lanes["wide"].quarantined = True
    await waiting.admit()
    assert waiting.parked == 3
    waiting.pace.lanes["wide"].quarantined = False
    assert not waiting.is_exhausted
    assert await sendable(waiting) == 3
    assert waiting.parked == 0


async def test_parked_samples_are_looked_at_again_when_a_limit_of_an_open_endpoint_rises(waiting: Admissions) -> None:
    await waiting._fetch()
    await waiting.admit()
    assert waiting.parked == 3
    await waiting._fetch()
    assert waiting.is_exhausted, "nothing has changed, and they are not looked at again"
    waiting.market.take([replace(unlisted("narrow"), max_prompt_tokens=1000), unlisted("wide")])
    assert not waiting.is_exhausted
    assert await sendable(waiting) == 3


async def test_what_is_parked_and_what_returns_meanwhile_add_up(
    waiting: Admissions, monkeypatch: pytest.MonkeyPatch
) -> None:
    await waiting._fetch()
    await waiting.admit()
    waiting._to_park.append(1)
    waiting._parked_under = None
    write = LedgerWriter.park

    def parking(writer: LedgerWriter, sample_ids: list[int]) -> int:
        waiting.parked = 0  # the samples that waited return while this one's row is written
        writer.unpark(9)
        return write(writer, sample_ids)

    monkeypatch.setattr(LedgerWriter, "park", parking)
    await waiting._park({})
    assert waiting.parked == 1
