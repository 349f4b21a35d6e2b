"""Choose samples up to a number of tokens, with every data set and length in its share."""

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Candidate:
    """One sample that may be chosen."""

    key: str
    dataset: str
    tokens: int
    """Prompt and output."""
    is_there: bool = False
    """It has features already: they count, whatever is chosen."""


def choose(candidates: Sequence[Candidate], budget_tokens: int) -> list[int]:
    """Choose a subset.

    Samples of a stratum (a data set, and lengths within a factor of two) stand in a fixed order of their own, those
    that are there first; all strata are taken from in step until the budget ends. So each has its share of the tokens,
    and a sample chosen once stays chosen while its stratum keeps its size.

    Args:
        candidates: all samples.
        budget_tokens: of those that are there and those that are chosen.

    Returns:
        Indices of the chosen samples that are not there, ascending.
    """
    strata: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for index, candidate in enumerate(candidates):
        strata[candidate.dataset, candidate.tokens.bit_length()].append(index)
    placed: list[tuple[float, str, int]] = []
    for members in strata.values():
        members.sort(key=lambda index: (not candidates[index].is_there, _rank(candidates[index].key)))
        total = sum(candidates[index].tokens for index in members)
        before = 0
        for index in members:
            candidate = candidates[index]
            placed.append(((before + candidate.tokens / 2) / max(1, total), candidate.key, index))
            before += candidate.tokens
    left = budget_tokens - sum(candidate.tokens for candidate in candidates if candidate.is_there)
    chosen = []
    for _, _, index in sorted(placed):
        if candidates[index].is_there:
            continue
        left -= candidates[index].tokens
        if left < 0:
            break
        chosen.append(index)
    return sorted(chosen)


def _rank(key: str) -> bytes:
    """Order keys in a way that has nothing to do with what they say."""
    return hashlib.blake2b(key.encode(), digest_size=8).digest()
