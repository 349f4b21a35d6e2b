"""Seal full shards in a thread of its own, so that the device goes on computing while the disk writes."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

from safetensors import SafetensorError

from eagletui.core.errors import RunError
from eagletui.extract.shards import OpenShard, SealedShard, seal
from eagletui.extract.space import DiskSpace, size_text
from eagletui.extract.storage import Storage, seal_into

Report = Callable[[Literal["info", "warn", "error"], str, str], object]
"""Takes a level, a kind and a sentence."""

_HEADER_BYTES: Final = 4096
"""Of a shard, besides its sample ids: names and places of five tensors, and what a file system adds."""

_SPACE_POLL_S: Final = 2.0
_CHECK_S: Final = 0.2


class Sealer:
    """One shard is being written while the next is filled; whoever brings that one before the first is committed waits.

    So memory holds two shards at most, a death costs no more than these, and a disk that writes a shard sooner than the
    device computes one never makes the device wait. A full disk stops the writing, not the work done: the shard waits
    until there is room. As a context manager it finishes what it was given, and abandons it where the block raises.
    """

    def __init__(
        self,
        folder: Path,
        first_number: int,
        space: DiskSpace,
        on_sealed: Callable[[SealedShard], None],
        report: Report,
        *,
        storage: Storage | None = None,
        stopping: Callable[[], bool] = lambda: False,
        hold: Callable[[], str | None] = lambda: None,
        space_poll_s: float = _SPACE_POLL_S,
    ) -> None:
        """Start the thread.

        Args:
            folder: the features folder.
            first_number: of the next shard.
            space: the disk below the folder.
            on_sealed: commits a shard; called from the thread, in order of number.
            report: tells what people should know; called from the thread.
            storage: where shards go; None: into the folder.
            stopping: the process must end; a shard that a full disk keeps waiting is then given up.
            hold: asked from the thread before a shard is written: why it must wait, one sentence; None: it need not.
                A process that must end does not wait.
            space_poll_s: how often a full disk is looked at again.
        """
        self._folder = folder
        self._number = first_number
        self._space = space
        self._storage = storage
        self._on_sealed = on_sealed
        self._report = report
        self._stopping = stopping
        self._hold = hold
        self._space_poll_s = space_poll_s
        self._abandoned = threading.Event()
        self._waits_for_space = threading.Event()
        self._is_held = threading.Event()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sealer")
        self._handed_over: deque[Future[None]] = deque()

    @property
    def waits_for_space(self) -> bool:
        """The disk is full; nothing is written until it has room."""
        return self._waits_for_space.is_set()

    @property
    def is_held(self) -> bool:
        """A shard is complete, and something else than the disk lets it wait."""
        return self._is_held.is_set()

    def submit(self, shard: OpenShard) -> None:
        """Hand over a shard; waits while the one before is being written.

        Raises:
            RunError: a shard could not be written, now or before.
        """
        while self._handed_over and not self._abandoned.is_set():
            wait([self._handed_over[0]], timeout=_CHECK_S)
            self.check()
        self._handed_over.append(self._thread.submit(self._work, shard))

    def check(self) -> None:
        """Raise what stopped the thread, if anything did.

        Raises:
            RunError: a shard could not be written.
        """
        while self._handed_over and self._handed_over[0].done():
            self._take(self._handed_over.popleft())

    def finish(self) -> None:
        """Wait until every shard handed over is sealed and committed.

        Raises:
            RunError: one could not be written.
        """
        self._thread.shutdown(wait=True)
        self.check()

    def abandon(self) -> None:
        """Give up what is not sealed yet; the ledger still lists it as missing."""
        self._abandoned.set()
        self._thread.shutdown(wait=True)

    def __enter__(self) -> Self:
        """Return the sealer."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish, or abandon where the block raised."""
        if error is None:
            self.finish()
        else:
            self.abandon()

    def _take(self, sealing: Future[None]) -> None:
        try:
            sealing.result()
        except (OSError, SafetensorError) as error:
            raise RunError(f"A shard could not be written into {self._folder}: {error}") from error

    def _work(self, shard: OpenShard) -> None:
        try:
            self._wait_while_held()
            sealed = self._seal_when_there_is_room(shard)
            if sealed is not None:
                self._number += 1
                self._on_sealed(sealed)
        except BaseException:
            self._abandoned.set()  # no later shard may overtake the one that failed
            raise

    def _wait_while_held(self) -> None:
        while not self._abandoned.is_set() and not self._stopping():
            why = self._hold()
            if why is None:
                break
            if not self.is_held:
                self._is_held.set()
                self._report("info", "held", why)
            self._abandoned.wait(_CHECK_S)
        self._is_held.clear()

    def _seal_when_there_is_room(self, shard: OpenShard) -> SealedShard | None:
        needed = sum(tensor.numel() * tensor.element_size() for tensor in shard.tensors().values())
        needed += sum(map(len, shard.metadata().values())) + _HEADER_BYTES
        while not self._abandoned.is_set():
            free = self._space.free_bytes()
            if free >= needed:
                try:
                    if self._storage is None:
                        sealed = seal(self._folder, self._number, shard)
                    else:
                        sealed = seal_into(self._storage, self._number, shard)
                except (OSError, SafetensorError):
                    if self._space.free_bytes() >= needed:
                        raise
                    continue
                if self.waits_for_space:
                    self._waits_for_space.clear()
                    self._report("info", "disk_freed", "The disk has room again; extraction goes on.")
                return sealed
            if not self.waits_for_space:
                self._waits_for_space.set()
                self._report(
                    "warn",
                    "disk_low",
                    f"Extraction waits: the next shard needs {size_text(needed)}, and {self._folder} has "
                    f"{size_text(max(0, free))} to give. Free space on that disk; nothing is lost.",
                )
            if self._stopping():
                self._report("warn", "shard_given_up", f"{len(shard.samples)} samples must be computed again.")
                return None
            self._abandoned.wait(self._space_poll_s)
        return None
