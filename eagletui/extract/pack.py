"""Choose which samples share a forward."""

from collections.abc import Sequence


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
