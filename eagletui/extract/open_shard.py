"""A shard under way: all that its file will say besides the states, which go to the file as they are computed.

The file is written from front to back in one pass. What its header says is known last, so room for it is reserved at
the front: safetensors lets spaces follow the JSON. Behind it come the states, and then, in `Rest`, the small tensors,
without a gap: no loader takes one.
"""

import json
import struct
from array import array
from collections.abc import Iterable
from itertools import accumulate, chain
from typing import Final, NamedTuple

import torch

from eagletui.core.features import ID_BYTES, SCALE_BYTES, SLOTS, STORED_BYTES, DType, Stored, row_bytes
from eagletui.extract import fp8
from eagletui.extract.shards import STORED_NAMES, TENSORS, IdsSample

_ALIGNED_BYTES: Final = 8
"""Readers view a tensor where it lies; int64 must lie at a multiple of its size."""

_RESERVED_BYTES: Final = 4096
_RESERVED_SHARE: Final = 1024
"""One byte in so many of a full shard is reserved for ids on top: 260 KiB of 256 MiB."""


class LostInFp8(ValueError):
    """Streams of a token are so unlike in size that eight bits with one scale hold only the larger ones."""


class Encoded(NamedTuple):
    """The states of a record as they lie in a file."""

    states: torch.Tensor
    """[T, 4, H], contiguous."""
    scales: torch.Tensor | None
    """float32 [T, 1, 1] in fp8."""

    @property
    def bytes(self) -> int:
        """Of the states."""
        return int(self.states.nbytes)


class ShardKind(NamedTuple):
    """What all shards of an extraction have in common."""

    hidden_size: int
    dtype: DType
    """What states are computed in."""
    stored: Stored
    """How they lie in the file."""
    capacity_rows: int
    """Of a full shard."""
    expected_rows: int | None = None
    """Tokens still to come, where that is known: what is less than a shard needs less of a header."""

    def encode(self, sample: IdsSample, hidden_states: torch.Tensor) -> Encoded:
        """Bring the states of a sample into the form of the file; where they have it, nothing is copied.

        Args:
            sample: T ids.
            hidden_states: [T, 4, H] on the CPU.

        Raises:
            LostInFp8: eight bits cannot hold them.
        """
        expected = (len(sample.token_ids), SLOTS, self.hidden_size)
        if tuple(hidden_states.shape) != expected:
            raise ValueError(f"Sample {sample.key} has states of shape {list(hidden_states.shape)}, not {expected}.")
        exact = hidden_states.to(getattr(torch, self.dtype)).contiguous()
        if self.stored != "fp8":
            return Encoded(exact, None)
        quantized = fp8.quantize(exact)
        lost = fp8.lost_rows(quantized)
        if lost:
            raise LostInFp8(f"in fp8 {lost} of {len(hidden_states)} rows lose a whole stream beside a larger one.")
        return Encoded(quantized.states, quantized.scales)

    @property
    def header_bytes(self) -> int:
        """Reserved at the front of a file."""
        rows = self.capacity_rows if self.expected_rows is None else min(self.capacity_rows, self.expected_rows)
        return _aligned(_RESERVED_BYTES + rows * row_bytes(self.hidden_size, self.stored) // _RESERVED_SHARE)


class Rest(NamedTuple):
    """What completes a file whose states are written."""

    header: bytes
    """Exactly as long as the room that was reserved for it."""
    tail: bytes
    """The tensors behind the states."""


class OpenShard:
    """Records that will be one shard: their ids, their scales in fp8, and how much room is left."""

    def __init__(self, kind: ShardKind, keys: Iterable[str]) -> None:
        """Begin an empty shard.

        Args:
            kind: what all shards of the extraction have in common.
            keys: the header will have room for the ids of these samples, however long.
        """
        self.kind = kind
        self.samples: list[IdsSample] = []
        self.rows = 0
        self.header_bytes = max(kind.header_bytes, _aligned(_FIXED_BYTES + sum(map(_key_bytes, keys))))
        """Of the file, before the states."""
        self._keys_bytes = 0
        self._scales: list[torch.Tensor] = []

    def has_room(self, sample: IdsSample) -> bool:
        """Tell whether the rows of a sample and its id fit. An empty shard takes one of any length."""
        if not self.samples:
            return True
        fits = _FIXED_BYTES + self._keys_bytes + _key_bytes(sample.key) <= self.header_bytes
        return fits and self.rows + len(sample.token_ids) <= self.kind.capacity_rows

    def add(self, sample: IdsSample, scales: torch.Tensor | None) -> None:
        """Take note of a record whose states come next in the file.

        Args:
            sample: T ids and their mask.
            scales: float32 [T, 1, 1] in fp8.
        """
        self.samples.append(sample)
        self.rows += len(sample.token_ids)
        self._keys_bytes += _key_bytes(sample.key)
        if scales is not None:
            self._scales.append(scales)

    @property
    def tail_bytes(self) -> int:
        """What the records so far take behind their states."""
        each = 2 * ID_BYTES + (SCALE_BYTES if self.kind.stored == "fp8" else 0)
        return self.rows * each + (len(self.samples) + 1) * ID_BYTES

    def rest(self) -> Rest:
        """Return what completes the file; there is at least one record."""
        row = SLOTS * self.kind.hidden_size * STORED_BYTES[self.kind.stored]
        states = _Tensor("hidden_states", STORED_NAMES[self.kind.stored], (self.rows, SLOTS, self.kind.hidden_size))
        tail = [
            _Tensor("token_ids", "I64", (self.rows,), _int64(chain.from_iterable(s.token_ids for s in self.samples))),
            _Tensor("loss_mask", "I64", (self.rows,), _int64(chain.from_iterable(s.loss_mask for s in self.samples))),
            _Tensor("offsets", "I64", (len(self.samples) + 1,), _int64(self._offsets())),
        ]
        if self._scales:
            scales = _Tensor(fp8.SCALES, "F32", (self.rows, 1, 1), bytes(as_bytes(torch.cat(self._scales))))
            # An odd number of rows of an odd width ends beside a multiple of 8 bytes; its scales fill the gap.
            tail.insert(len(tail) if self.rows * row % _ALIGNED_BYTES == 0 else 0, scales)
        sizes = [self.rows * row, *(len(tensor.content) for tensor in tail)]
        header = _header([states, *tail], sizes, [sample.key for sample in self.samples], self.kind.dtype)
        return Rest(
            struct.pack("<Q", self.header_bytes - _LENGTH_BYTES) + header.ljust(self.header_bytes - _LENGTH_BYTES),
            b"".join(tensor.content for tensor in tail),
        )

    def _offsets(self) -> Iterable[int]:
        return accumulate((len(sample.token_ids) for sample in self.samples), initial=0)


def as_bytes(tensor: torch.Tensor) -> memoryview:
    """View a contiguous tensor on the CPU as bytes, without a copy."""
    return memoryview(tensor.view(torch.uint8).numpy()).cast("B")


class _Tensor(NamedTuple):
    name: str
    dtype: str
    shape: tuple[int, ...]
    content: bytes = b""


def _header(tensors: Iterable[_Tensor], sizes: list[int], keys: list[str], dtype: str) -> bytes:
    places = [*accumulate(sizes, initial=0)]
    described = {
        tensor.name: {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": places[index : index + 2]}
        for index, tensor in enumerate(tensors)
    }
    metadata = {"sample_ids": json.dumps(keys), "dtype": dtype}
    return json.dumps({"__metadata__": metadata, **described}, separators=(",", ":")).encode()


def _int64(numbers: Iterable[int]) -> bytes:
    return array("q", numbers).tobytes()


def _aligned(size: int) -> int:
    return -(-size // _ALIGNED_BYTES) * _ALIGNED_BYTES


def _key_bytes(key: str) -> int:
    """What an id takes in a header: it is escaped twice, and a comma and a space part it from the next."""
    return len(json.dumps(json.dumps(key))) - len('""') + len(", ")


_LENGTH_BYTES: Final = 8
_LARGEST: Final = 2**63
_FIXED_BYTES: Final = _LENGTH_BYTES + len(
    _header(
        [_Tensor(name, STORED_NAMES["fp8"], (_LARGEST,) * 3) for name in (*TENSORS, fp8.SCALES)],
        [_LARGEST] * (len(TENSORS) + 1),
        [],
        "bfloat16",
    )
)
"""Of a header without ids, at most."""
