"""Compare a fast encoder with the family's own on every hundredth text of a job; a difference ends its use."""

from collections.abc import Iterable
from typing import Final

from eagletui.tokens.load import Tokenizer

EVERY: Final = 100
"""One text in so many is encoded twice, beginning with the first."""

_MOST_CHARACTERS: Final = 100_000
"""Of one text; the family's own encoder needs a minute for 50 MB."""

DIFFERENCE: Final = "The fast encoder gave other ids than the tokenizer's own, which is slower and used from here on"


class LiveCheck:
    """Counts the texts of a job and compares its share of them."""

    def __init__(self) -> None:
        """Begin with nothing seen."""
        self._seen = 0

    def differs(self, tokenizer: Tokenizer, text: str) -> bool:
        """Take note of one more text, and tell whether the two encoders give it other ids."""
        is_due = self._seen % EVERY == 0
        self._seen += 1
        return is_due and not tokenizer.agrees_with_reference(text[:_MOST_CHARACTERS])


def checked(tokenizer: Tokenizer, texts: Iterable[str]) -> tuple[Tokenizer, bool]:
    """Compare before a job whose texts are all at hand.

    Args:
        tokenizer: as loaded.
        texts: every hundredth of the job's.

    Returns:
        The tokenizer to use, and whether the encoders differed.
    """
    if all(tokenizer.agrees_with_reference(text[:_MOST_CHARACTERS]) for text in texts):
        return tokenizer, False
    return tokenizer.without_stand_in(), True
