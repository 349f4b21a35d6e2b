"""The rules of pace, with a clock of their own."""

from decimal import Decimal

import pytest

from eagletui.core.money import Price
from eagletui.engine.budget import PromptBounds
from eagletui.engine.dispatch import RetryRule
from eagletui.engine.pace import Manner, Pace, backoff_s, manner, spread
from eagletui.providers.base import Endpoint, ProviderFailure

PRICE = Price(Decimal("0.000001"), Decimal("0.000002"), Decimal(0))


def endpoint(*, ids: bool = False, logprobs: bool = False, stream: bool = True) -> Endpoint:
    return Endpoint("t", "T", PRICE, None, None, supports_logprobs=logprobs, supports_stream=stream, supports_ids=ids)


def chosen(pace: Pace, times: int, now: float = 0.0) -> dict[str, int]:
    tags = [pace.choose(now) for _ in range(times)]
    return {tag: tags.count(tag) for tag in pace.lanes}


def test_an_endpoint_is_asked_for_its_best_evidence() -> None:
    assert manner(endpoint(ids=True, logprobs=True), "auto") == Manner("ids", stream=False, logprobs=False)
    assert manner(endpoint(ids=True, logprobs=True), "always") == Manner("logprobs", stream=True, logprobs=True)
    assert manner(endpoint(logprobs=True), "auto") == Manner("logprobs", stream=True, logprobs=True)
    assert manner(endpoint(logprobs=True), "never") == Manner("logprobs", stream=False, logprobs=True)
    assert manner(endpoint(), "auto") == Manner("stream", stream=True, logprobs=False)
    assert manner(endpoint(), "never") == Manner("text", stream=False, logprobs=False)
    assert manner(endpoint(stream=False), "always") == Manner("text", stream=False, logprobs=False)


def test_the_three_rungs_of_the_demo_share_24_samples_as_10_10_4() -> None:
    weights = spread([("stream", "stream", 4.9), ("logprobs", "logprobs", 6.0), ("text", "text", 3.8)])
    assert chosen(Pace(weights, 64), 24) == {"stream": 10, "logprobs": 10, "text": 4}


def test_inside_a_rung_the_cheaper_endpoint_gets_the_square_of_the_price_ratio() -> None:
    weights = spread([("cheap", "stream", 1.0), ("dear", "stream", 2.0)])
    assert weights["cheap"] / weights["dear"] == pytest.approx(4.0)


def test_evidence_far_above_the_cheapest_price_loses_its_share() -> None:
    weights = spread([("text", "text", 1.0), ("logprobs", "logprobs", 8.0)])
    assert weights["logprobs"] == pytest.approx(5.0 / 16)
    assert spread([("text", "text", 0.0), ("logprobs", "logprobs", 0.0)]) == {"logprobs": 5.0, "text": 2.0}


def test_the_common_limit_is_never_passed() -> None:
    pace = Pace({"a": 1.0, "b": 1.0}, 5)
    assert sum(chosen(pace, 20).values()) == 5
    pace.leave("a")
    assert pace.choose(0.0) is not None
    assert pace.choose(0.0) is None


def test_a_burst_of_429_cuts_an_endpoint_once_and_waits_as_told() -> None:
    pace = Pace({"a": 1.0}, 1000)
    lane = pace.lanes["a"]
    lane.in_flight = 60
    for _ in range(30):
        pace.throttled("a", sent_at=10.0, now=12.0, retry_after_s=5.0)
    assert lane.limit == pytest.approx(60 * 0.7)
    lane.in_flight = 0
    assert pace.choose(16.9) is None
    assert pace.choose(17.0) == "a"
    pace.leave("a")
    pace.throttled("a", sent_at=17.0, now=18.0, retry_after_s=None)
    assert lane.limit == 1.0
    assert pace.choose(18.9) is None
    assert pace.choose(19.0) == "a"


def test_a_limit_grows_only_while_it_is_used_and_not_after_a_fault() -> None:
    pace = Pace({"a": 1.0}, 1000)
    lane = pace.lanes["a"]
    lane.in_flight = 3
    pace.accepted("a", 100.0)
    assert lane.limit == 64
    lane.in_flight = 64
    pace.accepted("a", 100.0)
    assert lane.limit == 65
    pace.faulted("a", 101.0)
    lane.in_flight = 65
    pace.accepted("a", 105.0)
    assert lane.limit == 65
    pace.accepted("a", 112.0)
    assert lane.limit == 66


def test_a_retry_avoids_the_endpoint_that_failed_while_another_is_open() -> None:
    pace = Pace({"a": 5.0, "b": 1.0}, 1000)
    assert [pace.choose(0.0, avoid=("a",)) for _ in range(5)] == ["b"] * 5
    pace.lanes["b"].quarantined = True
    assert pace.choose(0.0, avoid=("a",)) == "a"


def test_an_endpoint_that_left_the_offer_is_closed_and_a_new_one_opens() -> None:
    pace = Pace({"a": 1.0}, 10)
    pace.reweigh({"b": 1.0})
    assert chosen(pace, 3) == {"a": 0, "b": 3}
    pace.reweigh({"a": 1.0})
    assert chosen(pace, 3) == {"a": 3, "b": 0}


def test_waits_of_an_unreachable_provider_double_up_to_a_limit() -> None:
    pace = Pace({"a": 1.0}, 10)
    now, waits = 0.0, []
    for _ in range(8):
        pace.unreachable("a", now)
        pace.unreachable("a", now)
        waits.append(pace.lanes["a"].blocked_until - now)
        now = pace.lanes["a"].blocked_until
    assert waits == [1, 2, 4, 8, 16, 30, 30, 30]
    assert [pace.choose(now), pace.choose(now)] == ["a", None], "one request looks whether the endpoint is back"
    pace.accepted("a", now)
    assert pace.choose(now) == "a"
    pace.unreachable("a", now)
    assert pace.lanes["a"].blocked_until - now == 1


def test_a_backoff_grows_has_jitter_and_is_the_same_again() -> None:
    for attempts in range(1, 12):
        nominal = min(60.0, 0.5 * 2 ** (attempts - 1))
        waits = {backoff_s(7, sample, attempts) for sample in range(50)}
        assert len(waits) == 50
        assert all(nominal / 2 <= wait <= nominal for wait in waits)
    assert backoff_s(7, 3, 2) == backoff_s(7, 3, 2)
    assert backoff_s(7, 3, 2) != backoff_s(8, 3, 2)


def test_a_sample_is_retried_until_its_attempts_are_used_up() -> None:
    rule = RetryRule(seed=7, max_attempts=3)
    failure = ProviderFailure("server_error", "x")
    assert [rule.retry_at(failure, 1, attempts, 100.0) is None for attempts in range(1, 8)] == [
        False,
        False,
        True,
        False,
        False,
        True,
        False,
    ]


def test_a_retry_waits_at_least_as_long_as_the_server_asked() -> None:
    rule = RetryRule(seed=7, max_attempts=3)
    assert rule.retry_at(ProviderFailure("rate_limited", "x", retry_after_s=30.0), 1, 1, 100.0) == 130.0
    soon = rule.retry_at(ProviderFailure("rate_limited", "x", retry_after_s=0.0), 1, 1, 100.0)
    assert soon is not None
    assert 100.25 <= soon <= 100.5


def test_what_pauses_the_run_gives_up_no_sample() -> None:
    rule = RetryRule(seed=7, max_attempts=1)
    assert rule.retry_at(ProviderFailure("credit", "x", retryable=False, pause="credit"), 1, 1, 100.0) == 100.0
    assert rule.retry_at(ProviderFailure("aborted", "x"), 1, 1, 100.0) == 100.0
    assert rule.retry_at(ProviderFailure("bad_request", "x", retryable=False), 1, 1, 100.0) is None


def test_a_prompt_bound_is_the_margin_and_never_below_what_was_billed() -> None:
    bounds = PromptBounds()
    assert bounds.upper("a", 1000) == 1050 + 64
    assert bounds.upper("a", 1) == 2 + 64
    bounds.learn("a", 10, 70)
    assert bounds.upper("a", 1000) == 1050 + 64
    bounds.learn("a", 1000, 1264)
    assert bounds.upper("a", 1000) == 1200 + 64
    assert bounds.upper("b", 1000) == 1050 + 64
    bounds.learn("a", 1000, None)
    bounds.learn("a", 1000, 900)
    assert bounds.upper("a", 1000) == 1200 + 64
    assert bounds.hold("b", 1000, 500, PRICE) == 1114 * 1_000_000 + 500 * 2_000_000
