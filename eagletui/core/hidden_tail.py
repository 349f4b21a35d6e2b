"""Tokens that a cut inside a character hides: sampled and billed, and shown by no server."""

from functools import cached_property

from eagletui.core.vocabulary import Vocabulary


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
            return tuple(self._starting)
        return tuple(
            token_id for token_id in self._continuing if is_unfinished(tail + self._vocabulary.bytes_of(token_id))
        )

    @cached_property
    def _starting(self) -> list[int]:
        return [token_id for token_id, piece in self._short if is_unfinished(piece)]

    @cached_property
    def _continuing(self) -> list[int]:
        return [token_id for token_id, piece in self._short if piece[0] & 0xC0 == 0x80]

    @cached_property
    def _short(self) -> list[tuple[int, bytes]]:
        pieces = enumerate(self._vocabulary.pieces)
        return [(token_id, piece) for token_id, piece in pieces if piece is not None and 0 < len(piece) <= 3]


def is_unfinished(data: bytes) -> bool:
    """Tell whether bytes are the beginning of a UTF-8 character and not all of it."""
    if not data:
        return False
    lead = data[0]
    size = 2 if 0xC2 <= lead <= 0xDF else 3 if 0xE0 <= lead <= 0xEF else 4 if 0xF0 <= lead <= 0xF4 else 0
    return len(data) < size and all(byte & 0xC0 == 0x80 for byte in data[1:])
