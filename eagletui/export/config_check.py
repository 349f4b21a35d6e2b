"""Check the run config beside SpecForge's data: edited layer ids or another vocabulary train wrong without a word."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from eagletui.core.checks import Check, Faults
from eagletui.core.draft_vocabulary import DEFAULT_SIZE
from eagletui.export import target_head
from eagletui.export.mapping import MAPPING_FILE
from eagletui.export.trainer_folder import TrainerManifest
from eagletui.export.training import DRAFT_CONFIG, PROMPTS_FILE, SPECFORGE_CONFIG
from eagletui.models.checkpoint import Checkpoint


def check_configs(folder: Path, manifest: TrainerManifest, checkpoint: Checkpoint | None) -> Iterator[Check]:
    """Hold what must match the data to the manifest; everything else in the configs is a person's to change.

    Args:
        folder: exported for SpecForge.
        manifest: its manifest.
        checkpoint: the target's, where it is a folder that the trainer can load.
    """
    faults = Faults("config", f"{SPECFORGE_CONFIG} states the layers, the vocabulary and the limit of this data")
    paths = Faults("paths", f"{SPECFORGE_CONFIG} names files of this folder and this target", level="warn")
    config = _read(folder / SPECFORGE_CONFIG, faults)
    if config is not None:
        model, data = _section(config, "model"), _section(config, "data")
        layers = list(manifest.target.layers_output)
        _expect(faults, SPECFORGE_CONFIG, "model.aux_hidden_state_layer_ids", model, layers)
        _expect(faults, SPECFORGE_CONFIG, "data.max_length", data, manifest.max_length)
        _expect_path(paths, "model.vocab_mapping_path", model, folder / MAPPING_FILE)
        if (folder / target_head.FOLDER).exists():
            _expect_path(paths, "model.target_model_path", model, folder / target_head.FOLDER)
            _expect_keys(faults, model, target_head.HEAD_KEY, target_head.EMBEDDING_KEY)
        elif checkpoint is not None:
            _expect_path(paths, "model.target_model_path", model, checkpoint.path)
            _expect_keys(faults, model, checkpoint.head_key, checkpoint.embedding_key)
        if manifest.route == "online":
            _expect_path(paths, "data.prompts_path", data, folder / PROMPTS_FILE)
        else:
            _expect_path(paths, "data.hidden_states_path", data, folder)
        if manifest.vocabulary.size != DEFAULT_SIZE or "draft_model_config" in model:
            _check_draft(folder, manifest, model, faults, paths)
    yield faults.check()
    yield paths.check()


def _check_draft(folder: Path, manifest: TrainerManifest, model: dict[str, Any], faults: Faults, paths: Faults) -> None:
    if "draft_model_config" not in model:
        faults.add(f"{SPECFORGE_CONFIG}: model.draft_model_config is missing; without it the vocabulary is another")
        return
    _expect_path(paths, "model.draft_model_config", model, folder / DRAFT_CONFIG)
    draft = _read(folder / DRAFT_CONFIG, faults)
    if draft is None:
        return
    _expect(faults, DRAFT_CONFIG, "draft_vocab_size", draft, manifest.vocabulary.size)
    _expect(faults, DRAFT_CONFIG, "vocab_size", draft, manifest.vocabulary.target_size)
    _expect(faults, DRAFT_CONFIG, "hidden_size", draft, manifest.target.hidden_size)
    eagle = _section(draft, "eagle_config")
    if "eagle_aux_hidden_state_layer_ids" in eagle:
        name = "eagle_config.eagle_aux_hidden_state_layer_ids"
        _expect(faults, DRAFT_CONFIG, name, eagle, list(manifest.target.layers_output))


def _expect(faults: Faults, file: str, name: str, section: dict[str, Any], wanted: object) -> None:
    found = section.get(name.rpartition(".")[2])
    if found != wanted:
        faults.add(f"{file}: {name} is {json.dumps(found)}, this data wants {json.dumps(wanted)}")


def _expect_keys(faults: Faults, model: dict[str, Any], head: str, embedding: str) -> None:
    _expect(faults, SPECFORGE_CONFIG, "model.lm_head_key", model, head)
    _expect(faults, SPECFORGE_CONFIG, "model.embedding_key", model, embedding)


def _expect_path(paths: Faults, name: str, section: dict[str, Any], wanted: Path) -> None:
    found = section.get(name.rpartition(".")[2])
    if not isinstance(found, str) or Path(found).resolve() != wanted.resolve():
        paths.add(f"{SPECFORGE_CONFIG}: {name} is {json.dumps(found)}, which is not {wanted}: moved, or edited")


def _section(config: dict[str, Any], name: str) -> dict[str, Any]:
    section = config.get(name)
    return section if isinstance(section, dict) else {}


def _read(path: Path, faults: Faults) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        faults.add(f"{path.name} cannot be read: {error}")
        return None
    if not isinstance(content, dict):
        faults.add(f"{path.name} is not an object")
        return None
    return content
