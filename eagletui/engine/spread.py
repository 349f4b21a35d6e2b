"""How to ask each endpoint, and what share of the samples it gets.

The weight of an endpoint is `rung x worth x part`: the rung's share of the samples; how dear that evidence is against
the cheapest price; the endpoint's part of its rung, `(lowest price / price)^2 x (tokens a second / the rung's mean)`
normalised to 1, the speed held between a half and two.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from eagletui.providers.base import Endpoint

Rung = Literal["ids", "logprobs", "stream", "text"]
"""The best evidence an endpoint's replies can carry."""

RUNG_WEIGHT: Final[dict[Rung, float]] = {"ids": 5.0, "logprobs": 5.0, "stream": 5.0, "text": 2.0}
"""Share of the samples that each rung gets. Text alone can prove a count and no ids, so it gets less."""

EVIDENCE_PREMIUM: Final = 2.0
"""Evidence is worth up to this factor of the cheapest price; above it a rung's share falls with the price squared."""

SPEED_BOUNDS: Final = (0.5, 2.0)
"""A speed counts for no less and no more than this, against the mean of its rung."""


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


class Offer(NamedTuple):
    """What is known of an endpoint before it is chosen."""

    tag: str
    rung: Rung
    price: float
    """Any one unit."""
    tokens_per_s: float | None = None
    """Output tokens a second of one request; None: not known."""


def spread(offers: Sequence[Offer]) -> dict[str, float]:
    """Weigh endpoints: first by rung, then inside a rung by the inverse square of the price and by speed.

    Returns:
        Weight by tag.
    """
    cheapest = min((offer.price for offer in offers), default=0.0)
    weights: dict[str, float] = {}
    for rung, share in RUNG_WEIGHT.items():
        members = [offer._replace(price=max(offer.price, 1e-12)) for offer in offers if offer.rung == rung]
        if not members:
            continue
        lowest = min(offer.price for offer in members)
        worth = min(1.0, (max(cheapest, 1e-12) * EVIDENCE_PREMIUM / lowest) ** 2)
        known = [offer.tokens_per_s for offer in members if offer.tokens_per_s]
        mean = sum(known) / len(known) if known else 1.0
        parts = {
            offer.tag: (lowest / offer.price) ** 2 * _within(SPEED_BOUNDS, (offer.tokens_per_s or mean) / mean)
            for offer in members
        }
        total = sum(parts.values())
        for tag, part in parts.items():
            weights[tag] = share * worth * part / total
    return weights


def _within(bounds: tuple[float, float], value: float) -> float:
    return min(max(bounds[0], value), bounds[1])
