"""Search samples by text, part by part: a text may be anywhere, so every row has to be looked at."""

from array import array
from dataclasses import dataclass, replace

from eagletui.ledger.filters import SampleFilter, like_pattern, order, terms
from eagletui.ledger.reader_base import Reader


@dataclass(frozen=True, slots=True)
class SearchEnd:
    """Where one part of a search ended; give it back for the next one."""

    looked_at: int
    """Samples so far, hits or not."""
    id: int
    """Of the last one, in the order of ingestion."""


@dataclass(frozen=True, slots=True)
class Found:
    """What one part of a search found."""

    ids: "array[int]"
    """Of the samples that fit, in the order of the filter."""
    end: SearchEnd | None
    """None: there is nothing left to look at."""


class SearchReader(Reader):
    """Looks through samples, so many at a time: the first hits are there at once, and a search can end early."""

    def search(self, wanted: SampleFilter, after: SearchEnd | None, rows: int) -> Found:
        """Look at the next samples in the order of a filter with a text.

        In the order of ingestion parts go by id. In another order they are counted off its index, so a sample whose
        figures change meanwhile may be found twice or not at all.

        Args:
            wanted: which, and in what order.
            after: where the part before ended; None for the first.
            rows: how many samples to look at.
        """
        looked_at = rows if after is None else after.looked_at + rows
        with self._transactions.reading() as connection:
            # Two subqueries: SQLite looks both ends up in its index, but reads everything for two aggregates in one.
            ends = "SELECT (SELECT min(id) FROM samples), (SELECT max(id) FROM samples)"
            first, last = connection.execute(ends).fetchone()
            if first is None:
                return Found(array("q"), None)
            edge = 0
            if wanted.sort != "id":
                (known,) = terms(SampleFilter(sort=wanted.sort))
                ordered = f"SELECT samples.id AS part_id FROM samples WHERE {known.sql} ORDER BY {order(wanted)}"
                bounds = (rows, looked_at - rows)
                source = f"({ordered} LIMIT ? OFFSET ?) CROSS JOIN samples ON samples.id = part_id"
                within = ""
                is_last = connection.execute(f"{ordered} LIMIT 1 OFFSET ?", (looked_at,)).fetchone() is None
            else:
                source, within = "samples", "samples.id BETWEEN ? AND ? AND"
                if wanted.reverse:
                    edge = (last if after is None else after.id - 1) - rows + 1
                    bounds, is_last = (edge, edge + rows - 1), edge <= first
                else:
                    edge = (first if after is None else after.id + 1) + rows - 1
                    bounds, is_last = (edge - rows + 1, edge), edge >= last
            others = terms(replace(wanted, text=""))
            pattern = like_pattern(wanted.text)
            hits = connection.execute(
                f"SELECT samples.id FROM {source} JOIN prompts ON prompts.id = samples.prompt_id"
                f" WHERE {within} {''.join(f'{term.unindexed} AND ' for term in others)}"
                " (samples.sample_key LIKE ? ESCAPE '\\' OR prompts.preview LIKE ? ESCAPE '\\')"
                f" ORDER BY {order(wanted)}",
                (*bounds, *(value for term in others for value in term.parameters), pattern, pattern),
            )
            return Found(array("q", (row[0] for row in hits)), None if is_last else SearchEnd(looked_at, edge))
