"""Read back what a trainer will read: rows of ids, and the features of a row."""

import io
import pickle
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load

from eagletui.core.checks import Faults
from eagletui.core.features import AUX_LAYERS, SLOTS
from eagletui.export import prepared
from eagletui.export.trainer_folder import ExportedRow, TrainerManifest
from eagletui.export.training import PROMPTS_FILE
from eagletui.extract import fp8
from eagletui.extract.shards import Record

_SPECULATORS_KEYS: Final = ("hidden_states", "token_ids")
_SPECFORGE_KEYS: Final = ("aux_hidden_state", "hidden_state", "input_ids", "loss_mask")


class TrainerRow(NamedTuple):
    """One row as the trainer reads it."""

    key: str | None
    """The sample's; None where the place holds none."""
    token_ids: list[int]
    loss_mask: list[int]


class _Prompt(msgspec.Struct):
    id: str
    input_ids: list[int]
    loss_mask: list[int]


def trainer_rows(folder: Path, manifest: TrainerManifest, rows: int, faults: Faults) -> Iterator[TrainerRow]:
    """Read ids and masks in the place where the trainer reads them, row after row.

    SpecForge's feature files hold their own, so that nothing is yielded for them.

    Args:
        folder: the exported folder.
        manifest: its manifest.
        rows: how many there should be.
        faults: takes what is wrong with the place.

    Raises:
        InputError: the package that reads the place is not installed.
    """
    if manifest.trainer == "specforge" and manifest.route == "offline":
        return
    try:
        found = _prompts(folder) if manifest.trainer == "specforge" else _dataset(folder, faults)
        count = 0
        for row in found:
            # A gap, a fraction or a number that no vocabulary has is not found by comparing lengths.
            array("i", row.token_ids), array("i", row.loss_mask)
            count += 1
            yield row
    except (OSError, ValueError, KeyError, TypeError, OverflowError, msgspec.DecodeError) as error:
        faults.add(f"row {count} and those behind it cannot be read: {type(error).__name__}: {error}")
        return
    if count != rows:
        faults.add(f"the trainer would read {count} rows instead of {rows}")


def _prompts(folder: Path) -> Iterator[TrainerRow]:
    decoder = msgspec.json.Decoder(_Prompt)
    with (folder / PROMPTS_FILE).open("rb") as lines:
        for line in lines:
            prompt = decoder.decode(line)
            yield TrainerRow(prompt.id, prompt.input_ids, prompt.loss_mask)


def _dataset(folder: Path, faults: Faults) -> Iterator[TrainerRow]:
    dataset = prepared.load_dataset(folder)
    for fault in prepared.form_faults(dataset):
        faults.add(fault)
    for number, row in enumerate(dataset.with_format(None)):
        ids, mask = row["input_ids"], row["loss_mask"]
        if row["seq_len"] != len(ids):
            faults.add(f"row {number} of the dataset states {row['seq_len']} tokens and has {len(ids)}")
        yield TrainerRow(None, ids, mask)


def read_record(content: bytes, row: ExportedRow, manifest: TrainerManifest) -> Record:
    """Read a file of features as a record.

    Raises:
        ValueError: it is not what the trainer reads; the message says how.
    """
    rows, hidden = row.tokens, manifest.target.hidden_size
    mask = torch.tensor([0] * row.prompt_tokens + [1] * (rows - row.prompt_tokens), dtype=torch.int64)
    if manifest.trainer == "speculators":
        try:
            tensors = load(content)
        except SafetensorError as error:
            raise ValueError(f"cannot be read: {error}") from error
        is_fp8 = manifest.target.stored == "fp8"
        _require(tensors, (*_SPECULATORS_KEYS, fp8.SCALES) if is_fp8 else _SPECULATORS_KEYS)
        ids, states = tensors["token_ids"], tensors["hidden_states"]
        _require_shape("token_ids", ids, (rows,), torch.int64)
        _require_shape("hidden_states", states, (rows, SLOTS, hidden), fp8.TYPE if is_fp8 else torch.bfloat16)
        if is_fp8:
            _require_shape(fp8.SCALES, tensors[fp8.SCALES], (rows, 1, 1), torch.float32)
            states = fp8.restore(fp8.Quantized(states, tensors[fp8.SCALES]), torch.bfloat16)
        return Record(row.sample, ids, mask, states)
    try:
        tensors = torch.load(io.BytesIO(content), weights_only=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise ValueError(f"cannot be read: {error}") from error
    _require(tensors, _SPECFORGE_KEYS)
    _require_shape("input_ids", tensors["input_ids"], (rows,), torch.int64)
    _require_shape("loss_mask", tensors["loss_mask"], (rows,), torch.int64)
    _require_shape("aux_hidden_state", tensors["aux_hidden_state"], (1, rows, AUX_LAYERS * hidden), torch.bfloat16)
    _require_shape("hidden_state", tensors["hidden_state"], (1, rows, hidden), torch.bfloat16)
    aux = tensors["aux_hidden_state"][0].reshape(rows, AUX_LAYERS, hidden)
    states = torch.cat([aux, tensors["hidden_state"][0][:, None]], dim=1)
    return Record(row.sample, tensors["input_ids"], tensors["loss_mask"], states)


def _require(tensors: Any, keys: tuple[str, ...]) -> None:
    found = sorted(tensors) if isinstance(tensors, dict) else type(tensors).__name__
    if found != sorted(keys):
        raise ValueError(f"holds {found}, expected {sorted(keys)}")


def _require_shape(name: str, tensor: Any, shape: tuple[int, ...], dtype: Any) -> None:
    if tuple(tensor.shape) != shape or tensor.dtype != dtype:
        raise ValueError(f"has {name} {tensor.dtype} {list(tensor.shape)}, expected {dtype} {list(shape)}")
