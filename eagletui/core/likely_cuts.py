"""Which cut of a streamed text into tokens is the likeliest, where nothing proves one.

The size of a delta is often known though its cut is not: from cumulative counts, or because a server that sends every
so many tokens sends the same number each time. Among the cuts of that size the canonical one comes first; where it has
another size, the one of the most frequent pieces: byte-pair vocabularies number their pieces about in that order.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

from eagletui.core.fidelity import HIDDEN_TAIL
from eagletui.core.vocabulary import Vocabulary

_MOSTLY: Final = 0.5
"""Share of the deltas with one canonical size from which a stream is taken to send that many tokens each time."""

_TELLING: Final = 3
"""Deltas of ASCII alone from which the others are not asked."""

_WORK_LIMIT: Final = 60_000
"""Bytes times pieces beyond which no cut is looked for."""


def likeliest_cut(data: bytes, size: int, vocabulary: Vocabulary) -> tuple[int, ...]:
    """Cut bytes into a number of pieces, the most frequent ones; empty where there is no such cut.

    Args:
        data: the bytes to cover.
        size: how many pieces.
        vocabulary: its ids stand for how rare a piece is.
    """
    if size < 1 or size > len(data) or len(data) * size > _WORK_LIMIT:
        return ()
    pieces = {
        start: [
            (end, math.log(token_id + 1), token_id)
            for end in range(start + 1, min(len(data), start + vocabulary.max_piece_bytes) + 1)
            if (token_id := vocabulary.id_of(data[start:end])) is not None
        ]
        for start in range(len(data))
    }
    rests: dict[int, tuple[float, tuple[int, ...]]] = {len(data): (0.0, ())}
    for position in range(size - 1, -1, -1):
        found: dict[int, tuple[float, tuple[int, ...]]] = {}
        for start in range(len(data) - 1 if position else 0, -1, -1):
            ways = [
                (rareness + rests[end][0], (token_id, *rests[end][1]))
                for end, rareness, token_id in pieces[start]
                if end in rests
            ]
            if ways:
                found[start] = min(ways)
        rests = found
    return rests.get(0, (0.0, ()))[1]


def even_sizes(data: Sequence[bytes], canonical: Sequence[int], total: int, vocabulary: Vocabulary) -> list[int] | None:
    """Guess the sizes of deltas that a server sends every so many tokens.

    Args:
        data: bytes of each delta.
        canonical: tokens of each in the canonical encoding.
        total: tokens of all together.
        vocabulary: of the pieces.

    Returns:
        The same size for all but the last, save where tokens were held back for a character that the next delta
        begins with; None where the sizes do not come out even.
    """
    if len(data) < 2:
        return None
    # A character of several tokens is held back until it is whole, so it says nothing about how often a server sends.
    ascii_sizes = [plain for piece, plain in zip(data, canonical, strict=True) if piece.isascii()]
    telling = ascii_sizes if len(ascii_sizes) >= _TELLING else canonical
    size, often = Counter(telling).most_common(1)[0]
    if size < 2 or often < _MOSTLY * len(telling):
        return None
    for first in (size, 1):
        sizes, held = _spread(data, canonical, first, size, vocabulary)
        last = total - sum(sizes)
        if 1 <= last <= size + held:
            return [*sizes, last]
        if canonical[-1] <= size + held < last <= size + held + HIDDEN_TAIL:
            return [*sizes, canonical[-1]]
    return None


def _spread(
    data: Sequence[bytes], canonical: Sequence[int], first: int, size: int, vocabulary: Vocabulary
) -> tuple[list[int], int]:
    """Sizes of all deltas but the last, given those of the first and of each other one, and the tokens held back."""
    sizes: list[int] = []
    held = 0
    for index, following in enumerate(data[1:]):
        wanted = held + (size if index else first)
        plain = canonical[index]
        holds = following[0] >= 0x80 and 0 < wanted - plain <= HIDDEN_TAIL
        fits = plain == wanted or (not holds and likeliest_cut(data[index], wanted, vocabulary))
        sizes.append(wanted if fits else plain)
        held = wanted - plain if holds else 0
    return sizes, held
