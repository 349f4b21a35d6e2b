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
    that are there first; all strata are taken from in step until the budget ends, past samples that are longer than
    what is left of it. So each has its share of the tokens, and a sample chosen once stays chosen while its stratum
    keeps its size.

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
        if candidates[index].tokens <= left:
            left -= candidates[index].tokens
            chosen.append(index)
    return sorted(chosen)


def nothing_fits(candidates: Sequence[Candidate], budget_tokens: int) -> str | None:
    """Say why nothing at all can be chosen, one sentence; None where something can, or is there already."""
    if not candidates or any(candidate.is_there or candidate.tokens <= budget_tokens for candidate in candidates):
        return None
    shortest = min(candidate.tokens for candidate in candidates)
    return f"No sample fits into a budget of {budget_tokens:,} tokens: the shortest has {shortest:,}."


def _rank(key: str) -> bytes:
    """Order keys in a way that has nothing to do with what they say."""
    return hashlib.blake2b(key.encode(), digest_size=8).digest()
