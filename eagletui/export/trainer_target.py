"""Find the target model of an export: the one the features came from, or the one that the trainer will run."""

from dataclasses import dataclass
from pathlib import Path

from eagletui.config.run_config import config_from_json
from eagletui.core.errors import InputError, ModelError, RunError
from eagletui.core.features import feature_layers
from eagletui.export.trainer_folder import TargetFacts
from eagletui.extract.manifest import Manifest, find_manifest
from eagletui.ledger.reader import LedgerReader
from eagletui.models.checkpoint import Checkpoint, read_checkpoint
from eagletui.models.identity import gguf_context, hash_model
from eagletui.runs.folder import RunFolder


@dataclass(frozen=True, slots=True)
class ExportTarget:
    """The target, and how to name it to a trainer."""

    facts: TargetFacts
    name: str
    """A folder, or the model's name at the API where no folder of it is known."""
    checkpoint: Checkpoint | None
    """None where there is no folder that a trainer could load."""
    features: Manifest | None
    """How the features were made; None where the trainer runs the target."""
    file_context: int | None = None
    """Positions that the target's `.gguf` file states; None where it is no such file, or states none."""


def target_of_features(
    folder: RunFolder, reader: LedgerReader, model: Path | None, *, compute: bool, check: bool = True
) -> ExportTarget:
    """Describe the target that a run's features came from.

    Args:
        folder: the run.
        reader: of its ledger.
        model: where the target lies now; None: where it lay at extraction.
        compute: something will be computed with it, so that it must be there.
        check: read its files, where they are there: a trainer would run another model beside these features, and take
            that one's norm and head. False only describes it.

    Raises:
        RunError: the run has no features.
        InputError: the model is needed and is not where it was.
        ModelError: it is another one.
    """
    manifest = find_manifest(folder.features_dir)
    if manifest is None or not reader.shards():
        raise RunError(
            f"Run {folder.name} has no features: eagletui extract {folder.argument} --model PATH makes them. "
            "With --online the ids alone are exported, for a trainer that runs the target itself."
        )
    path = model or Path(manifest.model_path)
    if not path.exists() and (compute or model is not None):
        raise InputError(
            f"--model: there is nothing at {path}; name the target model that the features were made with."
        )
    if check and path.exists() and hash_model(path).xxh3 != manifest.model_xxh3:
        raise ModelError(
            f"{path} is not the model that the features of run {folder.name} were made with ({manifest.model_path})."
        )
    checkpoint = read_checkpoint(path) if path.is_dir() else None
    facts = TargetFacts(
        path=str(path.absolute()),
        num_layers=manifest.num_layers,
        hidden_size=manifest.hidden_size,
        vocab_size=manifest.vocab_size if checkpoint is None else checkpoint.vocab_size,
        layers_entering=manifest.layers.entering,
        layers_output=manifest.layers.outputs,
        xxh3=manifest.model_xxh3,
        dtype=manifest.dtype,
        stored=manifest.stored,
    )
    context = gguf_context(path) if path.is_file() else None
    return ExportTarget(facts, _name(checkpoint, reader), checkpoint, manifest, context)


def target_to_run(folder: RunFolder, reader: LedgerReader, model: Path | None) -> ExportTarget:
    """Describe the target that a trainer will run over the ids.

    Args:
        folder: the run.
        reader: of its ledger.
        model: the target's folder; None: the run's weights, or its tokenizer folder where that is the whole model.

    Raises:
        InputError: no folder of the target is known.
        ModelError: its config cannot be read.
    """
    config = config_from_json(reader.run().config_json)
    given = [path for path in (model, config.model.weights) if path is not None]
    path = next(iter([*given, *([config.model.tokenizer] if _is_model(config.model.tokenizer) else [])]), None)
    if path is None or not path.is_dir():
        found = "nothing" if path is None else str(path)
        raise InputError(
            f"--model: found {found}, expected the target model's folder: its layer count and vocabulary decide layer "
            "ids and draft vocabulary."
        )
    checkpoint = read_checkpoint(path)
    layers = feature_layers(checkpoint.num_layers, _chosen(config.extract.layers))
    facts = TargetFacts(
        path=str(path.absolute()),
        num_layers=checkpoint.num_layers,
        hidden_size=checkpoint.hidden_size,
        vocab_size=checkpoint.vocab_size,
        layers_entering=layers.entering,
        layers_output=layers.outputs,
    )
    return ExportTarget(facts, _name(checkpoint, reader), checkpoint, None)


def target_if_known(folder: RunFolder, reader: LedgerReader) -> ExportTarget | None:
    """Describe the target of a run by its features, else by the weights of its config; None where neither tells."""
    manifest = find_manifest(folder.features_dir)
    try:
        if manifest is not None and reader.shards():
            return target_of_features(folder, reader, None, compute=False, check=False)
        return target_to_run(folder, reader, None)
    except (InputError, ModelError):
        return None


def _name(checkpoint: Checkpoint | None, reader: LedgerReader) -> str:
    return reader.run().model_id if checkpoint is None else str(checkpoint.path.absolute())


def _is_model(folder: Path) -> bool:
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


def _chosen(layers: list[int] | None) -> tuple[int, ...] | None:
    return None if layers is None else tuple(layers)
