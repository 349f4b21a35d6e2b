"""How a direct server is asked for exact ids, and how it is found out at start which way it knows.

No version is guessed: one tiny request is sent for each way, best first, and the first reply that carries ids decides.
Sources: vLLM's `return_token_ids` (vllm#22587) and `return_tokens_as_token_ids`, SGLang's `return_token_ids`
(sglang#30917, chat without streaming only), llama.cpp's `__verbose` (ggml-org/llama.cpp#12246).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from eagletui.core.reply import Reply

ServerKind = Literal["vllm", "sglang", "llama.cpp"]
Proof = Literal["ids", "logprobs", "none"]

PROBE_TOKENS: Final = 4
"""Length of the answers that are asked for to look."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to ask."""

    name: str
    """For people."""
    fields: Mapping[str, Any]
    """Added to a request that is no stream."""
    proof: Proof
    """What a reply asked in this way carries, if the server knows the way."""

    def is_known(self, reply: Reply) -> bool:
        """Tell whether a reply to a probe carries what was asked for."""
        if self.proof == "ids":
            return bool(reply.token_ids)
        return self.proof == "none" or bool(reply.logprobs)


_LOGPROBS: Final = Way("logprobs", {"logprobs": True}, "logprobs")
_PLAIN: Final = Way("text only", {}, "none")
_RETURN_TOKEN_IDS: Final = Way("return_token_ids", {"return_token_ids": True}, "ids")
_NAMED_LOGPROBS: Final = Way(
    "logprobs with token ids", {"logprobs": True, "return_tokens_as_token_ids": True}, "logprobs"
)
_VERBOSE: Final = Way("return_tokens and verbose", {"return_tokens": True, "verbose": True}, "ids")

WAYS: Final[Mapping[ServerKind, tuple[Way, ...]]] = {
    "vllm": (_RETURN_TOKEN_IDS, _NAMED_LOGPROBS, _LOGPROBS, _PLAIN),
    "sglang": (_RETURN_TOKEN_IDS, _LOGPROBS, _PLAIN),
    "llama.cpp": (_VERBOSE, _LOGPROBS, _PLAIN),
}
"""Best first. Ids come in non-stream replies only, or most surely there (vLLM's parsers dropped ids from streams)."""
