"""Shards: sealed safetensors files of records, and nothing half-written under a final name.

A shard holds `token_ids` int64 [N], `loss_mask` int64 [N], `hidden_states` [N, 4, H] and `offsets` int64 [S+1]; its
metadata holds `sample_ids`, a JSON list of S strings. Sample i is the rows from `offsets[i]` to `offsets[i+1]`.
In fp8 there is `hidden_states_scales` float32 [N, 1, 1] too, and the metadata's `dtype` is what was rounded.
"""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import torch
import xxhash
from safetensors import SafetensorError, safe_open

from eagletui.core.errors import RunError
from eagletui.core.features import DTYPES, SLOTS, Stored, shard_number
from eagletui.extract import fp8
from eagletui.files.flushing import flush_folder

TENSORS: Final = ("token_ids", "loss_mask", "hidden_states", "offsets")
MARK: Final = ".ack"
"""Behind a shard's name: the empty file by which a trainer says that it has read the shard."""

_CHUNK_BYTES: Final = 4 * 1024 * 1024
_BLOCK_BYTES: Final = 512
"""What `st_blocks` counts in, on every file system."""

STORED_NAMES: Final[dict[Stored, str]] = {"float32": "F32", "bfloat16": "BF16", "float16": "F16", "fp8": "F8_E4M3"}
"""How safetensors calls the types that states lie in."""

_STORED: Final = {name: stored for stored, name in STORED_NAMES.items()}


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


class Record(NamedTuple):
    """One sample's features, as read from a shard."""

    key: str
    token_ids: torch.Tensor
    """int64 [T]"""
    loss_mask: torch.Tensor
    """int64 [T]"""
    hidden_states: torch.Tensor
    """[T, 4, H]"""


def hash_file(path: Path) -> str:
    """Return a file's xxh3_128, hex."""
    digest = xxhash.xxh3_128()
    chunk = memoryview(bytearray(_CHUNK_BYTES))
    with path.open("rb", buffering=0) as stream:
        while size := stream.readinto(chunk):
            digest.update(chunk[:size])
    return digest.hexdigest()


def shard_files(folder: Path) -> dict[str, Path]:
    """Map relative paths to the shards under final names that lie in the folder."""
    found = {f"shards/{file.name}": file for file in sorted((folder / "shards").glob("*.safetensors"))}
    return {path: file for path, file in found.items() if shard_number(path) is not None}


def find_orphans(folder: Path, known: Iterable[str]) -> tuple[str, ...]:
    """List shards that no ledger row names, their marks and temporary files: nobody committed them.

    Args:
        folder: the features folder.
        known: relative paths of the committed shards.
    """
    keep = set(known)
    orphans = [path for path in shard_files(folder) if path not in keep]
    orphans += [f"shards/{file.name}" for file in sorted((folder / "shards").glob("*.safetensors.tmp"))]
    marks = (f"shards/{file.name}" for file in sorted((folder / "shards").glob(f"*.safetensors{MARK}")))
    orphans += [mark for mark in marks if mark.removesuffix(MARK) not in keep]  # their numbers are given again
    return tuple(orphans)


def orphan_bytes(folder: Path, known: Iterable[str]) -> int:
    """Count the bytes on the disk that `remove_orphans` gives back; 0 where there is no folder yet."""
    total = 0
    for path in find_orphans(folder, known):
        with suppress(FileNotFoundError):  # a worker elsewhere may tidy up too
            total += (folder / path).stat().st_blocks * _BLOCK_BYTES
    return total


def remove_orphans(folder: Path, known: Iterable[str]) -> tuple[str, ...]:
    """Remove what `find_orphans` lists.

    Args:
        folder: the features folder, whose extractor lock the caller holds.
        known: relative paths of the committed shards.

    Returns:
        the relative paths removed.
    """
    orphans = find_orphans(folder, known)
    for path in orphans:
        (folder / path).unlink(missing_ok=True)  # a worker elsewhere may tidy up too
    if orphans:
        flush_folder(folder / "shards")
    return orphans


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
        are_keys = isinstance(self.keys, list) and all(isinstance(key, str) for key in self.keys)
        if names - {fp8.SCALES} != set(TENSORS) or not are_keys:
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
