"""Fill a manifest in from what is loaded."""

import time
from importlib.metadata import version
from typing import Final

from eagletui.core.features import FeatureLayers
from eagletui.extract.manifest import Manifest
from eagletui.models.load import TargetModel

_LIBRARIES: Final = ("torch", "transformers", "safetensors")


def describe(
    target: TargetModel,
    layers: FeatureLayers,
    *,
    source: str,
    capture: str,
    served_model: str | None = None,
    served_quantizations: dict[str, str | None] | None = None,
    tokenizer_hash: str | None = None,
    verdicts: tuple[str, ...] = (),
) -> Manifest:
    """Describe features made with a loaded model.

    Args:
        target: the model.
        layers: which streams are kept.
        source: where the ids come from.
        capture: how samples were run.
        served_model: the model's name at the API, for the ids of a run.
        served_quantizations: by endpoint, as each states it.
        tokenizer_hash: of the tokenizer that made the ids.
        verdicts: signed verdicts, one sentence each.
    """
    return Manifest(
        model_path=str(target.path.resolve()),
        model_architecture=target.architecture,
        model_xxh3=target.hash.xxh3,
        model_hash_covers=target.hash.covers,
        extraction_quantization=target.quantization,
        served_model=served_model,
        served_quantizations=served_quantizations or {},
        tokenizer_hash=tokenizer_hash,
        source=source,
        dtype=target.dtype,
        num_layers=target.num_layers,
        hidden_size=target.hidden_size,
        vocab_size=target.vocab_size,
        layers_entering=layers.entering,
        layers_output=layers.outputs,
        last_hidden_norm="pre",
        capture=capture,
        created_at=time.time(),
        versions={name: version(name) for name in _LIBRARIES},
        verdicts=verdicts,
    )
