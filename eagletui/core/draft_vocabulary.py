"""Which of the target's tokens a draft model predicts, chosen by how often the target sampled them.

Trainers exchange the choice as two arrays: `d2t` int64 [D], where draft token `i` is target token `i + d2t[i]`, and
`t2d` bool [V], true at the chosen target tokens. The rule is that of speculators 0.9.0
(`build_vocab_mappings_from_distribution`); SpecForge 0.2.0 chooses alike, save for ties.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from eagletui.core.errors import InputError

DEFAULT_SIZE: Final = 32_000
"""What every trainer takes where nothing is said."""


@dataclass(frozen=True, slots=True)
class DraftVocabulary:
    """A choice of target tokens."""

    target_size: int
    """Rows of the target's embedding, V."""
    ids: tuple[int, ...]
    """Chosen target ids, growing; length D."""

    @property
    def size(self) -> int:
        """Tokens of the draft model, D."""
        return len(self.ids)

    def offsets(self) -> list[int]:
        """Return `d2t`: what to add to a draft id for its target id."""
        return [target - draft for draft, target in enumerate(self.ids)]

    def coverage(self, counts: Mapping[int, int]) -> float:
        """Return the share of sampled tokens that the draft model can predict; 1 where there are none."""
        total = sum(counts.values())
        return sum(counts.get(token, 0) for token in self.ids) / total if total else 1.0


def choose_vocabulary(counts: Mapping[int, int], size: int, target_size: int) -> DraftVocabulary:
    """Take the most frequent tokens, the lower id first among equals; fill up with the lowest ids left over.

    Args:
        counts: how often the target sampled each token; only positions under the loss mask count.
        size: tokens to take, D. A target with fewer is taken whole.
        target_size: the target's vocabulary, V.

    Raises:
        InputError: an id lies outside the target's vocabulary, or `size` is not positive.
    """
    if size < 1:
        raise InputError(f"A draft vocabulary of {size} tokens was asked for; at least 1 is expected.")
    outside = [token for token in counts if not 0 <= token < target_size]
    if outside:
        raise InputError(
            f"Token {max(outside, key=abs)} was sampled, but the target's vocabulary has {target_size} tokens: "
            "these ids are another model's."
        )
    wanted = min(size, target_size)
    sampled = sorted((token for token, count in counts.items() if count > 0), key=lambda token: (-counts[token], token))
    chosen = set(sampled[:wanted])
    for token in range(target_size):
        if len(chosen) == wanted:
            break
        chosen.add(token)
    return DraftVocabulary(target_size, tuple(sorted(chosen)))


def read_vocabulary(offsets: Sequence[int], marks: Sequence[bool]) -> DraftVocabulary:
    """Read a choice back from `d2t` and `t2d`.

    Raises:
        ValueError: they contradict each other; the message says how.
    """
    ids = tuple(draft + offset for draft, offset in enumerate(offsets))
    marked = tuple(token for token, is_chosen in enumerate(marks) if is_chosen)
    if len(ids) != len(marked):
        raise ValueError(f"d2t has {len(ids)} tokens, t2d marks {len(marked)}")
    if ids != marked:
        place = next(index for index, (one, other) in enumerate(zip(ids, marked, strict=True)) if one != other)
        raise ValueError(f"draft token {place} is target token {ids[place]} by d2t and {marked[place]} by t2d")
    return DraftVocabulary(len(marks), ids)
