"""What holds the pace back is always known: the cap, the CPU, the pace, the endpoints, or nothing but prompts."""

import json
from typing import cast

import pytest

from eagletui.engine.answers import ReadySample
from eagletui.engine.fleet import Fleet
from eagletui.engine.gates import Gates
from eagletui.engine.ledger_thread import LedgerThread
from eagletui.engine.load import FULL_LAG_S, SATURATED_CORES, Load, Strain
from eagletui.engine.pace import Pace
from eagletui.ledger.orders import Admission
from tests.engine.conftest import NewRun
from tests.engine.parts import admissions_of
from tests.provider_fixture import StartProvider

LEDGER, GATES = cast(LedgerThread, None), cast(Gates, None)


def test_each_limit_is_named_and_the_one_that_binds_first_wins() -> None:
    pace = Pace({"a": 1.0, "b": 1.0}, 4)
    admissions = admissions_of(LEDGER, GATES, pace)
    assert admissions.limited_by() == "prompts"
    admissions.ready.append(cast(ReadySample, None))
    assert admissions.limited_by() == "cpu", "a prompt is rendered, there is room, and it is not sent yet"
    admissions.ready.clear()
    pace.throttled("a", sent_at=0.0, now=1e12, retry_after_s=10.0)
    assert admissions.limited_by() == "prompts", "the other endpoint is open"
    pace.lanes["b"].quarantined = True
    assert admissions.limited_by() == "endpoint"
    pace.lanes["a"].in_flight = 4
    assert admissions.limited_by() == "pace"
    assert admissions_of(LEDGER, GATES, pace, unjudged=200).limited_by() == "cpu"
    full = admissions_of(LEDGER, GATES, pace, cpu_is_full=True)
    assert full.limited_by() == "cpu"
    full._heed([Admission(1, None, "wait")])
    assert full.limited_by() == "cap"
    full.money_moved()
    assert full.limited_by() == "cpu"


@pytest.mark.parametrize(
    "strain", [Strain(SATURATED_CORES, 0.0, 0), Strain(0.2, FULL_LAG_S, 0)], ids=["a whole core", "a late loop"]
)
def test_the_cpu_binds_once_two_looks_in_a_row_say_so(strain: Strain) -> None:
    load = Load(cast(Fleet, None), LEDGER, "auto", "auto", lambda: True)
    easy = Strain(0.5, 0.0, 0)
    seen = []
    for look in (strain, easy, strain, strain, strain, easy):
        load._note(look)
        seen.append(load.is_saturated)
    assert seen == [False, False, False, True, True, False]


@pytest.mark.slow
def test_a_run_says_what_limits_it_in_its_ledger(new_run: NewRun, start_provider: StartProvider) -> None:
    provider = start_provider(latency_s=0.3, tokens_per_s=60)
    run = new_run(provider.api_url, 60, max_in_flight=2, cap_usd="1.00")
    run.start()
    run.until(lambda reader: reader.run().limited_by == "pace", "limited by the pace")
    run.order("cap", usd="0.0025")
    run.order("in-flight", n=60)
    run.until(lambda reader: reader.run().limited_by == "cap", "limited by the cap")
    run.order("cap", usd="1.00")
    with run.reader() as reader:
        (beat,) = [beat for beat in reader.heartbeats() if beat.role == "engine"]
    assert set(json.loads(beat.detail_json)["endpoints"]["embedded/text"]) == {
        "offered",
        "in_flight",
        "limit",
        "blocked_s",
        "broken_s",
        "failures",
        "tokens_per_s",
    }
