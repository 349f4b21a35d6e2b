"""What of a run waits for features: how many samples and tokens, how long the longest is, and which fit a budget."""

from collections.abc import Sequence
from typing import NamedTuple

from eagletui.core.errors import InputError
from eagletui.core.subset import Candidate, choose, nothing_fits
from eagletui.ledger.reader_features import CensusRow


class Backlog(NamedTuple):
    """What waits, and what is there."""

    samples: int
    """That wait."""
    tokens: int
    """Of those that wait, prompt and output."""
    present_tokens: int
    """Of samples that have features already."""


class Fitting(NamedTuple):
    """A choice of samples that fits a budget."""

    sample_ids: frozenset[int]
    """Chosen; none of them has features."""
    left_out: int
    """Samples without features that are not chosen."""


def count(census: Sequence[CensusRow], only: frozenset[int] | None) -> Backlog:
    """Count what waits.

    Args:
        census: of the run.
        only: samples that may be computed; None: all.
    """
    waiting = [row.tokens for row in census if not row.has_features and (only is None or row.sample_id in only)]
    return Backlog(len(waiting), sum(waiting), sum(row.tokens for row in census if row.has_features))


def longest_tokens(census: Sequence[CensusRow], at_least: int) -> int | None:
    """Return the tokens of the longest sample, with features or not, but at least so many; None for nothing at all."""
    return max([at_least, *(row.tokens for row in census)]) or None


def fit(census: Sequence[CensusRow], budget_tokens: int) -> Fitting:
    """Choose samples that fit a budget, in which those with features count.

    Raises:
        InputError: not even the shortest sample fits.
    """
    candidates = [Candidate(row.sample_key, row.dataset, row.tokens, is_there=row.has_features) for row in census]
    if why := nothing_fits(candidates, budget_tokens):
        raise InputError(why)
    chosen = choose(candidates, budget_tokens)
    waiting = sum(not row.has_features for row in census)
    return Fitting(frozenset(census[index].sample_id for index in chosen), waiting - len(chosen))
