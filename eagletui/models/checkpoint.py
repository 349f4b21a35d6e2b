"""What a trainer has to know of a target's checkpoint, read from its config and index without loading it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError

from eagletui.core.errors import ModelError
from eagletui.models.identity import weight_places

_INDEX: Final = "model.safetensors.index.json"
_HEAD: Final = "lm_head.weight"
_EMBEDDING: Final = "model.embed_tokens.weight"
_NORM: Final = "model.norm.weight"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A target model's folder as trainers see it."""

    path: Path
    num_layers: int
    """Decoder layers, L."""
    hidden_size: int
    vocab_size: int
    """What its config says, V."""
    head_key: str
    """Name of the head's weight; the embedding's where both are one."""
    embedding_key: str
    norm_key: str
    """Of the final norm, as far as its name tells."""
    has_index: bool
    """SpecForge finds the head by a `*.index.json` and cannot read a checkpoint without one."""
    is_nested: bool
    """The decoder's config is part of a larger one; SpecForge looks for its sizes at the top."""
    text_config: dict[str, Any]
    """The config of the decoder, as stored."""
    kind: str
    """Its architecture, by which servers choose the class that runs it, else its model type; empty: it says neither."""


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint's config and the names of its weights.

    Args:
        path: a folder with config.json and *.safetensors.

    Raises:
        ModelError: it is no such folder, or its config does not say what trainers need.
    """
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
        nested = config.get("text_config")
        text = nested if isinstance(nested, dict) else config
        num_layers, hidden_size = int(text["num_hidden_layers"]), int(text["hidden_size"])
        vocab_size = int(text["vocab_size"] if "vocab_size" in text else config["vocab_size"])
        keys = set(weight_places(path))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, SafetensorError) as error:
        what = f"no {error} in its config" if isinstance(error, KeyError) else str(error)
        raise ModelError(
            f"{path} cannot be read as a checkpoint that a trainer loads, a folder with config.json and "
            f"*.safetensors: {what}."
        ) from error
    embedding = _named(keys, _EMBEDDING, "embed_tokens.weight")
    is_tied = bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings", False)))
    head = embedding if is_tied and _HEAD not in keys else _named(keys, _HEAD, _HEAD)
    beside = embedding.replace("embed_tokens", "norm")
    norm = beside if beside in keys else _NORM
    return Checkpoint(
        path=path,
        num_layers=num_layers,
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        head_key=head,
        embedding_key=embedding,
        norm_key=norm,
        has_index=(path / _INDEX).is_file(),
        is_nested=text is not config,
        text_config=text,
        kind=_kind(config),
    )


def _kind(config: dict[str, Any]) -> str:
    architectures = config.get("architectures")
    named = architectures[0] if isinstance(architectures, list) and architectures else config.get("model_type")
    return str(named or "")


def _named(keys: set[str], usual: str, tail: str) -> str:
    """Return the usual name, or the one name that ends alike where the checkpoint nests its decoder."""
    found = sorted(key for key in keys if key.endswith(tail))
    return found[0] if usual not in keys and len(found) == 1 else usual
