"""How an answer was sampled, as the request says: what the sampler did to the model's probabilities."""

from dataclasses import dataclass
from typing import Final

CUTS_FIRST: Final = "llama.cpp"
"""The server, by the name of its kind and of its profile, that cuts before the temperature works, unless told otherwise
(`samplers`, ggml-org/llama.cpp tools/server/README.md)."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """The settings that change which tokens can come, and how likely."""

    temperature: float = 1.0
    """0 takes the most likely token each time."""
    top_p: float = 1.0
    """Only the most likely tokens that together have this probability."""
    top_k: int | None = None
    """Only so many tokens; None for all."""
    min_p: float = 0.0
    """Only tokens at least this share as likely as the most likely one."""
    cuts_first: bool = False
    """The cuts are made among the model's own probabilities and the temperature works on what they leave, as in
    llama.cpp; elsewhere the temperature comes first."""

    @property
    def is_plain(self) -> bool:
        """Tell whether every token can come."""
        return self.top_p >= 1.0 and self.top_k is None and self.min_p <= 0.0
