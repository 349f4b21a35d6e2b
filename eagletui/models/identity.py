"""Say which weights a model is: a hash of its files, and the quantization they are stored in."""

import json
import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import xxhash

from eagletui.core.context import positions_reached
from eagletui.core.errors import ModelError

FULL_HASH_BYTES: Final = 4 * 1024**3
"""Models up to this size are hashed whole; of larger files the size, the first and the last megabyte count."""

_SAMPLE_BYTES: Final = 1024 * 1024
_CHUNK_BYTES: Final = 16 * 1024 * 1024

_GGUF_SCALARS: Final = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
_GGUF_STRING: Final = 8
_GGUF_ARRAY: Final = 9
_GGUF_FILE_TYPE: Final = "general.file_type"
_GGUF_HIDDEN_SIZE: Final = ".embedding_length"
_GGUF_CONTEXT: Final = ".context_length"
_GGUF_PIECES: Final = "tokenizer.ggml.tokens"


class ModelHash(NamedTuple):
    """Identity of a model's files."""

    xxh3: str
    """xxh3_128 over names, sizes and contents, hex."""
    covers: str
    """`all bytes` or `sizes, first and last megabyte of each file`."""


def weight_files(path: Path) -> list[Path]:
    """List the files that make the model, config first.

    Raises:
        ModelError: there is no model at that path.
    """
    if path.is_file() and path.suffix == ".gguf":
        return [path]
    if not path.is_dir():
        raise ModelError(
            f"No model at {path}: a folder with config.json and *.safetensors, or a .gguf file, is expected."
        )
    weights = sorted(path.glob("*.safetensors"))
    config = path / "config.json"
    if not config.is_file() or not weights:
        missing = "config.json" if not config.is_file() else "*.safetensors"
        raise ModelError(f"{path} has no {missing}; pickled weights are not loaded. Name another folder with --model.")
    return [config, *weights]


def weight_places(path: Path) -> dict[str, str]:
    """Map each weight of a folder to the name of the file that holds it, by the index where there is one.

    Raises:
        OSError, ValueError: index or files cannot be read; safetensors' own error is none of these.
    """
    index = path / "model.safetensors.index.json"
    if index.is_file():
        return dict(json.loads(index.read_text(encoding="utf-8"))["weight_map"])
    from safetensors import safe_open

    places: dict[str, str] = {}
    for file in sorted(path.glob("*.safetensors")):
        with safe_open(file, framework="numpy") as opened:
            places.update(dict.fromkeys(opened.keys(), file.name))
    return places


def hash_model(path: Path) -> ModelHash:
    """Hash the model at `path`, whole where that is cheap."""
    files = weight_files(path)
    whole = sum(file.stat().st_size for file in files) <= FULL_HASH_BYTES
    digest = xxhash.xxh3_128()
    for file in files:
        size = file.stat().st_size
        digest.update(f"{file.name}\0{size}\0".encode())
        with file.open("rb") as stream:
            if whole or size <= 2 * _SAMPLE_BYTES:
                while chunk := stream.read(_CHUNK_BYTES):
                    digest.update(chunk)
            else:
                digest.update(stream.read(_SAMPLE_BYTES))
                stream.seek(-_SAMPLE_BYTES, 2)
                digest.update(stream.read())
    return ModelHash(digest.hexdigest(), "all bytes" if whole else "sizes, first and last megabyte of each file")


def stored_quantization(path: Path) -> str | None:
    """Name the quantization of the stored weights (`fp8`, `compressed-tensors int4`, `Q4_1`); None if they are plain.

    Raises:
        ModelError: the config or the header cannot be read.
    """
    if path.is_dir():
        return _config_quantization(path / "config.json")
    file_type = _gguf_number(path, _GGUF_FILE_TYPE)
    if file_type is None:
        return "gguf"
    from gguf import LlamaFileType

    name = {kind.value: kind.name for kind in LlamaFileType}.get(file_type, f"file type {file_type}")
    name = name.removeprefix("MOSTLY_").removeprefix("ALL_")
    return None if name in ("F32", "F16", "BF16") else str(name)


def stored_hidden_size(path: Path) -> int | None:
    """Read the width H of the residual stream without loading the model; None where the config does not say.

    Raises:
        ModelError: the config or the header cannot be read.
    """
    if path.is_file():
        return _gguf_number(path, _GGUF_HIDDEN_SIZE)
    content = _read_config(path / "config.json")
    for section in (content.get("text_config"), content):
        if isinstance(section, dict) and isinstance(section.get("hidden_size"), int):
            return int(section["hidden_size"])
    return None


def stored_vocabulary(path: Path) -> int | None:
    """Read how many token ids a model has without loading it; None where its files do not say.

    Raises:
        ModelError: the config or the header cannot be read.
    """
    if path.is_file():
        return len(gguf_pieces(path)) or None
    content = _read_config(path / "config.json")
    for section in (content.get("text_config"), content):
        if isinstance(section, dict) and isinstance(section.get("vocab_size"), int):
            return int(section["vocab_size"])
    return None


def stored_positions(path: Path) -> int | None:
    """Read the positions that a model's own encoding reaches, see `positions_reached`; None where its files say none.

    A `.gguf` file counts as stated: transformers applies no scaling from there.

    Raises:
        ModelError: the config or the header cannot be read.
    """
    if path.is_file():
        return gguf_context(path)
    content = _read_config(path / "config.json")
    for section in (content.get("text_config"), content):
        if isinstance(section, dict) and (found := positions_reached(section)) is not None:
            return found
    return None


def gguf_context(path: Path) -> int | None:
    """Read the positions that a `.gguf` file states for its model; None where it states none.

    Raises:
        ModelError: the header cannot be read.
    """
    return _gguf_number(path, _GGUF_CONTEXT)


def gguf_pieces(path: Path) -> list[str]:
    """Read the pieces of the tokenizer in a `.gguf` file, by id, as it spells them; empty where it holds none.

    Raises:
        ModelError: the header cannot be read.
    """
    with _gguf_header(path) as blob:
        for key, kind, position in _gguf_values(blob):
            if key != _GGUF_PIECES or kind != _GGUF_ARRAY:
                continue
            element, count = struct.unpack_from("<IQ", blob, position)
            if element != _GGUF_STRING:
                break
            pieces, position = [], position + 12
            for _ in range(count):
                piece, position = _gguf_string(blob, position)
                pieces.append(piece)
            return pieces
    return []


def _read_config(config: Path) -> dict[str, Any]:
    try:
        content = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{config} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{config}: found no JSON object, expected a model config.")
    return content


def _config_quantization(config: Path) -> str | None:
    content = _read_config(config)
    for section in (content, content.get("text_config")):
        quantization = section.get("quantization_config") if isinstance(section, dict) else None
        if isinstance(quantization, dict):
            return " ".join([str(quantization.get("quant_method", "unknown")), *_number_kinds(quantization)])
    return None


def _number_kinds(quantization: dict[str, Any]) -> list[str]:
    """Name the numbers of a quantization whose method has several: compressed-tensors, GPTQ, AWQ, bitsandbytes."""
    groups = quantization.get("config_groups")
    weights = [group.get("weights") for group in groups.values()] if isinstance(groups, dict) else []
    kinds = {
        f"{'fp' if part.get('type') == 'float' else 'int'}{part.get('num_bits')}"
        for part in weights
        if isinstance(part, dict)
    }
    bits = quantization.get("bits", 4 if quantization.get("load_in_4bit") else None)
    return sorted(kinds) or ([f"int{bits}"] if isinstance(bits, int) else [])


def _gguf_number(path: Path, wanted: str) -> int | None:
    """Read the number whose key ends as wanted."""
    with _gguf_header(path) as blob:
        for key, kind, position in _gguf_values(blob):
            if key.endswith(wanted) and kind in _GGUF_SCALARS:
                return int(struct.unpack_from(_GGUF_SCALARS[kind], blob, position)[0])
    return None


@contextmanager
def _gguf_header(path: Path) -> Iterator[mmap.mmap]:
    """Map a file; what is wrong with it while its header is read is a `ModelError`."""
    try:
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as blob:
            if blob[:4] != b"GGUF":
                raise ModelError(f"{path} is not a GGUF file: it does not begin with the letters GGUF.")
            yield blob
    except (OSError, ValueError, KeyError, struct.error) as error:
        raise ModelError(f"The header of {path} cannot be read: {error}") from error


def _gguf_values(blob: mmap.mmap) -> Iterator[tuple[str, int, int]]:
    """Yield key, type and position of each value (github.com/ggml-org/ggml/blob/master/docs/gguf.md)."""
    (pairs,) = struct.unpack_from("<Q", blob, 16)
    position = 24
    for _ in range(pairs):
        key, position = _gguf_string(blob, position)
        (kind,) = struct.unpack_from("<I", blob, position)
        yield key, kind, position + 4
        position = _after_gguf_value(blob, position + 4, kind)


def _gguf_string(blob: mmap.mmap, position: int) -> tuple[str, int]:
    (length,) = struct.unpack_from("<Q", blob, position)
    end = position + 8 + length
    return blob[position + 8 : end].decode("utf-8"), end


def _after_gguf_value(blob: mmap.mmap, position: int, kind: int) -> int:
    if kind == _GGUF_STRING:
        return _gguf_string(blob, position)[1]
    if kind != _GGUF_ARRAY:
        return position + struct.calcsize(_GGUF_SCALARS[kind])
    element: int
    count: int
    element, count = struct.unpack_from("<IQ", blob, position)
    position += 12
    if element in _GGUF_SCALARS:
        return position + count * struct.calcsize(_GGUF_SCALARS[element])
    for _ in range(count):
        position = _after_gguf_value(blob, position, element)
    return position
