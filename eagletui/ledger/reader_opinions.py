"""Read what a target model said of answers without proof."""

import sqlite3
from dataclasses import dataclass
from typing import Final

from eagletui.ledger.reader_base import Reader
from eagletui.ledger.rows import OpinionRow, columns

_COLUMNS: Final = (
    columns(OpinionRow, "opinions")
    .replace("opinions.sample_key", "(SELECT sample_key FROM samples WHERE id = sample_id)")
    .replace("opinions.endpoint", "(SELECT endpoint FROM samples WHERE id = sample_id)")
)


@dataclass(frozen=True, slots=True)
class ArbiterFigures:
    """What the target model decided, over a whole run."""

    asked: int
    """Samples it gave an opinion of."""
    inferred: int
    """Of those: labelled by it."""
    changed: int
    """Of those labelled: with other ids than before."""
    mean_posterior: float
    """Of the likeliest cut, over the samples asked."""
    last_at: float
    """Of the latest opinion, Unix seconds."""


class OpinionsReader(Reader):
    """Reads opinions."""

    def arbiter_figures(self) -> ArbiterFigures | None:
        """Sum the opinions up; None where nothing was asked."""
        with self._transactions.reading() as connection:
            if not _are_kept(connection):
                return None
            row = connection.execute(
                "SELECT count(*), coalesce(sum(inferred), 0), coalesce(sum(inferred AND changed), 0),"
                " avg(posterior), max(asked_at) FROM opinions"
            ).fetchone()
        return ArbiterFigures(*row) if row[0] else None

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
