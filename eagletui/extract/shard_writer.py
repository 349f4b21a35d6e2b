"""Write shards while their records are computed, in threads of their own."""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

import torch

from eagletui.core.errors import RunError
from eagletui.core.reports import Report
from eagletui.extract.byte_ring import ByteRing
from eagletui.extract.open_shard import OpenShard, ShardKind
from eagletui.extract.shard_file import ShardFile
from eagletui.extract.shards import IdsSample, SealedShard
from eagletui.extract.space import FULL, DiskSpace, size_text
from eagletui.extract.storage import FolderStorage, Storage, growing_in, new_attempt, publish_sealed

QUEUE_BYTES: Final = 64 * 1024 * 1024
"""States that may wait for the disk; a larger record waits alone."""

_SPACE_POLL_S: Final = 2.0
_HOLD_POLL_S: Final = 0.2


class ShardWriter:
    """Takes records and makes shards of them: each record goes into the file of the open shard as it is computed.

    What a death costs is the open shard: the first record of the next one is taken when the one before is committed.
    The device does not stop for that: where forwards are launched ahead, one is under way, and its rows are not done
    before they are taken. A storage behind a URL takes longer to send to, so there one shard is sent while the next
    one grows, and a death costs both. What memory holds is a queue of bounded size, and ids; a disk that is slower than
    the device fills the queue, and then the caller waits. A full disk stops the writing, not the work done: what is in
    the queue waits until there is room. As a context manager it finishes what it was given, and abandons it where the
    block raises.
    """

    def __init__(
        self,
        folder: Path,
        first_number: int,
        kind: ShardKind,
        space: DiskSpace,
        on_sealed: Callable[[SealedShard], None],
        report: Report,
        *,
        storage: Storage | None = None,
        stopping: Callable[[], bool] = lambda: False,
        hold: Callable[[], str | None] = lambda: None,
        space_poll_s: float = _SPACE_POLL_S,
        queue_bytes: int = QUEUE_BYTES,
    ) -> None:
        """Start the threads.

        Args:
            folder: the features folder.
            first_number: of the next shard.
            kind: of the shards.
            space: the disk below the folder; there shards grow, wherever they go.
            on_sealed: commits a shard; called from a thread, in order of number.
            report: tells what people should know; called from a thread.
            storage: where shards go; None: into the folder.
            stopping: the process must end; a shard that a full disk keeps waiting is then given up.
            hold: asked from a thread before a shard is sealed, and while the disk is full: why a shard must wait, one
                sentence; None: it need not.
                A process that must end does not wait.
            space_poll_s: how often a full disk is looked at again.
            queue_bytes: of states that may wait to be written.
        """
        self._folder = folder
        self._number = first_number
        self._kind = kind
        self._space = space
        self._on_sealed = on_sealed
        self._report = report
        self._storage = storage or FolderStorage(folder)
        self._stopping = stopping
        self._hold = hold
        self._space_poll_s = space_poll_s
        self._queue_bytes = queue_bytes
        self._ring = ByteRing(queue_bytes)
        self._sent_meanwhile = 0 if self._storage.seals_into is not None else 1
        """Shards that may be without their row when the next one begins."""
        self._place = ExitStack()
        self._growing_in = self._place.enter_context(growing_in(self._storage, folder))
        self._open: OpenShard | None = None
        self._opened_at = 0.0

        self._changed = threading.Condition()
        """Guards the tasks, the two counts and the failure, and tells of each change to them."""
        self._tasks: deque[_Block | _Seal] = deque()
        self._queued_bytes = 0
        self._uncommitted = 0
        """Shards handed over for sealing and not in the ledger yet."""
        self._failure: BaseException | None = None
        self._is_closed = False
        self._abandoned = threading.Event()
        self._waits_for_space = threading.Event()
        self._is_held = threading.Event()

        self._file: ShardFile | None = None
        self._is_given_up = False
        """The open shard is; what comes of it is dropped."""
        self._sender = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sender")
        self._thread = threading.Thread(target=self._run, name="shard-writer")
        self._thread.start()

    @property
    def waits_for_space(self) -> bool:
        """The disk is full; nothing is written until it has room."""
        return self._waits_for_space.is_set()

    @property
    def is_held(self) -> bool:
        """A shard is complete, and something else than the disk lets it wait."""
        return self._is_held.is_set()

    @property
    def open_for_s(self) -> float:
        """How long the oldest record has been waiting for its shard to be sealed; 0 where none is."""
        return 0.0 if self._open is None else time.monotonic() - self._opened_at

    def add(self, sample: IdsSample, hidden_states: torch.Tensor) -> None:
        """Take a record; waits while the queue is full, and before the first one of a shard for the shard before.

        Args:
            sample: T ids and their mask.
            hidden_states: [T, 4, H] on the CPU; the caller may change them afterwards.

        Raises:
            LostInFp8: eight bits cannot hold them. Nothing was taken.
            RunError: a shard could not be written, now or before.
        """
        encoded = self._kind.encode(sample, hidden_states)
        if self._open is not None and not self._open.has_room(sample):
            self.seal()
        if self._open is None:
            self._wait_until(lambda: self._uncommitted <= self._sent_meanwhile)
            self._open = OpenShard(self._kind, [sample.key])
            self._opened_at = time.monotonic()
        self._wait_until(lambda: not self._queued_bytes or self._queued_bytes + encoded.bytes <= self._queue_bytes)
        parts = self._ring.copy(encoded.states)  # the caller's are a part of a whole forward's
        self._open.add(sample, encoded.scales)
        with self._changed:
            self._queued_bytes += encoded.bytes
            self._tasks.append(_Block(parts, encoded.bytes, self._open.header_bytes, self._open.tail_bytes))
            self._changed.notify_all()

    def seal(self) -> None:
        """Hand the open shard over, full or not."""
        if self._open is None:
            return
        with self._changed:
            self._uncommitted += 1
            self._tasks.append(_Seal(self._open))
            self._changed.notify_all()
        self._open = None

    def check(self) -> None:
        """Raise what stopped the threads, if anything did.

        Raises:
            RunError: a shard could not be written.
        """
        if isinstance(self._failure, OSError):
            raise RunError(f"A shard could not be written into {self._folder}: {self._failure}") from self._failure
        if self._failure is not None:
            raise self._failure

    def finish(self) -> None:
        """Seal the open shard, and wait until every shard is committed.

        Raises:
            RunError: one could not be written.
        """
        try:
            self.seal()
            with self._changed:
                self._is_closed = True
                self._changed.notify_all()
            self._thread.join()
        except BaseException:  # an interrupt too: else the thread would wait on for what never comes
            self._abandoned.set()
            raise
        finally:
            self._end()
        self.check()

    def abandon(self) -> None:
        """Give up what is not sealed yet; the ledger still lists it as missing."""
        self._abandoned.set()
        self._end()

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish, or abandon where the block raised."""
        if error is None:
            self.finish()
        else:
            self.abandon()

    def _wait_until(self, is_so: Callable[[], bool]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or is_so())
        self.check()

    def _end(self) -> None:
        with self._changed:
            self._changed.notify_all()
        self._thread.join()
        self._sender.shutdown(wait=True)
        self._place.close()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._failure = self._failure or error
            self._abandoned.set()  # no later shard may overtake the one that failed
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            while self._do_next():
                pass
        except BaseException as error:  # whoever adds or finishes gets it: a thread has nobody to raise it to
            self._fail(error)
        finally:
            self._discard_file()

    def _do_next(self) -> bool:
        """Do what was asked for next; False where nothing comes any more. A block's memory is free afterwards."""
        task = self._next_task()
        if isinstance(task, _Seal):
            self._seal(task.shard)
        elif task is not None:
            self._append(task)
        return task is not None

    def _next_task(self) -> "_Block | _Seal | None":
        with self._changed:
            self._changed.wait_for(lambda: self._tasks or self._is_closed or self._abandoned.is_set())
            return self._tasks.popleft() if self._tasks and not self._abandoned.is_set() else None

    def _append(self, block: "_Block") -> None:
        if not self._is_given_up:
            needed = block.bytes + block.tail_bytes + (block.header_bytes if self._file is None else 0)
            if not self._when_there_is_room(needed, lambda: self._grow(block)):
                self._is_given_up = True
                self._discard_file()
        with self._changed:
            self._queued_bytes -= block.bytes
            self._changed.notify_all()

    def _grow(self, block: "_Block") -> None:
        if self._file is None:
            self._file = ShardFile(self._growing_in, self._number, block.header_bytes, new_attempt(self._storage))
        self._file.append(*block.states)

    def _seal(self, shard: OpenShard) -> None:
        sealed = self._sealed(shard)
        if sealed is not None:
            self._sender.submit(self._send, sealed)
            return
        self._discard_file()
        self._is_given_up = False
        if not self._abandoned.is_set():
            self._report("warn", "shard_given_up", f"{len(shard.samples)} samples must be computed again.")
        self._one_committed_or_gone()

    def _sealed(self, shard: OpenShard) -> SealedShard | None:
        file = self._file
        if file is None:
            return None
        self._wait_while_held()
        if not self._when_there_is_room(shard.tail_bytes, lambda: file.complete(shard)):
            return None
        sealed = file.seal(shard)
        self._file = None
        self._number += 1
        return sealed

    def _send(self, sealed: SealedShard) -> None:
        try:
            if self._failure is None:
                publish_sealed(self._storage, self._growing_in, sealed.path)
                self._on_sealed(sealed)
                self._one_committed_or_gone()
        except BaseException as error:  # as above: the caller waits for this shard
            self._fail(error)

    def _one_committed_or_gone(self) -> None:
        with self._changed:
            self._uncommitted -= 1
            self._changed.notify_all()

    def _discard_file(self) -> None:
        if self._file is not None:
            self._file.discard()
            self._file = None

    def _wait_while_held(self) -> None:
        while not self._abandoned.is_set() and not self._stopping():
            why = self._hold()
            if why is None:
                break
            if not self.is_held:
                self._is_held.set()
                self._report("info", "held", why)
            self._abandoned.wait(_HOLD_POLL_S)
        self._is_held.clear()

    def _when_there_is_room(self, needed_bytes: int, write: Callable[[], None]) -> bool:
        """Write once the disk has room; False where that is given up.

        A write that the disk refused is made again, to the same place: another program took the room after the look.
        """
        was_refused = False
        while not self._abandoned.is_set():
            free = self._space.free_bytes()
            if free >= needed_bytes:
                try:
                    write()
                except OSError as error:
                    if error.errno not in FULL or was_refused:
                        raise
                    was_refused = True
                    continue
                if self.waits_for_space:
                    self._waits_for_space.clear()
                    self._report("info", "disk_freed", "The disk has room again; extraction goes on.")
                return True
            was_refused = False
            if not self.waits_for_space:
                self._waits_for_space.set()
                self._report(
                    "warn",
                    "disk_low",
                    f"Extraction waits: the next records need {size_text(needed_bytes)}, and {self._folder} has "
                    f"{size_text(max(0, free))} to give. Free space on that disk; nothing is lost.",
                )
            if self._stopping():
                return False
            self._hold()  # in streaming mode it deletes what a trainer has acknowledged, which makes room
            self._abandoned.wait(self._space_poll_s)
        return False


class _Block(NamedTuple):
    states: tuple[memoryview, ...]
    """Of one record, as they lie in the file, one part after the other."""
    bytes: int
    """Of the states."""
    header_bytes: int
    """Of the shard's file, should this be its first block."""
    tail_bytes: int
    """What the shard takes behind its states, this record's part included."""


class _Seal(NamedTuple):
    shard: OpenShard
