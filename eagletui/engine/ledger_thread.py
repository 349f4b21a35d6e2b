"""The one thread that writes the ledger, and awaiting it from the event loop.

A write that has begun is finished even if the task that asked for it is cancelled. One that finds the disk full or the
ledger locked is tried again until it succeeds: nothing is admitted meanwhile, and answers wait in memory.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from eagletui.core.errors import DiskFullError, LedgerBusyError, LedgerError
from eagletui.ledger.writer import LedgerWriter

log = logging.getLogger("eagletui.engine")

T = TypeVar("T")

AGAIN_S: Final = 1.0
"""A full disk and a locked ledger are tried again this often."""


class _HeadersNote(NamedTuple):
    attempt_id: int
    generation_id: str | None
    http_status: int
    written: asyncio.Future[None]


class LedgerThread:
    """A ledger writer with a thread of its own."""

    def __init__(self, path: Path) -> None:
        """Open the ledger."""
        self._path = path
        self._writer = LedgerWriter(path)
        self._file = path.stat()
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ledger")
        self._urgent: deque[tuple[Callable[[LedgerWriter], Any], Future[Any]]] = deque()
        self._patience = asyncio.Event()
        self._stuck_at: float | None = None
        self._notes: list[_HeadersNote] = []
        self._noting: asyncio.Task[None] | None = None

    async def do(self, act: Callable[[LedgerWriter], T], *, urgent: bool = False) -> T:
        """Run an act in the thread; acts run one after another, in the order asked.

        Args:
            act: may run again where its transaction was rolled back, so it is one transaction or several that may be
                repeated.
            urgent: goes before all that waits and is not urgent, for orders of people: a slow disk makes long queues.

        Raises:
            LedgerError: it cannot be written at all, or not now and `give_up` was called.
        """
        while True:
            try:
                done = await asyncio.shield(asyncio.wrap_future(self._submit(act, urgent)))
            except (DiskFullError, LedgerBusyError) as error:
                self._note_stuck(error)
                if self._patience.is_set():
                    raise
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(AGAIN_S):
                        await self._patience.wait()
                continue
            if self._stuck_at is not None:
                log.warning("the ledger can be written again, after %.0f s", time.monotonic() - self._stuck_at)
                self._stuck_at = None
            return done

    def _submit(self, act: Callable[[LedgerWriter], T], urgent: bool) -> "Future[T]":
        if not urgent:
            return self._executor.submit(self._turn, act)
        future: Future[T] = Future()
        self._urgent.append((act, future))
        self._executor.submit(self._take_urgent)
        return future

    def _turn(self, act: Callable[[LedgerWriter], T]) -> T:
        self._take_urgent()
        return act(self._writer)

    def _take_urgent(self) -> None:
        while self._urgent:
            act, future = self._urgent.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(act(self._writer))
            except BaseException as error:  # as the executor does: whoever waits for the act gets its error
                future.set_exception(error)

    def give_up(self) -> None:
        """Wait no longer for a disk that is full or a ledger that is locked."""
        self._patience.set()

    def require_in_place(self) -> None:
        """Make sure that the file that is written is still the one people see.

        Raises:
            LedgerError: it was moved, deleted or replaced.
        """
        try:
            found = self._path.stat()
        except OSError:
            found = None
        if found is None or not os.path.samestat(found, self._file):
            raise LedgerError(
                f"{self._path} was moved, deleted or replaced while the run wrote to it. Nothing more is bought; what "
                "was bought is in the file that was moved. Put it back and start the run again."
            )

    def _note_stuck(self, error: LedgerError) -> None:
        if self._stuck_at is None:
            self._stuck_at = time.monotonic()
            log.error("%s Nothing is sent until then.", error)

    async def note_headers(self, attempt_id: int, generation_id: str | None, http_status: int) -> None:
        """Keep a generation id; returns when it is on disk. Notes that wait together share one transaction."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._notes.append(_HeadersNote(attempt_id, generation_id, http_status, written))
        if self._noting is None:
            self._noting = asyncio.create_task(self._write_notes())
        await written

    def close(self) -> None:
        """Finish what was asked and close the ledger."""
        self._executor.shutdown(wait=True)
        self._writer.close()

    async def _write_notes(self) -> None:
        try:
            while self._notes:
                notes, self._notes = self._notes, []
                try:
                    await self.do(partial(_mark_headers, notes))
                except BaseException as error:
                    for note in notes:
                        if not note.written.done():
                            note.written.set_exception(error)
                    raise
                for note in notes:
                    if not note.written.done():
                        note.written.set_result(None)
        finally:
            self._noting = None


def _mark_headers(notes: list[_HeadersNote], writer: LedgerWriter) -> None:
    with writer.transaction(durable=True):
        for note in notes:
            writer.mark_headers(note.attempt_id, note.generation_id, note.http_status)
