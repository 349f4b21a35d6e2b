"""Prompts with a known answer, put among the others at places that nobody can foresee, to watch every endpoint.

They are asked at temperature 0, cost what any sample costs, and are never trained on.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from eagletui.core.chat import Message, Prompt
from eagletui.core.fidelity import CANARIES
from eagletui.prompts.jsonl import PromptRecord

_SAMPLING: Final = '{"temperature": 0}'


@dataclass(frozen=True, slots=True)
class Canaries:
    """Which canaries stand where: one among every so many prompts, in turn, at a place drawn from the run's seed."""

    texts: Sequence[str]
    every: int
    """At least 1."""
    seed: int

    def after(self, place: int, line: int) -> list[PromptRecord]:
        """Return the canary to be asked after a prompt, if one stands there.

        Args:
            place: of the prompt among those that are asked, 0-based; canaries do not count.
            line: of the prompt in its file.
        """
        block, at = divmod(place, self.every)
        if not self.texts or at != random.Random(f"{self.seed}:canary:{block}").randrange(self.every):
            return []
        prompt = Prompt((Message("user", self.texts[block % len(self.texts)]),), None, _SAMPLING)
        return [PromptRecord(line, f"canary-{block + 1:06}", True, CANARIES, prompt, (0,), 0)]


NO_CANARIES: Final = Canaries((), 1, 0)
