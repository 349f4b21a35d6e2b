"""The columns of the inspector's two tables: spans, and the last ids."""

from eagletui.core.tokdiff import Lane
from eagletui.tui import figures
from eagletui.tui.inspection import TailRow
from eagletui.tui.lane_lines import span_figures
from eagletui.tui.widgets.ledger_table import Column


def span_columns() -> tuple[Column[tuple[int, Lane]], ...]:
    """Columns of the list of spans."""
    return (
        Column("#", 3, lambda row: f"{row[0] + 1}", right=True),
        Column("", 1, lambda row: row[1].kind),
        Column("byte", 7, lambda row: figures.count(row[1].offset), right=True),
        Column("proved -> canon.", 0, lambda row: span_figures(row[1])),
    )


def tail_columns() -> tuple[Column[TailRow], ...]:
    """Columns of the tail view."""
    return (
        Column("at", 7, lambda row: figures.count(row.position), right=True),
        Column("id", 8, lambda row: str(row.token_id), right=True),
        Column("kind", 8, lambda row: (row.kind, "$primary" if row.kind == "special" else "")),
        Column("alone", 16, lambda row: row.alone),
        Column("in context", 0, lambda row: row.context),
    )
