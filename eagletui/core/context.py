"""How long a sequence a model may be served with: read from its config, as the servers read it.

A server refuses to start with a longer context than this. Read in vLLM (`_get_and_verify_max_len`) and SGLang
(`get_context_length`), November 2026.
"""

from collections.abc import Mapping
from typing import Any, Final

USUAL_LENGTH: Final = 32_768
"""What a server is started with where no sample is known yet."""


def stated_context(config: Mapping[str, Any]) -> int | None:
    """Return the positions that a decoder's config states; None where it states none.

    SGLang takes this number. vLLM takes it too, but for YaRN.
    """
    stated = config.get("max_position_embeddings")
    return stated if isinstance(stated, int) else None


def vllm_context(config: Mapping[str, Any]) -> int | None:
    """Return the longest sequence that vLLM serves a decoder with; None where its config does not say.

    Args:
        config: of the decoder, as stored. YaRN's factor counts from the original length. A factor of another kind is
            left out, which gives a smaller number than vLLM would take, never a larger one.
    """
    stated = stated_context(config)
    rope = config.get("rope_parameters") or config.get("rope_scaling")
    if not isinstance(rope, Mapping) or rope.get("rope_type", rope.get("type")) != "yarn":
        return stated
    original, factor = rope.get("original_max_position_embeddings"), rope.get("factor")
    if not isinstance(original, int) or not isinstance(factor, int | float):
        return stated
    return int(original * factor)


def positions_reached(config: Mapping[str, Any]) -> int | None:
    """Return the positions that a decoder's own encoding reaches, each scaling counted; None where it states none.

    Never fewer than a server takes: where scalings differ from layer to layer, or count from an original length or from
    the stated one, the most counts.

    Args:
        config: of the decoder, as stored.
    """
    stated = stated_context(config)
    if stated is None:
        return None
    rope = config.get("rope_parameters") or config.get("rope_scaling")
    nested = list(rope.values()) if isinstance(rope, Mapping) else []
    reached = [stated]
    for part in (part for part in (rope, *nested) if isinstance(part, Mapping)):
        factor, original = part.get("factor"), part.get("original_max_position_embeddings")
        if isinstance(factor, int | float) and not isinstance(factor, bool):
            reached.append(int(factor * (original if isinstance(original, int) else stated)))
    return max(reached)


def served_length(longest: int | None, context: int | None) -> int:
    """Return the context to start a server with, so that it takes a sample and generates one token behind it.

    Args:
        longest: tokens of the longest sample; None where none is known yet.
        context: the model's own, at most; None: unknown.
    """
    wanted = USUAL_LENGTH if longest is None else longest + 1
    return wanted if context is None else min(wanted, context)


def batched_tokens(length: int) -> int:
    """Return the tokens of one step of a server that does not split a prompt: at least its context.

    vLLM refuses to start with fewer, and with fewer than the requests that it runs at once.
    """
    return max(length, USUAL_LENGTH)
