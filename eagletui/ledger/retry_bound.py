"""What asking samples again commits at most: the bounds that were held for them before, at the present prices."""

import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

from eagletui.core.money import Price, hold_elsewhere
from eagletui.ledger.rebuying import open_prices

_AT_ONCE: Final = 500
"""Below SQLite's smallest limit of parameters in a statement."""
_LATER_TURNS: Final = """SELECT other.id FROM samples AS this JOIN samples AS other
    ON other.prompt_id = this.prompt_id AND other.answer_index = this.answer_index AND other.turn > this.turn
    WHERE this.state = 'quarantined' AND other.answered_attempt_id IS NOT NULL AND this.id IN ({})"""
_HOLDS: Final = "SELECT sample_id, endpoint, hold_pico, held_at FROM attempts WHERE sample_id IN ({})"


class AskedAgain(NamedTuple):
    """What asking samples again means."""

    samples: int
    """Asked again, later turns of their conversations among them."""
    later_turns: int
    """Answers that followed those in their conversations, and are asked for anew with them."""
    bound_pico: int
    """One request for each at the dearest open endpoint: what the engine reserves, all of them together."""
    unbounded: int
    """Of the samples, those for which nothing was ever reserved, or not at a price that tells: not in the bound."""


class _Hold(NamedTuple):
    pico: int
    price: Price | None
    """That it was reserved at."""


def asked_again(connection: sqlite3.Connection, sample_ids: Sequence[int]) -> AskedAgain:
    """Add up what the engine would reserve for samples that are asked again.

    An engine that has meanwhile seen a request cost more than its bound reserves more; the cap holds all the same.
    """
    chosen = set(sample_ids)
    later = {row_id for (row_id,) in _each(connection, _LATER_TURNS, sorted(chosen))} - chosen
    prices = open_prices(connection)
    history = _history(connection)
    holds: dict[int, list[_Hold]] = defaultdict(list)
    for sample_id, endpoint, pico, held_at in _each(connection, _HOLDS, sorted(chosen | later)):
        holds[sample_id].append(_Hold(pico, _price_at(history.get(endpoint, ()), held_at)))
    bounds = [_bound(holds[sample_id], prices) for sample_id in chosen | later]
    known = [bound for bound in bounds if bound is not None]
    return AskedAgain(len(bounds), len(later), sum(known), len(bounds) - len(known))


def _bound(holds: Sequence[_Hold], prices: Mapping[str, Price]) -> int | None:
    """Take the dearest endpoint, and for each the lowest of the bounds that the holds give for it."""
    at_endpoints = []
    for price in prices.values():
        found = [hold_elsewhere(hold.pico, hold.price, price) for hold in holds if hold.price is not None]
        known = [pico for pico in found if pico is not None]
        if not known:
            return None
        at_endpoints.append(min(known))
    return max(at_endpoints, default=None)


def _history(connection: sqlite3.Connection) -> Mapping[str, Sequence[tuple[float, Price]]]:
    found: dict[str, list[tuple[float, Price]]] = defaultdict(list)
    for endpoint, at, *price in connection.execute(
        "SELECT endpoint, fetched_at, prompt_usd, completion_usd, request_usd FROM prices ORDER BY id"
    ):
        found[endpoint].append((at, Price(*(Decimal(text) for text in price))))
    return found


def _price_at(known: Sequence[tuple[float, Price]], held_at: float) -> Price | None:
    """Return the price in force at a time, the first one before it was known."""
    before = [price for at, price in known if at <= held_at]
    return before[-1] if before else known[0][1] if known else None


def _each(connection: sqlite3.Connection, query: str, ids: Sequence[int]) -> Iterator[tuple[Any, ...]]:
    for start in range(0, len(ids), _AT_ONCE):
        part = ids[start : start + _AT_ONCE]
        yield from connection.execute(query.format(", ".join("?" * len(part))), part)
