"""Load nothing of a target model but what stands behind its last layer: the final norm and the head.

With them a last stream can be held against what a server says about its next token, without the model itself.
"""

from dataclasses import dataclass
from typing import Any, Final, Self

import torch
from safetensors import SafetensorError, safe_open

from eagletui.core.errors import ModelError
from eagletui.core.features import DTYPES
from eagletui.core.text import clean_line
from eagletui.models.checkpoint import read_checkpoint
from eagletui.models.facts import ModelFacts
from eagletui.models.identity import weight_places
from eagletui.models.norm import load_norm

_BETWEEN: Final = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier")
"""Config keys of models that change logits behind the head."""


@dataclass(frozen=True, slots=True)
class Tail:
    """A model's final norm and head, on the CPU."""

    norm: Any
    """The model's own module."""
    head: torch.Tensor
    """[V, H]"""

    @classmethod
    def load(cls, facts: ModelFacts) -> tuple[Self | None, str]:
        """Load norm and head, or say as a phrase why they cannot be used."""
        try:
            checkpoint = read_checkpoint(facts.path)
            changed = [key for key in _BETWEEN if checkpoint.text_config.get(key)]
            if changed:
                return None, f"the model changes its logits by {', '.join(changed)}"
            norm = load_norm(facts.path, facts.dtype)
            file = weight_places(facts.path).get(checkpoint.head_key)
            if file is None:
                return None, f"the checkpoint has no plain {checkpoint.head_key}"
            with safe_open(facts.path / file, framework="pt") as opened:
                head = opened.get_tensor(checkpoint.head_key)
        except (ModelError, OSError, ValueError, KeyError, SafetensorError) as error:
            return None, clean_line(str(error), 200)
        stored = str(head.dtype).removeprefix("torch.")
        if stored not in DTYPES or head.shape[1:] != (facts.hidden_size,):
            return None, f"{checkpoint.head_key} is stored as {stored} {list(head.shape)}"
        return cls(norm, head), ""

    def logprob(self, last: torch.Tensor, token_id: int, *, is_normed: bool = False) -> float:
        """Return the log-probability of a token, in nats.

        Args:
            last: the last stream of the row before it, [H].
            token_id: the token.
            is_normed: take the stream as one that went through the norm.
        """
        with torch.inference_mode():
            normed = last if is_normed else self.norm(last[None, None])[0, 0]
            logits = torch.mv(self.head, normed.to(self.head.dtype)).float()
        return float(torch.log_softmax(logits, dim=0)[token_id])
