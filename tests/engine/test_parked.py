"""Samples that wait for a closed endpoint are looked at again when what may be asked changes, whenever that is.

`narrow` takes 100 tokens of prompt; `wide`, which takes any number, is quarantined.
"""

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
from eagletui.ledger.writer_engine import Tags
from eagletui.providers.base import Sampling
from tests.engine.parts import admissions_of
from tests.ledger.build import make_ledger, prompt, queue

TAGS = ("narrow", "wide", "tools")


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
    waiting._to_park = {("wide",): [1]}
    waiting._parked_under = None
    write = LedgerWriter.park

    def parking(writer: LedgerWriter, samples: Mapping[Tags, Sequence[int]]) -> Counter[Tags]:
        waiting._parked = Counter()  # the samples that waited return while this one's row is written
        writer.unpark(None, 9)
        return write(writer, samples)

    monkeypatch.setattr(LedgerWriter, "park", parking)
    await waiting._park(waiting._endpoints())
    assert waiting.parked == 1


async def test_samples_wait_for_their_own_endpoint_and_not_for_the_samples_of_another(
    waiting: Admissions, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting.market.take([replace(unlisted(tag), max_prompt_tokens=100 if tag == "narrow" else None) for tag in TAGS])
    waiting.pace.reweigh(dict.fromkeys(TAGS, 1.0))
    for tag in ("wide", "tools"):
        waiting.pace.lanes[tag].quarantined = True
    looked_at: list[int] = []
    monkeypatch.setattr("eagletui.engine.admission.fits", lambda endpoint, needs: endpoint.tag == needs)
    monkeypatch.setattr("eagletui.engine.admission.needs_of", lambda ready: "tools" if ready.sample.id == 2 else "wide")
    await waiting._fetch()
    await waiting.admit()
    await waiting._fetch()
    assert (waiting.parked, waiting.is_exhausted) == (3, True)
    prepare = Desk.prepare

    async def preparing(desk: Desk, samples: list[QueuedSample]) -> list[ReadySample]:
        looked_at.extend(sample.id for sample in samples)
        return await prepare(desk, samples)

    monkeypatch.setattr(Desk, "prepare", preparing)
    waiting.pace.lanes["tools"].quarantined = False
    assert not waiting.is_exhausted
    assert await sendable(waiting) == 1
    assert looked_at == [2], "the others still wait"
    assert waiting.parked == 2
    assert "they fit no endpoint but wide, which is quarantined" in waiting.wait_words()
    waiting.pace.lanes["narrow"].quarantined = True
    await waiting._fetch()
    assert not {1, 3} & set(looked_at), "nor are they looked at when one more is set aside"
    waiting.pace.lanes["wide"].quarantined = False
    await waiting._fetch()
    assert {1, 3} <= set(looked_at)


async def test_an_engine_that_starts_looks_at_all_that_wait(waiting: Admissions) -> None:
    await waiting.ledger.do(lambda writer: writer.park({("gone",): [1, 2], ("wide",): [3]}))
    await waiting._fetch()
    assert (len(waiting.ready), waiting.parked) == (3, 0)


async def test_a_turn_that_waits_for_a_parked_one_waits_for_its_endpoint_too(waiting: Admissions) -> None:
    def add(writer: LedgerWriter) -> None:
        source = writer.add_source("turns.jsonl", "hash of turns", 1)
        writer.add_prompts([prompt("turns", turns=(0, 1))], source)

    await waiting.ledger.do(add)
    await waiting._fetch()
    await waiting.admit()
    await waiting._fetch()
    assert (waiting.parked, waiting.is_exhausted) == (4, True)


async def test_samples_that_are_about_to_be_parked_are_not_fetched_again(waiting: Admissions) -> None:
    await waiting._fetch()
    waiting._pick()
    await waiting._fetch()
    assert not waiting.ready
    await waiting._park(waiting._endpoints())
    assert (waiting.parked, await sendable(waiting)) == (3, 0)
    waiting.pace.lanes["wide"].quarantined = False
    assert await sendable(waiting) == 3, "they are fetched once they were parked and return"
