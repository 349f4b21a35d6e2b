"""Check the folder of the target's head: SpecForge trains against whatever head lies there, without a word."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from safetensors import SafetensorError, safe_open

from eagletui.core.checks import Check, Faults
from eagletui.export import target_head
from eagletui.models.checkpoint import Checkpoint
from eagletui.models.identity import weight_places

_CHUNK_VALUES: Final = 16 * 1024 * 1024
"""Numbers that are compared at once."""

_WAY_OUT: Final = f"remove {target_head.FOLDER} and export again"


def check_head(folder: Path, checkpoint: Checkpoint) -> Check:
    """Hold every tensor of the folder to the target's own, bit for bit, as SpecForge would find it: by the index.

    Args:
        folder: exported for SpecForge; one without the folder that needs it is a fault too.
        checkpoint: of the target.
    """
    faults = Faults("target_head", f"{target_head.FOLDER} holds the target's own head, embedding and norm, bit for bit")
    head = folder / target_head.FOLDER
    if not head.is_dir():
        faults.add(f"{target_head.FOLDER} is missing, and SpecForge cannot read {checkpoint.path}: export again")
        return faults.check()
    try:
        _check_config(head, checkpoint, faults)
        own, theirs = weight_places(head), weight_places(checkpoint.path)
        wanted = target_head.wanted_keys(checkpoint, theirs)
        for name in sorted({*wanted, *own}):
            if name not in wanted or name not in own:
                found, expected = ("is there", "no such tensor") if name in own else ("is missing", "one")
                faults.add(
                    f"{target_head.FOLDER}/{own.get(name, target_head.INDEX)}: {name} {found}, expected {expected}"
                )
                continue
            key = wanted[name]
            where = f"{target_head.FOLDER}/{own[name]}: {name}"
            for fault in _differences(head / own[name], name, checkpoint.path / theirs[key], key):
                faults.add(f"{where} {fault}: {_WAY_OUT}")
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        what = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        faults.add(f"{target_head.FOLDER} and {checkpoint.path} cannot be compared: {what}")
    return faults.check()


def _check_config(head: Path, checkpoint: Checkpoint, faults: Faults) -> None:
    config: dict[str, Any] = json.loads((head / "config.json").read_bytes())
    expected = {"hidden_size": checkpoint.hidden_size, "vocab_size": checkpoint.vocab_size}
    for name, value in {**expected, "tie_word_embeddings": False}.items():
        if config.get(name) != value:
            faults.add(
                f"{target_head.FOLDER}/config.json: {name} is {json.dumps(config.get(name))}, expected "
                f"{json.dumps(value)}: {_WAY_OUT}"
            )


class _Place(NamedTuple):
    at: tuple[int, ...]
    found: float
    expected: float


def _differences(file: Path, name: str, target_file: Path, key: str) -> Iterator[str]:
    """Yield how a tensor differs from the target's, a phrase each; nothing where all bits are the same."""
    with safe_open(file, framework="pt") as ours, safe_open(target_file, framework="pt") as theirs:
        found, expected = ours.get_slice(name), theirs.get_slice(key)
        for what, here, there in (
            ("type", found.get_dtype(), expected.get_dtype()),
            ("shape", found.get_shape(), expected.get_shape()),
        ):
            if here != there:
                yield f"has {what} {here}, expected {there} as {key} in {target_file.name}"
                return
        shape: list[int] = found.get_shape()
        width = max(1, torch.Size(shape[1:]).numel())
        at_once = max(1, _CHUNK_VALUES // width)
        first: _Place | None = None
        differing = 0
        for start in range(0, shape[0], at_once):
            a, b = (part[start : start + at_once].contiguous() for part in (found, expected))
            if a.view(torch.uint8).equal(b.view(torch.uint8)):
                continue
            unlike = (a.view(torch.uint8) != b.view(torch.uint8)).unflatten(-1, (-1, a.element_size())).any(dim=-1)
            differing += int(unlike.sum())
            if first is None:
                row, *rest = unlike.nonzero()[0].tolist()
                first = _Place((start + row, *rest), float(a[row, *rest]), float(b[row, *rest]))
        if first is not None:
            yield (
                f"differs in {differing} of {torch.Size(shape).numel()} values from {key} in {target_file.name}; at "
                f"{list(first.at)} found {first.found:.6g}, expected {first.expected:.6g}"
            )
