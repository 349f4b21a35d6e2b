"""The columns of the inspector's two tables: spans, and the last ids."""

from dataclasses import dataclass

from eagletui.core.text import visible
from eagletui.core.tokdiff import Lane
from eagletui.core.vocabulary import Vocabulary
from eagletui.tui import figures
from eagletui.tui.inspection import Inspection, TailRow
from eagletui.tui.lane_lines import span_figures
from eagletui.tui.widgets.ledger_table import Column

_TEXT_BYTES = 40


@dataclass(frozen=True, slots=True)
class SpanRow:
    """One line of the list of spans."""

    number: int
    """Counted from 1."""
    lane: Lane
    text: str
    """What it spells, shortened."""


def span_rows(inspection: Inspection, vocabulary: Vocabulary, *, ascii_: bool = False) -> list[SpanRow]:
    """List the spans of a sample."""
    return [
        SpanRow(number, lane, visible(vocabulary.decode(lane.a_ids or lane.b_ids)[:_TEXT_BYTES], ascii_=ascii_))
        for number, lane in enumerate(inspection.spans, 1)
    ]


def span_columns() -> tuple[Column[SpanRow], ...]:
    """Columns of the list of spans."""
    return (
        Column("#", 3, lambda row: f"{row.number}", right=True),
        Column("", 1, lambda row: row.lane.kind),
        Column("byte", 7, lambda row: figures.count(row.lane.offset), right=True),
        Column("ids", 8, lambda row: span_figures(row.lane), right=True),
        Column("text", 0, lambda row: row.text),
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
