"""Other ways to cut the bytes of an answer into tokens: which pieces may begin where, and what a change replaces.

Every alternative stands for the same bytes with the same special tokens at the same places. Behind the bytes of a cut
answer stands a mark for the tokens that the cut hides; the first of them may begin before the end of the text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from eagletui.core.hidden_tail import Tails, hidden_by
from eagletui.core.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Change:
    """Other pieces for a stretch of the bytes: a token split, tokens merged, a cut moved."""

    start: int
    """First byte."""
    end: int
    """Byte behind the last one. Both are boundaries of the tokenization that is changed."""
    ids: tuple[int, ...]
    """The new pieces of the stretch."""


class Lattice:
    """The bytes of one answer, and the pieces that may begin at each of them."""

    def __init__(self, ids: Sequence[int], vocabulary: Vocabulary, tails: Tails | None = None) -> None:
        """Take the bytes of a tokenization; its special tokens stay where they are in every other one.

        Args:
            ids: output ids.
            vocabulary: must know them.
            tails: what a cut may hide; then every other tokenization ends with a mark.
        """
        self._vocabulary = vocabulary
        self._tails = tails
        self.data = vocabulary.decode(ids)
        self.end = len(self.data) + (tails is not None)
        """Byte behind the text, and behind the mark where there is one."""
        bounds = self.boundaries(ids)
        self._given = dict(zip(bounds, ids, strict=False))
        self._walls = self._nearest_walls()
        self._known: dict[int, dict[int, int]] = {}

    def pieces(self, offset: int) -> Mapping[int, int]:
        """List the tokens and marks that may begin at a byte, with the byte behind each; none at the end."""
        known = self._known.get(offset)
        if known is None:
            known = self._known[offset] = self._pieces(offset)
        return known

    def boundaries(self, ids: Sequence[int]) -> list[int]:
        """Byte offsets where the tokens of a tokenization begin, and the end."""
        is_marked = bool(ids) and ids[-1] < 0
        real = ids[:-1] if is_marked else ids
        found = [0, *accumulate(len(self._vocabulary.bytes_of(token_id)) for token_id in real)]
        return [*found, self.end] if is_marked else found

    def first_hidden(self, offset: int) -> Mapping[int, float]:
        """List the tokens that may begin at a byte and are not shown whole, with the log weight of each."""
        tails = self._tails
        if tails is None or not len(self.data) - tails.pieces.longest_front <= offset <= len(self.data):
            return {}
        return tails.first(self.data[offset:]) if self._walls[offset] == len(self.data) else {}

    def _pieces(self, offset: int) -> dict[int, int]:
        marks = self._marks(offset)
        if offset >= len(self.data):
            return marks
        given = self._given.get(offset)
        found = {} if given is None else {given: offset + len(self._vocabulary.bytes_of(given))}
        if given is not None and self._vocabulary.is_special(given):
            return found
        last = min(self._walls[offset], offset + self._vocabulary.max_piece_bytes)
        for end in range(last, offset, -1):
            piece = self._vocabulary.id_of(self.data[offset:end])
            if piece is not None:
                found[piece] = end
        return found | marks

    def _marks(self, offset: int) -> dict[int, int]:
        """List the marks that may begin at a byte, with the byte behind each."""
        if self._tails is None or offset > len(self.data):
            return {}
        if offset == len(self.data):
            return dict.fromkeys(self._tails.marks, self.end)
        hides = bool(self.first_hidden(offset))
        return {a_mark: self.end for a_mark in self._tails.marks if hidden_by(a_mark) > 0} if hides else {}

    def _nearest_walls(self) -> list[int]:
        """For each byte, where the next special token begins, or the end."""
        walls = [len(self.data)] * (len(self.data) + 1)
        for offset in range(len(self.data) - 1, -1, -1):
            given = self._given.get(offset)
            is_wall = given is not None and self._vocabulary.is_special(given)
            walls[offset] = offset if is_wall else walls[offset + 1]
        return walls


def replaced(ids: Sequence[int], changes: Sequence[Change], lattice: Lattice) -> tuple[int, ...]:
    """Apply changes to a tokenization.

    Args:
        ids: the tokenization that they change.
        changes: in order, not overlapping.
        lattice: of the same bytes.

    Raises:
        ValueError: a change overlaps the one before it, or does not begin and end at a boundary.
    """
    index_at = {offset: index for index, offset in enumerate(lattice.boundaries(ids))}
    made: list[int] = []
    done = 0
    for change in changes:
        if change.start not in index_at or change.end not in index_at or index_at[change.start] < done:
            raise ValueError(f"bytes {change.start} to {change.end} are no stretch of whole tokens")
        made += ids[done : index_at[change.start]]
        made += change.ids
        done = index_at[change.end]
    return (*made, *ids[done:])


def differences(ids: Sequence[int], other: Sequence[int], lattice: Lattice) -> tuple[Change, ...]:
    """List the changes that turn a tokenization into another of the same bytes, each as small as possible."""
    index_at = {offset: index for index, offset in enumerate(lattice.boundaries(ids))}
    found: list[Change] = []
    start = mine = theirs = 0
    for index, offset in enumerate(lattice.boundaries(other)):
        if offset not in index_at:
            continue
        run = tuple(other[theirs:index])
        if run != tuple(ids[mine : index_at[offset]]):
            found.append(Change(start, offset, run))
        start, mine, theirs = offset, index_at[offset], index
    return tuple(found)


def disjoint(changes: Sequence[Change]) -> list[Change]:
    """Order changes by place and leave out each that overlaps the one before it."""
    kept: list[Change] = []
    for change in sorted(changes, key=lambda change: (change.start, change.end)):
        if not kept or change.start >= kept[-1].end:
            kept.append(change)
    return kept
