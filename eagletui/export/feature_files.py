"""One file of features per row, in the form a trainer's loader opens.

Files are written whole, flushed and renamed; a file that is there already for the same sample, ids and shard is kept
or, where its row got another number, renamed.
"""

import io
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
import torch
import xxhash
from safetensors.torch import save

from eagletui.core.errors import RunError
from eagletui.core.features import AUX_LAYERS, SLOTS
from eagletui.export.feature_places import FeaturePlace
from eagletui.export.gathered import Gathered
from eagletui.export.trainer_folder import JOURNAL, ROWS, ExportedRow, FeatureFile, Journal, read_rows
from eagletui.extract.fp8 import SCALES, Quantized
from eagletui.extract.manifest import find_manifest
from eagletui.extract.shards import Record, ShardReader
from eagletui.extract.storage import open_storage
from eagletui.files.flushing import flush_folder
from eagletui.files.replacement import Replacement

STORED: Final = "bfloat16"
"""Type of the states in every trainer's files."""

_HEADER_BYTES: Final = 4096
"""More than any of the containers adds to its tensors."""

_MOVING: Final = ".moving-"


class FileForm(Protocol):
    """How a trainer wants the file of a row."""

    owned: "re.Pattern[str]"
    """Paths, relative to the exported folder, that only files of this form have."""

    loaded: "re.Pattern[str]"
    """Paths of all that the trainer would train on, whoever put it there."""

    def path(self, row: int) -> str:
        """Return the file of a row, relative to the exported folder."""

    def content(self, record: Record, rounded: Quantized | None) -> bytes:
        """Return what the file holds.

        Args:
            record: the features.
            rounded: the same states as a shard of fp8 holds them; None for other shards.
        """

    def token_bytes(self, hidden_size: int) -> int:
        """Return what a token takes."""


class SpeculatorsFile:
    """`hidden_states/hs_{row}.safetensors` of speculators 0.9.0 (`FileTransfer` in hs_connectors).

    `token_ids` int64 [T] and `hidden_states` bfloat16 [T, 4, H], the last slot before the final norm. With fp8 (class
    `FP8Transfer`) `hidden_states` is float8_e4m3fn and `hidden_states_scales` float32 [T, 1, 1] stands beside it.
    """

    owned = re.compile(r"\Ahidden_states/hs_(\d+)\.safetensors(\.lock)?\Z")
    loaded = owned

    def __init__(self, *, fp8: bool = False) -> None:
        """Take whether the shards hold fp8, which goes into the files as it is."""
        self._fp8 = fp8

    def path(self, row: int) -> str:
        """Return the file of a row."""
        return f"hidden_states/hs_{row}.safetensors"

    def token_bytes(self, hidden_size: int) -> int:
        """Return what a token takes."""
        return SLOTS * hidden_size + 12 if self._fp8 else SLOTS * hidden_size * 2 + 8

    def content(self, record: Record, rounded: Quantized | None) -> bytes:
        """Return the file's bytes."""
        ids = record.token_ids.contiguous()
        if rounded is not None:
            states, scales = (part.contiguous() for part in rounded)
            return bytes(save({"token_ids": ids, "hidden_states": states, SCALES: scales}))
        states = record.hidden_states.to(getattr(torch, STORED)).contiguous()
        return bytes(save({"token_ids": ids, "hidden_states": states}))


class SpecForgeFile:
    """`rows_{g}-{g+2000}/data_{row}.ckpt` of SpecForge 0.2.0 (contract `specforge_hidden_states_v1`).

    `input_ids` and `loss_mask` int64 [T], `aux_hidden_state` bfloat16 [1, T, 3H], `hidden_state` bfloat16 [1, T, H]
    after the final norm.
    """

    GROUP: Final = 2000
    owned = re.compile(r"\Arows_\d+-\d+/data_(\d+)\.ckpt\Z")
    loaded = re.compile(r".*\.ckpt(\.gz)?\Z", re.DOTALL)

    def __init__(self, norm: Callable[[Any], Any]) -> None:
        """Take the target's own final norm, a module that computes on the CPU."""
        self._norm = norm

    def path(self, row: int) -> str:
        """Return the file of a row."""
        first = row // self.GROUP * self.GROUP
        return f"rows_{first}-{first + self.GROUP}/data_{row}.ckpt"

    def token_bytes(self, hidden_size: int) -> int:
        """Return what a token takes."""
        return SLOTS * hidden_size * 2 + 16

    def content(self, record: Record, rounded: Quantized | None) -> bytes:
        """Return the file's bytes; states that were rounded come restored."""
        stored = getattr(torch, STORED)
        rows = len(record.token_ids)
        with torch.inference_mode():
            last = self._norm(record.hidden_states[None, :, AUX_LAYERS])
        # Clones: torch.save writes the whole storage that a view belongs to.
        tensors = {
            "input_ids": record.token_ids.clone(),
            "loss_mask": record.loss_mask.clone(),
            "aux_hidden_state": record.hidden_states[:, :AUX_LAYERS].reshape(1, rows, -1).to(stored).clone(),
            "hidden_state": last.to(stored).clone(),
        }
        stream = io.BytesIO()
        torch.save(tensors, stream)
        return stream.getvalue()


@dataclass(frozen=True, slots=True)
class FilePlan:
    """What has to be done so that every row has its file."""

    kept: dict[int, ExportedRow]
    """Rows whose file is right and in place, by number."""
    moved: dict[int, tuple[ExportedRow, FeatureFile]]
    """Rows whose file is right and has another row's name, by number, with where it lies."""
    missing: tuple[int, ...]
    """Numbers of the rows to be written."""
    bytes: int
    """Needed for those, rounded up."""


def plan_files(
    out: Path, form: FileForm, rows: Sequence[ExportedRow], places: Mapping[str, FeaturePlace], hidden_size: int
) -> FilePlan:
    """Find out which files are there already.

    Args:
        out: the exported folder.
        form: of its files.
        rows: every row, in order, without its file.
        places: by sample, where its features are.
        hidden_size: H.

    Raises:
        RunError: a file that the trainer would train on is there, and no export made it.
    """
    strange = [path for path in files_like(out, form.loaded) if not form.owned.match(path)]
    if strange:
        more = f", and {len(strange) - 1} more" if len(strange) > 1 else ""
        raise RunError(
            f"{out / strange[0]}{more}: no export made it, and the trainer would train on it. Remove it, or name "
            "another folder with --out."
        )
    known = {row.sample: row for row in read_rows(out, JOURNAL if (out / JOURNAL).exists() else ROWS)}
    kept: dict[int, ExportedRow] = {}
    moved: dict[int, tuple[ExportedRow, FeatureFile]] = {}
    missing, needed = [], 0
    for number, row in enumerate(rows):
        place, before = places[row.sample], known.get(row.sample)
        file = None if before is None or before.ids_digest != row.ids_digest else before.feature
        if file is None or (file.shard_xxh3, file.position) != place[1:] or not _is_there(out, file):
            missing.append(number)
            needed += row.tokens * form.token_bytes(hidden_size) + _HEADER_BYTES
        elif file.path == form.path(number):
            kept[number] = replace(row, feature=file)
        else:
            moved[number] = (row, file)
    return FilePlan(kept, moved, tuple(missing), needed)


def write_files(
    out: Path,
    form: FileForm,
    plan: FilePlan,
    rows: Sequence[ExportedRow],
    places: Mapping[str, FeaturePlace],
    features: Path,
    gathered: Gathered,
    step: Callable[[int, int], None],
) -> list[ExportedRow]:
    """Give every row its file and remove those of no row.

    Args:
        out: the exported folder.
        form: of its files.
        plan: from `plan_files`.
        rows: every row, in order, without its file.
        places: by sample, where its features are.
        features: the run's features folder.
        gathered: the ids that the ledger holds.
        step: told how many files of how many are written.

    Returns:
        the rows with their files.

    Raises:
        RunError: a shard cannot be read, or holds other ids than the ledger.
    """
    done = dict(plan.kept)
    with Replacement(out / JOURNAL) as stream:
        for row in done.values():
            stream.write(msgspec.json.encode(row) + b"\n")
    _sweep(out)
    with closing(Journal(out)) as journal:
        for number, row in _moved(out, form, plan):
            done[number] = row
            journal.add(row)
        for count, (number, record, rounded) in enumerate(_records(plan.missing, rows, places, features), 1):
            row, place = rows[number], places[rows[number].sample]
            _require_same_ids(record, row, gathered)
            content = form.content(record, rounded)
            path = out / form.path(number)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            with Replacement(path) as stream:
                stream.write(content)
            digest = xxhash.xxh3_128_hexdigest(content)
            file = FeatureFile(form.path(number), len(content), digest, place.shard_xxh3, place.position)
            done[number] = replace(row, feature=file)
            journal.add(done[number])
            step(count, len(plan.missing))
    wanted = {form.path(number) for number in range(len(rows))}
    for stray in files_like(out, form.owned):
        if stray not in wanted:
            (out / stray).unlink()
    return [done[number] for number in range(len(rows))]


def _moved(out: Path, form: FileForm, plan: FilePlan) -> Iterator[tuple[int, ExportedRow]]:
    """Give files the names of their rows' new numbers, all of them out of the way first."""
    for number, (_row, file) in plan.moved.items():
        os.rename(out / file.path, (out / file.path).with_name(f"{_MOVING}{number}"))
    for number, (row, file) in plan.moved.items():
        path = out / form.path(number)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        os.replace((out / file.path).with_name(f"{_MOVING}{number}"), path)
        flush_folder(path.parent)
        yield number, replace(row, feature=replace(file, path=form.path(number)))


def files_like(out: Path, pattern: "re.Pattern[str]") -> list[str]:
    """List the files of a folder whose paths, relative to it, match."""
    found = (os.path.relpath(Path(root) / name, out) for root, _folders, names in os.walk(out) for name in names)
    return sorted(path for path in found if pattern.match(path))


def _records(
    missing: Sequence[int], rows: Sequence[ExportedRow], places: Mapping[str, FeaturePlace], features: Path
) -> Iterator[tuple[int, Record, Quantized | None]]:
    """Read records shard by shard, in the order in which they lie there."""
    by_shard: dict[str, list[int]] = {}
    for number in missing:
        by_shard.setdefault(places[rows[number].sample].shard, []).append(number)
    manifest = find_manifest(features)
    storage = open_storage(features, None if manifest is None else manifest.storage)
    for shard in sorted(by_shard):
        with storage.fetched(shard) as file, ShardReader(file) as reader:
            for number in sorted(by_shard[shard], key=lambda number: places[rows[number].sample].position):
                position = places[rows[number].sample].position
                rounded = reader.rounded(position) if reader.stored == "fp8" else None
                yield number, reader.record(position), rounded


def _require_same_ids(record: Record, row: ExportedRow, gathered: Gathered) -> None:
    sample = gathered.sample(row.sample)
    same = record.token_ids.tolist() == sample.token_ids.tolist() and record.loss_mask.tolist() == sample.loss_mask
    if record.key != row.sample or not same:
        raise RunError(
            f"The features of {row.sample} were computed over other ids than the ledger holds now. "
            "Extract again, then export; eagletui verify names every such sample."
        )


def _is_there(out: Path, file: FeatureFile) -> bool:
    try:
        return (out / file.path).stat().st_size == file.bytes
    except OSError:
        return False


def _sweep(out: Path) -> None:
    """Remove files that an interrupted export took out of the way: their rows are written again."""
    for root, _folders, names in os.walk(out):
        for name in names:
            if name.startswith(_MOVING):
                (Path(root) / name).unlink()
