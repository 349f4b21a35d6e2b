"""What ids alone can be held to of a target: its vocabulary and its positions, read without loading it."""

from dataclasses import dataclass
from pathlib import Path

from eagletui.core.errors import ModelError
from eagletui.models.identity import stored_positions, stored_vocabulary


@dataclass(frozen=True, slots=True)
class TokenTarget:
    """The target of a file of ids."""

    vocab_size: int
    """Ids below it can be computed."""
    positions: int | None
    """None: its files state none."""


def read_target(model: Path) -> TokenTarget:
    """Read a folder's config.json, or the header of a `.gguf` file.

    Raises:
        ModelError: it cannot be read, or states no vocabulary.
    """
    vocab_size = stored_vocabulary(model)
    if vocab_size is None:
        raise ModelError(f"{model} states no vocabulary; expected the target's folder, or its .gguf file.")
    return TokenTarget(vocab_size, stored_positions(model))
