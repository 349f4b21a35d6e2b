"""One span as a table: the pieces, ids and bytes of both tokenizations, aligned by byte.

Pure: a run of ids from both and a vocabulary in, lines out. Widths are terminal cells.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise
from typing import Final

from eagletui.core.text import cell_width, shorten, visible
from eagletui.core.tokdiff import Lane
from eagletui.core.vocabulary import Vocabulary

Pieces = tuple[tuple[str, str], ...]
"""Text with its style."""

LABEL_CELLS: Final = 11
PROVED: Final = "$proved underline"
REBUILT: Final = "$rebuilt reverse"
_PIECE_CELLS: Final = 40
_PIECE_BYTES: Final = 64
"""Of a longer token the beginning is spelled out: no terminal shows more."""


@dataclass(frozen=True, slots=True)
class _Token:
    piece: str
    number: str
    hex: str
    start: int
    """Its first byte, counted from the first of the span."""
    end: int

    @property
    def cells(self) -> int:
        return max(cell_width(self.piece), len(self.number))


def span_table(
    lane: Lane, vocabulary: Vocabulary, room: int, *, name: str = "proved", ascii_: bool = False
) -> list[Pieces]:
    """Write a span as lines: pieces and ids of the first side, bytes, ids and pieces of the second.

    Where both sides hold the same bytes, one line of them stands in the middle, and every token stands over, or under,
    its own. Otherwise each side has a line of bytes.

    Args:
        lane: a run where the two differ.
        vocabulary: must know every id.
        room: cells of a line; longer ones are cut at the right.
        name: of the first side, at most ten cells.
        ascii_: draw with ASCII only.
    """
    a, b = (_tokens(ids, vocabulary, room, ascii_) for ids in (lane.a_ids, lane.b_ids))
    bar = "|" if ascii_ else "│"
    is_shared = lane.kind == "~" and all(token.hex for token in (*a, *b))
    shared = _shared_bars(a, b) if is_shared else {}
    lines: list[Pieces] = []
    for tokens, ids, label, tone, edge in (
        (a, lane.a_ids, name, "$proved", PROVED),
        (b, lane.b_ids, "canonical", "$rebuilt", REBUILT),
    ):
        if not ids:
            lines.append((_label(label, tone), ("none", "$quiet")))
            continue
        places = [(shared[one.start], shared[one.end]) for one in tokens] if is_shared else _own_bars(tokens)
        block = [
            (_label(label, tone), *_row([token.piece for token in tokens], places, bar, edge)),
            (_label(_counted(len(ids), "id")), *_row([token.number for token in tokens], places, bar, tone)),
        ]
        if not is_shared:
            size = sum(len(vocabulary.bytes_of(token_id)) for token_id in ids)
            block.append(
                (_label(_counted(size, "byte")), *_row([token.hex for token in tokens], places, bar, "$quiet"))
            )
        lines += block if tokens is a else block[::-1]
    if is_shared:
        lines.insert(2, (_label(_counted(lane.length, "byte")), *_ruler(lane, vocabulary, shared, bar)))
    return [_cropped(line, room, ascii_=ascii_) for line in lines]


def _tokens(ids: Sequence[int], vocabulary: Vocabulary, room: int, ascii_: bool) -> list[_Token]:
    """Spell out as many tokens as a line may have room for: each takes two cells at least."""
    tokens: list[_Token] = []
    start = 0
    for token_id in islice(ids, room):
        data = vocabulary.bytes_of(token_id)
        piece = shorten(visible(data[:_PIECE_BYTES], ascii_=ascii_), _PIECE_CELLS, ascii_=ascii_)
        end = start + len(data)
        tokens.append(_Token(piece, str(token_id), data[:_PIECE_BYTES].hex(" "), start, end))
        start = end
    return tokens


def _own_bars(tokens: Sequence[_Token]) -> list[tuple[int, int]]:
    """Place the bars around each token of one side by itself."""
    widths = (max(token.cells, len(token.hex)) + 1 for token in tokens)
    return list(pairwise(accumulate(widths, initial=0)))


def _shared_bars(a: Sequence[_Token], b: Sequence[_Token]) -> dict[int, int]:
    """Place the bars of both sides by the byte they stand before, so that equal bytes stand under each other."""
    ending: dict[int, list[_Token]] = {}
    for token in (*a, *b):
        ending.setdefault(token.end, []).append(token)
    places = {0: 0}
    for before, cut in pairwise([0, *sorted(ending)]):
        widest = max(places[token.start] + token.cells + 1 for token in ending[cut])
        places[cut] = max(widest, places[before] + 3 * (cut - before))
    return places


def _ruler(lane: Lane, vocabulary: Vocabulary, places: Mapping[int, int], bar: str) -> Pieces:
    """Write the bytes that both sides hold, apart where either has a boundary."""
    data = vocabulary.decode(lane.a_ids)
    row: list[tuple[str, str]] = [(bar, "$frame")]
    for start, end in pairwise(sorted(places)):
        row.append((data[start:end].hex(" ").ljust(places[end] - places[start]), ""))
    row[-1] = (row[-1][0][:-1], "")
    return (*row, (bar, "$frame"), ("  on both sides", "$quiet"))


def _row(texts: Sequence[str], places: Sequence[tuple[int, int]], bar: str, tone: str) -> Pieces:
    pieces: list[tuple[str, str]] = []
    for text, (start, end) in zip(texts, places, strict=True):
        pieces += [(bar, "$frame"), (text, tone), (" " * (end - start - 1 - cell_width(text)), "")]
    return (*pieces, (bar, "$frame"))


def _cropped(line: Pieces, room: int, *, ascii_: bool) -> Pieces:
    kept: list[tuple[str, str]] = []
    left = room
    for text, style in line:
        cells = cell_width(text)
        if cells > left:
            return (*kept, (shorten(text, left, ascii_=ascii_), style))
        kept.append((text, style))
        left -= cells
    return tuple(kept)


def _label(text: str, tone: str = "$quiet") -> tuple[str, str]:
    return (text.ljust(LABEL_CELLS), tone)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
