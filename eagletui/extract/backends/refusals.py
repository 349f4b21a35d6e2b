"""Samples that a server gave no states for, and when it is the server and not they."""

from collections import Counter
from typing import Final, Literal

from eagletui.core.errors import ModelError

IN_A_ROW: Final = 10
"""So many end the extraction, whichever windows they are from."""

Fault = Literal["declined", "unanswered", "broken"]
"""`declined`: longer than the server says that it takes, which says nothing about the next one. `unanswered`: asked
again and again, it gave no answer that can be used. `broken`: states that are not finite, or zeros."""

_SAID: Final[dict[Fault, str]] = {"unanswered": "without a usable answer", "broken": "with broken states"}


class Unusable(ModelError):
    """The server cannot give what a record needs. Extraction ends; what is sealed stands."""


class Refusals:
    """Counts in the order of judgement. One thread may use it."""

    def __init__(self) -> None:
        """Begin with nothing asked."""
        self._given = 0
        self._refused: Counter[Fault] = Counter()
        self._in_a_row: Counter[Fault] = Counter()

    @property
    def in_a_row(self) -> int:
        """Faults of the server since it last gave states."""
        return self._in_a_row.total()

    def given(self) -> None:
        """Take note of a sample with states."""
        self._given += 1
        self._in_a_row.clear()

    def add(self, key: str, fault: Fault, why: str) -> None:
        """Take note of a sample without states.

        Args:
            key: of the sample.
            fault: its kind.
            why: one sentence.

        Raises:
            Unusable: there were so many in a row that the next ones would fare no better.
        """
        self._refused[fault] += 1
        if fault == "declined":
            return
        self._in_a_row[fault] += 1
        if self.in_a_row < IN_A_ROW:
            return
        kinds = ", ".join(f"{count} {_SAID[kind]}" for kind, count in self._in_a_row.items())
        raise Unusable(
            f"{self.in_a_row} samples in a row got no states: {kinds}; of {self._given + self._refused.total()} asked "
            f"for in all {self._given} got some. The last one, sample {key}: {why}"
        )
