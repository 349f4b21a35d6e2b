"""Shards that a trainer has read and that were deleted: streaming, where features never fit on the disk at once.

A trainer acknowledges a shard by making an empty file of its name and `.ack` beside it; from then on it may delete the
shard too. The extractor then lists it in `acknowledged.jsonl`, flushed, before it deletes the shard and then the
`.ack`: after a crash between any two of these, the next extractor goes on with the rest. Who looks for a listed shard
takes it for done: nothing is computed again.
"""

import json
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from eagletui.extract.manifest import ShardPath
from eagletui.extract.shards import MARK
from eagletui.files.appending import append_line, whole_lines
from eagletui.files.decoding import decode
from eagletui.files.flushing import flush_folder

ACKNOWLEDGED: Final = "acknowledged.jsonl"


@dataclass(frozen=True, slots=True)
class AcknowledgedShard:
    """One line of the list."""

    path: ShardPath
    """Relative to the features folder; the number is not given to another shard."""
    rows: int
    sample_ids: tuple[str, ...]


def read_acknowledged(folder: Path) -> dict[str, AcknowledgedShard]:
    """Read the list, by path. A last line without an end was cut by a crash before its shard was deleted.

    Raises:
        RunError: a whole line cannot be read.
    """
    path = folder / ACKNOWLEDGED
    shards = (decode(path, line, AcknowledgedShard, number) for number, line in enumerate(whole_lines(path), 1))
    return {shard.path: shard for shard in shards}


def write_acknowledged(folder: Path, shards: Iterable[AcknowledgedShard]) -> None:
    """List what was acknowledged elsewhere, in a folder that has no list yet; nothing is written for none."""
    for shard in shards:
        _append(folder, shard)


Describe = Callable[[str], AcknowledgedShard]
"""Tells rows and samples of a committed shard by its path; its file may be gone."""


def is_removed(folder: Path, path: str) -> bool:
    """Tell whether a trainer acknowledged a shard and deleted it itself, and no extractor has listed it yet."""
    return (folder / f"{path}{MARK}").exists() and not (folder / path).exists()


def gone_shards(folder: Path, committed: Iterable[str]) -> set[str]:
    """Return the paths of all shards that a trainer has acknowledged and that are not there any more.

    Args:
        folder: the features folder.
        committed: paths of the committed shards.

    Raises:
        RunError: the list cannot be read.
    """
    return set(read_acknowledged(folder)) | {path for path in committed if is_removed(folder, path)}


def list_removed(folder: Path, committed: Iterable[str], describe: Describe) -> set[str]:
    """List what a trainer acknowledged and deleted itself, and return the paths of all that is listed then.

    Args:
        folder: the features folder, whose extractor lock the caller holds.
        committed: paths of the committed shards.
        describe: tells what they held.
    """
    _cut_torn_line(folder / ACKNOWLEDGED)
    listed = set(read_acknowledged(folder))
    for path in sorted(set(committed) - listed):
        if is_removed(folder, path):
            _append(folder, describe(path))
            _delete(folder, path)
            listed.add(path)
    return listed


def forget_acknowledged(folder: Path, listed: Iterable[str]) -> None:
    """Delete what a crash left of shards that are listed as acknowledged.

    Args:
        folder: the features folder, whose extractor lock the caller holds.
        listed: their paths.
    """
    for path in listed:
        _delete(folder, path)


@dataclass(slots=True)
class Stream:
    """Keeps a number of sealed shards ahead of the trainer."""

    folder: Path
    ahead: int
    """Sealed shards that may wait for the trainer."""
    describe: Describe
    """Called from the thread that writes shards."""
    _waiting: set[str] = field(default_factory=set)
    """Paths of the committed shards that no trainer has acknowledged."""

    def begin(self, committed: Iterable[str]) -> None:
        """Take up the list and whatever was acknowledged meanwhile.

        Args:
            committed: paths of the committed shards; every other file was removed before.
        """
        listed = read_acknowledged(self.folder)
        forget_acknowledged(self.folder, listed)
        _cut_torn_line(self.folder / ACKNOWLEDGED)
        self._waiting = set(committed) - set(listed)
        self.delete_acknowledged()

    @property
    def left(self) -> int:
        """Sealed shards that no trainer has acknowledged, as far as was looked."""
        return len(self._waiting)

    def add(self, path: str) -> None:
        """Take note of a shard that was committed."""
        self._waiting.add(path)

    def hold(self) -> str | None:
        """Tell why the next shard must wait, one sentence; None where it may be written. Deletes what was acknowledged.

        The next shard begins when the one before has its row, so all that are sealed are known here.
        """
        self.delete_acknowledged()
        there = sum((self.folder / path).exists() for path in self._waiting)
        if there < self.ahead:
            return None
        return (
            f"Extraction is {there} shards ahead of the trainer and waits. A shard is acknowledged by an empty file "
            f"of its name and {MARK} beside it."
        )

    def delete_acknowledged(self) -> None:
        """List and delete every committed shard with a mark; a trainer may have deleted it already."""
        for path in sorted(self._waiting):
            if (self.folder / f"{path}{MARK}").exists():
                _append(self.folder, self.describe(path))
                self._waiting.remove(path)
                _delete(self.folder, path)


def _append(folder: Path, shard: AcknowledgedShard) -> None:
    append_line(folder / ACKNOWLEDGED, json.dumps(asdict(shard)))


def _cut_torn_line(path: Path) -> None:
    """Remove what a crash left of a line, so that the next one begins where it should."""
    with suppress(FileNotFoundError), path.open("r+b") as stream:
        stream.truncate(stream.read().rfind(b"\n") + 1)
        os.fsync(stream.fileno())


def _delete(folder: Path, path: str) -> None:
    """Delete a shard and then its mark: a mark without its shard is what a crash may leave."""
    shard, mark = folder / path, folder / f"{path}{MARK}"
    if not shard.exists() and not mark.exists():
        return
    for file in (shard, mark):
        file.unlink(missing_ok=True)
    flush_folder(shard.parent)
