"""Shards: sealed safetensors files of records, and nothing half-written under a final name.

A shard holds `token_ids` int64 [N], `loss_mask` int64 [N], `hidden_states` [N, 4, H] and `offsets` int64 [S+1]; its
metadata holds `sample_ids`, a JSON list of S strings. Sample i is the rows from `offsets[i]` to `offsets[i+1]`.
In fp8 there is `hidden_states_scales` float32 [N, 1, 1] too, and the metadata's `dtype` is what was rounded.
"""

import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import torch
import xxhash
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from eagletui.core.errors import RunError
from eagletui.core.features import DTYPES, SLOTS, DType, Stored, shard_number, shard_path
from eagletui.extract import fp8

TENSORS: Final = ("token_ids", "loss_mask", "hidden_states", "offsets")
MARK: Final = ".ack"
"""Behind a shard's name: the empty file by which a trainer says that it has read the shard."""

_CHUNK_BYTES: Final = 16 * 1024 * 1024
_STORED: Final[dict[str, Stored]] = {"F32": "float32", "BF16": "bfloat16", "F16": "float16", "F8_E4M3": "fp8"}


@dataclass(frozen=True, slots=True)
class IdsSample:
    """One sample whose features are wanted: ids that were fixed long before."""

    key: str
    """The id that a trainer sees."""
    token_ids: tuple[int, ...]
    """Prompt and output, length T."""
    loss_mask: tuple[int, ...]
    """1 on sampled tokens, length T."""
    sample_id: int | None = None
    """The ledger's row; None for samples from a file."""
    revision: int | None = None
    """The ledger's revision of these ids; None for samples from a file."""
    dataset: str = ""
    """Of samples from a file that name one; a run's ledger knows it."""


@dataclass(frozen=True, slots=True)
class SealedSample:
    """Where a sample lies in its shard."""

    sample: IdsSample
    position: int
    """Index into the shard's offsets."""


@dataclass(frozen=True, slots=True)
class SealedShard:
    """A shard under its final name, flushed to disk."""

    path: str
    """Relative to the features folder."""
    samples: tuple[SealedSample, ...]
    rows: int
    bytes: int
    xxh3: str
    """xxh3_128 of the file, hex."""


class LostInFp8(ValueError):
    """Streams of a token are so unlike in size that eight bits with one scale hold only the larger ones."""


@dataclass(slots=True)
class OpenShard:
    """Records gathered in memory until they fill a shard."""

    hidden_size: int
    dtype: DType
    stored: Stored
    capacity_rows: int
    """Allocated at once; rows are copied in, so that sealing copies nothing."""
    samples: list[IdsSample] = field(default_factory=list)
    rows: int = 0
    _states: Any = None
    _scales: Any = None
    _token_ids: list[int] = field(default_factory=list)
    _loss_mask: list[int] = field(default_factory=list)
    _offsets: list[int] = field(default_factory=lambda: [0])

    def has_room(self, rows: int) -> bool:
        """Tell whether a record of `rows` tokens fits. An empty shard takes one of any length."""
        return not self.samples or self.rows + rows <= self.capacity_rows

    def add(self, sample: IdsSample, hidden_states: torch.Tensor) -> None:
        """Append a record.

        Args:
            sample: T ids and their mask.
            hidden_states: [T, 4, H] in the shard's dtype, on the CPU.

        Raises:
            LostInFp8: eight bits cannot hold them. The shard is as before.
        """
        end = self.rows + len(sample.token_ids)
        quantized = fp8.quantize(hidden_states) if self.stored == "fp8" else None
        lost = 0 if quantized is None else fp8.lost_rows(quantized)
        if lost:
            raise LostInFp8(f"in fp8 {lost} of {len(hidden_states)} rows lose a whole stream beside a larger one.")
        if self._states is None:
            rows = max(self.capacity_rows, end)
            kind = getattr(torch, self.dtype) if quantized is None else fp8.TYPE
            self._states = torch.empty((rows, SLOTS, self.hidden_size), dtype=kind)
            self._scales = torch.empty((rows if quantized is not None else 0, 1, 1), dtype=torch.float32)
        if quantized is None:
            self._states[self.rows : end].copy_(hidden_states)
        else:
            self._states[self.rows : end].copy_(quantized.states)
            self._scales[self.rows : end].copy_(quantized.scales)
        self._token_ids.extend(sample.token_ids)
        self._loss_mask.extend(sample.loss_mask)
        self._offsets.append(end)
        self.samples.append(sample)
        self.rows = end

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return what the file will hold."""
        tensors = {
            "token_ids": torch.tensor(self._token_ids, dtype=torch.int64),
            "loss_mask": torch.tensor(self._loss_mask, dtype=torch.int64),
            "hidden_states": self._states[: self.rows],
            "offsets": torch.tensor(self._offsets, dtype=torch.int64),
        }
        return {**tensors, fp8.SCALES: self._scales[: self.rows]} if self.stored == "fp8" else tensors

    def metadata(self) -> dict[str, str]:
        """Return what the file's header will say."""
        return {"sample_ids": json.dumps([sample.key for sample in self.samples]), "dtype": self.dtype}


class Record(NamedTuple):
    """One sample's features, as read from a shard."""

    key: str
    token_ids: torch.Tensor
    """int64 [T]"""
    loss_mask: torch.Tensor
    """int64 [T]"""
    hidden_states: torch.Tensor
    """[T, 4, H]"""


def seal(folder: Path, number: int, shard: OpenShard, attempt: str | None = None) -> SealedShard:
    """Write a shard under a temporary name, flush it, give it its final name and flush the folder.

    Args:
        folder: the features folder.
        number: the shard's number, unused so far.
        shard: at least one record.
        attempt: hex that tells this attempt's file from those of others at the same shard; None: there are none.

    Raises:
        OSError, SafetensorError: the disk is full or broken; nothing is left under the final name.
    """
    path = shard_path(number, attempt)
    final = folder / path
    temporary = final.with_name(final.name + ".tmp")
    final.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        save_file(shard.tensors(), temporary, metadata=shard.metadata())
        os.chmod(temporary, 0o600)
        flush_file(temporary)
        size, digest = temporary.stat().st_size, hash_file(temporary)
        os.rename(temporary, final)
    except BaseException:
        with suppress(FileNotFoundError):
            temporary.unlink()
        raise
    flush_folder(final.parent)
    placed = tuple(SealedSample(sample, position) for position, sample in enumerate(shard.samples))
    return SealedShard(path, placed, shard.rows, size, digest)


def flush_file(path: Path) -> None:
    """Wait until a file's content is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_folder(folder: Path) -> None:
    """Wait until a folder's names are on the disk."""
    flush_file(folder)


def hash_file(path: Path) -> str:
    """Return a file's xxh3_128, hex."""
    digest = xxhash.xxh3_128()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def shard_files(folder: Path) -> dict[str, Path]:
    """Map relative paths to the shards under final names that lie in the folder."""
    found = {f"shards/{file.name}": file for file in sorted((folder / "shards").glob("*.safetensors"))}
    return {path: file for path, file in found.items() if shard_number(path) is not None}


def remove_orphans(folder: Path, known: Iterable[str]) -> tuple[str, ...]:
    """Remove shards that no ledger row names, their marks and temporary files: a process died before it committed them.

    Args:
        folder: the features folder, whose extractor lock the caller holds.
        known: relative paths of the committed shards.

    Returns:
        the relative paths removed.
    """
    keep = set(known)
    orphans = [path for path in shard_files(folder) if path not in keep]
    orphans += [f"shards/{file.name}" for file in sorted((folder / "shards").glob("*.safetensors.tmp"))]
    marks = (f"shards/{file.name}" for file in sorted((folder / "shards").glob(f"*.safetensors{MARK}")))
    orphans += [mark for mark in marks if mark.removesuffix(MARK) not in keep]  # their numbers are given again
    for path in orphans:
        (folder / path).unlink()
    if orphans:
        flush_folder(folder / "shards")
    return tuple(orphans)


def _open(file: Path) -> Any:
    return safe_open(file, framework="pt")


class ShardReader:
    """An open shard. Tensors are mapped, not read, until a record is asked for."""

    def __init__(self, file: Path) -> None:
        """Open a shard and check that its parts fit together.

        Args:
            file: the `.safetensors` file.

        Raises:
            RunError: it cannot be read, or is not a shard; the message says how.
        """
        self.file = file
        try:
            self._tensors = _open(file)
            names = set(self._tensors.keys())
            metadata = self._tensors.metadata() or {}
            self.keys: Sequence[str] = json.loads(metadata.get("sample_ids", "null"))
        except (OSError, SafetensorError, ValueError) as error:
            raise RunError(f"{file} cannot be read: {error}") from error
        if names - {fp8.SCALES} != set(TENSORS) or not isinstance(self.keys, list):
            raise RunError(
                f"{file} is not a shard: it holds {sorted(names)}, expected {sorted(TENSORS)} and sample_ids."
            )
        offsets = self._tensors.get_tensor("offsets")
        self.shapes = {name: tuple(self._tensors.get_slice(name).get_shape()) for name in names}
        self.stored: Stored = self._stored()
        """How the states lie in the file."""
        stated = metadata.get("dtype", "unknown")
        self.dtype: str = stated if self.stored == "fp8" else self.stored
        """What they were computed in, and what a record gives."""
        self.offsets: list[int] = offsets.tolist() if offsets.dtype == torch.int64 else []
        self._check_layout()

    @property
    def rows(self) -> int:
        """Tokens in the shard."""
        return self.offsets[-1]

    def token_ids(self) -> torch.Tensor:
        """Return all ids, int64 [N]."""
        ids: torch.Tensor = self._tensors.get_tensor("token_ids")
        return ids

    def record(self, position: int) -> Record:
        """Read one sample.

        Args:
            position: index of the sample, from 0.
        """
        rows = slice(self.offsets[position], self.offsets[position + 1])
        token_ids, loss_mask, states = (self._tensors.get_slice(name)[rows] for name in TENSORS[:3])
        if self.stored == "fp8":
            states = fp8.restore(self.rounded(position), getattr(torch, self.dtype))
        return Record(self.keys[position], token_ids, loss_mask, states)

    def rounded(self, position: int) -> fp8.Quantized:
        """Read one sample's states as they lie in a shard of fp8."""
        rows = slice(self.offsets[position], self.offsets[position + 1])
        return fp8.Quantized(*(self._tensors.get_slice(name)[rows] for name in ("hidden_states", fp8.SCALES)))

    def close(self) -> None:
        """Unmap the file."""
        del self._tensors

    def __enter__(self) -> Self:
        """Return the reader."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def _stored(self) -> Stored:
        found = str(self._tensors.get_slice("hidden_states").get_dtype())
        stored = _STORED.get(found)
        if stored is None or (stored == "fp8") != (fp8.SCALES in self.shapes):
            raise RunError(
                f"{self.file} holds states of {found} {'with' if fp8.SCALES in self.shapes else 'without'} scales."
            )
        return stored

    def _check_layout(self) -> None:
        offsets, samples = self.offsets, len(self.keys)
        growing = all(low < high for low, high in pairwise(offsets))
        if len(offsets) != samples + 1 or offsets[0] != 0 or not growing:
            raise RunError(f"{self.file} has broken offsets: {len(offsets)} for {samples} samples.")
        rows = offsets[-1]
        states = self.shapes["hidden_states"]
        fits = self.shapes["token_ids"] == self.shapes["loss_mask"] == (rows,) and states[:2] == (rows, SLOTS)
        fits = fits and self.shapes.get(fp8.SCALES, (rows, 1, 1)) == (rows, 1, 1) and self.dtype in DTYPES
        if not fits or len(states) != 3:
            raise RunError(
                f"{self.file} has tensors of unlike length or type: {self.shapes} of {self.dtype}, expected {rows} "
                "rows each."
            )
