"""What is listed of the samples, and a search through all of them, told part by part."""

from array import array
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from eagletui.ledger.async_reader import AsyncReader
from eagletui.ledger.filters import SampleFilter
from eagletui.tui.filter_line import preset_name, write_filter
from eagletui.tui.widgets.safe_text import Piece

_FIRST_ROWS: Final = 2_000
"""A millisecond of looking: the first hits are there before the next key."""
_MOST_ROWS: Final = 20_000


@dataclass(frozen=True, slots=True)
class Searched:
    """How far a search is."""

    ids: "array[int]"
    """Found so far, in the order of the filter; grows in place."""
    looked_at: int | None
    """Samples so far; None once all were."""


async def search(reader: AsyncReader, wanted: SampleFilter) -> AsyncIterator[Searched]:
    """Look through the samples until all were looked at, or whoever asks stops asking.

    Args:
        reader: answers nothing else meanwhile, between two parts at most.
        wanted: with a text.

    Raises:
        LedgerError: the ledger cannot be read, or the part was interrupted.
    """
    ids = array("q")
    end, rows = None, _FIRST_ROWS
    while True:
        found = await reader.search(wanted, end, rows)
        ids.extend(found.ids)
        end, rows = found.end, min(_MOST_ROWS, 2 * rows)
        yield Searched(ids, None if end is None else end.looked_at)
        if end is None:
            return


@dataclass(frozen=True, slots=True)
class Listed:
    """How far a list of samples is."""

    found: int
    samples: int
    """In the run."""
    new: int
    """Samples that came after the list was read."""
    looked_at: int | None
    """Samples that a search has looked at; None: all of them."""
    is_searching: bool
    marked: int


def listed_pieces(wanted: SampleFilter, listed: Listed, *, wide: bool) -> list[Piece]:
    """Say what is listed, in what order, and how many of how many.

    Args:
        wanted: the filter.
        listed: what there is of it.
        wide: the terminal has 100 columns; else what a search has found takes the place of preset and sort.
    """
    order = f"{wanted.sort}{' desc' if wanted.reverse else ''}"
    count = f"{listed.found:,} of {listed.samples:,}"
    if listed.looked_at is not None:
        count = f"{listed.found:,} in {listed.looked_at:,} of {listed.samples:,} looked at"
    label = "filter " if wide else ""
    pieces: list[Piece] = [("/ ", "bold $primary"), (label, "$quiet"), write_filter(wanted) or "none"]
    if wide or listed.looked_at is None:
        for key, name, value in (("f", "preset ", preset_name(wanted)), ("s", "sort ", order)):
            pieces += [(f"   {key} ", "bold $primary"), (name, "$quiet"), value]
    pieces.append(f"   {count}")
    if listed.new > 0:
        pieces.append(f"   +{listed.new:,} new, R reads them")
    if listed.marked:
        pieces.append(f"   {listed.marked:,} marked")
    if listed.is_searching:
        pieces.append(("   searching, esc ends it", "$warning"))
    elif listed.looked_at is not None:
        pieces.append(("   search ended early", "$warning"))
    return pieces
