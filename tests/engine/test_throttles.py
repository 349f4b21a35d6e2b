"""A sample that is throttled for what it asks is told from one of an endpoint that throttles all alike."""

import random
from collections import deque

import pytest

from eagletui.engine.dispatch import RetryRule
from eagletui.engine.throttles import Throttles
from eagletui.providers import errors
from tests.engine.books import assert_books_agree
from tests.engine.conftest import NewRun
from tests.forked import Constants
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
        elif throttles.throttled("a", sample, float(now)):
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
        assert not throttles.throttled("a", 1, 100.0 + times)
        throttles.answered("a", 2 + times, 99.0)
        throttles.answered("b", 2 + times, 1e6)


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
