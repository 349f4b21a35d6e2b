"""How tool arguments are spelled as JSON. A server that parses them and writes them again leaves one spelling only."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from eagletui.core.codecs import escape_string, is_object, plain_string, respace

Spacing = Literal["spaced", "compact", "other"]
Respelling = Literal["spaced", "compact", "escaped", "compact and escaped", "plain"]

RESPELLINGS: Final[tuple[Respelling, ...]] = ("compact", "spaced", "escaped", "compact and escaped", "plain")
"""Other ways in which a model may have written arguments that a server wrote again."""

ENOUGH: Final = 20
"""Calls from which a histogram of spellings says anything."""

_ALL: Final = 0.95
"""Share of calls from which a spelling is the only one."""

_FEW: Final = 0.5
"""Share of the other endpoints' calls below which that spelling is not the model's own."""

_ESCAPE: Final = re.compile(r"\\u(?!00[0-7])[0-9a-fA-F]{4}")
"""The escape of a character beyond ASCII."""


def spacing_of(arguments: str) -> Spacing | None:
    """Say how a JSON object is spaced; None where it shows no spacing."""
    if not is_object(arguments):
        return None
    spaced, compact = respace(arguments, ", ", ": ", str), respace(arguments, ",", ":", str)
    if spaced == compact:
        return None
    return "spaced" if arguments == spaced else "compact" if arguments == compact else "other"


def respelled(arguments: str, how: Respelling) -> str:
    """Write the same JSON value in another spelling; text that is no JSON object stays."""
    if not is_object(arguments):
        return arguments
    match how:
        case "spaced":
            return respace(arguments, ", ", ": ", str)
        case "compact":
            return respace(arguments, ",", ":", str)
        case "escaped":
            return respace(arguments, ", ", ": ", escape_string)
        case "compact and escaped":
            return respace(arguments, ",", ":", escape_string)
        case "plain":
            return respace(arguments, ", ", ": ", plain_string)


@dataclass(frozen=True, slots=True)
class Histogram:
    """The spellings of one endpoint's calls."""

    spacings: Counter[str]
    """Calls by spacing; those that show none are left out."""
    escaped: int
    """Calls that write characters beyond ASCII as escapes only."""
    beyond_ascii: int
    """Calls that hold such characters at all."""

    @classmethod
    def of(cls, calls: Iterable[str]) -> "Histogram":
        """Count the arguments of calls."""
        spacings: Counter[str] = Counter()
        escaped = beyond = 0
        for arguments in calls:
            spacing = spacing_of(arguments)
            if spacing is not None:
                spacings[spacing] += 1
            escapes = _ESCAPE.search(arguments) is not None
            beyond += escapes or not arguments.isascii()
            escaped += escapes and arguments.isascii()
        return cls(spacings, escaped, beyond)

    def __add__(self, other: "Histogram") -> "Histogram":
        """Both together."""
        return Histogram(
            self.spacings + other.spacings, self.escaped + other.escaped, self.beyond_ascii + other.beyond_ascii
        )


def rewriting(mine: Histogram, others: Histogram) -> tuple[str, int, int] | None:
    """Say what shows that an endpoint writes arguments again.

    Args:
        mine: of the endpoint.
        others: of all other endpoints together.

    Returns:
        What it does, with the number of calls that show it and of calls that were looked at; None where nothing does.
    """
    if mine.beyond_ascii >= ENOUGH and mine.escaped >= _ALL * mine.beyond_ascii:
        return "write every character beyond ASCII as an escape", mine.escaped, mine.beyond_ascii
    total, all_others = mine.spacings.total(), others.spacings.total()
    if total < ENOUGH or all_others < total:  # what most calls show is the model's own
        return None
    spacing, number = mine.spacings.most_common(1)[0]
    if spacing == "other" or number < _ALL * total or others.spacings[spacing] >= _FEW * all_others:
        return None
    words = f"are {spacing}, as they are on other endpoints in {others.spacings[spacing]} of {all_others}"
    return words, number, total
