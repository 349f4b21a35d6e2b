"""The one thread that writes the ledger, and awaiting it from the event loop.

A write that has begun is finished even if the task that asked for it is cancelled.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from eagletui.ledger.writer import LedgerWriter

T = TypeVar("T")


class _HeadersNote(NamedTuple):
    attempt_id: int
    generation_id: str | None
    http_status: int
    written: asyncio.Future[None]


class LedgerThread:
    """A ledger writer with a thread of its own."""

    def __init__(self, path: Path) -> None:
        """Open the ledger."""
        self._writer = LedgerWriter(path)
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ledger")
        self._notes: list[_HeadersNote] = []
        self._noting: asyncio.Task[None] | None = None

    async def do(self, act: Callable[[LedgerWriter], T]) -> T:
        """Run an act in the thread; acts run one after another, in the order asked."""
        loop = asyncio.get_running_loop()
        return await asyncio.shield(loop.run_in_executor(self._executor, act, self._writer))

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
