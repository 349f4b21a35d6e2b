"""What setting an endpoint's answers aside means in samples and money."""

import json
import sqlite3
from decimal import Decimal
from typing import NamedTuple

from eagletui.core.money import Price, estimate_pico


class Quarantined(NamedTuple):
    """What a quarantine or a release moved."""

    samples: int
    """How many samples changed."""
    cost_pico: int
    """What they cost, as settled."""
    changed: bool
    """Whether anything changed, the endpoint's own state included."""
    rebuy_low_pico: int | None = None
    """What as many tokens cost at the cheapest of the other endpoints; None where no price is known."""
    rebuy_high_pico: int | None = None
    """The same at the dearest."""
    later_turns: int = 0
    """Answers of others that follow those in their conversations, and are bought again with them."""


def rebuy_range(
    connection: sqlite3.Connection, endpoint: str, samples: int, prompt: int, completion: int
) -> tuple[int | None, int | None]:
    """Return what buying an endpoint's samples again costs elsewhere, from the cheapest to the dearest."""
    prices = _prices_elsewhere(connection, endpoint) if samples else []
    again = [estimate_pico(prompt, completion, samples, price) for price in prices]
    return min(again, default=None), max(again, default=None)


def open_prices(connection: sqlite3.Connection) -> dict[str, Price]:
    """Return the last price of each open endpoint on offer, by tag."""
    offered = _on_offer(connection)
    rows = connection.execute(
        """SELECT prices.endpoint, prompt_usd, completion_usd, request_usd FROM prices
        JOIN endpoints ON endpoints.tag = prices.endpoint WHERE endpoints.state = 'open'
          AND prices.id = (SELECT max(id) FROM prices AS later WHERE later.endpoint = prices.endpoint)"""
    )
    return {tag: Price(*(Decimal(text) for text in price)) for tag, *price in rows if offered is None or tag in offered}


def _prices_elsewhere(connection: sqlite3.Connection, endpoint: str) -> list[Price]:
    """Return the last prices of the open endpoints on offer but one; that one's own where there are no others."""
    rows = connection.execute(
        """SELECT prices.endpoint, prompt_usd, completion_usd, request_usd FROM prices
        JOIN endpoints ON endpoints.tag = prices.endpoint
        WHERE (endpoints.state = 'open' OR prices.endpoint = :endpoint)
          AND prices.id = (SELECT max(id) FROM prices AS later WHERE later.endpoint = prices.endpoint)""",
        {"endpoint": endpoint},
    ).fetchall()
    offered = _on_offer(connection)
    elsewhere = [row for row in rows if row[0] != endpoint and (offered is None or row[0] in offered)]
    rows = elsewhere or [row for row in rows if row[0] == endpoint]
    return [Price(*(Decimal(text) for text in row[1:])) for row in rows]


def _on_offer(connection: sqlite3.Connection) -> set[str] | None:
    """Return the endpoints that the engine had on offer when it gave its last sign of life; None if none has said."""
    row = connection.execute("SELECT detail_json FROM heartbeats WHERE role = 'engine'").fetchone()
    endpoints = json.loads(row[0]).get("endpoints") if row else None
    return endpoints and {tag for tag, lane in endpoints.items() if lane.get("offered", True)}
