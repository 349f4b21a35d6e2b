"""Fill a manifest in from what is loaded."""

import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final

from eagletui.core.features import FeatureLayers, Stored
from eagletui.extract.manifest import Manifest
from eagletui.models.facts import ModelFacts

_LIBRARIES: Final = ("torch", "transformers", "safetensors")


def describe(
    facts: ModelFacts,
    layers: FeatureLayers,
    stored: Stored,
    *,
    source: str,
    capture: str,
    served_model: str | None = None,
    served_quantizations: dict[str, str | None] | None = None,
    tokenizer_hash: str | None = None,
    verdicts: tuple[str, ...] = (),
    versions: Mapping[str, str] | None = None,
    source_path: Path | None = None,
    storage: str | None = None,
) -> Manifest:
    """Describe features made with a model.

    Args:
        facts: of the model.
        layers: which streams are kept.
        stored: how they lie on disk.
        source: where the ids come from.
        capture: how samples were run.
        served_model: the model's name at the API, for the ids of a run.
        served_quantizations: by endpoint, as each states it.
        tokenizer_hash: of the tokenizer that made the ids.
        verdicts: signed verdicts, one sentence each.
        versions: of what computes, by name, besides this program's libraries.
        source_path: of the file of ids that they come from; None for a run.
        storage: URL below which the shards lie; None: in the folder.
    """
    return Manifest(
        model_path=str(facts.path.resolve()),
        model_architecture=facts.architecture,
        model_xxh3=facts.hash.xxh3,
        model_hash_covers=facts.hash.covers,
        extraction_quantization=facts.quantization,
        served_model=served_model,
        served_quantizations=served_quantizations or {},
        tokenizer_hash=tokenizer_hash,
        source=source,
        dtype=facts.dtype,
        stored=stored,
        num_layers=facts.num_layers,
        hidden_size=facts.hidden_size,
        vocab_size=facts.vocab_size,
        layers_entering=layers.entering,
        layers_output=layers.outputs,
        last_hidden_norm="pre",
        capture=capture,
        created_at=time.time(),
        versions={**{name: version(name) for name in _LIBRARIES}, **(versions or {})},
        verdicts=verdicts,
        source_path=None if source_path is None else str(source_path.resolve()),
        storage=storage,
    )
