"""A sampler's distribution, worked out by hand for four tokens."""

from math import exp, log

import pytest
import torch

from eagletui.core.sampling import Sampling
from eagletui.models.sampler import LEAK, SampledRows

CHANCES = (0.5, 0.3, 0.15, 0.05)


def _scores(sampling: Sampling, chances: tuple[float, ...] = CHANCES) -> list[float]:
    rows = SampledRows(torch.tensor([chances]).log(), sampling)
    (scores,) = rows.scores([range(len(chances))])
    return [scores[token] for token in range(len(chances))]


def test_plain_sampling_keeps_the_models_probabilities() -> None:
    assert _scores(Sampling()) == pytest.approx([log(chance) for chance in CHANCES], abs=1e-5)


def test_temperature_sharpens() -> None:
    squares = [chance**2 for chance in CHANCES]
    expected = [log(square / sum(squares)) for square in squares]
    assert _scores(Sampling(temperature=0.5)) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("sampling", [Sampling(top_p=0.6), Sampling(top_k=2), Sampling(min_p=0.45)])
def test_tokens_outside_of_a_cut_hardly_come_and_those_inside_stay(sampling: Sampling) -> None:
    scores = _scores(sampling)
    assert scores[0] - scores[1] == pytest.approx(log(5 / 3), abs=0.05)
    assert all(score < log(LEAK) + 2 for score in scores[2:])
    assert all(score > -20 for score in scores)


def test_the_edge_of_the_nucleus_is_soft() -> None:
    # The third token begins where the first two end: a hair to either side decides in exact arithmetic.
    inside, outside = (_scores(Sampling(top_p=top_p))[2] for top_p in (0.8003, 0.7997))
    assert inside - outside < 0.1
    assert exp(inside) == pytest.approx(0.15 / 2 / 0.8, rel=0.05)


def test_zero_temperature_takes_the_first_of_equals_either_way() -> None:
    scores = _scores(Sampling(temperature=0.0), (0.4, 0.4, 0.2))
    assert scores[:2] == pytest.approx([log(0.5)] * 2, abs=1e-3)
    assert scores[2] < -10


def test_llama_cpp_cuts_before_the_temperature_works() -> None:
    """Of 0.5 and 0.3 the squares are kept, 0.25 and 0.09; with the temperature first, 0.5 alone would be 0.69."""
    logits = torch.tensor([CHANCES, CHANCES]).log()
    last = SampledRows(logits, Sampling(temperature=0.5, top_p=0.6, cuts_first=True))
    scores, _ = last.scores([range(4), ()])
    assert [scores[0], scores[1]] == pytest.approx([log(0.25 / 0.34), log(0.09 / 0.34)], abs=0.05)
    assert max(scores[2], scores[3]) < log(LEAK) + 2
    found = last.likelihood([1])
    own, likelier = log(0.09 / 0.365), log(0.25 / 0.365)
    assert found.own == pytest.approx(own, abs=1e-5)
    assert found.expected == pytest.approx((0.25 * likelier + 0.09 * own) / 0.34, abs=1e-5)
    first = _scores(Sampling(temperature=0.5, top_p=0.6))
    assert first[1] < log(0.02)
    assert _scores(Sampling(temperature=0.5, cuts_first=True)) == _scores(Sampling(temperature=0.5))


@pytest.mark.parametrize(
    ("sampling", "kept"),
    [
        (Sampling(), CHANCES),
        (Sampling(top_p=0.6), (0.5, 0.3)),
        (Sampling(top_k=3), (0.5, 0.3, 0.15)),
        (Sampling(min_p=0.2), (0.5, 0.3, 0.15)),
    ],
)
def test_the_expected_likelihood_is_the_negative_entropy_of_what_is_kept(
    sampling: Sampling, kept: tuple[float, ...]
) -> None:
    rows = SampledRows(torch.tensor([CHANCES, CHANCES]).log(), sampling)
    found = rows.likelihood([1])
    shares = [chance / sum(kept) for chance in kept]
    expected = sum(share * log(chance) for share, chance in zip(shares, kept, strict=True))
    variance = sum(share * (log(chance) - expected) ** 2 for share, chance in zip(shares, kept, strict=True))
    assert found.tokens == 1
    assert found.own == pytest.approx(log(0.3), abs=1e-5)
    assert found.expected == pytest.approx(expected, abs=1e-5)
    assert found.variance == pytest.approx(variance, abs=1e-5)


@pytest.mark.parametrize(("size", "top_p"), [(40, 0.5), (100, 0.9), (3000, 0.95), (3000, 1 - 1e-7)])
def test_a_nucleus_of_any_size_holds_the_fewest_tokens_that_have_the_probability(size: int, top_p: float) -> None:
    weights = torch.arange(1.0, size + 1).flip(0)
    chances = (weights / weights.sum()).double()
    kept = int((chances.cumsum(0) < top_p).sum()) + 1
    shares = chances[:kept] / chances[:kept].sum()
    expected = float((shares * chances[:kept].log()).sum())
    found = SampledRows(chances.log().float()[None], Sampling(top_p=top_p)).likelihood([0])
    assert found.expected == pytest.approx(expected, abs=2e-3)
