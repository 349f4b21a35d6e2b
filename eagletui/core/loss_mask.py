"""Loss masks as run lengths: how many positions do not count, how many do, and so on in turn."""

from collections.abc import Iterable
from itertools import groupby


def run_lengths(mask: Iterable[int]) -> list[int]:
    """Return the lengths of the runs of a mask, beginning with one of zeros that may be empty.

    `0011100110` gives [2, 3, 2, 2, 1]. TorchSpec's `packed_loss_mask` is these numbers joined by commas.

    Args:
        mask: of 0 and 1.
    """
    lengths: list[int] = []
    for value, run in groupby(mask):
        if not lengths and value:
            lengths.append(0)
        lengths.append(sum(1 for _ in run))
    return lengths


def packed_mask(prompt_tokens: int, output_tokens: int) -> str:
    """Return the run lengths of a sample's mask as TorchSpec writes them: `12,30`."""
    return f"{prompt_tokens},{output_tokens}"
