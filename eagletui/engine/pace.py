"""How fast, and where to: one adaptive limit per endpoint, and a spread over endpoints by evidence and price.

The limit of an endpoint grows while it is fully used and answers (by one per accepted request until the first cut,
then by one per round), is cut once per burst of 429, and waits as long as `Retry-After` says. Times are the caller's
monotonic seconds.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from eagletui.providers.base import Endpoint

Rung = Literal["ids", "logprobs", "stream", "text"]
"""The best evidence an endpoint's replies can carry."""

RUNG_WEIGHT: Final[dict[Rung, float]] = {"ids": 5.0, "logprobs": 5.0, "stream": 5.0, "text": 2.0}
"""Share of the samples that each rung gets. Text alone can prove a count and no ids, so it gets less."""

EVIDENCE_PREMIUM: Final = 2.0
"""Evidence is worth up to this factor of the cheapest price; above it a rung's share falls with the price squared."""

START_LIMIT: Final = 64.0
CUT: Final = 0.7
FAULT_PAUSE_S: Final = 10.0
"""After a server fault an endpoint does not grow for so long."""
THROTTLE_S: Final = 1.0
"""A 429 without `Retry-After` holds its endpoint back for so long."""
UNREACHABLE_S: Final = 1.0
"""First wait after a refused connection; doubles with each, up to `UNREACHABLE_MAX_S`."""
UNREACHABLE_MAX_S: Final = 30.0

BACKOFF_S: Final = 0.5
BACKOFF_MAX_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Manner:
    """How a request to an endpoint is made."""

    rung: Rung
    stream: bool
    logprobs: bool


def manner(endpoint: Endpoint, stream: Literal["auto", "always", "never"]) -> Manner:
    """Choose how to ask an endpoint, for the best evidence it can give.

    Args:
        endpoint: with its abilities.
        stream: `[pace] stream` of the config.
    """
    may_stream = endpoint.supports_stream and stream != "never"
    if endpoint.supports_ids and stream != "always":
        return Manner("ids", stream=False, logprobs=False)
    if endpoint.supports_logprobs:
        return Manner("logprobs", stream=may_stream, logprobs=True)
    if may_stream:
        return Manner("stream", stream=True, logprobs=False)
    return Manner("text", stream=False, logprobs=False)


def spread(rungs: Sequence[tuple[str, Rung, float]]) -> dict[str, float]:
    """Weigh endpoints: first by rung, then inside a rung by the inverse square of the price.

    Args:
        rungs: tag, rung and price (any one unit) of each endpoint.

    Returns:
        Weight by tag.
    """
    cheapest = min((price for _, _, price in rungs), default=0.0)
    weights: dict[str, float] = {}
    for rung, share in RUNG_WEIGHT.items():
        members = [(tag, max(price, 1e-12)) for tag, its_rung, price in rungs if its_rung == rung]
        if not members:
            continue
        lowest = min(price for _, price in members)
        worth = min(1.0, (max(cheapest, 1e-12) * EVIDENCE_PREMIUM / lowest) ** 2)
        inverse = {tag: (lowest / price) ** 2 for tag, price in members}
        total = sum(inverse.values())
        for tag, part in inverse.items():
            weights[tag] = share * worth * part / total
    return weights


def backoff_s(seed: int, sample_id: int, attempts: int) -> float:
    """Return the wait before the next attempt: exponential with jitter, the same for the same run and sample.

    Args:
        seed: of the run.
        sample_id: of the sample.
        attempts: made so far, at least 1.
    """
    dice = random.Random(f"{seed}:{sample_id}:{attempts}")
    return min(BACKOFF_MAX_S, BACKOFF_S * 2.0 ** (attempts - 1)) * dice.uniform(0.5, 1.0)


@dataclass(slots=True)
class Lane:
    """One endpoint's share of the pace."""

    tag: str
    weight: float
    limit: float
    """How many requests may be in flight."""
    in_flight: int = 0
    blocked_until: float = 0.0
    quarantined: bool = False
    offered: bool = True
    """The provider still lists it."""
    growing: bool = True
    """No 429 so far: the limit may grow fast."""
    cut_at: float = 0.0
    fault_at: float = -FAULT_PAUSE_S
    unreachable: int = 0
    """Refused connections in a row; one request at a time looks whether the endpoint is back."""
    credit: float = 0.0
    """Smooth weighted round robin: who has waited longest for its share."""

    def is_open(self, now: float) -> bool:
        """Tell whether one more request may go here."""
        limit = 1 if self.unreachable else int(self.limit)
        return self.offered and not self.quarantined and now >= self.blocked_until and self.in_flight < limit


class Pace:
    """The lanes of a run and their common limit."""

    def __init__(self, weights: dict[str, float], max_in_flight: int) -> None:
        """Open a lane per endpoint.

        Args:
            weights: by tag, from `spread`.
            max_in_flight: limit over all lanes.
        """
        self.max_in_flight = max_in_flight
        self.lanes = {tag: Lane(tag, weight, START_LIMIT) for tag, weight in weights.items()}

    def reweigh(self, weights: dict[str, float]) -> None:
        """Take over weights after another look at the offer: new endpoints get a lane, missing ones are closed."""
        for tag, weight in weights.items():
            self.lanes.setdefault(tag, Lane(tag, weight, START_LIMIT)).weight = weight
        for tag, lane in self.lanes.items():
            lane.offered = tag in weights

    @property
    def in_flight(self) -> int:
        """Requests under way over all lanes."""
        return sum(lane.in_flight for lane in self.lanes.values())

    @property
    def has_lane(self) -> bool:
        """Tell whether any endpoint is left, busy or not."""
        return any(lane.offered and not lane.quarantined for lane in self.lanes.values())

    def has_open_lane(self, now: float) -> bool:
        """Tell whether any endpoint takes one more request."""
        return any(lane.is_open(now) for lane in self.lanes.values())

    def choose(self, now: float, avoid: Iterable[str] = ()) -> str | None:
        """Pick the next endpoint and count a request on it, or None when there is no room.

        Args:
            now: monotonic seconds.
            avoid: tags to pass over while another is open.
        """
        lanes = [lane for lane in self.lanes.values() if lane.is_open(now)]
        if not lanes or self.in_flight >= self.max_in_flight:
            return None
        shunned = set(avoid)
        lanes = [lane for lane in lanes if lane.tag not in shunned] or lanes
        for lane in lanes:
            lane.credit += lane.weight
        best = max(lanes, key=lambda lane: lane.credit)
        best.credit -= sum(lane.weight for lane in lanes)
        best.in_flight += 1
        return best.tag

    def leave(self, tag: str) -> None:
        """Count a request as ended."""
        self.lanes[tag].in_flight -= 1

    def accepted(self, tag: str, now: float) -> None:
        """An endpoint began to answer."""
        lane = self.lanes[tag]
        lane.unreachable = 0
        full = lane.in_flight >= int(lane.limit) - 1
        if full and lane.limit < self.max_in_flight and now - lane.fault_at >= FAULT_PAUSE_S:
            lane.limit += 1.0 if lane.growing else 1.0 / lane.limit

    def throttled(self, tag: str, sent_at: float, now: float, retry_after_s: float | None) -> None:
        """An endpoint said 429 or 503. One burst is one cut: requests sent before the last cut do not cut again."""
        lane = self.lanes[tag]
        lane.growing = False
        if sent_at >= lane.cut_at:
            lane.limit = max(1.0, min(lane.limit, float(max(1, lane.in_flight))) * CUT)
            lane.cut_at = now
        wait_s = THROTTLE_S if retry_after_s is None else retry_after_s
        lane.blocked_until = max(lane.blocked_until, now + wait_s)

    def faulted(self, tag: str, now: float) -> None:
        """An endpoint failed in another way."""
        self.lanes[tag].fault_at = now

    def unreachable(self, tag: str, now: float) -> None:
        """No connection to an endpoint."""
        lane = self.lanes[tag]
        wait_s = min(UNREACHABLE_MAX_S, UNREACHABLE_S * 2.0**lane.unreachable)
        if now >= lane.blocked_until:
            lane.unreachable += 1
            lane.blocked_until = now + wait_s
