"""Shards that a trainer has read and that were deleted: streaming, where features never fit on the disk at once.

A trainer acknowledges a shard by making an empty file of its name and `.ack` beside it. The extractor then lists it in
`acknowledged.jsonl`, flushed, before it deletes the shard and then the `.ack`: after a crash between any two of these,
the next extractor goes on with the rest. Who looks for a listed shard takes it for done: nothing is computed again.
"""

import json
import os
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from eagletui.core.errors import RunError
from eagletui.extract.shards import MARK, ShardReader, flush_folder, shard_files

ACKNOWLEDGED: Final = "acknowledged.jsonl"


@dataclass(frozen=True, slots=True)
class AcknowledgedShard:
    """One line of the list."""

    path: str
    """Relative to the features folder; the number is not given to another shard."""
    rows: int
    sample_ids: tuple[str, ...]


def read_acknowledged(folder: Path) -> dict[str, AcknowledgedShard]:
    """Read the list, by path. A last line without an end was cut by a crash before its shard was deleted.

    Raises:
        RunError: a whole line cannot be read.
    """
    path = folder / ACKNOWLEDGED
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    found: dict[str, AcknowledgedShard] = {}
    for number, line in enumerate(text[: text.rfind("\n") + 1].splitlines(), 1):
        try:
            shard = AcknowledgedShard(**json.loads(line))
        except (ValueError, TypeError) as error:
            raise RunError(f"{path}:{number} cannot be read: {error}") from error
        found[shard.path] = AcknowledgedShard(shard.path, shard.rows, tuple(shard.sample_ids))
    return found


def write_acknowledged(folder: Path, shards: Iterable[AcknowledgedShard]) -> None:
    """List what was acknowledged elsewhere, in a folder that has no list yet; nothing is written for none."""
    for shard in shards:
        _append(folder / ACKNOWLEDGED, shard)


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
    _listed: set[str] = field(default_factory=set)

    def begin(self, committed: Collection[str]) -> None:
        """Take up the list and whatever was acknowledged meanwhile.

        Args:
            committed: paths of the committed shards; every other file was removed before.
        """
        self._listed = set(read_acknowledged(self.folder))
        forget_acknowledged(self.folder, self._listed)
        _cut_torn_line(self.folder / ACKNOWLEDGED)
        self.delete_acknowledged(committed)

    def hold(self) -> str | None:
        """Tell why the next shard must wait, one sentence; None where it may be written. Deletes what was acknowledged.

        Whatever lies under a final name is committed: orphans are removed at the start, and the next shard begins when
        the one before has its row.
        """
        waiting = self.delete_acknowledged(shard_files(self.folder))
        if waiting < self.ahead:
            return None
        return (
            f"Extraction is {waiting} shards ahead of the trainer and waits. A shard is acknowledged by an empty file "
            f"of its name and {MARK} beside it."
        )

    def delete_acknowledged(self, committed: Collection[str]) -> int:
        """Delete every committed shard with a mark, and return how many are left."""
        left = 0
        for path in sorted(set(committed) - self._listed):
            if not (self.folder / f"{path}{MARK}").exists():
                left += 1
                continue
            with ShardReader(self.folder / path) as reader:
                shard = AcknowledgedShard(path, reader.rows, tuple(reader.keys))
            _append(self.folder / ACKNOWLEDGED, shard)
            self._listed.add(path)
            _delete(self.folder, path)
        return left


def _append(path: Path, shard: AcknowledgedShard) -> None:
    is_new = not path.exists()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(json.dumps(asdict(shard)) + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    if is_new:
        flush_folder(path.parent)


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
