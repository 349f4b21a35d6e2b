"""Read what a target model said of answers without proof."""

import sqlite3
from typing import Final

from eagletui.ledger.reader_base import Reader
from eagletui.ledger.rows import OpinionRow, columns

_COLUMNS: Final = (
    columns(OpinionRow, "opinions")
    .replace("opinions.sample_key", "(SELECT sample_key FROM samples WHERE id = sample_id)")
    .replace("opinions.endpoint", "(SELECT endpoint FROM samples WHERE id = sample_id)")
)


class OpinionsReader(Reader):
    """Reads opinions."""

    def opinions(self) -> list[OpinionRow]:
        """List every opinion, by sample."""
        with self._transactions.reading() as connection:
            if not _are_kept(connection):
                return []
            found = connection.execute(f"SELECT {_COLUMNS} FROM opinions ORDER BY sample_id")
            return [OpinionRow(*row) for row in found]

    def opinion(self, sample_id: int) -> OpinionRow | None:
        """Read what was said of one sample; None where nothing was asked."""
        with self._transactions.reading() as connection:
            if not _are_kept(connection):
                return None
            row = connection.execute(f"SELECT {_COLUMNS} FROM opinions WHERE sample_id = ?", (sample_id,)).fetchone()
        return None if row is None else OpinionRow(*row)


def _are_kept(connection: sqlite3.Connection) -> bool:
    """Tell whether the ledger has the table: one of the first version that no writer has opened since does not."""
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'opinions'").fetchone() is not None
