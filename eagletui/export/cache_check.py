"""Check TorchSpec's cache: that it is found by the key of its data file, and holds that file's rows."""

import json
import pickle
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch

from eagletui.core.checks import Check, Faults
from eagletui.core.loss_mask import packed_mask
from eagletui.export.rows import TrainingRow
from eagletui.export.token_manifest import CacheFacts, FileFacts, TokenManifest
from eagletui.export.token_rows import rows_of_lines
from eagletui.export.torchspec import CACHE_DIR, ENTRIES, TorchSpecConfig, cache_key
from eagletui.export.torchspec_config import CONFIG_FILE


def check_cache(folder: Path, manifest: TokenManifest) -> Iterator[Check]:
    """Hold each file's entry to its rows, and the run config to what the keys were made of.

    Args:
        folder: the exported folder.
        manifest: its manifest.
    """
    facts = manifest.torchspec
    assert facts is not None
    folder = folder.absolute()
    faults = Faults("cache", "TorchSpec finds an entry for each file, and it holds the file's ids and masks")
    for file in manifest.files:
        _check_entry(folder, file, facts, faults)
    yield faults.check()
    yield _check_config(folder, facts)


def _check_entry(folder: Path, file: FileFacts, facts: CacheFacts, faults: Faults) -> None:
    data = folder / file.file
    if not data.is_file():
        return
    key = cache_key(data, TorchSpecConfig(facts.target_model_path, facts.max_seq_length, facts.chat_template))
    place = folder / CACHE_DIR / ENTRIES / f"{key}.pt"
    try:
        samples: Any = torch.load(place, weights_only=True)
    except FileNotFoundError:
        faults.add(
            f"{file.file} has no entry under the key that TorchSpec looks for, {key}: it was moved, or touched since. "
            "Export again, in the place where it stays"
        )
        return
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        faults.add(f"{place.name} cannot be read: {error}")
        return
    if not isinstance(samples, list):
        faults.add(f"{place.name} holds {type(samples).__name__}, expected the list of {file.file}'s samples")
        return
    for number, (row, sample) in enumerate(zip_longest(rows_of_lines(data, Faults("", "")), samples)):
        if row is None or sample is None or not _is_same(row, sample):
            faults.add(f"{place.name} holds another sample {number} than {file.file}")


def _is_same(row: TrainingRow, sample: Any) -> bool:
    try:
        ids: Any = sample["input_ids"]
        return bool(
            sample["data_id"] == row.id
            and sample["packed_loss_mask"] == packed_mask(row.prompt_tokens, row.output_tokens)
            and ids.dtype == torch.int64
            and ids.tolist() == list(row.input_ids)
        )
    except (KeyError, TypeError, AttributeError):
        return False


def _check_config(folder: Path, facts: CacheFacts) -> Check:
    faults = Faults("config", f"{CONFIG_FILE} states what the cache was made for")
    try:
        config: Any = json.loads((folder / CONFIG_FILE).read_bytes())
    except (OSError, ValueError) as error:
        faults.add(f"{CONFIG_FILE} cannot be read as it was written: {error}")
        return faults.check()
    wanted = {
        ("model", "target_model_path"): facts.target_model_path,
        ("training", "max_seq_length"): facts.max_seq_length,
        ("training", "train_with_decode"): False,
        ("dataset", "chat_template"): facts.chat_template,
        ("dataset", "last_turn_loss_only"): False,
        ("dataset", "defer_tokenization"): False,
    }
    for (section, name), value in wanted.items():
        there = config.get(section) if isinstance(config, dict) else None
        found = there.get(name) if isinstance(there, dict) else None
        if found != value:
            faults.add(f"{section}.{name} is {json.dumps(found)}, the cache was made for {json.dumps(value)}")
    return faults.check()
