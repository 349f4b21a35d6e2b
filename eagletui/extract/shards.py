"""Shards: sealed safetensors files of records, and nothing half-written under a final name.

A shard holds `token_ids` int64 [N], `loss_mask` int64 [N], `hidden_states` [N, 4, H] and `offsets` int64 [S+1]; its
metadata holds `sample_ids`, a JSON list of S strings. Sample i is the rows from `offsets[i]` to `offsets[i+1]`.
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
from eagletui.core.features import SLOTS, DType, shard_number, shard_path

TENSORS: Final = ("token_ids", "loss_mask", "hidden_states", "offsets")
_CHUNK_BYTES: Final = 16 * 1024 * 1024


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


@dataclass(slots=True)
class OpenShard:
    """Records gathered in memory until they fill a shard."""

    hidden_size: int
    dtype: DType
    capacity_rows: int
    """Allocated at once; rows are copied in, so that sealing copies nothing."""
    samples: list[IdsSample] = field(default_factory=list)
    rows: int = 0
    _states: Any = None
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
        """
        end = self.rows + len(sample.token_ids)
        if self._states is None:
            shape = (max(self.capacity_rows, end), SLOTS, self.hidden_size)
            self._states = torch.empty(shape, dtype=getattr(torch, self.dtype))
        self._states[self.rows : end].copy_(hidden_states)
        self._token_ids.extend(sample.token_ids)
        self._loss_mask.extend(sample.loss_mask)
        self._offsets.append(end)
        self.samples.append(sample)
        self.rows = end

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return what the file will hold."""
        return {
            "token_ids": torch.tensor(self._token_ids, dtype=torch.int64),
            "loss_mask": torch.tensor(self._loss_mask, dtype=torch.int64),
            "hidden_states": self._states[: self.rows],
            "offsets": torch.tensor(self._offsets, dtype=torch.int64),
        }


class Record(NamedTuple):
    """One sample's features, as read from a shard."""

    key: str
    token_ids: torch.Tensor
    """int64 [T]"""
    loss_mask: torch.Tensor
    """int64 [T]"""
    hidden_states: torch.Tensor
    """[T, 4, H]"""


def seal(folder: Path, number: int, shard: OpenShard) -> SealedShard:
    """Write a shard under a temporary name, flush it, give it its final name and flush the folder.

    Args:
        folder: the features folder.
        number: the shard's number, unused so far.
        shard: at least one record.

    Raises:
        OSError, SafetensorError: the disk is full or broken; nothing is left under the final name.
    """
    path = shard_path(number)
    final = folder / path
    temporary = final.with_name(final.name + ".tmp")
    final.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        save_file(shard.tensors(), temporary, metadata={"sample_ids": json.dumps([s.key for s in shard.samples])})
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
    """Remove shards that no ledger row names and temporary files: a process died before it committed them.

    Args:
        folder: the features folder, whose extractor lock the caller holds.
        known: relative paths of the committed shards.

    Returns:
        the relative paths removed.
    """
    keep = set(known)
    orphans = [path for path in shard_files(folder) if path not in keep]
    orphans += [f"shards/{file.name}" for file in sorted((folder / "shards").glob("*.safetensors.tmp"))]
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
        if names != set(TENSORS) or not isinstance(self.keys, list):
            raise RunError(
                f"{file} is not a shard: it holds {sorted(names)}, expected {sorted(TENSORS)} and sample_ids."
            )
        offsets = self._tensors.get_tensor("offsets")
        self.shapes = {name: tuple(self._tensors.get_slice(name).get_shape()) for name in TENSORS}
        self.dtype = str(self._tensors.get_slice("hidden_states").get_dtype())
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
        parts = [self._tensors.get_slice(name)[rows] for name in ("token_ids", "loss_mask", "hidden_states")]
        return Record(self.keys[position], *parts)

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

    def _check_layout(self) -> None:
        offsets, samples = self.offsets, len(self.keys)
        growing = all(low < high for low, high in pairwise(offsets))
        if len(offsets) != samples + 1 or offsets[0] != 0 or not growing:
            raise RunError(f"{self.file} has broken offsets: {len(offsets)} for {samples} samples.")
        rows = offsets[-1]
        states = self.shapes["hidden_states"]
        fits = self.shapes["token_ids"] == self.shapes["loss_mask"] == (rows,) and states[:2] == (rows, SLOTS)
        if not fits or len(states) != 3:
            raise RunError(f"{self.file} has tensors of unlike length: {self.shapes}, expected {rows} rows each.")
