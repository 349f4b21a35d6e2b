"""The rules of pace, with a clock of their own."""

import random
from decimal import Decimal

import pytest

from eagletui.core.money import Price
from eagletui.engine.budget import PromptBounds
from eagletui.engine.dispatch import RetryRule, excuses
from eagletui.engine.pace import FAULTS_IN_A_ROW, JITTER, Pace, backoff_s
from eagletui.engine.spread import Offer, spread
from eagletui.providers import errors
from eagletui.providers.base import ProviderFailure


class Still(random.Random):
    """Dice without chance: no jitter."""

    def random(self) -> float:
        return 0.0


def still(weights: dict[str, float], max_in_flight: int = 1000) -> Pace:
    return Pace(weights, max_in_flight, Still())


def chosen(pace: Pace, times: int, now: float = 0.0) -> dict[str, int]:
    tags = [pace.choose(now) for _ in range(times)]
    return {tag: tags.count(tag) for tag in pace.lanes}


def test_the_three_rungs_of_the_demo_share_24_samples_as_10_10_4() -> None:
    offers = [Offer("stream", "stream", 4.9), Offer("logprobs", "logprobs", 6.0), Offer("text", "text", 3.8)]
    assert chosen(Pace(spread(offers), 64), 24) == {"stream": 10, "logprobs": 10, "text": 4}


def test_the_common_limit_is_never_passed() -> None:
    pace = Pace({"a": 1.0, "b": 1.0}, 5)
    assert sum(chosen(pace, 20).values()) == 5
    pace.leave("a")
    assert pace.choose(0.0) is not None
    assert pace.choose(0.0) is None


def test_a_burst_of_429_cuts_an_endpoint_once_and_waits_as_told() -> None:
    pace = still({"a": 1.0})
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


def test_bursts_of_429_that_name_no_time_wait_longer_and_longer_until_a_reply_begins() -> None:
    pace = still({"a": 1.0})
    now, waits = 10.0, []
    for _ in range(5):
        for _ in range(3):
            pace.throttled("a", sent_at=now, now=now + 0.5, retry_after_s=None)
        waits.append(pace.lanes["a"].blocked_until - now - 0.5)
        now = pace.lanes["a"].blocked_until
    assert waits == [1.0, 2.0, 4.0, 8.0, 8.0], "one step a burst"
    pace.accepted("a", now)
    pace.throttled("a", sent_at=now, now=now + 0.5, retry_after_s=None)
    assert pace.lanes["a"].blocked_until == now + 1.5


def test_a_limit_grows_only_when_it_was_used_up_and_not_after_a_fault() -> None:
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
    pace = still({"a": 1.0}, 10)
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


def answer_all(pace: Pace, tag: str, now: float) -> None:
    """Let every request under way begin to answer and end."""
    for _ in range(pace.lanes[tag].in_flight):
        pace.accepted(tag, now)
    for _ in range(pace.lanes[tag].in_flight):
        pace.leave(tag)


def fill(pace: Pace, now: float) -> int:
    """Choose as long as there is room, and return how many requests are under way then."""
    while pace.choose(now) is not None:
        pass
    return pace.in_flight


def look_on(pace: Pace, now: float) -> int:
    """Look every 50 ms for eight seconds, as an engine does, and return how many requests are under way then."""
    return max(fill(pace, now + look / 20) for look in range(160))


def test_a_limit_starts_low_and_doubles_with_each_round_of_answers_until_the_first_429() -> None:
    pace = still({"a": 1.0}, 2000)
    rounds = []
    for second in range(0, 60, 10):
        rounds.append(look_on(pace, float(second)))
        answer_all(pace, "a", second + 5.0)
    assert rounds == [64, 128, 256, 512, 1024, 2000]
    pace.lanes["a"].in_flight = 2000
    pace.throttled("a", sent_at=60.0, now=61.0, retry_after_s=0.0)
    assert pace.lanes["a"].limit == pytest.approx(1400)
    pace.lanes["a"].in_flight = 1400
    for _ in range(1400):
        pace.accepted("a", 72.0)
    assert pace.lanes["a"].limit == pytest.approx(1401, abs=0.01), "after a cut by one per round"


def test_requests_under_way_rise_by_so_many_a_second_and_fall_at_will() -> None:
    pace = still({"a": 1.0}, 2000)
    pace.lanes["a"].limit = 2000.0
    levels = [fill(pace, now) for now in (0.0, 0.05, 0.1, 0.6)]
    assert levels == [64, 76, 89, 153], "at most a start's worth more at once, however long the last look is ago"
    for tenth in range(7, 100):
        fill(pace, tenth / 10)
    assert pace.in_flight == 2000
    pace.lanes["a"].in_flight = 1500
    assert fill(pace, 10.0) == 2000, "what ended is replaced at once"
    assert pace.is_full(10.0)
    pace.max_in_flight = 100
    pace.lanes["a"].in_flight = 99
    assert fill(pace, 10.1) == 100


def test_a_wait_is_never_shorter_than_asked_and_hosts_do_not_come_back_together() -> None:
    ends = set()
    for _ in range(40):
        pace = Pace({"a": 1.0}, 10)
        pace.throttled("a", sent_at=0.0, now=100.0, retry_after_s=20.0)
        ends.add(pace.lanes["a"].blocked_until)
    assert len(ends) == 40
    assert all(120.0 <= end <= 120.0 + 20.0 * JITTER for end in ends)
    assert max(ends) - min(ends) > 0.5


def test_an_endpoint_that_fails_again_and_again_is_asked_by_one_request_at_a_time() -> None:
    pace = still({"a": 1.0, "b": 1.0})
    for _ in range(FAULTS_IN_A_ROW - 1):
        pace.faulted("a", 10.0)
    pace.accepted("a", 10.0)
    for _ in range(FAULTS_IN_A_ROW - 1):
        pace.faulted("a", 10.0)
    assert pace.lanes["a"].is_open(10.0), "a reply in between began the count again"
    pace.faulted("a", 10.0)
    assert chosen(pace, 8, 10.5) == {"a": 0, "b": 8}
    assert chosen(pace, 8, 11.0) == {"a": 1, "b": 7}
    pace.leave("a")
    pace.faulted("a", 11.0)
    assert chosen(pace, 8, 12.9) == {"a": 0, "b": 8}
    assert chosen(pace, 8, 13.0) == {"a": 1, "b": 7}
    pace.accepted("a", 13.0)
    assert chosen(pace, 8, 13.0)["a"] > 1


def test_a_failed_connection_closes_an_endpoint_only_until_its_next_look_however_long_its_streams_run() -> None:
    pace = still({"a": 1.0})
    for _ in range(30):
        assert pace.choose(0.0) == "a"
        pace.accepted("a", 0.0)
    pace.unreachable("a", 10.0)
    assert pace.choose(10.9) is None
    assert [pace.choose(11.0), pace.choose(11.0)] == ["a", None], "one looks, whatever else is under way"
    pace.leave("a", sent_at=0.0)
    assert pace.choose(12.0) is None, "a stream of before has ended, and the look has not"
    pace.leave("a", sent_at=11.1)
    pace.unreachable("a", 12.0)
    assert pace.choose(13.9) is None
    assert pace.choose(14.0) == "a"
    pace.accepted("a", 14.5)
    assert pace.choose(14.5) == "a"
    assert pace.in_flight == 31


def test_a_quarantined_endpoint_gets_nothing_and_a_released_one_its_share() -> None:
    pace = still({"a": 1.0, "b": 1.0})
    pace.lanes["a"].quarantined = True
    assert chosen(pace, 6) == {"a": 0, "b": 6}
    pace.reweigh({"a": 3.0, "b": 1.0})
    assert chosen(pace, 6) == {"a": 0, "b": 6}, "other weights release nobody"
    pace.lanes["a"].quarantined = False
    assert chosen(pace, 8) == {"a": 6, "b": 2}
    pace.lanes["a"].quarantined = pace.lanes["b"].quarantined = True
    assert not pace.has_lane


def test_a_speed_is_known_after_five_answers_and_follows_later_ones() -> None:
    pace = still({"a": 1.0})
    for tokens_per_s in (10.0, 20.0, 30.0, 40.0):
        pace.answered("a", 1.0, tokens_per_s)
    pace.answered("a", 1.0, None)
    assert pace.speeds == {"a": None}
    pace.answered("a", 1.0, 50.0)
    assert pace.speeds["a"] == pytest.approx(30.0, abs=2.0)
    for _ in range(60):
        pace.answered("a", 1.0, 100.0)
    assert pace.speeds["a"] == pytest.approx(100.0, abs=1.0)


def test_the_last_tenth_of_a_limit_that_a_429_showed_goes_slowly_and_an_unknown_limit_does_not_count() -> None:
    pace = still({"a": 1.0, "b": 1.0})
    pace.lanes["a"].limit, pace.lanes["a"].in_flight = 60.0, 57
    assert chosen(pace, 4) == {"a": 2, "b": 2}
    pace = still({"a": 1.0, "b": 1.0})
    pace.throttled("a", sent_at=0.0, now=0.0, retry_after_s=0.0)
    pace.lanes["a"].limit, pace.lanes["a"].in_flight = 60.0, 57
    assert pace.lanes["a"].pull == pytest.approx(0.5)
    assert chosen(pace, 6) == {"a": 2, "b": 4}
    pace.lanes["a"].in_flight = 40
    assert pace.lanes["a"].pull == 1.0


def test_a_backoff_grows_has_jitter_and_is_the_same_again() -> None:
    for attempts in range(1, 12):
        nominal = min(60.0, 0.5 * 2 ** (attempts - 1))
        waits = {backoff_s(7, f"s{sample}", attempts) for sample in range(50)}
        assert len(waits) == 50
        assert all(nominal / 2 <= wait <= nominal for wait in waits)
    assert backoff_s(7, "s3", 2) == backoff_s(7, "s3", 2)
    assert backoff_s(7, "s3", 2) != backoff_s(8, "s3", 2)


def test_a_sample_is_retried_until_its_attempts_are_used_up() -> None:
    rule = RetryRule(seed=7, max_attempts=3)
    failure = ProviderFailure("server_error", "x")
    assert [rule.retry_at(failure, "s1", tries, 100.0) is None for tries in range(1, 5)] == [False, False, True, True]


def test_a_retry_waits_at_least_as_long_as_the_server_asked() -> None:
    rule = RetryRule(seed=7, max_attempts=3)
    late = rule.retry_at(ProviderFailure("rate_limited", "x", retry_after_s=30.0), "s1", 1, 100.0)
    assert late is not None
    assert 130.25 <= late <= 130.5
    soon = rule.retry_at(ProviderFailure("rate_limited", "x", retry_after_s=0.0), "s1", 1, 100.0)
    assert soon is not None
    assert 100.25 <= soon <= 100.5


@pytest.mark.parametrize("status", [429, 503])
def test_a_sample_that_is_throttled_before_any_work_waits_and_never_fails(status: int) -> None:
    rule = RetryRule(seed=7, max_attempts=1)
    refused = errors.from_status(status, {"retry-after": "5"}, b"")
    assert excuses(refused)
    at = [rule.retry_at(refused, "s1", tries, 100.0) for tries in (1, 2, 50)]
    assert all(time is not None and time >= 105.25 for time in at)
    final = errors.from_status(status, {}, b'{"error": {"availability": {"retryable": false}}}')
    assert rule.retry_at(final, "s1", 1, 100.0) is None, "the provider says that asking again is of no use"
    in_reply = errors.from_error_in_reply({"code": status, "message": "later"}, 200)
    assert not excuses(in_reply), "that one may have been billed"
    assert rule.retry_at(in_reply, "s1", 1, 100.0) is None


@pytest.mark.parametrize("status", [408, 500, 502, 504, 520, 524, 529])
def test_a_refusal_that_may_have_been_billed_uses_up_an_attempt(status: int) -> None:
    rule = RetryRule(seed=7, max_attempts=3)
    refused = errors.from_status(status, {}, b'{"error": {"metadata": {"error_type": "provider_overloaded"}}}')
    assert not refused.void
    assert not excuses(refused), "each keeps its hold, so they must come to an end"
    assert [rule.retry_at(refused, "s1", tries, 100.0) is None for tries in (1, 2, 3)] == [False, False, True]


def test_what_pauses_the_run_gives_up_no_sample() -> None:
    rule = RetryRule(seed=7, max_attempts=1)
    assert rule.retry_at(ProviderFailure("credit", "x", retryable=False, pause="credit"), "s1", 1, 100.0) == 100.0
    assert rule.retry_at(ProviderFailure("price", "x", retryable=False, pause="price"), "s1", 1, 100.0) == 100.0
    assert rule.retry_at(ProviderFailure("aborted", "x"), "s1", 1, 100.0) == 100.0
    assert rule.retry_at(ProviderFailure("bad_request", "x", retryable=False), "s1", 1, 100.0) is None


def test_a_sample_that_no_endpoint_takes_is_tried_as_often_as_one_that_fails() -> None:
    rule = RetryRule(seed=7, max_attempts=3)
    missing = errors.from_status(404, {}, b'{"error": {"message": "No endpoints found that support image input"}}')
    broken = ProviderFailure("server_error", "x")
    waits = [rule.retry_at(missing, "s1", tries, 100.0) for tries in range(1, 5)]
    assert waits == [rule.retry_at(broken, "s1", tries, 100.0) for tries in range(1, 5)]
    assert [wait is None for wait in waits] == [False, False, True, True]


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
    price = Price(Decimal("0.000001"), Decimal("0.000002"), Decimal(0))
    assert bounds.hold("b", 1000, 500, price) == 1114 * 1_000_000 + 500 * 2_000_000
