"""The endpoints on offer, their prices, and how each is asked. Prices are fetched again every few minutes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Final, Literal

from eagletui.core.money import Price
from eagletui.engine.spread import Manner, Offer, manner, spread
from eagletui.ledger.rows import PriceRow
from eagletui.ledger.writer import LedgerWriter
from eagletui.providers.base import Endpoint

REFRESH_S: Final = 180.0
_TYPICAL_PROMPT: Final = 4
"""Prompt tokens per completion token of a usual job, to put one price on an endpoint."""


@dataclass(slots=True)
class Market:
    """What can be bought where."""

    stream: Literal["auto", "always", "never"]
    spread: Literal["best", "even"] = "best"
    endpoints: dict[str, Endpoint] = field(default_factory=dict)
    """By tag, at the accepted price."""
    manners: dict[str, Manner] = field(default_factory=dict)
    offered: dict[str, Endpoint] = field(default_factory=dict)
    """By tag, as last fetched; a dearer price is accepted by a resume only."""
    dearer: list[str] = field(default_factory=list)
    """One phrase per endpoint on offer whose price rose and was not accepted yet: nothing is bought meanwhile."""
    _recorded: dict[str, Price] = field(default_factory=dict)
    """By tag: what an engine before this one bought at."""

    def know(self, rows: Sequence[PriceRow]) -> None:
        """Take the last recorded price of each endpoint as accepted, so that a rise between two engines is one, too."""
        for row in rows:
            self._recorded[row.endpoint] = Price(*map(Decimal, (row.prompt_usd, row.completion_usd, row.request_usd)))

    def take(self, fetched: list[Endpoint]) -> list[str]:
        """Take in a fetched list: new endpoints and lower prices at once.

        Returns:
            `dearer`; the old price stays until `accept`.
        """
        self.offered = {endpoint.tag: endpoint for endpoint in fetched}
        self.dearer = []
        for tag, endpoint in self.offered.items():
            known = self.endpoints[tag].price if tag in self.endpoints else self._recorded.get(tag)
            if known is None or not _is_dearer(endpoint.price, known):
                self._put(endpoint)
                continue
            self.dearer.append(f"{tag} from {_shown(known)} to {_shown(endpoint.price)}")
            if tag not in self.endpoints:
                self._put(replace(endpoint, price=known))
        return self.dearer

    def rose(self, tag: str) -> bool:
        """Tell whether an endpoint is offered at more than the accepted price."""
        known, offered = self.endpoints.get(tag), self.offered.get(tag)
        return known is not None and offered is not None and _is_dearer(offered.price, known.price)

    def accept(self) -> None:
        """Accept the prices as last fetched."""
        self.dearer = []
        for endpoint in self.offered.values():
            self._put(endpoint)

    def to_record(self, *, asked: bool) -> dict[str, Endpoint]:
        """Return what the ledger should know: a dearer price only where a person is asked; the next engine buys at it.

        Args:
            asked: the ledger says that the run is paused by prices.
        """
        return self.offered if asked else {tag: self.endpoints[tag] for tag in self.offered}

    def weights(self, speeds: Mapping[str, float | None] | None = None) -> dict[str, float]:
        """Weigh the endpoints that are on offer.

        Args:
            speeds: output tokens a second of one request, by tag, as far as they are known.
        """
        if self.spread == "even":
            return dict.fromkeys(self.offered, 1.0)
        known = speeds or {}
        return spread(
            [
                Offer(tag, self.manners[tag].rung, _one_price(self.endpoints[tag].price), known.get(tag))
                for tag in self.offered
            ]
        )

    def _put(self, endpoint: Endpoint) -> None:
        self.endpoints[endpoint.tag] = endpoint
        self.manners[endpoint.tag] = manner(endpoint, self.stream)


def unlisted(tag: str) -> Endpoint:
    """Return what is left to say of an endpoint that answered and is no longer on offer."""
    zero = Price(Decimal(0), Decimal(0), Decimal(0))
    return Endpoint(tag, "", zero, None, None, supports_logprobs=False, supports_stream=False)


def record(writer: LedgerWriter, endpoints: Mapping[str, Endpoint]) -> None:
    """Write endpoints and prices into the ledger; a price that did not change adds no row."""
    with writer.transaction():
        for endpoint in endpoints.values():
            writer.upsert_endpoint(endpoint.tag, endpoint.provider_name, endpoint.quantization)
            writer.add_price(
                endpoint.tag,
                prompt_usd=format(endpoint.price.prompt_usd_per_token, "f"),
                completion_usd=format(endpoint.price.completion_usd_per_token, "f"),
                request_usd=format(endpoint.price.request_usd, "f"),
                source=endpoint.price_source,
                max_completion_tokens=endpoint.max_completion_tokens,
                raw_json=endpoint.raw_json,
            )


def _is_dearer(new: Price, old: Price) -> bool:
    return (
        new.prompt_usd_per_token > old.prompt_usd_per_token
        or new.completion_usd_per_token > old.completion_usd_per_token
        or new.request_usd > old.request_usd
    )


def _one_price(price: Price) -> float:
    return float(price.completion_usd_per_token + _TYPICAL_PROMPT * price.prompt_usd_per_token)


def _shown(price: Price) -> str:
    million = Decimal(1_000_000)
    prompt, completion = price.prompt_usd_per_token * million, price.completion_usd_per_token * million
    return f"${prompt.normalize():f} in and ${completion.normalize():f} out per million tokens"
