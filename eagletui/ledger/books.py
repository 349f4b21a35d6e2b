"""Read the books from the counters."""

import sqlite3

from eagletui.core.money import Books


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
