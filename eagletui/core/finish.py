"""When a job ends: what may be under way at once, how long answers take, and the slow ones that are waited for."""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, NamedTuple

ROUNDS: Final = 2_000
"""Slices that a job is followed in."""
_CELLS: Final = 400
"""Of the time that an answer may take."""


@dataclass(frozen=True, slots=True)
class PaceFacts:
    """What bounds a job's speed."""

    samples: int
    in_flight: int
    """Limit of simultaneous requests."""
    start: int
    """Requests in flight that the pace starts with; it doubles as fast as replies begin."""
    ramp_per_s: float
    """Requests in flight that may be added each second."""
    begin_s: float
    """From a request until its reply begins."""
    latency_s: float
    """Of a mean answer."""
    spread_s: float
    """Standard deviation of it over answers, which is taken for lognormal."""
    most_s: float
    """Of an answer as long as `max_tokens` allows."""
    cost: float
    """Of a mean answer."""
    hold: float
    """Reserved for a mean answer while it is out; 0: nothing is ever held back."""
    cap: float
    stop_at: float


class Finish(NamedTuple):
    """When a job ends."""

    seconds: float
    answered: int
    """Fewer than asked where stop-at or the cap ends it first."""
    limited_by: str
    """What mostly held it back: `pace` or `cap`."""


def finish_time(facts: PaceFacts) -> Finish:
    """Follow a job step by step until all is sent, then wait for the slowest answer.

    The room under the cap shrinks as money is settled. Answers come at the mean rate of what is under way, but for the
    first, which are all new together and so are late: by renewal theory, by half of a mean answer less what its spread
    gives back. All money in one unit.
    """
    if facts.samples == 0:
        return Finish(0.0, 0, "pace")
    slice_ = max(1.0, facts.samples / ROUNDS)
    seconds = answered = capped = 0.0
    while True:
        spent = answered * facts.cost
        room = math.inf if facts.hold <= 0 else math.floor(max(0.0, facts.cap - spent) / facts.hold)
        ramp = min(facts.start * 2.0 ** min(60.0, seconds / facts.begin_s), facts.start + facts.ramp_per_s * seconds)
        together = min(float(facts.in_flight), ramp, room)
        ended = room < 1 or (facts.cost > 0 and spent >= facts.stop_at)
        if ended or answered + together >= facts.samples:
            break
        step = slice_ * facts.latency_s / together
        if ramp < facts.in_flight:
            step = min(step, facts.begin_s / 4)
        seconds += step
        capped += step * (room < min(facts.in_flight, ramp))
        answered += step * together / facts.latency_s
    limited_by = "cap" if capped > seconds / 2 else "pace"
    if room < 1 and not answered:
        return Finish(0.0, 0, limited_by)
    waited_for = max(1.0, together if ended else facts.samples - answered)
    if answered:
        seconds += facts.latency_s / 2 * max(0.0, 1.0 - (facts.spread_s / facts.latency_s) ** 2)
    seconds += slowest_s(facts, waited_for, begun=answered > 0)
    return Finish(seconds, int(min(answered, facts.samples)) if ended else facts.samples, limited_by)


def slowest_s(facts: PaceFacts, answers: float, *, begun: bool) -> float:
    """Return how long the slowest of some answers is expected to take.

    Args:
        facts: how long answers take.
        answers: so many are under way.
        begun: each has been under way for a time, as among requests that replace one another; else all are new.
    """
    sigma = math.sqrt(math.log1p((facts.spread_s / facts.latency_s) ** 2))
    if sigma < 1e-6:
        return facts.latency_s * (answers / (answers + 1) if begun else 1.0)
    times = NormalDist(math.log(facts.latency_s) - sigma**2 / 2, sigma)
    width = facts.most_s / _CELLS
    longer = [1.0 - times.cdf(math.log((cell + 0.5) * width)) for cell in range(_CELLS)]
    if begun:
        # What is left of an answer that is met at some time of it is longer than r with probability
        # integral of P(answer > x) over x > r, over that integral from 0.
        total = sum(longer)
        left = total
        for cell, chance in enumerate(longer):
            longer[cell], left = max(0.0, left / total), left - chance
    return width * sum(1.0 - math.pow(1.0 - chance, answers) for chance in longer)
