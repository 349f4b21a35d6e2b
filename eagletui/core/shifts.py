"""When has an endpoint's output changed? Rates and means of its last answers against what is usual.

What is usual is learned: the endpoint's own earlier answers, and those of other endpoints, to prompts of the same kind.
An answer's own fault proves nothing; a share of faults that chance does not explain does. Chance is bounded without
knowing a distribution: shares by the Chernoff bound, means by their spread, both so far out that none of 100,000 sound
answers trips one.
"""

import math
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from eagletui.core.answer_traits import TRAITS, Trait, Traits

RECENT: Final = 40
"""A coarse change shows in so many answers."""
WINDOW: Final = 150
"""A fine one in so many; earlier answers are the past."""
LEAST_PAST: Final = 60
"""Answers that must have gone before."""
FORGET_AT: Final = 2_000
"""Answers of one kind of prompt after which older ones count half."""
KINDS_OF_PROMPT: Final = 200
"""Kinds of prompt that are told apart; further ones are one kind."""
OTHER_PROMPTS: Final = "..."

_LEAST_AFFECTED: Final = 6
_LEAST_APPLICABLE: Final = 15
_LEAST_SHARED: Final = 10
_LEAST_FAULTY: Final = 3
"""Fewer faults are not looked into."""
_LEAST_PAST_FAULTS: Final = 20
"""Past answers that a share of faults needs: what is usual is then known to be small."""
_ABOVE_CEILING_NATS: Final = 10.0
_UNLIKELY_FAULT: Final = 18.0
"""Nats of the Chernoff bound: less likely than 2e-8."""
_UNLIKELY_SHARE: Final = 16.0
_DEVIATIONS: Final = 7.0
_CONTEXT_DEVIATIONS: Final = 4.5
_BEYOND_OTHERS: Final = 1.5
"""An endpoint must leave the others by so many times what it must leave its own past."""
_SMALLEST_SPREAD: Final = 0.02


@dataclass(slots=True)
class Moments:
    """Count, sum and sum of squares of every trait over some answers."""

    counts: "array[float]" = field(default_factory=lambda: array("d", bytes(8 * len(TRAITS))))
    totals: "array[float]" = field(default_factory=lambda: array("d", bytes(8 * len(TRAITS))))
    squares: "array[float]" = field(default_factory=lambda: array("d", bytes(8 * len(TRAITS))))
    answers: float = 0.0

    def add(self, values: Sequence[float | None]) -> None:
        """Add one answer."""
        self.answers += 1
        for index, value in enumerate(values):
            if value is not None:
                self.counts[index] += 1
                self.totals[index] += value
                self.squares[index] += value * value

    def take_back(self, values: Sequence[float | None]) -> None:
        """Take away an answer that was added."""
        self.answers -= 1
        for index, value in enumerate(values):
            if value is not None:
                self.counts[index] -= 1
                self.totals[index] -= value
                self.squares[index] -= value * value

    def fade(self) -> None:
        """Let everything so far count half."""
        self.answers /= 2
        for column in (self.counts, self.totals, self.squares):
            column[:] = array("d", (value / 2 for value in column))


Strata = dict[str, Moments]
"""Moments by kind of prompt."""


def learn(past: Strata, answer: Traits) -> None:
    """Add an answer to what is usual; memory stays bounded, and old answers fade."""
    stratum = answer.stratum if answer.stratum in past or len(past) < KINDS_OF_PROMPT else OTHER_PROMPTS
    moments = past.setdefault(stratum, Moments())
    moments.add(answer.values)
    if moments.answers >= FORGET_AT:
        moments.fade()


def gathered(answers: Iterable[Traits]) -> Strata:
    """Return the moments of some answers."""
    found: Strata = {}
    for answer in answers:
        found.setdefault(answer.stratum, Moments()).add(answer.values)
    return found


def pooled(several: Iterable[Strata], kinds: Collection[str]) -> Strata:
    """Add what is usual in several places for some kinds of prompt."""
    found: Strata = {}
    for strata in several:
        for stratum in kinds:
            moments = strata.get(stratum)
            if moments is None:
                continue
            into = found.setdefault(stratum, Moments())
            into.answers += moments.answers
            for mine, other in (
                (into.counts, moments.counts),
                (into.totals, moments.totals),
                (into.squares, moments.squares),
            ):
                for index, value in enumerate(other):
                    mine[index] += value
    return found


@dataclass(frozen=True, slots=True)
class Comparison:
    """One trait of some answers against what is usual for the same kinds of prompt."""

    answers: float
    mean: float
    usual: float
    usual_answers: float
    error: float
    """Standard deviation of `mean - usual` if nothing had changed."""

    @property
    def change(self) -> float:
        """How far the mean has moved."""
        return self.mean - self.usual


NOTHING: Final = Comparison(0, 0.0, 0.0, 0, math.inf)


def compare(seen: Strata, usual: Mapping[str, Moments], index: int, same_prompts: float = 1.0) -> Comparison:
    """Compare one trait, kind of prompt by kind of prompt.

    Args:
        seen: of the answers in question.
        usual: what they are compared with.
        index: of the trait.
        same_prompts: answers per prompt in `seen`: answers to one prompt are alike and count as one.
    """
    answers = total = expected = within = spread = reference = uncertain = 0.0
    for stratum, mine in seen.items():
        theirs = usual.get(stratum)
        count = mine.counts[index]
        if not count or theirs is None or theirs.counts[index] < _LEAST_SHARED:
            continue
        others = theirs.counts[index]
        mean = theirs.totals[index] / others
        variance = max(0.0, theirs.squares[index] / others - mean * mean)
        answers += count
        total += mine.totals[index]
        expected += count * mean
        within += max(0.0, mine.squares[index] - mine.totals[index] ** 2 / count)
        spread += count * variance
        reference += others
        uncertain += count * count * variance / others
    if not answers:
        return NOTHING
    variance = max(within, spread) / answers + _SMALLEST_SPREAD**2
    error = math.sqrt(same_prompts * variance / answers + uncertain / (answers * answers))
    return Comparison(answers, total / answers, expected / answers, reference, error)


def bound_nats(share: float, usual: float, answers: float) -> float:
    """Return how unlikely it is that chance alone makes `usual` look like `share`, in nats of the Chernoff bound."""
    usual = min(max(usual, 1e-9), 1 - 1e-9)
    one = share * math.log(share / usual) if share > 0 else 0.0
    other = (1 - share) * math.log((1 - share) / (1 - usual)) if share < 1 else 0.0
    return answers * (one + other)


def has_left(trait: Trait, found: Comparison, *, times: float = 1.0, same_prompts: float = 1.0) -> bool:
    """Tell whether a trait has changed by more than matters and more than chance explains.

    Args:
        trait: which.
        found: its comparison.
        times: how many times the smallest change that matters it must be.
        same_prompts: answers per prompt.
    """
    change = found.change
    if (
        found.answers < _least(trait, _LEAST_AFFECTED, _LEAST_SHARED, _LEAST_APPLICABLE)
        or abs(change) < times * trait.least
    ):
        return False
    if found.usual_answers < _least(trait, _LEAST_PAST_FAULTS, _LEAST_PAST_FAULTS, LEAST_PAST):
        return False
    if trait.rule == "measure":
        return abs(change) > _DEVIATIONS * found.error
    # The usual share is itself an estimate: take the end of its range that lies nearer to what was seen.
    toward = math.copysign(1.0, change)
    doubt = math.sqrt(found.usual * (1 - found.usual) / found.usual_answers) + 1 / found.usual_answers
    nearest = found.usual + toward * (2.0 if trait.rule == "fault" else 1.5) * doubt
    nats = bound_nats(found.mean, nearest, found.answers / same_prompts)
    if toward * (found.mean - nearest) <= 0:
        return False
    if trait.rule == "fault":
        return change > 0 and found.mean * found.answers >= _LEAST_AFFECTED and nats > _UNLIKELY_FAULT
    return nats > _UNLIKELY_SHARE


def above_ceiling(trait: Trait, index: int, seen: Strata) -> tuple[float, float] | None:
    """Return how many of how many answers have a fault, where that is more than any usual share."""
    if trait.ceiling is None:
        return None
    answers = sum(moments.counts[index] for moments in seen.values())
    faulty = sum(moments.totals[index] for moments in seen.values())
    if faulty <= trait.ceiling * answers:
        return None
    if bound_nats(faulty / answers, trait.ceiling / 2, answers) < _ABOVE_CEILING_NATS:
        return None
    return faulty, answers


def _least(trait: Trait, faults: int, shares: int, measures: int) -> int:
    return {"fault": faults, "share": shares}.get(trait.rule, measures)


def prompts_moved(seen: Strata, past: Strata) -> bool:
    """Tell whether other prompts are asked than before: then other answers are no fault of the endpoint."""
    for index, trait in enumerate(TRAITS):
        if trait.rule == "context":
            found = compare(seen, past, index)
            if found.answers >= _LEAST_APPLICABLE and abs(found.change) > _CONTEXT_DEVIATIONS * found.error:
                return True
    return False


@dataclass(frozen=True, slots=True)
class Shift:
    """One trait that changed."""

    trait: Trait
    against: str
    """`past`, `others` or `ceiling`."""
    mean: float
    usual: float
    looked: int
    """At so many of the last answers."""


def shifts(
    window: Sequence[Traits],
    recent: Strata,
    past: Strata,
    others: Strata,
    others_now: Sequence[tuple[Strata, Strata]] = (),
    same_prompts: float = 1.0,
) -> list[Shift]:
    """Judge the last answers of an endpoint.

    Args:
        window: oldest first, at most `WINDOW`.
        recent: their moments.
        past: its own earlier answers.
        others: what is usual elsewhere.
        others_now: of each other endpoint its last answers and its own past: what changed there too is the prompts'.
        same_prompts: answers per prompt.
    """
    found: dict[str, Shift] = {}
    for looked in dict.fromkeys((min(RECENT, len(window)), len(window))):
        seen = recent if looked == len(window) else gathered(window[-looked:])
        moved = prompts_moved(seen, past)
        for index, trait in enumerate(TRAITS):
            if trait.rule == "context" or trait.name in found:
                continue
            shift = _shift(trait, index, seen, past, others, others_now, moved, same_prompts, looked)
            if shift is not None:
                found[trait.name] = shift
    return list(found.values())


def _shift(
    trait: Trait,
    index: int,
    seen: Strata,
    past: Strata,
    others: Strata,
    others_now: Sequence[tuple[Strata, Strata]],
    moved: bool,
    same_prompts: float,
    looked: int,
) -> Shift | None:
    if trait.rule == "fault" and sum(moments.totals[index] for moments in seen.values()) < _LEAST_FAULTY:
        return None
    above = above_ceiling(trait, index, seen)
    if above is not None:
        faulty, answers = above
        return Shift(trait, "ceiling", faulty / answers, trait.ceiling or 0.0, looked)
    elsewhere = compare(seen, others, index, same_prompts)
    if has_left(trait, elsewhere, times=_BEYOND_OTHERS, same_prompts=same_prompts):
        return Shift(trait, "others", elsewhere.mean, elsewhere.usual, looked)
    own = compare(seen, past, index, same_prompts)
    if not has_left(trait, own, same_prompts=same_prompts):
        return None
    if moved and trait.rule != "fault":
        return None
    if elsewhere.usual_answers >= LEAST_PAST and not _differs(trait, elsewhere):
        return None
    for now, before in others_now:
        there = compare(now, before, index)
        if there.answers >= _LEAST_APPLICABLE and there.change * own.change > 0:
            if abs(there.change) >= max(0.5 * trait.least, 0.5 * abs(own.change)):
                return None
    return Shift(trait, "past", own.mean, own.usual, looked)


def _differs(trait: Trait, found: Comparison) -> bool:
    return abs(found.change) >= 0.5 * trait.least
