"""The file of a shard under way: it grows under a temporary name and gets its final one when it is whole."""

import os
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from eagletui.core.errors import RunError
from eagletui.core.features import shard_path
from eagletui.extract.open_shard import OpenShard
from eagletui.extract.shards import SealedSample, SealedShard, hash_file
from eagletui.files.flushing import flush_folder

FLUSH_BYTES: Final = 32 * 1024 * 1024
"""Written between two flushes, so that the last one is short. While one goes on, as much again is written."""


class ShardFile:
    """A file that takes blocks of states, then the rest, and is sealed. One thread may use it.

    A write that a full disk refused may be tried again: it goes to the same place. A flush that failed is final: what
    the system has dropped nobody can write again. As a context manager it leaves no temporary file behind.
    """

    def __init__(self, folder: Path, number: int, header_bytes: int, attempt: str | None = None) -> None:
        """Begin the file with room for its header.

        Args:
            folder: the features folder.
            number: the shard's number, unused so far.
            header_bytes: of the shard that will be sealed.
            attempt: hex that tells this attempt's file from those of others at the same shard; None: there are none.

        Raises:
            OSError: the disk is full or broken; no file is left.
        """
        self._path = shard_path(number, attempt)
        self._final = folder / self._path
        self._temporary = self._final.with_name(self._final.name + ".tmp")
        self._final.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._descriptor = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._flusher = ThreadPoolExecutor(max_workers=1, thread_name_prefix="flusher")
        self._flushing: Future[None] | None = None
        self._unflushed_bytes = 0
        self._is_open = True
        self._end_bytes = 0
        """Behind the last block."""
        try:
            self._write(b" " * header_bytes, 0)
        except BaseException:  # an interrupt too must not leave the file: nobody holds it yet
            self.discard()
            raise
        self._end_bytes = header_bytes

    def append(self, *block: memoryview) -> None:
        """Write states behind those that are there.

        Args:
            block: one part after the other.

        Raises:
            OSError: the disk refused them; the same call may be made again.
            RunError: what was written before could not be flushed.
        """
        end = self._end_bytes
        for part in block:
            self._write(part, end)
            end += len(part)
        self._end_bytes = end

    def complete(self, shard: OpenShard) -> None:
        """Write what the file holds besides its states.

        Args:
            shard: the records whose states were appended, in order.

        Raises:
            OSError, RunError: as of `append`.
        """
        rest = shard.rest()
        self._write(rest.tail, self._end_bytes)
        self._write(rest.header, 0)

    def seal(self, shard: OpenShard) -> SealedShard:
        """Flush a complete file, give it its final name and flush the folder.

        Args:
            shard: as of `complete`.

        Raises:
            OSError, RunError: the disk is broken; nothing is left under the final name, unless the disk keeps even
                that from being removed.
        """
        self._flush()
        digest = hash_file(self._temporary)  # from memory, while the disk takes the last bytes
        self._wait_for_flush()
        size = os.fstat(self._descriptor).st_size
        os.fchmod(self._descriptor, 0o600)
        os.rename(self._temporary, self._final)
        self._close()
        try:
            flush_folder(self._final.parent)
        except OSError:
            with suppress(OSError):  # the next start removes a shard that nobody has committed
                self._final.unlink()
            raise
        placed = tuple(SealedSample(sample, position) for position, sample in enumerate(shard.samples))
        return SealedShard(self._path, placed, shard.rows, size, digest)

    def discard(self) -> None:
        """Close and remove a file that was not sealed; nothing happens to one that was."""
        if self._is_open:
            self._close()
            with suppress(FileNotFoundError):
                self._temporary.unlink()

    def __enter__(self) -> Self:
        """Return the file."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove it where it was not sealed."""
        self.discard()

    def _write(self, content: bytes | memoryview, offset: int) -> None:
        left = memoryview(content)
        while left:
            try:
                written = os.pwrite(self._descriptor, left[:FLUSH_BYTES], offset)
            except OSError:
                os.ftruncate(self._descriptor, self._end_bytes)  # a part of a block gives its room back
                raise
            left, offset = left[written:], offset + written
            self._unflushed_bytes += written
            if self._unflushed_bytes >= FLUSH_BYTES:
                self._flush()

    def _flush(self) -> None:
        """Begin to flush what is written, once the flush before has ended."""
        self._wait_for_flush()
        self._flushing = self._flusher.submit(os.fsync, self._descriptor)
        self._unflushed_bytes = 0

    def _wait_for_flush(self) -> None:
        if self._flushing is None:
            return
        try:
            self._flushing.result()
        except OSError as error:
            raise RunError(f"{self._temporary} could not be flushed: {error}. Its samples are not done.") from error

    def _close(self) -> None:
        self._is_open = False
        self._flusher.shutdown(wait=True)
        os.close(self._descriptor)
