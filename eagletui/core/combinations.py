"""Weigh combinations of changes to a tokenization: the best ones, and the weight of all of them.

Changes that do not overlap are taken as independent: the weight of a combination is the sum of its changes', as natural
logs relative to the tokenization that is changed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from math import exp, inf, log
from typing import Final, NamedTuple, TypeVar

from eagletui.core.alternatives import Change

_Value = TypeVar("_Value")

SPREAD: Final = 12
"""On its way, a combination may be so many tokens shorter or longer than all that are named."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """A change and what it does."""

    change: Change
    weight: float
    """Log of how much more likely the answer is with it."""
    growth: int
    """Tokens more, or less."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """How many tokens more or less than the changed tokenization there may be."""

    weights: Mapping[int, float] = field(default_factory=dict)
    """Log weight of each number."""
    otherwise: float = 0.0
    """Log weight of any other; -inf where none may be."""

    def weight(self, growth: int) -> float:
        """Log weight of a number of tokens."""
        return self.weights.get(growth, self.otherwise)

    def beyond(self, growth: int) -> "Lengths":
        """The same, for a tokenization that has so many tokens more already."""
        return Lengths({number - growth: weight for number, weight in self.weights.items()}, self.otherwise)


class Combination(NamedTuple):
    """Changes that do not overlap, in order."""

    weight: float
    """With the weight of its length."""
    changes: tuple[Change, ...]


def best_combinations(weighed: Sequence[Weighed], lengths: Lengths, most: int) -> list[Combination]:
    """List the heaviest combinations, the heaviest first; no change at all is one of them."""

    def merged(one: list[Combination], other: list[Combination]) -> list[Combination]:
        return nlargest(most, [*one, *other], key=lambda way: way.weight)

    def extended(ways: list[Combination], added: Weighed) -> list[Combination]:
        return [Combination(way.weight + added.weight, (*way.changes, added.change)) for way in ways]

    by_growth = _swept(weighed, lengths, [Combination(0.0, ())], merged, extended)
    found = [
        Combination(way.weight + lengths.weight(growth), way.changes)
        for growth, ways in by_growth.items()
        if lengths.weight(growth) > -inf
        for way in ways
    ]
    return nlargest(most, found, key=lambda way: way.weight)


def log_total(weighed: Sequence[Weighed], lengths: Lengths) -> float:
    """Log of the weight of all combinations together; -inf where there is none."""
    totals = _swept(weighed, lengths, 0.0, log_sum, lambda total, added: total + added.weight)
    return log_sum(*(total + lengths.weight(growth) for growth, total in totals.items()))


def log_sum(*terms: float) -> float:
    """Log of the sum of exponentials; -inf without terms."""
    top = max(terms, default=-inf)
    return top if top == -inf else top + log(sum(exp(term - top) for term in terms))


def _swept(
    weighed: Sequence[Weighed],
    lengths: Lengths,
    nothing: _Value,
    merged: Callable[[_Value, _Value], _Value],
    extended: Callable[[_Value, Weighed], _Value],
) -> dict[int, _Value]:
    """Go over the bytes once and return a value for each growth.

    Args:
        weighed: changes.
        lengths: bounds how far a growth may stray.
        nothing: the value of no change.
        merged: of two sets of combinations that have none in common.
        extended: of combinations with one more change behind them.
    """
    named = [0, *lengths.weights]
    low, high = min(named) - SPREAD, max(named) + SPREAD
    ending: dict[int, list[Weighed]] = {}
    for one in weighed:
        ending.setdefault(one.change.end, []).append(one)
    starts = {one.change.start for one in weighed}
    here: dict[int, _Value] = {0: nothing}
    at_start: dict[int, dict[int, _Value]] = {}
    for offset in sorted({*starts, *ending}):
        after = dict(here)
        for one in ending.get(offset, ()):
            for growth, value in at_start[one.change.start].items():
                grown = growth + one.growth
                if low <= grown <= high:
                    made = extended(value, one)
                    after[grown] = merged(after[grown], made) if grown in after else made
        here = after
        if offset in starts:
            at_start[offset] = here
    return here
