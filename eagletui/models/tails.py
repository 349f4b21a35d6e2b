"""Weigh the tokens that a cut inside a character hides behind a text."""

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Final

from eagletui.core.combinations import log_sum
from eagletui.core.fidelity import HIDDEN_TAIL
from eagletui.core.hidden_tail import UnfinishedPieces, unfinished_bytes
from eagletui.core.vocabulary import Vocabulary
from eagletui.models.scoring import Ask

AT_ONCE: Final = 4
"""Hidden tokens that are followed to a next one; the others are taken to go on like these."""

FAINT: Final = -9.0
"""Log-probability of a hidden token below which longer tails are not looked at, and taken for as likely as they can be:
as the token itself."""

Grow = Callable[[Sequence[Ask]], tuple[range, list[dict[int, float]]]]
"""Puts tokens into the tree; returns their nodes, and the log-probabilities that were asked behind each."""


class HiddenTails:
    """The hidden tails of one answer."""

    def __init__(self, pieces: UnfinishedPieces, vocabulary: Vocabulary) -> None:
        """Take the pieces that tails are made of."""
        self._pieces = pieces
        self._vocabulary = vocabulary
        self._longer: dict[bytes, list[float]] = {}
        """How much less likely tails of 2, 3, ... tokens are than those of one, by the shown bytes of the first one."""

    def score(self, hidden: int, behind: bytes, node: int, first: Mapping[int, float], grow: Grow) -> float:
        """Log-probability that so many tokens without a whole character of their own follow a node.

        Args:
            hidden: tokens.
            behind: shown bytes of the first of them.
            node: that it follows.
            first: log weight of each token that may be the first.
            grow: puts tokens into the node's tree.
        """
        if hidden == 0:
            return 0.0
        one = log_sum(*first.values())
        if hidden == 1 or one < FAINT:
            return one
        if behind not in self._longer:
            self._longer[behind] = [total - one for total in self._followed(node, first, grow)]
        return one + self._longer[behind][hidden - 2]

    def _followed(self, node: int, first: Mapping[int, float], grow: Grow) -> list[float]:
        """Log-probability of tails of 2, 3, ... tokens."""
        totals: list[float] = []
        left_out = 0.0
        front = [(weight, node, token_id, self._tail(b"", token_id)) for token_id, weight in first.items()]
        for _ in range(HIDDEN_TAIL - 1):
            likely = sorted(front, key=lambda way: -way[0])[:AT_ONCE]
            if not likely:
                return totals + [-inf] * (HIDDEN_TAIL - 1 - len(totals))
            left_out += log_sum(*(way[0] for way in front)) - log_sum(*(way[0] for way in likely))
            asked = [Ask(parent, token_id, self._pieces.following(tail)) for _, parent, token_id, tail in likely]
            nodes, scores = grow(asked)
            front = [
                (weight + score, at, token_id, self._tail(tail, token_id))
                for (weight, *_, tail), at, of_node in zip(likely, nodes, scores, strict=True)
                for token_id, score in of_node.items()
            ]
            totals.append(log_sum(*(way[0] for way in front)) + left_out)
        return totals

    def _tail(self, tail: bytes, token_id: int) -> bytes:
        """The beginning of a character that is hidden with one more token."""
        if tail:
            return tail + self._vocabulary.bytes_of(token_id)
        piece = self._vocabulary.bytes_of(token_id)
        return piece[-unfinished_bytes(piece) :]
