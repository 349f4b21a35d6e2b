"""Shards of a few made-up records, and disks that refuse."""

import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import torch

from eagletui.core.features import Stored
from eagletui.extract.open_shard import OpenShard, ShardKind, as_bytes
from eagletui.extract.shard_file import ShardFile
from eagletui.extract.shard_writer import ShardWriter
from eagletui.extract.shards import IdsSample, SealedShard
from eagletui.extract.space import DiskSpace

HIDDEN: Final = 8
KIND: Final = ShardKind(HIDDEN, "bfloat16", "bfloat16", capacity_rows=64)
Record = tuple[IdsSample, torch.Tensor]


def kind_of(capacity_rows: int, stored: Stored = "bfloat16", hidden_size: int = HIDDEN) -> ShardKind:
    """Describe small shards that were computed in bfloat16."""
    return ShardKind(hidden_size, "bfloat16", stored, capacity_rows)


def record(number: int, rows: int, *, key: str | None = None, hidden_size: int = HIDDEN) -> Record:
    """Make up a sample `sample-N` and states for it, [rows, 4, H] in bfloat16."""
    ids = tuple(range(number, number + rows))
    mask = (0,) + (1,) * (rows - 1)
    dice = torch.Generator().manual_seed(number)
    states = torch.randn(rows, 4, hidden_size, generator=dice).to(torch.bfloat16)
    return IdsSample(f"sample-{number}" if key is None else key, ids, mask), states


def records(*lengths: int) -> list[Record]:
    """Make up samples of these lengths."""
    return [record(number, rows) for number, rows in enumerate(lengths)]


def write_shard(folder: Path, contents: Iterable[Record], number: int = 0, kind: ShardKind = KIND) -> SealedShard:
    """Write one shard from the calling thread."""
    contents = list(contents)
    shard = OpenShard(kind, [sample.key for sample, _ in contents])
    with ShardFile(folder, number, shard.header_bytes) as file:
        for sample, states in contents:
            encoded = kind.encode(sample, states)
            file.append(as_bytes(encoded.states))
            shard.add(sample, encoded.scales)
        file.complete(shard)
        return file.seal(shard)


class Disk:
    """A disk whose room a test decides, and which may refuse writes whatever it said before."""

    def __init__(self, free_bytes: int = 10**9) -> None:
        self.free_bytes = free_bytes
        self.refuses: Callable[[int], bool] = lambda _call: False
        """Asked at each write for its number, from 0."""
        self.writes = 0

    def space(self, folder: Path) -> DiskSpace:
        """Give it as the disk below a folder, with nothing kept free."""
        return DiskSpace(folder, 0, self.statvfs)

    def statvfs(self, _folder: Path) -> Any:
        """Tell its room."""
        return SimpleNamespace(f_bavail=self.free_bytes, f_frsize=1)

    def pwrite(self, descriptor: int, content: memoryview, offset: int) -> int:
        """Write half of the content where that is refused, as a disk does that fills, and all of it else."""
        self.writes += 1
        if self.refuses(self.writes - 1):
            _real_pwrite(descriptor, content[: len(content) // 2], offset)
            self.free_bytes = 0
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return _real_pwrite(descriptor, content, offset)


_real_pwrite = os.pwrite


def write_all(writer: ShardWriter, contents: Iterable[Record]) -> None:
    """Add records in order."""
    for sample, states in contents:
        writer.add(sample, states)
