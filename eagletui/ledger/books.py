"""Read the books from the counters, and the attempts that keep them open."""

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from eagletui.core.money import Books, Overcharge
from eagletui.ledger.orders import OpenAttempt, Overrun

OVERRUN: Final = (
    "attempts.id, sample_key, attempts.endpoint, hold_pico, attempts.cost_pico, held_at, coalesce(settled_at, held_at)"
)
"""What `overrun_of` makes an overrun of, over `attempts` and `samples`."""


def overrun_of(row: Sequence[Any]) -> Overrun:
    """Make an overrun of a row."""
    attempt_id, sample_key, endpoint, *charge = row
    return Overrun(attempt_id, sample_key, endpoint, Overcharge(*charge))


def read_books(connection: sqlite3.Connection) -> Books:
    """Return where the money stands, from the run's row and the money counters."""
    (stop_at_pico, cap_pico) = connection.execute("SELECT stop_at_pico, cap_pico FROM run").fetchone()
    money: dict[str, int] = dict(connection.execute("SELECT name, value FROM counters WHERE kind = 'money'"))
    return Books(
        settled_pico=money.get("settled", 0),
        held_pico=money.get("held", 0),
        unsettled_pico=money.get("unsettled", 0),
        unattributed_pico=money.get("unattributed", 0),
        stop_at_pico=stop_at_pico,
        cap_pico=cap_pico,
    )


def read_open_attempts(connection: sqlite3.Connection, *, covered: bool = False) -> list[OpenAttempt]:
    """List attempts that ended without a known cost, oldest first.

    Args:
        connection: to the ledger.
        covered: those whose hold was released because an adjustment covers it, instead of all others.
    """
    rows = connection.execute(
        "SELECT attempts.id, sample_key, attempts.endpoint, hold_pico, generation_id, has_answer, sent_at, ended_at"
        " FROM attempts JOIN samples ON samples.id = attempts.sample_id"
        " WHERE attempts.state = 'unsettled' AND released = ? ORDER BY attempts.id",
        (covered,),
    )
    return [OpenAttempt(*(*row[:5], bool(row[5]), *row[6:])) for row in rows]
