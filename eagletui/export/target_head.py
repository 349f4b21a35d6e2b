"""A folder of the target's head alone, for targets that SpecForge 0.2.0 cannot read.

Its `TargetHead` takes width and vocabulary from the top of config.json, where Kimi K2.5 and others have a
`text_config`, and finds the head by a `*.index.json`, which a checkpoint of one file lacks. Trained over stored
features, a draft model needs nothing of the target beyond this folder: config of the decoder, embedding, norm and head.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from transformers import AutoConfig

from eagletui.core.errors import InputError, ModelError
from eagletui.core.features import DTYPES
from eagletui.core.loaders import LoaderRule
from eagletui.core.text import clean_line
from eagletui.files.flushing import flush_file, flush_folder
from eagletui.files.replacement import Replacement
from eagletui.models.checkpoint import Checkpoint
from eagletui.models.identity import weight_places

FOLDER: Final = "target_head"
HEAD_KEY: Final = "lm_head.weight"
EMBEDDING_KEY: Final = "model.embed_tokens.weight"
NORM_KEY: Final = "model.norm.weight"

_WEIGHTS: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
_NOT_OF_A_HEAD: Final = ("auto_map", "quantization_config")


def needed(rule: LoaderRule, checkpoint: Checkpoint | None, *, online: bool) -> Checkpoint | None:
    """Return the checkpoint that a trainer needs this folder of; None where it reads the head in the target's own.

    Args:
        rule: of the trainer's loader.
        checkpoint: of the target, where one is known.
        online: the trainer runs the target.

    Raises:
        InputError: it runs the target from the very folder that it takes the head from.
    """
    if rule.trainer != "specforge" or checkpoint is None or not is_needed(checkpoint):
        return None
    if online:
        why, way = "no model.safetensors.index.json", "Save the checkpoint in several files, export"
        if checkpoint.is_nested:
            why, way = "a nested text_config", "Export"
        raise InputError(
            f"--online: SpecForge {rule.version} cannot load the head of {checkpoint.path}, a checkpoint with {why}, "
            f"and serves the very folder that it takes the head from. {way} features without --online, which writes a "
            "folder of the head, or the ids with --to jsonl. Nothing was written."
        )
    return checkpoint


def is_needed(checkpoint: Checkpoint) -> bool:
    """Tell whether SpecForge cannot find the head in the target's own folder."""
    return checkpoint.is_nested or not checkpoint.has_index


def head_bytes(out: Path, checkpoint: Checkpoint, xxh3: str | None) -> int:
    """Return an upper bound of what `write_head` writes in bytes, for weights of 4 bytes at most; see there."""
    is_there = xxh3 is not None and _is_of(out / FOLDER, xxh3)
    return 0 if is_there else 2 * 4 * checkpoint.vocab_size * checkpoint.hidden_size


def wanted_keys(checkpoint: Checkpoint, places: Mapping[str, str]) -> dict[str, str]:
    """Map the names of the folder's tensors to those in the target; the norm only where it has a usual name.

    Args:
        checkpoint: of the target.
        places: of its weights, see `weight_places`.
    """
    wanted = {HEAD_KEY: checkpoint.head_key, EMBEDDING_KEY: checkpoint.embedding_key}
    if checkpoint.norm_key in places:
        wanted[NORM_KEY] = checkpoint.norm_key
    return wanted


def write_head(out: Path, checkpoint: Checkpoint, xxh3: str | None) -> None:
    """Write the folder; one of the same target is left as it is.

    Args:
        out: the exported folder.
        checkpoint: of the target.
        xxh3: of the target's files, where known.

    Raises:
        ModelError: the target's weights or config cannot be read.
        OSError: the folder cannot be written.
    """
    folder = out / FOLDER
    if xxh3 is not None and _is_of(folder, xxh3):
        return
    try:
        weights = _weights(checkpoint)
        whole = AutoConfig.from_pretrained(str(checkpoint.path), trust_remote_code=False, local_files_only=True)
        config: dict[str, Any] = whole.get_text_config(decoder=True).to_dict()
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"The head of {checkpoint.path} cannot be read: {clean_line(str(error), 300)}") from error
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / INDEX).unlink(missing_ok=True)
    temporary = folder / f".{_WEIGHTS}.{os.getpid()}.tmp"
    try:
        save_file(weights, temporary, metadata={"format": "pt"})
        temporary.chmod(0o600)
        flush_file(temporary)
        os.replace(temporary, folder / _WEIGHTS)
        flush_folder(folder)
    finally:
        temporary.unlink(missing_ok=True)
    config = {name: value for name, value in config.items() if name not in _NOT_OF_A_HEAD}
    size = (folder / _WEIGHTS).stat().st_size
    index = {"metadata": {"total_size": size, "target_xxh3": xxh3}, "weight_map": dict.fromkeys(weights, _WEIGHTS)}
    for name, content in (("config.json", {**config, "tie_word_embeddings": False}), (INDEX, index)):
        with Replacement(folder / name) as stream:
            stream.write(json.dumps(content, indent=2).encode() + b"\n")


def _weights(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    """Read head, embedding and, where it has a usual name, the final norm; a tied head is the embedding once more."""
    places = weight_places(checkpoint.path)
    wanted = wanted_keys(checkpoint, places)
    found = {}
    for name, key in wanted.items():
        with safe_open(checkpoint.path / places[key], framework="pt") as opened:
            found[name] = opened.get_tensor(key)
    for name, tensor in found.items():
        if str(tensor.dtype).removeprefix("torch.") not in DTYPES:
            raise ValueError(
                f"{wanted[name]} is {tensor.dtype}, whose scales a head has no place for: give plain weights"
            )

    for name in (HEAD_KEY, EMBEDDING_KEY):
        if tuple(found[name].shape) != (checkpoint.vocab_size, checkpoint.hidden_size):
            raise ValueError(
                f"{wanted[name]} is {list(found[name].shape)}, expected "
                f"{[checkpoint.vocab_size, checkpoint.hidden_size]}"
            )
    if checkpoint.head_key == checkpoint.embedding_key:
        found[HEAD_KEY] = found[EMBEDDING_KEY].clone()
    return found


def _is_of(folder: Path, xxh3: str) -> bool:
    """Tell whether a whole folder of this target is there."""
    try:
        stated = json.loads((folder / INDEX).read_bytes())["metadata"]
        return bool(stated["target_xxh3"] == xxh3 and stated["total_size"] == (folder / _WEIGHTS).stat().st_size)
    except (OSError, ValueError, KeyError, TypeError):
        return False
