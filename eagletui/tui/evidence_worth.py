"""What each evidence label was worth where it could be measured, and on what that was measured."""

from typing import Final, NamedTuple


class Measured(NamedTuple):
    """How often ids under a label were the model's own."""

    right: int
    of: int
    note: str = ""
    """What else to know, one sentence."""


BASIS: Final = "recorded answers of SmolLM2-135M-Instruct against the ids vLLM 0.32 returned"
"""What the figures were measured on; the same as in the README."""

MEASURED: Final[dict[str, Measured]] = {
    "served": Measured(160, 160),
    "logprobs": Measured(149, 149),
    "streamed": Measured(146, 146),
    "counted": Measured(113, 120, "Nothing in a text tells which ones are right."),
    "conflict": Measured(5, 40),
}
"""Labels that are missing here were not measured."""


def worth(evidence: str) -> str:
    """Say how often the ids under a label were right, and on what that was measured."""
    measured = MEASURED.get(evidence)
    if measured is None:
        return f"{evidence}: how often it is right was not measured"
    note = f". {measured.note}" if measured.note else ""
    return f"{evidence}: right for {measured.right} of {measured.of}, measured on {BASIS}{note}"
