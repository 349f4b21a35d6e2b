"""One run in several parts, each bought on a machine of its own: who asks which prompt, with how much of the money.

Every machine reads the same prompt files, so every one of them knows the whole and takes its share without talking to
the others. Prompts go round the parts in the order of the files; a sample has the same number in its part as it
would have in the whole, so parts are joined by laying them on top of each other.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

MOST_PARTS: Final = 1000

_WRITTEN: Final = re.compile(r"([0-9]{1,4})/([0-9]{1,4})")


@dataclass(frozen=True, slots=True)
class RunPart:
    """Part `number` of `of`."""

    number: int
    """1-based."""
    of: int
    """How many parts there are."""

    @classmethod
    def parse(cls, text: str) -> "RunPart":
        """Read `I/N`.

        Raises:
            ValueError: not a part; the message says what is expected.
        """
        match = _WRITTEN.fullmatch(text)
        if match is not None:
            number, of = int(match[1]), int(match[2])
            if 1 <= number <= of <= MOST_PARTS:
                return cls(number, of)
        raise ValueError(f"a part such as 1/4: which one, and of how many (at most {MOST_PARTS})")

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def takes(self, place: int) -> bool:
        """Tell whether a prompt belongs to this part.

        Args:
            place: 0-based among the prompts of the whole run.
        """
        return self.number_of(place) == self.number

    def number_of(self, place: int) -> int:
        """Return the part, 1-based, to which a prompt belongs.

        Each round of prompts starts one part later, so that files which alternate between kinds do not put one kind
        into one part.
        """
        return (place + place // self.of) % self.of + 1

    def share(self, amount: int, samples_by_part: Mapping[int, int]) -> int:
        """Return this part's share of an amount, by samples; the shares of all parts make exactly the amount.

        Args:
            amount: of the whole run, in any unit, zero or more.
            samples_by_part: samples of each part, by its 1-based number.
        """
        whole = sum(samples_by_part.values())
        if whole == 0:
            return 0
        before = sum(samples_by_part.get(number, 0) for number in range(1, self.number))
        here = samples_by_part.get(self.number, 0)
        return amount * (before + here) // whole - amount * before // whole
