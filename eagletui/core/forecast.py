"""How long answers will be and what they will cost: likely figures with a 90 % interval, learned from answers. Pure.

Lengths of answers are close to lognormal, with a share cut at the limit. A mean over a few dozen of them is off by ten
per cent or more; what a job costs is known better, because its prompts are counted and only the answers are guessed.
Without any answer the figures are an assumption and say so.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean
from typing import Final, NamedTuple

ASSUMED_MEAN: Final = 700
"""Output tokens of an answer where nothing is known: the mean of a published run of 40,000 answers."""
ASSUMED_FACTOR: Final = 3.0
"""The assumption is right within this factor either way."""
SHRINK: Final = 6.0
"""A data set counts as if it had so many answers of the usual length beside its own."""
LEAST_ANSWERS: Final = 5
"""Below this nothing is learned."""
COVER: Final = 0.90


class Observed(NamedTuple):
    """One answer that was bought."""

    dataset: str
    output_tokens: int
    """As billed."""
    cut: bool
    """It ended at its limit: without it, it would have been longer."""


class Range(NamedTuple):
    """A likely figure and its 90 % interval."""

    low: float
    likely: float
    high: float


@dataclass(frozen=True, slots=True)
class Lengths:
    """Length of the answers of one data set."""

    mean: float
    """Output tokens, where answers are cut at `max_tokens`."""
    spread: float
    """Standard deviation of one answer."""
    answers: int
    """It was learned from; 0: assumed."""
    cut: float
    """Share of answers that end at the limit."""


@dataclass(frozen=True, slots=True)
class Share:
    """What a job asks of one data set."""

    samples: int
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """Of a whole job."""

    by_dataset: Mapping[str, Lengths]
    tokens: Range
    """Output tokens."""
    answers: int
    """It was learned from; 0: assumed."""


def forecast(shares: Mapping[str, Share], observed: Sequence[Observed]) -> Forecast:
    """Say how many output tokens a job will take.

    Args:
        shares: of the job, by data set.
        observed: answers of the same model to prompts of the same kind; with fewer than `LEAST_ANSWERS`, assume.
    """
    lengths = _lengths(shares, observed)
    likely = sum(shares[name].samples * found.mean for name, found in lengths.items())
    most = float(sum(share.samples * share.max_tokens for share in shares.values()))
    if len(observed) < LEAST_ANSWERS:
        return Forecast(lengths, Range(likely / ASSUMED_FACTOR, likely, min(most, likely * ASSUMED_FACTOR)), 0)
    # The doubts of data sets are shared, because each leans on the others: they add up before they are squared.
    doubt = sum(shares[name].samples * found.spread for name, found in lengths.items()) / math.sqrt(len(observed))
    variance = doubt**2 + sum(shares[name].samples * found.spread**2 for name, found in lengths.items())
    relative = math.sqrt(variance) / likely if likely else 0.0
    factor = math.exp(_quantile(len(observed) - 1) * math.sqrt(math.log1p(relative**2)))
    return Forecast(lengths, Range(likely / factor, likely, min(most, likely * factor)), len(observed))


def _lengths(shares: Mapping[str, Share], observed: Sequence[Observed]) -> dict[str, Lengths]:
    if len(observed) < LEAST_ANSWERS:
        assumed = {name: float(min(ASSUMED_MEAN, share.max_tokens)) for name, share in shares.items()}
        return {name: Lengths(mean, mean, 0, 0.0) for name, mean in assumed.items()}
    logs = [_logged(one) for one in observed]
    usual = fmean(log for log, _ in logs)
    shifts = {}
    for name in {*shares, *(one.dataset for one in observed)}:
        own = [log - usual for one, (log, _) in zip(observed, logs, strict=True) if one.dataset == name]
        # A data set's own answers move the usual length by as much as there are of them.
        shifts[name] = (sum(own) / (len(own) + SHRINK), len(own))
    fit = _fit([(log - shifts[one.dataset][0], cut) for one, (log, cut) in zip(observed, logs, strict=True)])
    found = {}
    for name, share in shares.items():
        shift, answers = shifts[name]
        mean, spread, cut = _cut_lognormal(fit.mu + shift, fit.sigma, share.max_tokens)
        found[name] = Lengths(mean, spread, answers, cut)
    return found


class _Fit(NamedTuple):
    mu: float
    sigma: float


def _logged(one: Observed) -> tuple[float, bool]:
    return math.log(max(1, one.output_tokens)), one.cut


def _fit(logs: Sequence[tuple[float, bool]]) -> _Fit:
    """Fit a normal distribution to logarithms of which some are only known to be larger (EM for right censoring)."""
    known = [log for log, _ in logs]
    mu = fmean(known)
    sigma = max(0.05, math.sqrt(fmean((log - mu) ** 2 for log in known)))
    if not any(cut for _, cut in logs):
        return _Fit(mu, sigma * math.sqrt(len(known) / max(1, len(known) - 1)))
    if all(cut for _, cut in logs):
        return _Fit(mu + sigma, max(sigma, 0.5))
    normal = NormalDist()
    for _ in range(200):
        first = second = 0.0
        for log, cut in logs:
            if not cut:
                first, second = first + log, second + log * log
                continue
            z = (log - mu) / sigma
            hazard = normal.pdf(z) / max(1e-12, 1 - normal.cdf(z))
            first += mu + sigma * hazard
            second += mu * mu + sigma * sigma + sigma * hazard * (log + mu)
        new_mu = first / len(logs)
        new_sigma = math.sqrt(max(0.0025, second / len(logs) - new_mu * new_mu))
        settled = abs(new_mu - mu) + abs(new_sigma - sigma) < 1e-6
        mu, sigma = new_mu, new_sigma
        if settled:
            break
    return _Fit(mu, sigma)


def _cut_lognormal(mu: float, sigma: float, limit: int) -> tuple[float, float, float]:
    """Return mean, standard deviation and share at the limit of min(X, limit)."""
    normal = NormalDist()
    z = (math.log(limit) - mu) / sigma
    over = 1 - normal.cdf(z)
    first = math.exp(mu + sigma**2 / 2) * normal.cdf(z - sigma) + limit * over
    second = math.exp(2 * mu + 2 * sigma**2) * normal.cdf(z - 2 * sigma) + limit**2 * over
    return first, math.sqrt(max(0.0, second - first**2)), over


def _quantile(freedom: int) -> float:
    """Return Student's t for the interval, by Cornish and Fisher's expansion (exact to 1 % from 4 degrees on)."""
    z = NormalDist().inv_cdf((1 + COVER) / 2)
    v = max(1, freedom)
    return z + (z**3 + z) / (4 * v) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
