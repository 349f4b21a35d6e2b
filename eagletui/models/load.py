"""Load a target model, and name the parts that features need: its layers, its final norm, its head.

Models come from a folder with `config.json` and `*.safetensors`, or from one `.gguf` file, always through
transformers' own classes: no code from the folder runs, no pickle is opened, nothing is downloaded.
"""

import io
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TextIO

import gguf
import torch
from safetensors import SafetensorError
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    GgufConfig,
)
from transformers.utils import logging as transformers_logging

from eagletui.core.errors import ModelError
from eagletui.core.features import DTYPES, DType
from eagletui.core.text import clean_line
from eagletui.models import spread
from eagletui.models.facts import ModelFacts, stored_dtype
from eagletui.models.identity import ModelHash, hash_model, stored_positions, stored_quantization, weight_files

DTypeChoice = Literal["float32", "bfloat16", "float16", "auto"]

_NORM_NAMES: Final = ("norm", "final_layernorm", "final_layer_norm", "ln_f")
"""What transformers' decoders call the norm between the last layer and the head."""

_LISTED_KEYS: Final = 5
_GGUF_NAMES: Final = threading.RLock()


@dataclass(frozen=True, slots=True)
class TargetModel:
    """A loaded target model and the parts that feature extraction touches."""

    path: Path
    model: Any
    """transformers' causal language model, in evaluation mode."""
    decoder: Any
    """The model without its head; running it computes no logits."""
    layers: Any
    """The decoder's layers, a ModuleList of length L."""
    norm: Any
    """The final norm."""
    head: Any
    """The language-model head: `head(norm(stream))` are the logits."""
    num_layers: int
    hidden_size: int
    vocab_size: int
    """Rows of the embedding; ids below it can be computed."""
    dtype: DType
    """Of the computation and of the streams."""
    device: str
    """Where the ids go; with several devices, the first one."""
    architecture: str
    attention: str
    """transformers' name of the attention that the model runs with."""
    quantization: str | None
    """How the weights are stored; None: plain floating point. The computation itself is dequantized."""
    hash: ModelHash
    positions: int | None = None
    """That its encoding reaches; None: not known."""

    @property
    def facts(self) -> ModelFacts:
        """What manifests say about it."""
        return ModelFacts(
            path=self.path,
            architecture=self.architecture,
            hash=self.hash,
            quantization=self.quantization,
            num_layers=self.num_layers,
            hidden_size=self.hidden_size,
            vocab_size=self.vocab_size,
            dtype=self.dtype,
            positions=self.positions,
        )


def load_target(
    path: Path,
    *,
    dtype: DTypeChoice = "auto",
    device: str = "auto",
    threads: int | None = None,
    memory: Mapping[str, str] | Mapping[int | str, str] | None = None,
) -> TargetModel:
    """Load the model at `path`.

    Args:
        path: a folder of safetensors, or a `.gguf` file.
        dtype: `auto` takes the type the checkpoint is stored in; for quantized GGUF files float32 on a CPU and
            bfloat16 elsewhere.
        device: `auto` takes the first CUDA device, all of them where the loaded weights do not fit into it, else the
            CPU; or a name such as `cuda:1`, or `spread` for all devices.
        threads: CPU threads of this process's computations from now on; None takes half of the usable cores. The
            numbers do not depend on it.
        memory: what each device may take of a model that is spread, such as `{0: "70GiB", "cpu": "100GiB"}`; None asks
            the devices.

    Raises:
        ModelError: nothing loadable is there, weights are missing, or the architecture is unknown to transformers.
    """
    weight_files(path)
    place = _choose_device(device, path, dtype)
    # Half: threads of one core's pair share its units, and where other work runs, one thread too many makes all wait
    # at every barrier (22 instead of 333 tokens/s on two busy cores).
    torch.set_num_threads(threads or max(1, len(os.sched_getaffinity(0)) // 2))
    quantization = stored_quantization(path)
    source: dict[str, Any] = {"pretrained_model_name_or_path": str(path), "use_safetensors": True}
    if path.is_file():
        source = {
            "pretrained_model_name_or_path": str(path.parent),
            "gguf_file": path.name,
            "quantization_config": GgufConfig(dequantize=True),
        }
    try:
        with _without_progress_bars(), _reading_gguf_once():
            model, report = auto_class(path).from_pretrained(
                **source,
                dtype=_torch_dtype(path, dtype, place),
                device_map=_device_map(place),
                max_memory=memory,
                trust_remote_code=False,
                local_files_only=True,
                output_loading_info=True,
            )
    except (OSError, ValueError, RuntimeError, KeyError, AttributeError, ImportError, SafetensorError) as error:
        raise ModelError(f"{path} cannot be loaded: {clean_line(str(error), 500)}") from error
    _refuse_incomplete(path, report)
    model.eval()
    return _describe(path, model, place, quantization)


def auto_class(path: Path) -> Any:
    """Choose transformers' loader: models that also see images (Kimi K2.5) are not among its causal ones."""
    if path.is_file():
        return AutoModelForCausalLM
    config = AutoConfig.from_pretrained(str(path), trust_remote_code=False, local_files_only=True)
    sees_images = type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
    if sees_images and type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        return AutoModelForImageTextToText
    return AutoModelForCausalLM


def _torch_dtype(path: Path, dtype: DTypeChoice, device: str) -> Any:
    if dtype != "auto":
        return getattr(torch, dtype)
    if path.is_dir():
        return "auto"
    return torch.float32 if device == "cpu" else torch.bfloat16


def _device_map(place: str) -> Any:
    if place == "cpu":
        return None
    return "auto" if place == spread.SPREAD else {"": place}


def loaded_bytes(path: Path, dtype: DTypeChoice) -> int:
    """Return the bytes that weights may take on a device, whatever they take in their files.

    Quantized weights are counted as if they were widened, as GGUF files always are and others where a device has no
    kernels for them.
    """
    asked = _torch_dtype(path, dtype, "cuda")
    if asked == "auto":
        asked = getattr(torch, stored_dtype(path) or "bfloat16")
    if path.is_file():
        numbers = sum(int(tensor.n_elements) for tensor in gguf.GGUFReader(str(path)).tensors)
    else:
        config = AutoConfig.from_pretrained(str(path), trust_remote_code=False, local_files_only=True)
        with torch.device("meta"):
            model = auto_class(path).from_config(config, trust_remote_code=False)
        numbers = sum(weight.numel() for weight in model.parameters())
    return numbers * int(asked.itemsize)


def _choose_device(device: str, path: Path, dtype: DTypeChoice) -> str:
    if device == "auto" and torch.cuda.is_available():
        free = spread.free_memory()
        is_needed = len(free) > 1 and spread.is_needed(loaded_bytes(path, dtype), free)
        return spread.SPREAD if is_needed else "cuda:0"
    if device == "auto":
        return "cpu"
    if device == spread.SPREAD:
        return device
    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise ModelError(
            f"Unknown device {clean_line(device, 60)!r}: expected auto, cpu, cuda, cuda:N or spread."
        ) from error
    if kind == "cuda" and not torch.cuda.is_available():
        raise ModelError(f"Device {device} is asked for, but this machine has no usable CUDA device.")
    return device


def _refuse_incomplete(path: Path, report: Any) -> None:
    """Stop where transformers would go on with random weights."""
    wrong = sorted(map(str, report["missing_keys"])) + sorted(str(key[0]) for key in report["mismatched_keys"])
    if wrong:
        named = ", ".join(clean_line(key, 80) for key in wrong[:_LISTED_KEYS])
        raise ModelError(
            f"{path} lacks {len(wrong)} of the model's weights or holds them in another shape "
            f"({named}{', ...' if len(wrong) > _LISTED_KEYS else ''}). Take a complete checkpoint."
        )


def find_norm(decoder: Any) -> Any:
    """Return a decoder's norm between the last layer and the head; None where its name is unknown."""
    return next((getattr(decoder, name) for name in _NORM_NAMES if hasattr(decoder, name)), None)


def _describe(path: Path, model: Any, device: str, quantization: str | None) -> TargetModel:
    decoder = model.get_decoder()
    layers = getattr(decoder, "layers", None)
    norm = find_norm(decoder)
    head = model.get_output_embeddings()
    name = type(model).__name__
    if not isinstance(layers, torch.nn.ModuleList) or norm is None or head is None:
        raise ModelError(f"{path} is a {name}, whose layers, final norm or head have unexpected names.")
    config = decoder.config.get_text_config(decoder=True)
    dtype = str(decoder.dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        raise ModelError(f"{path} computes in {dtype}; expected {', '.join(DTYPES)}. Set the dtype.")
    return TargetModel(
        path=path,
        model=model,
        decoder=decoder,
        layers=layers,
        norm=norm,
        head=head,
        num_layers=int(config.num_hidden_layers),
        hidden_size=int(config.hidden_size),
        vocab_size=int(decoder.get_input_embeddings().weight.shape[0]),
        dtype=dtype,
        device=str(spread.device_of(decoder.get_input_embeddings())) if device == spread.SPREAD else device,
        architecture=name,
        attention=str(config._attn_implementation),
        quantization=quantization,
        hash=hash_model(path),
        positions=stored_positions(path),
    )


@contextmanager
def _reading_gguf_once() -> Iterator[None]:
    """Spare transformers half of the time a GGUF takes.

    It reads the header for the config and again for the weights, and builds the same table of names for every module:
    8 of 15 s for a model of 135M. Both only read, and give the same for the same arguments; they are kept for the time
    of one load, and loads of several threads wait for each other, because the names are the whole process's.
    """
    with _GGUF_NAMES:
        reader, names = gguf.GGUFReader, gguf.get_tensor_name_map
        gguf.GGUFReader, gguf.get_tensor_name_map = cache(reader), cache(names)
        try:
            yield
        finally:
            gguf.GGUFReader, gguf.get_tensor_name_map = reader, names


@contextmanager
def _without_progress_bars() -> Iterator[None]:
    """Keep transformers' bars off the screen and the log; callers show their own progress.

    The GGUF reader's bar has no switch, so its writes are dropped on their way to stderr; warnings pass.
    """
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        with redirect_stderr(_WithoutBars(sys.stderr)):
            yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()


class _WithoutBars(io.TextIOBase):
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        is_bar = text.startswith("\r") or not text.strip()
        return len(text) if is_bar else self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()
