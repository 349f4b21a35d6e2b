"""Faults in exported folders, as a faulty writer, a wrong model or a disk would make them."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file, save_file

from eagletui.core.draft_vocabulary import choose_vocabulary
from eagletui.core.features import feature_layers
from eagletui.export import mapping, prepared
from eagletui.export.trainer_folder import find_trainer_manifest, read_rows, write_rows
from eagletui.extract.capture import Capture
from eagletui.extract.shards import hash_file
from eagletui.models.load import load_target


@dataclass(slots=True)
class Stored:
    """The features of one row, the same for every trainer's form."""

    ids: torch.Tensor
    aux: torch.Tensor
    """[T, 3, H]"""
    last: torch.Tensor
    """[T, H], on the side of the norm that the trainer wants."""


Fault = Callable[[Stored, Capture, str], None]


def swap_norm(stored: Stored, capture: Capture, trainer: str) -> None:
    """Put the last stream on the other side of the final norm."""
    pre = capture.one_by_one(stored.ids)[:, 3]
    with torch.inference_mode():
        post = capture.target.norm(pre)
    stored.last = (post if trainer == "speculators" else pre).clone()


def shift_layers(stored: Stored, capture: Capture, _trainer: str) -> None:
    """Take each auxiliary stream one layer later."""
    other = Capture(capture.target, feature_layers(capture.target.num_layers, (3, 5, 6)))
    stored.aux = other.one_by_one(stored.ids)[:, :3].clone()
    other.close()


def alter_id(stored: Stored, _capture: Capture, _trainer: str) -> None:
    """Change one token id."""
    stored.ids[3] = (stored.ids[3] + 1) % 500


def zero_states(stored: Stored, _capture: Capture, _trainer: str) -> None:
    """Zero what an interrupted copy would leave."""
    stored.aux[2:4] = 0
    stored.last[2:4] = 0


FAULTS: Final[tuple[tuple[Fault, str], ...]] = (
    (swap_norm, "streams"),
    (shift_layers, "streams"),
    (alter_id, "ids"),
    (zero_states, "values"),
)
"""Each fault with the check that finds it even where size and hash were made to agree."""


def damage(out: Path, model: Path, row: int, fault: Fault, *, cover: bool) -> None:
    """Change the features of a row; with `cover`, let the folder's own list agree, as a faulty writer would."""
    manifest, rows = find_trainer_manifest(out), read_rows(out)
    assert manifest is not None
    feature = rows[row].feature
    assert feature is not None
    path = out / feature.path
    stored = _load(path, manifest.trainer)
    capture = Capture(load_target(model, dtype="bfloat16", device="cpu"), feature_layers(8))
    fault(stored, capture, manifest.trainer)
    capture.close()
    _save(path, manifest.trainer, stored)
    if cover:
        rows[row] = replace(rows[row], feature=replace(feature, bytes=path.stat().st_size, xxh3=hash_file(path)))
        write_rows(out, rows)


def truncate(out: Path, row: int) -> None:
    """Cut the file of a row in half."""
    feature = read_rows(out)[row].feature
    assert feature is not None
    content = (out / feature.path).read_bytes()
    (out / feature.path).write_bytes(content[: len(content) // 2])


def make_vocabulary_stale(out: Path) -> None:
    """Replace both arrays by a consistent pair that other data would give."""
    manifest = find_trainer_manifest(out)
    assert manifest is not None
    facts = manifest.vocabulary
    other = choose_vocabulary(Counter(range(facts.size * 2, 0, -1)), facts.size, facts.target_size)
    if manifest.trainer == "speculators":
        prepared.write_vocabulary(out, other)
    else:
        mapping.write_mapping(out, other)


def _load(path: Path, trainer: str) -> Stored:
    if trainer == "speculators":
        tensors = load_file(path)
        states = tensors["hidden_states"]
        return Stored(tensors["token_ids"].clone(), states[:, :3].clone(), states[:, 3].clone())
    content: Any = torch.load(path, weights_only=True)
    last = content["hidden_state"][0]
    aux = content["aux_hidden_state"][0].reshape(len(last), 3, -1)
    return Stored(content["input_ids"].clone(), aux.clone(), last.clone())


def _save(path: Path, trainer: str, stored: Stored) -> None:
    if trainer == "speculators":
        states = torch.cat([stored.aux, stored.last[:, None]], dim=1).contiguous()
        save_file({"token_ids": stored.ids, "hidden_states": states}, path)
        return
    content: Any = torch.load(path, weights_only=True)
    content["input_ids"] = stored.ids
    content["aux_hidden_state"] = stored.aux.reshape(1, len(stored.ids), -1).clone()
    content["hidden_state"] = stored.last[None].clone()
    torch.save(content, path)
