"""An endpoint that gives nothing for minutes is taken out and looked at again; the run pauses when none is left."""

import random
import time

import aiohttp
import pytest

from eagletui.engine.breaker import BREAK_FAILURES, BREAK_S, LOOK_MAX_S, LOOK_S, PATIENT_S
from eagletui.engine.dispatch import SHUT_FAILURES
from eagletui.engine.pace import Pace
from eagletui.engine.taking import Taken
from eagletui.ledger.reader import LedgerReader
from eagletui.providers import errors
from eagletui.providers.base import ProviderFailure
from tests.engine.books import assert_books_agree, assert_every_sample_answered_once
from tests.engine.conftest import NewRun
from tests.engine.parts import dispatcher_of, flight_to
from tests.forked import Constants
from tests.provider_fixture import StartProvider


class Still(random.Random):
    """Dice without chance: no jitter."""

    def random(self) -> float:
        return 0.0


@pytest.fixture
def pace() -> Pace:
    return Pace({"a": 1.0, "b": 1.0}, 100, Still())


def fail(pace: Pace, now: float, tag: str = "a", sent_at: float | None = None, *, awaits: bool = False) -> None:
    pace.failed(
        tag, "server_error, HTTP 500: it broke.", now if sent_at is None else sent_at, now, awaits=lambda _: awaits
    )


def break_it(pace: Pace, tag: str = "a", began: float = 1000.0) -> float:
    """Let an endpoint fail for as long as it takes, and return when it broke."""
    for step in range(BREAK_FAILURES):
        fail(pace, began + step * BREAK_S / (BREAK_FAILURES - 1), tag)
    assert pace.lanes[tag].breaker.is_broken
    return began + BREAK_S


def picked(pace: Pace, now: float, times: int = 6) -> list[str | None]:
    return [pace.choose(now) for _ in range(times)]


def test_minutes_without_success_take_an_endpoint_out_with_one_line_that_says_why(pace: Pace) -> None:
    fail(pace, 1000.0)
    for number in range(29):
        fail(pace, 1010.0 + number)
    assert not pace.lanes["a"].breaker.is_broken, "many failures and little time"
    assert pace.news == []
    fail(pace, 1000.0 + BREAK_S)
    assert pace.news == [
        "a is taken out of the rotation: 31 requests failed and none succeeded for 120 s; the last: server_error, "
        "HTTP 500: it broke. One request looks again in 30 s."
    ]
    assert picked(pace, 1000.0 + BREAK_S) == ["b"] * 6
    assert pace.has_working_lane


def test_few_failures_or_a_success_in_between_break_nothing(pace: Pace) -> None:
    for number in range(BREAK_FAILURES - 1):
        fail(pace, 1000.0 + number * BREAK_S)
    assert not pace.lanes["a"].breaker.is_broken
    pace.answered("a", 1500.0, None)
    for number in range(100):
        fail(pace, 1500.0 + number)
    assert not pace.lanes["a"].breaker.is_broken, "the minutes count from the first failure after the success"
    assert pace.news == []


def test_long_answers_under_way_earn_patience_and_not_for_ever(pace: Pace) -> None:
    for second in range(0, int(PATIENT_S), 10):
        fail(pace, 1000.0 + second, awaits=True)
    assert not pace.lanes["a"].breaker.is_broken
    fail(pace, 1000.0 + PATIENT_S, awaits=True)
    assert pace.lanes["a"].breaker.is_broken


def test_it_is_asked_whether_a_request_from_before_the_silence_is_under_way(pace: Pace) -> None:
    asked: list[float] = []

    def awaits(moment: float) -> bool:
        asked.append(moment)
        return False

    for second in (0.0, 1.0, 2.0, 3.0, BREAK_S + 7.0):
        pace.failed("a", "x", 1000.0 + second, 1000.0 + second, awaits=awaits)
    assert asked == [1007.0], "only once the rest says broken, because it walks over the flights"


def test_one_request_at_a_time_looks_after_pauses_that_double_and_an_answer_ends_it(pace: Pace) -> None:
    now = break_it(pace)
    pauses = []
    for _ in range(6):
        pause_s = pace.lanes["a"].blocked_until - now
        pauses.append(pause_s)
        assert "a" not in picked(pace, now + pause_s - 0.1)
        now += pause_s
        assert picked(pace, now).count("a") == 1
        pace.leave("a")
        fail(pace, now + 1.0)
        now += 1.0
        for _ in range(pace.lanes["b"].in_flight):
            pace.leave("b")
    assert pauses == [LOOK_S, 2 * LOOK_S, 4 * LOOK_S, 8 * LOOK_S, LOOK_MAX_S, LOOK_MAX_S]
    assert len(pace.news) == 1, "a look that came to nothing is an event of its own already"
    now = pace.lanes["a"].blocked_until
    assert picked(pace, now).count("a") == 1
    pace.leave("a")
    pace.accepted("a", now)
    pace.answered("a", now + 1.0, None)
    assert pace.news[1].startswith("a answers again, ")
    assert picked(pace, now + 1.0).count("a") > 1


def test_requests_that_hang_since_before_the_break_keep_nobody_from_looking(pace: Pace) -> None:
    assert picked(pace, 900.0, 20).count("a") == 10
    now = break_it(pace) + LOOK_S
    assert picked(pace, now).count("a") == 1
    pace.leave("a", sent_at=900.0)
    assert picked(pace, now).count("a") == 0


def test_what_was_sent_before_the_break_prolongs_nothing(pace: Pace) -> None:
    now = break_it(pace)
    for _ in range(20):
        fail(pace, now + 5.0, sent_at=now - 1.0)
    assert pace.lanes["a"].blocked_until == now + LOOK_S
    pace.answered("a", now + 6.0, None)
    assert not pace.lanes["a"].breaker.is_broken, "an answer that was still on its way counts"


def test_an_endpoint_that_is_not_there_is_out_at_once(pace: Pace) -> None:
    pace.failed("a", "no_endpoint, HTTP 404: gone", 5.0, 5.0, awaits=lambda _: True, at_once=True)
    assert picked(pace, 6.0) == ["b"] * 6
    assert pace.has_working_lane


def test_a_person_puts_every_broken_endpoint_back(pace: Pace) -> None:
    now = max(break_it(pace, "a"), break_it(pace, "b"))
    assert pace.has_lane
    assert not pace.has_working_lane
    assert pace.broken(now) == (
        "a: 5 requests failed and none succeeded for 120 s; the last: server_error, HTTP 500: it broke; "
        "b: 5 requests failed and none succeeded for 120 s; the last: server_error, HTTP 500: it broke"
    )
    pace.mend()
    assert set(picked(pace, now)) == {"a", "b"}
    assert pace.has_working_lane


@pytest.mark.parametrize(
    ("failure", "counts"),
    [
        (errors.from_status(500, {}, b""), True),
        (errors.from_status(429, {}, b""), True),
        (errors.from_transport(aiohttp.ServerDisconnectedError(), headers_seen=False), True),
        (ProviderFailure("first_event_timeout", "No first event within 300 s."), True),
        (ProviderFailure("not_json", "The reply is a web page."), True),
        (errors.from_status(400, {}, b""), False),
        (errors.from_status(422, {}, b""), False),
        (errors.from_status(401, {}, b""), False),
        (errors.from_status(402, {}, b""), False),
        (errors.from_status(403, {}, b'{"error": {"metadata": {"reasons": ["violence"]}}}'), False),
        (ProviderFailure("aborted", "Aborted on request."), False),
    ],
    ids=lambda value: value.kind if isinstance(value, ProviderFailure) else "",
)
def test_only_what_an_endpoint_does_counts_against_it(pace: Pace, failure: ProviderFailure, counts: bool) -> None:
    dispatcher_of(pace)._learn(flight_to("a", 0.0), Taken(None, None, failure))
    assert pace.lanes["a"].breaker.failures == counts
    assert pace.has_working_lane


def test_a_missing_endpoint_is_taken_out_and_a_reply_under_way_is_known_to_the_breaker(pace: Pace) -> None:
    dispatcher = dispatcher_of(pace)
    dispatcher.flights[1] = flight_to("a", 100.0)
    assert dispatcher._awaits("a", 100.0)
    assert not dispatcher._awaits("a", 99.0)
    assert not dispatcher._awaits("b", 100.0)
    dispatcher.flights[1].receiving = False
    assert not dispatcher._awaits("a", 100.0)
    gone = errors.from_status(404, {}, b'{"error": {"message": "No endpoints found"}}')
    dispatcher._learn(flight_to("a", 0.0), Taken(None, None, gone))
    assert pace.lanes["a"].breaker.is_broken
    assert "no_endpoint, HTTP 404: No endpoints found" in pace.news[0]
    assert pace.has_working_lane


def test_an_endpoint_that_answers_others_is_not_taken_out_for_what_one_sample_asks(pace: Pace) -> None:
    dispatcher = dispatcher_of(pace)
    missing = errors.from_status(404, {}, b'{"error": {"message": "No endpoints found that support image input"}}')
    for _ in range(3):
        pace.answered("a", time.monotonic(), None)
        for _ in range(SHUT_FAILURES - 1):
            dispatcher._learn(flight_to("a", 0.0), Taken(None, None, missing))
        assert not pace.lanes["a"].breaker.is_broken
    dispatcher._learn(flight_to("a", 0.0), Taken(None, None, missing))
    assert pace.lanes["a"].breaker.is_broken, "it is missing again and again, and answers nobody in between"
    pace.answered("b", time.monotonic() - BREAK_S, None)
    dispatcher._learn(flight_to("b", 0.0), Taken(None, None, missing))
    assert pace.lanes["b"].breaker.is_broken, "its last answer says nothing about now"


SHORT = {"eagletui.engine.breaker": {"BREAK_S": 0.3, "LOOK_S": 0.05}}
"""Seconds in place of minutes."""


def lines(reader: LedgerReader) -> list[str]:
    return [event.message for event in reader.events() if event.kind == "breaker"]


@pytest.mark.slow
def test_a_run_leaves_a_broken_endpoint_alone_and_goes_back_to_it(
    new_run: NewRun, start_provider: StartProvider
) -> None:
    faults = '[[fault]]\nkind = "http_500"\nmatch = { endpoint = "embedded/text" }\ntimes = 7\n'
    provider = start_provider(faults, latency_s=0.03, tokens_per_s=600)
    run = new_run(provider.api_url, 60, max_in_flight=3)
    process = run.start(constants=SHORT)
    run.until(lambda reader: len(lines(reader)) >= 2, "out of the rotation and back")
    assert run.wait(process) == 0, run.log()
    with run.reader() as reader:
        out, back = lines(reader)
    assert out.startswith("embedded/text is taken out of the rotation: ")
    assert "the last: server_error, HTTP 500" in out
    assert back.startswith("embedded/text answers again, ")
    assert_every_sample_answered_once(run, 60)
    assert_books_agree(run, provider)


def test_throttled_samples_wait_also_through_a_kill_and_where_nobody_works_the_run_pauses(
    new_run: NewRun, start_provider: StartProvider
) -> None:
    faults = '[[fault]]\nkind = "http_429_bare"\ntimes = 8\n'
    provider = start_provider(faults)
    run = new_run(provider.api_url, 4, max_in_flight=1, provider={"only": ["embedded/text"]}, pace={"max_attempts": 1})
    short: Constants = {**SHORT, "eagletui.engine.pace": {"BACKOFF_S": 0.02, "THROTTLE_S": 0.05, "THROTTLE_MAX_S": 0.1}}
    process = run.start(constants=short)
    run.until(lambda reader: reader.snapshot().failures >= 2, "throttled samples")
    process.kill()
    process.join()
    process = run.start(constants=short)
    run.until_state("paused", "breaker")
    assert "No endpoint is left that works. embedded/text: " in (run.snapshot().run.pause_detail or "")
    assert run.snapshot().states["queued"] == 4
    while run.state()[0] == "paused":
        run.order("resume")
        run.until(lambda reader: reader.run().state != "running", "done, or the next pause")
    assert run.wait(process) == 0, run.log()
    assert_every_sample_answered_once(run, 4)
    assert_books_agree(run, provider)
