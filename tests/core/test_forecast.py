"""Lengths, money and time of a job, from a few answers."""

import math
import random

import pytest

from eagletui.core.forecast import (
    ASSUMED_MEAN,
    Observed,
    Share,
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
