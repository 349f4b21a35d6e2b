"""The run config of TorchSpec beside its data: everything that must match the data, and nothing else."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from eagletui.core.checks import Check, Faults
from eagletui.files.replacement import Replacement

if TYPE_CHECKING:
    from eagletui.models.checkpoint import Checkpoint

CONFIG_FILE: Final = "torchspec.yaml"

LayerOutputs = tuple[int, int, int]
"""Layers whose output is taken, as TorchSpec counts them."""


@dataclass(frozen=True, slots=True)
class TrainedOn:
    """What a training is started with."""

    data: Path
    validation: Path | None
    """None: it validates on nothing."""
    target_model_path: str
    max_seq_length: int
    layers: LayerOutputs | None
    """None leaves them to TorchSpec."""
    checkpoint: "Checkpoint | None"
    """Of the target; None where it is only named."""


def write_config(out: Path, trained: TrainedOn, *, cache: Path | None = None, chat_template: str | None = None) -> str:
    """Write the config and return the command line that trains with it.

    Args:
        out: the exported folder.
        trained: what on.
        cache: folder of the cache of tokenized data, for TorchSpec at 09aa71b1; None: later ones need none.
        chat_template: TorchSpec's name of one; None where nothing asks for it.

    Raises:
        OSError: it cannot be written.
    """
    model: dict[str, Any] = {"target_model_path": trained.target_model_path}
    if trained.checkpoint is not None:
        model |= {"lm_head_key": trained.checkpoint.head_key, "embedding_key": trained.checkpoint.embedding_key}
        if cache is None:  # the earlier TorchSpec knows no such key and refuses it
            model["norm_key"] = trained.checkpoint.norm_key
    dataset: dict[str, Any] = {"train_data_path": str(trained.data)}
    if trained.validation is not None:
        dataset["eval_data_path"] = str(trained.validation)
    if chat_template is not None:
        dataset["chat_template"] = chat_template
    content: dict[str, Any] = {
        "model": model,
        "dataset": {**dataset, "last_turn_loss_only": False, "defer_tokenization": False},
        "training": {"max_seq_length": trained.max_seq_length, "train_with_decode": False},
        "output_dir": str(out.with_name(f"{out.name}-training")),
    }
    if cache is not None:
        content["cache_dir"] = str(cache)
    words = ["python", "-m", "torchspec.train_entry", "--config", str(out / CONFIG_FILE)]
    if trained.layers is not None:
        content["inference"] = {"aux_hidden_states_layers": list(trained.layers)}
        words.append(f"inference.aux_hidden_states_layers={str(list(trained.layers)).replace(' ', '')}")
    with Replacement(out / CONFIG_FILE) as stream:
        # JSON is YAML.
        stream.write(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")
    return shlex.join(words)


def check_config(folder: Path, train: str, validation: str | None, longest: int | None) -> Iterator[Check]:
    """Tell whether the run config trains on the files beside it, and whether TorchSpec takes them at its limit.

    Args:
        folder: the exported folder; a config that was copied with it still names the files of the first one.
        train: name of the file to train on.
        validation: of the one to validate on; None where there is none.
        longest: tokens of the longest row, of files that TorchSpec refuses for one row over its limit; None: it cuts.
    """
    paths = Faults("paths", f"{CONFIG_FILE} names the files of this folder", level="warn")
    limit = Faults("limit", f"no row is longer than training.max_seq_length of {CONFIG_FILE}")
    config = _read(folder / CONFIG_FILE, paths)
    if config is not None:
        dataset = _section(config, "dataset")
        for name, wanted in (("train_data_path", train), ("eval_data_path", validation)):
            found = dataset.get(name)
            expected = None if wanted is None else (folder / wanted).resolve()
            if (None if not isinstance(found, str) else Path(found).resolve()) != expected:
                paths.add(f"{CONFIG_FILE}: dataset.{name} is {found}, which is not {expected}: moved, or edited")
        most = _section(config, "training").get("max_seq_length")
        if longest is not None and (not isinstance(most, int) or longest > most):
            limit.add(
                f"a row has {longest:,} tokens, and training.max_seq_length is {most}: TorchSpec refuses the file"
            )
    yield paths.check()
    if longest is not None and config is not None:
        yield limit.check()


def _read(path: Path, faults: Faults) -> dict[str, Any] | None:
    try:
        config: Any = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        faults.add(f"{path.name} cannot be read as it was written: {error}")
        return None
    if not isinstance(config, dict):
        faults.add(f"{path.name} is no object")
        return None
    return config


def _section(config: dict[str, Any], name: str) -> dict[str, Any]:
    section = config.get(name)
    return section if isinstance(section, dict) else {}
