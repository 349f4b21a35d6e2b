"""Byte-level segmentation under constraints: how many ways bytes can be cut into vocabulary pieces.

Only uniqueness is proof. Counts are capped at two, because two ways prove as little as a million.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from eagletui.core.vocabulary import Vocabulary

MANY: Final = 2
"""Cap of every count of ways."""

_WORK_LIMIT: Final = 60_000
"""Bytes times pieces beyond which a stretch is not examined; so long a stretch is never unique."""


class Ways(NamedTuple):
    """How many segmentations there are, and one of them."""

    number: int
    """0, 1 or `MANY`."""
    ids: tuple[int, ...]
    """A segmentation; empty when there is none."""


NONE: Final = Ways(0, ())


def segmentations(
    data: bytes,
    size: int,
    vocabulary: Vocabulary,
    *,
    last_id: int | None = None,
    known: Mapping[int, int] | None = None,
    held_back: int = 0,
) -> Ways:
    """Count the ways to cut bytes into a given number of vocabulary pieces.

    Args:
        data: the bytes to cover.
        size: how many pieces.
        vocabulary: ordinary pieces only.
        last_id: the last piece must be this token.
        known: ids at known positions, 0-based.
        held_back: the first so many pieces together must end inside a character, because a server had sampled
            them and did not yet show them.

    Returns:
        The capped count with one segmentation.
    """
    fixed = dict(known or {})
    if last_id is not None:
        fixed[size - 1] = last_id
    if size < 1 or held_back >= size or size > len(data) or size * vocabulary.max_piece_bytes < len(data):
        return NONE
    if size == 1 and not fixed and not held_back:
        return single(data, vocabulary)
    if len(data) * size > _WORK_LIMIT:
        return Ways(MANY, ())
    pieces = _pieces_by_start(data, vocabulary)
    here: dict[int, Ways] = {len(data): Ways(1, ())}
    for position in range(size - 1, -1, -1):
        before: dict[int, Ways] = {}
        for start in range(len(data) - 1 if position else 0, -1, -1):
            if position and position == held_back and not _inside_character(data, start):
                continue
            count = 0
            chosen: tuple[int, ...] = ()
            for end, token_id in pieces[start]:
                rest = here.get(end)
                if rest is None or fixed.get(position, token_id) != token_id:
                    continue
                if not count:
                    chosen = (token_id, *rest.ids)
                count += rest.number * (MANY if vocabulary.is_shared(data[start:end]) else 1)
                if count >= MANY:
                    break
            if count:
                before[start] = Ways(min(count, MANY), chosen)
        here = before
    return here.get(0, NONE)


def single(data: bytes, vocabulary: Vocabulary) -> Ways:
    """The ways to read bytes as one ordinary token: what `segmentations` says of size 1."""
    token_id = vocabulary.id_of(data)
    if token_id is None:
        return NONE
    return Ways(MANY if vocabulary.is_shared(data) else 1, (token_id,))


def smallest(data: bytes, vocabulary: Vocabulary) -> int | None:
    """The least number of pieces that cover the bytes, or None when nothing does."""
    if vocabulary.id_of(data) is not None:
        return 1
    pieces = _pieces_by_start(data, vocabulary)
    least: list[int | None] = [None] * len(data) + [0]
    for start in range(len(data) - 1, -1, -1):
        ends = [rest for end, _ in pieces[start] if (rest := least[end]) is not None]
        least[start] = min(ends) + 1 if ends else None
    return least[0]


def assignments(groups: Sequence[Mapping[int, Ways]], total: int) -> tuple[int, tuple[tuple[int, ...], ...]]:
    """Count the ways to segment several stretches whose sizes are known only in sum.

    Args:
        groups: per stretch, the ways by size. Sizes without a way may be left out.
        total: the sum of the sizes.

    Returns:
        The capped count, and one choice of ids per stretch when there is any.
    """
    reach: dict[int, tuple[int, tuple[tuple[int, ...], ...]]] = {0: (1, ())}
    for group in groups:
        after: dict[int, tuple[int, tuple[tuple[int, ...], ...]]] = {}
        for done, (count, chosen) in reach.items():
            for size, ways in group.items():
                if not ways.number or done + size > total:
                    continue
                known_count, known = after.get(done + size, (0, (*chosen, ways.ids)))
                after[done + size] = (min(MANY, known_count + count * ways.number), known)
        reach = after
    return reach.get(total, (0, ()))


def _pieces_by_start(data: bytes, vocabulary: Vocabulary) -> list[list[tuple[int, int]]]:
    """For each offset, the pieces that begin there as (end, id), longest first."""
    found: list[list[tuple[int, int]]] = []
    for start in range(len(data)):
        longest = min(len(data), start + vocabulary.max_piece_bytes)
        row = [
            (end, token_id)
            for end in range(longest, start, -1)
            if (token_id := vocabulary.id_of(data[start:end])) is not None
        ]
        found.append(row)
    return found


def _inside_character(data: bytes, offset: int) -> bool:
    """Tell whether an offset lies inside a UTF-8 character."""
    return offset < len(data) and data[offset] & 0xC0 == 0x80
