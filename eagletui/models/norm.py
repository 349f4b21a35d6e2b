"""Load nothing of a target model but its final norm: turning streams into post-norm ones needs no more."""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig

from eagletui.core.errors import ModelError
from eagletui.core.features import DType
from eagletui.core.text import clean_line
from eagletui.models.identity import weight_files, weight_places
from eagletui.models.load import auto_class, find_norm, load_target


def load_norm(path: Path, dtype: DType) -> Any:
    """Load a target's final norm as transformers' own module, with its own rules for weights and precision.

    Args:
        path: a folder of safetensors, or a `.gguf` file.
        dtype: of the computation, the one the streams were captured in.

    Returns:
        A module that takes and gives [..., H] on the CPU.

    Raises:
        ModelError: the model or its norm cannot be loaded.
    """
    weight_files(path)
    if path.is_file():
        return load_target(path, dtype=dtype, device="cpu").norm
    try:
        config = AutoConfig.from_pretrained(str(path), trust_remote_code=False, local_files_only=True)
        with torch.device("meta"):
            model = auto_class(path).from_config(config, dtype=getattr(torch, dtype))
        norm = find_norm(model.get_decoder())
        if norm is None:
            raise ModelError(f"{path} is a {type(model).__name__}, whose final norm has an unexpected name.")
        name = next(name for name, module in model.named_modules() if module is norm)
        weights = {part: _weight(path, name, part, tuple(meta.shape)) for part, meta in norm.state_dict().items()}
    except (OSError, ValueError, RuntimeError, KeyError, AttributeError, ImportError, SafetensorError) as error:
        raise ModelError(f"The final norm of {path} cannot be loaded: {clean_line(str(error), 500)}") from error
    if any(weight is None for weight in weights.values()):
        return load_target(path, dtype=dtype, device="cpu").norm
    norm = norm.to_empty(device="cpu")
    norm.load_state_dict(weights)
    return norm.to(getattr(torch, dtype)).eval()


def _weight(path: Path, name: str, part: str, shape: tuple[int, ...]) -> Any:
    """Read one weight of the norm; None where the checkpoint's names do not tell which it is."""
    places = weight_places(path)
    key = f"{name}.{part}"
    if key not in places:
        tail = f".{name.rsplit('.', 1)[-1]}.{part}"
        named = [other for other in places if other.endswith(tail) and ".layers." not in other]
        if len(named) != 1:
            return None
        key = named[0]
    with safe_open(path / places[key], framework="pt") as opened:
        weight = opened.get_tensor(key)
    return weight if tuple(weight.shape) == shape else None
