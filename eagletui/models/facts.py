"""What features say about the model they come from, known with and without loading it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from transformers import AutoConfig

from eagletui.core.context import vllm_context
from eagletui.core.errors import ModelError
from eagletui.core.features import DTYPES, DType
from eagletui.core.text import clean_line
from eagletui.models.identity import ModelHash, hash_model, stored_positions, stored_quantization, weight_files

_USUAL: Final[DType] = "bfloat16"
"""What servers compute in where a checkpoint does not say."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A target model, as manifests describe it."""

    path: Path
    architecture: str
    hash: ModelHash
    quantization: str | None
    """How the weights are stored; None: plain floating point."""
    num_layers: int
    hidden_size: int
    vocab_size: int
    """Ids below it can be computed."""
    dtype: DType
    """Of the computation and of the streams."""
    context: int | None = None
    """The longest sequence that vLLM serves it with; None: not known, or nothing to serve."""
    positions: int | None = None
    """That its encoding reaches: longer samples have no states that it was made for; None: not known."""


def read_facts(path: Path, dtype: DType | None = None) -> ModelFacts:
    """Read the facts of a model that another process runs, from its folder.

    Args:
        path: the folder with config.json and *.safetensors that the server was started with.
        dtype: the server's; None takes what the checkpoint is stored in, as servers mostly do.

    Raises:
        ModelError: there is no such folder, or its config does not say what is needed.
    """
    weight_files(path)
    if path.is_file():
        raise ModelError(f"{path} is one file: give the folder that the server was started with.")
    try:
        whole = AutoConfig.from_pretrained(str(path), trust_remote_code=False, local_files_only=True)
        config = whole.get_text_config(decoder=True)
        return ModelFacts(
            path=path,
            architecture=str((whole.architectures or ["unknown"])[0]),
            hash=hash_model(path),
            quantization=stored_quantization(path),
            num_layers=int(config.num_hidden_layers),
            hidden_size=int(config.hidden_size),
            vocab_size=int(config.vocab_size),
            dtype=dtype or _named_dtype(config, whole) or _USUAL,
            context=vllm_context(config.to_dict()),
            positions=stored_positions(path),
        )
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise ModelError(f"The config of {path} cannot be read: {clean_line(str(error), 500)}") from error


def stored_dtype(path: Path) -> DType | None:
    """Read the type that a folder's weights are stored in; None where its config does not say.

    Raises:
        ModelError: the config cannot be read.
    """
    try:
        whole = AutoConfig.from_pretrained(str(path), trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise ModelError(f"The config of {path} cannot be read: {clean_line(str(error), 500)}") from error
    return _named_dtype(whole.get_text_config(decoder=True), whole)


def _named_dtype(*configs: Any) -> DType | None:
    for config in configs:
        name = str(getattr(config, "dtype", None)).removeprefix("torch.")
        if name in DTYPES:
            return name
    return None
