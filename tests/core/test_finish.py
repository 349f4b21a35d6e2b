"""When a job ends, against a simulation that draws every answer's time."""

import heapq
import math
import random
from dataclasses import replace

import pytest

from eagletui.core.finish import PaceFacts, finish_time

JOB = PaceFacts(
    samples=4_000,
    in_flight=1_200,
    start=64,
    ramp_per_s=250.0,
    begin_s=2.0,
    latency_s=25.0,
    spread_s=12.5,
    most_s=70.0,
    cost=0.0035,
    hold=0.007,
    cap=40.0,
    stop_at=40.0,
)
STEADY = replace(JOB, samples=4_000, in_flight=100, start=100, begin_s=0.1, latency_s=10.0, spread_s=0.0, most_s=10.0)


def simulated_s(facts: PaceFacts, seed: int) -> float:
    """Send whenever the limit, the ramp and the cap have room; every answer takes a time of its own."""
    dice = random.Random(seed)
    sigma = math.sqrt(math.log1p((facts.spread_s / facts.latency_s) ** 2))
    mu = math.log(facts.latency_s) - sigma**2 / 2
    now = spent = last = 0.0
    sent = 0
    under_way: list[float] = []
    while sent < facts.samples:
        ramp = min(facts.start * 2 ** min(60.0, now / facts.begin_s), facts.start + facts.ramp_per_s * now)
        room = (facts.cap - spent) / facts.hold if facts.hold else math.inf
        while sent < facts.samples and len(under_way) + 1 <= min(facts.in_flight, ramp, room):
            heapq.heappush(under_way, now + min(facts.most_s, dice.lognormvariate(mu, sigma)))
            sent += 1
        now = min(under_way[0], now + 0.05) if ramp < facts.in_flight else under_way[0]
        while under_way and under_way[0] <= now:
            last = heapq.heappop(under_way)
            spent += facts.cost
    return max([last, *under_way])


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"samples": 1_000},
        {"samples": 1_500},
        {"samples": 12_000, "cap": 100.0, "stop_at": 100.0},
        {"in_flight": 64},
        {"cap": 17.0},
        {"cap": 15.0, "samples": 3_000},
        {"begin_s": 25.0},
        {"spread_s": 3.0, "most_s": 40.0},
        {"spread_s": 25.0, "most_s": 300.0},
        {"samples": 50},
    ],
)
def test_the_finish_time_is_that_of_a_job_whose_answers_take_times_of_their_own(changes: dict[str, float]) -> None:
    facts = replace(JOB, **changes)  # type: ignore[arg-type]
    seeds = range(3 if facts.samples > 500 else 40)
    real = sum(simulated_s(facts, seed) for seed in seeds) / len(seeds)
    assert finish_time(facts).seconds == pytest.approx(real, rel=0.1)
    assert finish_time(facts).answered == facts.samples


def test_answers_that_all_take_the_same_time_come_in_rounds() -> None:
    assert finish_time(STEADY).seconds == pytest.approx(4_000 / 100 * 10.0, rel=0.02)
    assert finish_time(STEADY).limited_by == "pace"


def test_a_low_cap_holds_a_job_back_and_says_so() -> None:
    assert finish_time(replace(STEADY, hold=0.5, cap=20.0)).limited_by == "cap"
    assert finish_time(replace(STEADY, cap=0.001)).answered == 0


def test_stop_at_ends_a_job_early() -> None:
    half = finish_time(replace(STEADY, stop_at=7.0))
    assert half.answered == pytest.approx(2_000, rel=0.01)
    assert half.seconds < finish_time(STEADY).seconds * 0.6
