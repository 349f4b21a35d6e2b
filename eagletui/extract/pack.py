"""Choose which samples share a forward."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

_CPU_TOKENS: Final = (512, 1024)
"""Row lengths on a CPU, see `Budget`."""

_CPU_NUMBERS: Final = 2**21
"""Of the widest activation of a row on a CPU, 4 MiB in 16 bits, as long as the row does not get too short for it."""

_DEVICE_TOKENS: Final = 16_384
"""Row length elsewhere."""


class Budget(NamedTuple):
    """How long rows may be."""

    tokens: int
    """Whatever the samples."""
    beside_longer: int
    """Where a sample is so long, so that its row needs the most memory anyway."""

    def among(self, longest: int) -> int:
        """Return how long rows may be if the longest sample has `longest` tokens."""
        return max(self.tokens, min(self.beside_longer, longest))

    @classmethod
    def after(cls, tokens: int) -> "Budget":
        """Return the budget after a row of `tokens` was too long for the device: half of it, whatever the samples."""
        return cls(max(1, tokens // 2), max(1, tokens // 2))


def budget_of(device_kind: str, text_config: Any) -> Budget:
    """Return how long rows should be: long enough to fill the device, short enough for its caches and its memory.

    On a CPU the time to start operations counts in small models and the caches in large ones. Rows of 1,024 instead of
    512 tokens gave 4 % more tokens/s at an inner size of 2,048, 3 % more at 1,536 and 1.5 % less at 4,096 (torch 2.13,
    one thread of Zen 4 with bfloat16 units).

    Args:
        device_kind: `cpu` or `cuda`.
        text_config: transformers' config of the decoder.
    """
    if device_kind != "cpu":
        return Budget(_DEVICE_TOKENS, _DEVICE_TOKENS)
    inner = getattr(text_config, "intermediate_size", None)
    widest = inner if isinstance(inner, int) else 4 * int(text_config.hidden_size)
    least, most = _CPU_TOKENS
    return Budget(least, min(most, max(least, _CPU_NUMBERS // widest)))


def plan_packs(lengths: Sequence[int], budget_tokens: int) -> tuple[tuple[int, ...], ...]:
    """Fill rows of at most `budget_tokens`, longest samples first, each into the first row with room.

    Args:
        lengths: tokens per sample, each at least 1.
        budget_tokens: a row's limit; a longer sample gets a row of its own.

    Returns:
        indices into `lengths`, each once; ascending within a row. The row of the longest sample comes first, while
        nothing of another row is held: it needs the most memory.
    """
    rows: list[list[int]] = []
    room: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        length = lengths[index]
        row = next((number for number, free in enumerate(room) if free >= length), None)
        if row is None:
            rows.append([index])
            room.append(budget_tokens - length)
        else:
            rows[row].append(index)
            room[row] -= length
    return tuple(tuple(sorted(row)) for row in rows)
