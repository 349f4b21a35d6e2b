"""The columns of the samples browser."""

from collections.abc import Callable
from typing import Final

from eagletui.core.fidelity import PROVED
from eagletui.ledger.rows import SampleRow
from eagletui.tui import figures
from eagletui.tui.theme import Glyphs
from eagletui.tui.widgets.ledger_table import Column
from eagletui.tui.widgets.safe_text import Piece

_WORDS: Final = {"in_flight": "in flight", "quarantined": "set aside"}
"""For states whose own names are not those of the screens."""


def sample_columns(glyphs: Callable[[], Glyphs]) -> tuple[Column[SampleRow], ...]:
    """Columns of a sample, the narrow ones first to stay.

    Args:
        glyphs: gives the marks that may be drawn.
    """
    return (
        Column("sample", 12, lambda row: row.sample_key),
        Column("state", 11, lambda row: _state(row, glyphs())),
        Column("evidence", 9, _evidence),
        Column("billed", 7, lambda row: figures.count(row.billed_output_tokens), right=True, from_width=100),
        Column("counted", 7, lambda row: figures.count(row.output_tokens), right=True, from_width=90),
        Column("drift", 5, lambda row: figures.signed(row.drift_tokens), right=True),
        Column("spans", 5, lambda row: figures.count(row.spans), right=True),
        Column("cost $", 9, lambda row: figures.usd(row.cost_pico).removeprefix("$"), right=True, from_width=90),
        Column("finish", 8, lambda row: row.finish_reason or figures.UNKNOWN, from_width=90),
        Column("prompt", 0, lambda row: row.preview),
    )


def _state(row: SampleRow, glyphs: Glyphs) -> Piece:
    marks = {
        "queued": (glyphs.queued, "$quiet"),
        "in_flight": (glyphs.draining, "$primary"),
        "failed": (glyphs.failed, "bold $error"),
        "refused": (glyphs.failed, "bold $error"),
        "quarantined": (glyphs.warning, "$warning"),
    }
    if row.state in marks:
        mark, tone = marks[row.state]
        return (f"{mark} {_WORDS.get(row.state, row.state)}", tone)
    return f"{glyphs.done} extracted" if row.extracted else f"{glyphs.running} {row.state}"


def _evidence(row: SampleRow) -> Piece:
    if row.evidence is None:
        return figures.UNKNOWN
    tone = "" if row.evidence in PROVED else "bold $error" if row.evidence == "conflict" else "$warning"
    return (row.evidence, tone)
