"""Tokens that a cut inside a character hides: sampled and billed, and shown by no server as what they are.

The first of them may hold whole characters before the unfinished one. Some servers show those, so that the text ends
inside that token; others hold all of it back until its last character is whole, which the cut prevents.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import log
from typing import Final

from eagletui.core.fidelity import HIDDEN_TAIL
from eagletui.core.vocabulary import Vocabulary

EITHER: Final = log(0.5)
"""Log weight of what only servers of one kind would show; which kind a server is, nobody says."""

_NOTHING: Final = b""


class UnfinishedPieces:
    """The pieces of a vocabulary that may stand in the hidden tail of a cut answer."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        """Take the vocabulary."""
        self._vocabulary = vocabulary

    def following(self, tail: bytes) -> tuple[int, ...]:
        """List the pieces after which the tail is still no whole character.

        Args:
            tail: hidden so far; empty at the end of the text that is shown.
        """
        if not tail:
            return self._by_front.get(_NOTHING, ())
        return tuple(
            token_id for token_id in self._continuing if is_unfinished(tail + self._vocabulary.bytes_of(token_id))
        )

    def beginning(self, shown: bytes) -> tuple[int, ...]:
        """List the pieces that are these bytes with the beginning of a character behind them."""
        return self._by_front.get(shown, ())

    @cached_property
    def held_back(self) -> tuple[int, ...]:
        """Pieces that are whole characters with the beginning of another behind them."""
        return tuple(token_id for front, ids in self._by_front.items() if front and _is_text(front) for token_id in ids)

    @cached_property
    def longest_front(self) -> int:
        """Most bytes that a piece has before an unfinished character."""
        return max(map(len, self._by_front), default=0)

    @cached_property
    def _by_front(self) -> Mapping[bytes, tuple[int, ...]]:
        found: dict[bytes, list[int]] = {}
        for token_id, piece in enumerate(self._vocabulary.pieces):
            size = unfinished_bytes(piece) if piece else 0
            if piece and size:
                found.setdefault(piece[:-size], []).append(token_id)
        return {front: tuple(ids) for front, ids in found.items()}

    @cached_property
    def _continuing(self) -> list[int]:
        pieces = enumerate(self._vocabulary.pieces)
        return [token_id for token_id, piece in pieces if piece and len(piece) <= 3 and piece[0] & 0xC0 == 0x80]


@dataclass(frozen=True, slots=True)
class Tails:
    """The hidden tails that one cut answer may have."""

    pieces: UnfinishedPieces
    shown: bool
    """The server showed that there is one, so it shows all whole characters before it."""

    def first(self, behind: bytes) -> dict[int, float]:
        """List the tokens that a tail may begin with, with the log weight of each.

        Args:
            behind: the last bytes of the text that are part of that token; empty where it shows nothing of it.
        """
        if behind:
            return dict.fromkeys(self.pieces.beginning(behind), 0.0 if self.shown else EITHER)
        found = dict.fromkeys(self.pieces.following(b""), 0.0)
        return found if self.shown else {**found, **dict.fromkeys(self.pieces.held_back, EITHER)}

    @property
    def marks(self) -> tuple[int, ...]:
        """What may stand for the tail behind the whole text."""
        return tuple(mark(hidden) for hidden in range(1 if self.shown else 0, HIDDEN_TAIL + 1))


def mark(hidden: int) -> int:
    """What stands for a tail of so many hidden tokens, whichever they are, behind the ids of an answer: no real id."""
    return -1 - hidden


def hidden_by(token_id: int) -> int:
    """Tokens that a mark stands for."""
    return -1 - token_id


def count_tokens(ids: Iterable[int]) -> int:
    """Count tokens, those that marks stand for among them."""
    return sum(1 if token_id >= 0 else hidden_by(token_id) for token_id in ids)


def without_mark(ids: tuple[int, ...]) -> tuple[int, ...]:
    """Take the mark off the end of ids."""
    return ids[:-1] if ids and ids[-1] < 0 else ids


def is_unfinished(data: bytes) -> bool:
    """Tell whether bytes are the beginning of a UTF-8 character and not all of it."""
    if not data:
        return False
    lead = data[0]
    size = 2 if 0xC2 <= lead <= 0xDF else 3 if 0xE0 <= lead <= 0xEF else 4 if 0xF0 <= lead <= 0xF4 else 0
    return len(data) < size and all(byte & 0xC0 == 0x80 for byte in data[1:])


def unfinished_bytes(data: bytes) -> int:
    """Count the last bytes that are the beginning of a character and not all of it."""
    return next((size for size in (1, 2, 3) if is_unfinished(data[-size:]) and len(data) >= size), 0)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
