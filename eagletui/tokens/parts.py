"""Encode a raw text part by part, structure by id, and count its tokens."""

from collections.abc import Callable, Sequence

from eagletui.core.choice import TokenCounts, count_tokens
from eagletui.core.outputs import Assembly, Part, Special
from eagletui.tokens.load import Encoder, Tokenizer


def encode_parts(
    parts: Sequence[Part], tokenizer: Tokenizer, encode: Encoder | None = None
) -> tuple[tuple[int, ...], str | None]:
    """Encode each stretch between special tokens in one pass and insert structure by id.

    Args:
        parts: a raw text.
        tokenizer: resolves structure.
        encode: the tokenizer's encoding, remembered; None takes the tokenizer's own.

    Returns:
        The ids, and the first structural string that is no single token of this tokenizer (it is then encoded as
        ordinary text), or None.
    """
    encode = encode or tokenizer.encode
    ids: list[int] = []
    run: list[str] = []
    unresolved: str | None = None
    for part in parts:
        special = tokenizer.vocabulary.specials.get(part.text) if isinstance(part, Special) else None
        if special is None:
            run.append(part.text)
            if isinstance(part, Special):
                unresolved = unresolved or part.text
            continue
        ids += encode("".join(run))
        ids.append(special)
        run.clear()
    ids += encode("".join(run))
    return tuple(ids), unresolved


def measure_with(tokenizer: Tokenizer) -> Callable[[Assembly], TokenCounts]:
    """Count the tokens of readings, encoding no text twice."""
    return measure_encoded(remembering(tokenizer.encode))


def measure_encoded(encode: Encoder) -> Callable[[Assembly], TokenCounts]:
    return lambda reading: count_tokens(reading, lambda text: len(encode(text)))


def remembering(encode: Encoder) -> Encoder:
    """Encode no text twice while one reply is worked on."""
    known: dict[str, list[int]] = {}

    def remembered(text: str) -> list[int]:
        ids = known.get(text)
        if ids is None:
            ids = known[text] = encode(text)
        return ids

    return remembered
