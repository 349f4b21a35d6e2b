"""A sample that is throttled for what it asks is told from one of an endpoint that throttles all alike."""

import random
from collections import deque
from dataclasses import replace
from pathlib import Path

import pytest

from eagletui.engine.dispatch import RetryRule
from eagletui.engine.ledger_thread import LedgerThread
from eagletui.engine.pace import Pace
from eagletui.engine.throttles import Throttles
from eagletui.ledger.orders import Failed, Finished
from eagletui.ledger.reader_throttles import ThrottlesReader
from eagletui.ledger.writer import LedgerWriter
from eagletui.providers import errors
from tests.engine.books import assert_books_agree
from tests.engine.conftest import NewRun
from tests.engine.parts import dispatcher_of, flight_to
from tests.forked import Constants
from tests.ledger.build import Clock, answered_sample, make_ledger, queue, send
from tests.provider_fixture import StartProvider

PATIENCE = 50
ONLY = {"only": ["embedded/text"]}


def ask_in_turn(samples: int, chance: float, own: range = range(0), rounds: int = 100_000) -> tuple[list[int], int]:
    """Ask for samples in turn, one request a second, until each is answered or its throttle is its own.

    Args:
        samples: how many.
        chance: of a throttle, by the endpoint.
        own: those that are always throttled.
        rounds: requests at most.

    Returns:
        Samples whose throttle is their own, and how many are left after the last round.
    """
    dice, throttles = random.Random(7), Throttles(PATIENCE)
    queue, told = deque(range(samples)), list[int]()
    for now in range(rounds):
        if not queue:
            break
        sample = queue.popleft()
        if sample not in own and dice.random() >= chance:
            throttles.answered("a", sample, float(now))
        elif throttles.throttled("a", sample, float(now), float(now)) == "sample":
            told.append(sample)
            throttles.forget(sample)
        else:
            queue.append(sample)
    return told, len(queue)


@pytest.mark.parametrize("chance", [0.3, 0.7, 0.95])
def test_no_sample_is_blamed_where_all_are_throttled_alike(chance: float) -> None:
    assert ask_in_turn(500, chance) == ([], 0)


def test_no_sample_is_blamed_where_nobody_is_answered() -> None:
    assert ask_in_turn(20, 1.0, rounds=10_000) == ([], 20)


@pytest.mark.parametrize(("chance", "own"), [(0.0, range(1)), (0.0, range(3, 6)), (0.5, range(4))])
def test_samples_that_are_always_throttled_while_others_are_answered_are_told(chance: float, own: range) -> None:
    told, left = ask_in_turn(200, chance, own)
    assert (sorted(told), left) == (list(own), 0)


def test_answers_to_requests_that_were_under_way_before_say_nothing() -> None:
    throttles = Throttles(PATIENCE)
    for times in range(10 * PATIENCE):
        assert throttles.throttled("a", 1, 100.0 + times, 100.0 + times) != "sample"
        throttles.answered("a", 2 + times, 99.0)
        throttles.answered("b", 2 + times, 1e6)


def test_answers_to_requests_that_were_sent_together_with_the_throttled_one_count() -> None:
    throttles = Throttles(PATIENCE)
    assert throttles.throttled("a", 1, 100.0, 100.1) == "endpoint"
    for sample in range(2, 12):
        throttles.answered("a", sample, 100.0)
    causes = [throttles.throttled("a", 1, 101.0 + times, 101.1 + times) for times in range(PATIENCE - 1)]
    assert causes == ["endpoint"] * (PATIENCE - 2) + ["sample"]


def causes_alone(throttles: Throttles, start: float, gap_s: float, times: int) -> list[str]:
    return [throttles.throttled("a", 1, start + gap_s * n, start + gap_s * n) for n in range(times)]


def test_the_last_sample_is_throttled_for_what_it_asks_where_its_endpoint_answered_others_and_long_takes_none() -> None:
    throttles = Throttles(PATIENCE)
    throttles.answered("a", 2, 50.0)
    assert causes_alone(throttles, 100.0, 15.0, 9) == ["endpoint"] * 8 + ["sample if alone"], "120 s"
    assert set(causes_alone(Throttles(PATIENCE), 100.0, 25.0, 20)) == {"endpoint"}, "nobody was ever answered"
    throttles = Throttles(PATIENCE)
    throttles.answered("a", 2, 50.0)
    causes_alone(throttles, 100.0, 25.0, 4)
    throttles.throttled("a", 3, 180.0, 180.0)
    assert set(causes_alone(throttles, 200.0, 25.0, 6)) == {"endpoint"}, "another one is throttled too"


def test_time_in_which_nobody_asked_is_not_waited_for() -> None:
    throttles = Throttles(PATIENCE)
    throttles.answered("a", 2, 50.0)
    causes = causes_alone(throttles, 100.0, 10_000.0, 7)
    assert causes == ["endpoint"] * 6 + ["sample if alone"], "each gap counts for 20 s"


def test_another_engine_knows_from_the_ledger_what_the_first_was_told(tmp_path: Path) -> None:
    clock = Clock(1000.0)
    path = make_ledger(tmp_path / "ledger.sqlite", clock=clock, cap=10**9, stop_at=10**9)
    first = Throttles(PATIENCE)
    refused = Failed("void", "rate_limited", "HTTP 429", http_status=429, retry_at=1.0, excused=True)
    causes = []
    with LedgerWriter(path, clock) as writer:
        queue(writer, *(f"s{number}" for number in range(PATIENCE + 2)))
        for number in range(PATIENCE - 1):
            clock.now += 1.0
            attempt = send(writer, 1)
            writer.finish([Finished(attempt, refused)])
            causes.append(first.throttled("alpha", 1, clock.now, clock.now))
            if number == 3:
                overloaded = replace(refused, http_status=503, error_kind="overloaded")
                writer.finish([Finished(send(writer, 2 + number), overloaded)])
                first.throttled("alpha", 2 + number, clock.now, clock.now)
            answered_sample(writer, 2 + number)
            first.answered("alpha", 2 + number, clock.now)
    second = Throttles(PATIENCE)
    with ThrottlesReader(path) as reader, reader.throttled() as known:
        assert (known.waiting, known.answering) == ([1], ["alpha"])
        second.restore(known, lag_s=900.0)
    assert set(causes) == {"endpoint"}
    for now, cause in ((1100.0, "endpoint"), (1101.0, "endpoint"), (1102.0, "sample")):
        assert first.throttled("alpha", 1, now, now) == cause
        assert second.throttled("alpha", 1, now - 900.0, now - 900.0) == cause


def test_a_run_in_which_none_waits_that_was_throttled_has_nothing_to_remember(tmp_path: Path) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite")
    with LedgerWriter(path) as writer:
        queue(writer, "a", "b")
        failed = Failed("void", "rate_limited", "HTTP 429", http_status=429)
        writer.finish([Finished(send(writer, 1), failed)])
        answered_sample(writer, 2)
    with ThrottlesReader(path) as reader, reader.throttled() as known:
        assert known == ((), (), ())


def test_throttles_from_before_a_retry_count_for_the_endpoint_and_not_for_the_sample(tmp_path: Path) -> None:
    clock = Clock(1000.0)
    path = make_ledger(tmp_path / "ledger.sqlite", clock=clock, cap=10**9, stop_at=10**9)
    refused = Failed("void", "rate_limited", "HTTP 429", http_status=429, retry_at=1.0, excused=True)
    first, second = Throttles(PATIENCE), Throttles(PATIENCE)
    with LedgerWriter(path, clock) as writer:
        queue(writer, *(f"s{number}" for number in range(5)))

        def ask(sample: int, *, last: bool = False, endpoint: str = "alpha") -> None:
            clock.now += 1.0
            attempt = send(writer, sample, endpoint=endpoint)
            writer.finish([Finished(attempt, replace(refused, retry_at=None) if last else refused)])
            first.throttled(endpoint, sample, clock.now, clock.now)
            if last:
                first.forget(sample)

        def answer(sample: int) -> None:
            clock.now += 1.0
            answered_sample(writer, sample)
            first.answered("alpha", sample, clock.now)

        ask(1, last=True)
        answer(5)
        ask(3, last=True, endpoint="beta")
        assert writer.retry(["s0"]) == 1
        with ThrottlesReader(path) as reader, reader.throttled() as known:
            assert known == ((), (), ()), "nothing was said to the sample since its retry"
        ask(2)
        ask(1)
        ask(1, last=True)
        answer(4)
        assert writer.retry(["s0"]) == 1
        ask(1)
        ask(1)
    with ThrottlesReader(path) as reader, reader.throttled() as known:
        told = list(known.told)
        assert (known.waiting, {one.endpoint for one in told}) == ([1, 2], {"alpha"})
        second.restore(known._replace(told=told), lag_s=0.0)
    assert [(one.sample_id, one.is_over) for one in told] == [(2, 0), (1, 1), (1, 1), (4, 0), (1, 0), (1, 0)]
    waits = second._waits["alpha"]
    assert {sample: (wait.since, wait.times) for sample, wait in waits.items()} == {1: (1008.0, 2), 2: (1004.0, 1)}
    assert waits[1].told_before - waits[2].told_before == 3
    for now in range(1010, 1010 + 2 * PATIENCE):
        assert first.throttled("alpha", 1, now, now) == second.throttled("alpha", 1, now, now)


@pytest.mark.parametrize(("under_way", "queued", "is_own"), [(1, 0, True), (2, 0, False), (1, 1, False)])
async def test_only_a_sample_without_others_is_alone(tmp_path: Path, under_way: int, queued: int, is_own: bool) -> None:
    path = make_ledger(tmp_path / "ledger.sqlite")
    with LedgerWriter(path) as writer:
        queue(writer, "a", "b", "c")
        send(writer, 1)
        writer.park({("beta",): [2]})
        if not queued:
            writer.park({("beta",): [3]})
    ledger = LedgerThread(path)
    dispatcher = dispatcher_of(Pace({"alpha": 1.0}, 8), ledger)
    dispatcher.throttles.answered("alpha", 9, 0.0)
    for number in range(under_way):
        dispatcher.flights[number] = flight_to("alpha", 0.0, number, sample_id=1)
    for _ in range(10):
        dispatcher.throttles.throttled("alpha", 1, 0.0, 0.0)
        for wait in dispatcher.throttles._waits["alpha"].values():
            wait.waited_s += 30.0
    refused = errors.from_status(429, {}, b"")
    assert await dispatcher._is_own(dispatcher.flights[0], refused) is is_own
    assert not await dispatcher._is_own(dispatcher.flights[0], errors.from_status(500, {}, b""))
    ledger.close()


def test_an_own_throttle_uses_up_an_attempt() -> None:
    rule = RetryRule(seed=7, max_attempts=3)
    refused = errors.from_status(429, {}, b"")
    ends = [rule.retry_at(refused, "s1", tries, 100.0, is_own=True) is None for tries in (1, 2, 3)]
    assert ends == [False, False, True]
    assert (RetryRule(7, 1).patience, RetryRule(7, 5).patience) == (20, 50)


def test_one_prompt_that_is_throttled_for_good_fails_in_the_end(new_run: NewRun, start_provider: StartProvider) -> None:
    faults = '[[fault]]\nkind = "http_429"\nmatch = { prompt_contains = "cursed" }\nparams = { retry_after_s = 0 }\n'
    provider = start_provider(faults)
    prompts = ["cursed", *(f"prompt {number}" for number in range(11))]
    run = new_run(provider.api_url, prompts, max_in_flight=1, provider=ONLY, pace={"max_attempts": 2})
    constants: Constants = {
        "eagletui.engine.pace": {"BACKOFF_S": 0.01},
        "eagletui.engine.dispatch": {"PATIENCE": (4, 2)},
    }
    assert run.wait(run.start(constants=constants)) == 1, run.log()
    states = run.snapshot().states
    assert (states["failed"], states["tokenized"]) == (1, 11)
    assert_books_agree(run, provider)


def test_a_prompt_that_is_throttled_for_good_fails_also_where_all_were_asked_before(
    new_run: NewRun, start_provider: StartProvider
) -> None:
    faults = '[[fault]]\nkind = "http_429"\nmatch = { prompt_contains = "cursed" }\nparams = { retry_after_s = 0 }\n'
    provider = start_provider(faults)
    prompts = [*(f"prompt {number}" for number in range(5)), "cursed"]
    run = new_run(provider.api_url, prompts, provider=ONLY, pace={"max_attempts": 2})
    constants: Constants = {
        "eagletui.engine.pace": {"BACKOFF_S": 0.01},
        "eagletui.engine.breaker": {"BREAK_S": 0.5},
        "eagletui.engine.throttles": {"ALONE_S": 0.3},
    }
    assert run.wait(run.start("--exit-when-paused", constants=constants)) == 1, run.log()
    assert run.snapshot().states["failed"] == 1
    assert_books_agree(run, provider)
