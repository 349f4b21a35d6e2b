"""Hand exact ids to TorchSpec through the cache of its tokenized dataset.

TorchSpec renders and tokenizes conversations itself, but takes `CACHE/tokenized_dataset/KEY.pt` as it is where that
file exists. KEY is the MD5 of a string of its training config and the data file's size and time, so that config has to
be known here. The data file holds ids and no conversation: where the key is not met, TorchSpec stops on the first line
instead of tokenizing anything again. Read in lightseekorg/TorchSpec at 09aa71b1 (`torchspec/data/dataset.py`).
"""

import hashlib
import io
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from eagletui.core.features import feature_layers
from eagletui.core.loaders import TORCHSPEC_CACHE
from eagletui.core.loss_mask import run_lengths
from eagletui.export.jsonl import write_jsonl
from eagletui.export.limits import sglang_positions
from eagletui.export.run_layers import configured_layers, configured_outputs
from eagletui.export.sglang_target import require_layers_as_meant, unknown_target_note
from eagletui.export.token_file import Exported
from eagletui.export.token_folder import only_writer
from eagletui.export.torchspec_config import LayerOutputs, TrainedOn, write_config
from eagletui.export.trainer_target import target_if_known
from eagletui.files.replacement import Replacement
from eagletui.ledger.reader import LedgerReader
from eagletui.models.checkpoint import Checkpoint, read_checkpoint
from eagletui.runs.folder import RunFolder

CACHE_DIR: Final = "cache"
ENTRIES: Final = "tokenized_dataset"

TOKENS_PER_IMAGE: Final = 3000
"""TorchSpec's default, which is part of the key."""


@dataclass(frozen=True, slots=True)
class TorchSpecConfig:
    """What of TorchSpec's training config decides where it looks for the cache."""

    target_model_path: str
    """`model.target_model_path`, letter for letter."""
    max_seq_length: int
    """`training.max_seq_length`."""
    chat_template: str
    """`dataset.chat_template`: mandatory there, although nothing is rendered."""


@dataclass(frozen=True, slots=True)
class TorchSpecExport:
    """What was written."""

    tokens: Exported
    cache_file: Path
    key: str
    command: str
    positions: int | None
    """Of the target, more than which SGLang does not start with; None: unknown."""
    unknown_target: str | None
    """What to look out for where the target is only named."""


def export_torchspec(
    folder: RunFolder,
    out: Path,
    config: TorchSpecConfig,
    layers: LayerOutputs | None,
    *,
    also: Sequence[str] = (),
) -> TorchSpecExport:
    """Write the data, to train and to validate on, a cache entry for each file and a config that meets them.

    Args:
        folder: the run.
        out: the folder; it stays where it is, because its path is part of the key.
        config: of the training to come.
        layers: of the target, see `layers_of`; None leaves them to TorchSpec, whose default is ours.
        also: usabilities beyond the default set.

    Raises:
        RunError: there is nothing to export, or the folder cannot be written, as where another export writes into it.
        ModelError: the target is a folder whose config cannot be read, or SGLang would take the layers for others.
    """
    out = out.absolute()
    checkpoint = _checkpoint(folder, Path(config.target_model_path))
    require_layers_as_meant(checkpoint, layers, folder.argument)
    with only_writer(out):
        tokens = write_jsonl(folder, out, also=also, validation_apart=True)
        entries = out / CACHE_DIR / ENTRIES
        entries.mkdir(mode=0o700, parents=True, exist_ok=True)
        files = [tokens.file, *([] if tokens.validation_file is None else [tokens.validation_file])]
        places = {data: entries / f"{cache_key(data, config)}.pt" for data in files}
        for data, place in places.items():
            with Replacement(place) as stream:
                stream.write(_entry(data))
        for old in entries.glob("*.pt"):
            if old not in places.values():
                old.unlink()
        trained = TrainedOn(
            tokens.file, tokens.validation_file, config.target_model_path, config.max_seq_length, layers, checkpoint
        )
        command = write_config(out, trained, cache=out / CACHE_DIR, chat_template=config.chat_template)
        key = places[tokens.file].stem
        manifest = msgspec.json.decode(tokens.manifest.read_bytes())
        manifest["torchspec"] = {"made_for": TORCHSPEC_CACHE.version, "key": key, **asdict(config)}
        with Replacement(tokens.manifest) as stream:
            stream.write(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
    unknown = unknown_target_note(checkpoint, layers)
    return TorchSpecExport(tokens, places[tokens.file], key, command, sglang_positions(checkpoint), unknown)


def layers_of(folder: RunFolder, model: Path) -> LayerOutputs | None:
    """Return the run's layers: those of its config, else the default for its target; None where its size is unknown.

    Args:
        folder: the run.
        model: a folder of the target, or a name that says nothing about it.

    Raises:
        ModelError: the model's config cannot be read, or the run's layers do not fit it.
    """
    with LedgerReader(folder.ledger_path) as reader:
        if model.is_dir():
            return feature_layers(read_checkpoint(model).num_layers, configured_layers(reader)).outputs
        known = target_if_known(folder, reader)
        return configured_outputs(reader) if known is None else known.facts.layers_output


def cache_key(data: Path, config: TorchSpecConfig) -> str:
    """Return the name that TorchSpec looks for, for the data file as it lies on the disk now.

    Args:
        data: the data file, absolute.
        config: of the training.
    """
    return hashlib.md5(cache_string(data, config).encode(), usedforsecurity=False).hexdigest()


def _checkpoint(folder: RunFolder, model: Path) -> Checkpoint | None:
    """Read the named target's checkpoint, else that of the run's; None where there is neither."""
    if model.is_dir():
        return read_checkpoint(model)
    with LedgerReader(folder.ledger_path) as reader:
        known = target_if_known(folder, reader)
    return None if known is None else known.checkpoint


def cache_string(data: Path, config: TorchSpecConfig) -> str:
    """Return the string whose MD5 is the key, for the data file as it lies on the disk now.

    Args:
        data: the data file, absolute.
        config: of the training.
    """
    status = os.stat(data)
    return (
        f"{data.name}-{data}-{status.st_size}-{status.st_mtime}-{config.target_model_path}"
        f"-{config.max_seq_length}-{config.chat_template}-ltlo=False-defer=False-decode=False"
        f"-mimg=None-tpi={TOKENS_PER_IMAGE}"
    )


def _entry(data: Path) -> bytes:
    """Return the cache file: a list of samples as TorchSpec keeps them after tokenizing."""
    import torch

    samples: list[dict[str, Any]] = []
    with data.open("rb") as lines:
        for line in lines:
            row = msgspec.json.decode(line)
            samples.append(
                {
                    "data_id": row["id"],
                    "metadata": {},
                    "multimodal_inputs": None,
                    "formatted_prompt": "",
                    "input_ids": torch.tensor(row["input_ids"], dtype=torch.int64),
                    "packed_loss_mask": ",".join(map(str, run_lengths(row["loss_mask"]))),
                }
            )
    stream = io.BytesIO()
    torch.save(samples, stream)
    return stream.getvalue()
