"""What a posterior of the arbiter is worth: when a label may rest on it, and whether it keeps what it states."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from eagletui.core.fidelity import Evidence

SURE: Final = 0.9
"""From this posterior on an answer is `inferred`, and ids that may be right already are changed."""

LIKELY: Final = 0.5
"""The same for an answer whose count disagrees with the bill: its ids are wrong as they are, so nothing can be broken,
and this cut is likelier than all others together."""

STEPS: Final = (0.0, 0.5, 0.7, 0.9, 0.97, 0.99, 0.999, 1.0)
"""Bounds of the stated posteriors that a calibration puts together."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Answers with about the same posterior."""

    stated: float
    """Mean posterior."""
    observed: float
    """Share that was right."""
    n: int
    """Answers."""


def least_posterior(evidence: Evidence) -> float:
    """From which posterior on an answer with this evidence becomes `inferred`."""
    return LIKELY if evidence == "conflict" else SURE


def calibrate(answers: Iterable[tuple[float, bool]]) -> list[Calibration]:
    """Put stated posteriors beside how often they were right, the lowest first.

    Args:
        answers: posterior, and whether that cut is the true one.
    """
    known = list(answers)
    found: list[Calibration] = []
    for low, high in pairwise(STEPS):
        inside = [(stated, right) for stated, right in known if low <= stated < high or stated == high == 1.0]
        if inside:
            stated = sum(stated for stated, _ in inside) / len(inside)
            found.append(Calibration(stated, sum(right for _, right in inside) / len(inside), len(inside)))
    return found
