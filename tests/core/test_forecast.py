"""Lengths, money and time of a job, from a few answers."""

import math
import random

import pytest

from eagletui.core.forecast import (
    ASSUMED_MEAN,
    Observed,
    PaceFacts,
    Share,
    finish_time,
    forecast,
)


def answers(
    seed: int, number: int, limit: int, dataset: str = "d", mu: float = 6.0, sigma: float = 0.7
) -> list[Observed]:
    dice = random.Random(seed)
    drawn = [max(1, int(dice.lognormvariate(mu, sigma))) for _ in range(number)]
    return [Observed(dataset, min(length, limit), length >= limit) for length in drawn]


def test_without_answers_the_figures_are_an_assumption_within_a_factor() -> None:
    made = forecast({"d": Share(100, 16_384)}, answers(1, 4, 2_048))
    assert made.answers == 0
    assert made.tokens == (100 * ASSUMED_MEAN / 3, 100 * ASSUMED_MEAN, 300 * ASSUMED_MEAN)


def test_no_figure_is_above_what_max_tokens_allows() -> None:
    assert forecast({"d": Share(10, 50)}, []).tokens.high == 500
    assert forecast({"d": Share(10, 100)}, answers(1, 50, 100)).tokens.high <= 1_000


def test_the_likely_length_is_the_mean_of_the_cut_distribution() -> None:
    # E[min(X, 1000)] of a lognormal with mu 6 and sigma 0.7, by summing the tail of its distribution function.
    exact = sum(0.5 * math.erfc((math.log(n + 0.5) - 6.0) / (0.7 * math.sqrt(2))) for n in range(1_000))
    made = forecast({"d": Share(1_000, 1_000)}, answers(3, 4_000, 1_000))
    assert made.tokens.likely / 1_000 == pytest.approx(exact, rel=0.03)


def test_answers_cut_by_a_short_probe_are_known_to_be_longer() -> None:
    longer = forecast({"d": Share(1, 16_384)}, answers(5, 2_000, 400)).tokens.likely
    assert longer == pytest.approx(math.exp(6.0 + 0.7**2 / 2), rel=0.06)


def test_a_data_set_with_other_lengths_gets_its_own_figure() -> None:
    shares = {"short": Share(100, 4_096), "long": Share(100, 4_096)}
    observed = answers(1, 25, 4_096, "short", mu=4.0, sigma=0.3) + answers(2, 25, 4_096, "long", mu=7.0, sigma=0.3)
    found = forecast(shares, observed).by_dataset
    assert found["short"].mean < 150 < 600 < found["long"].mean


def test_the_interval_holds_in_nine_of_ten_jobs_and_the_likely_cost_is_near() -> None:
    held, errors = 0, []
    for seed in range(100):
        dice = random.Random(1_000 + seed)
        mu, sigma = dice.uniform(5.5, 6.5), dice.uniform(0.4, 0.9)
        made = forecast({"d": Share(500, 4_096)}, answers(seed, 50, 2_048, mu=mu, sigma=sigma))
        real = sum(one.output_tokens for one in answers(5_000 + seed, 500, 4_096, mu=mu, sigma=sigma))
        held += made.tokens.low <= real <= made.tokens.high
        errors.append(abs(made.tokens.likely / real - 1))
    assert held >= 86
    assert sum(errors) / len(errors) < 0.10


JOB = PaceFacts(
    samples=4_000,
    in_flight=100,
    start=100,
    latency_s=10.0,
    longest_s=20.0,
    cost=0.002,
    hold=0.02,
    cap=100.0,
    stop_at=50.0,
)


def test_an_unbound_job_takes_its_rounds_and_waits_for_the_last_answer() -> None:
    assert finish_time(JOB) == (4_000 / 100 * 10.0 + 20.0, 4_000, "pace")


def with_facts(**changes: float) -> PaceFacts:
    return PaceFacts(**{**{name: getattr(JOB, name) for name in JOB.__slots__}, **changes})


def test_a_low_cap_stretches_the_job_by_the_room_that_is_left_and_says_so() -> None:
    # The hundred fit until 6.2 of 8.2 are spent, after 3,100 answers; the last 900 take 10 * 0.02/0.002 * ln(2/0.2).
    tight = finish_time(with_facts(cap=8.2))
    assert tight.seconds == pytest.approx(310 + 100 * math.log(10) + 20, rel=0.02)
    assert finish_time(with_facts(hold=0.5, cap=20.0)).limited_by == "cap"


def test_stop_at_ends_the_job_early_and_a_ramp_delays_it() -> None:
    assert finish_time(with_facts(stop_at=4.0)).answered == 2_000
    assert finish_time(with_facts(start=1)).seconds > finish_time(JOB).seconds + 40
    assert finish_time(with_facts(cap=0.01)).answered == 0
