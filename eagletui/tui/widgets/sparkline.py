"""A curve in one line: a block of one of eight heights for each value."""

from collections.abc import Sequence
from itertools import pairwise

from eagletui.tui.theme import Glyphs


def sparkline(values: Sequence[float], cells: int, glyphs: Glyphs) -> str:
    """Draw the newest values as one block each, scaled from zero to their maximum."""
    shown = values[-cells:] if cells > 0 else ()
    top = max(shown, default=0.0)
    if top <= 0:
        return glyphs.sparks[0] * len(shown)
    steps = len(glyphs.sparks) - 1
    return "".join(glyphs.sparks[round(max(0.0, value) / top * steps)] for value in shown)


def bucket(values: Sequence[float], cells: int) -> list[float]:
    """Average a long series into at most so many values."""
    if cells <= 0:
        return []
    if len(values) <= cells:
        return list(values)
    edges = [round(index * len(values) / cells) for index in range(cells + 1)]
    return [sum(values[start:end]) / (end - start) for start, end in pairwise(edges) if end > start]
