"""Which layers SGLang takes the ids of auxiliary streams for: by model class the same ids are other layers.

Read in SGLang 0.5.23 (`set_eagle3_layers_to_capture` of its model classes). Most classes add 1 to every id, so that
ids are layers whose output is taken. Those of DeepSeek, and what is built on it or copied from it, add 1 only where the
first id is 1. Ids that begin with 1 therefore mean the same everywhere, as those of the usual layers do.
"""

import re
from collections.abc import Sequence
from typing import Final

_ONLY_AFTER_ONE: Final = ("deepseek", "kimi", "glm4moelite", "glmmoedsa", "mistrallarge3")
"""How model types and architectures of these classes begin, without case and signs."""

_SIGNS: Final = re.compile(r"[^a-z0-9]")


def misread_by_sglang(kind: str, outputs: Sequence[int]) -> str | None:
    """Say that SGLang would take layer ids for other layers; None where it takes them as they are meant.

    Args:
        kind: model type or architecture of the target.
        outputs: layers whose output is wanted, counted from 0.
    """
    if outputs[0] == 1 or not _SIGNS.sub("", kind.lower()).startswith(_ONLY_AFTER_ONE):
        return None
    return (
        f"SGLang takes ids of a {kind} that do not begin with 1 for other layers than those of every other model: "
        f"{list(outputs)} would be the streams that enter these layers, not those that leave them."
    )
