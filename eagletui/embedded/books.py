"""The provider's own books: what it generated and what it charged, kept apart from every client.

The file is JSON lines. A generation's row is on disk (fsync) before any byte of its answer is sent, with `delivered`
false; once the whole body is sent a line `{"id", "delivered": true}` follows. So a row may say "not delivered" of an
answer that did arrive just before the provider was killed, and never the other way round. A last line torn by a kill is
cut off at the next start.
"""

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from eagletui.core.errors import RunError


class BookRow(msgspec.Struct, frozen=True):
    """One generation."""

    id: str
    """The generation id (`gen-...`)."""
    provider: str
    """Tag of the endpoint that answered."""
    prompt_tokens: int
    completion_tokens: int
    """As billed: the stop token counts."""
    cost_pico: int
    delivered: bool
    """The whole body was sent while the client was still there."""
    finish_reason: str
    output_ids: tuple[int, ...]
    """The true ids, the stop token included."""
    created_at: float
    streamed: bool


class _Delivery(msgspec.Struct, frozen=True):
    id: str
    delivered: bool


@dataclass(slots=True)
class Books:
    """The open books. One process writes them, from one event loop."""

    path: Path | None
    """None keeps them in memory alone."""
    rows: dict[str, BookRow] = field(default_factory=dict)
    """By generation id, in the order in which they were billed."""
    spent_pico: int = 0
    _file: int | None = None
    _waiting: list[tuple[bytes, asyncio.Future[None]]] = field(default_factory=list)
    _flusher: asyncio.Task[None] | None = None
    _late: set[asyncio.Task[None]] = field(default_factory=set)

    async def bill(self, row: BookRow) -> None:
        """Enter a generation; returns when it is on disk. Rows that wait together share one fsync."""
        self.rows[row.id] = row
        self.spent_pico += row.cost_pico
        if self._file is None:
            return
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((msgspec.json.encode(row) + b"\n", done))
        if self._flusher is None:
            self._flusher = asyncio.create_task(self._flush())
        await asyncio.shield(done)

    def bill_later(self, row: BookRow, after_s: float) -> None:
        """Enter a generation some time from now; one that is still to come when the books close is never billed."""
        task = asyncio.create_task(self._bill_after(row, after_s))
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    def mark_delivered(self, generation_id: str) -> None:
        """Note that the whole body of a generation was sent."""
        self.rows[generation_id] = msgspec.structs.replace(self.rows[generation_id], delivered=True)
        if self._file is not None:
            _write_all(self._file, msgspec.json.encode(_Delivery(generation_id, True)) + b"\n")

    async def close(self) -> None:
        """Wait for open entries and close the file."""
        for task in self._late:
            task.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)
        if self._flusher is not None:
            await self._flusher
        if self._file is not None:
            os.close(self._file)
            self._file = None

    async def _bill_after(self, row: BookRow, after_s: float) -> None:
        await asyncio.sleep(after_s)
        await self.bill(row)

    async def _flush(self) -> None:
        while self._waiting and self._file is not None:
            batch, self._waiting = self._waiting, []
            _write_all(self._file, b"".join(line for line, _ in batch))
            await asyncio.to_thread(os.fsync, self._file)
            for _, done in batch:
                done.set_result(None)
        self._flusher = None


def open_books(path: Path | None) -> Books:
    """Open books, reading what is there; a last line without its newline is cut off.

    Raises:
        RunError: a complete line is not a row of these books.
    """
    books = Books(path)
    if path is None:
        return books
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    books._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        os.ftruncate(books._file, len(whole))
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            _replay(books, line)
        except (msgspec.DecodeError, KeyError) as error:
            raise RunError(
                f"{path}:{number}: found {line[:60]!r}, expected a row of the provider's books. "
                "Move the file away to start new books."
            ) from error
    return books


def _replay(books: Books, line: bytes) -> None:
    if b'"cost_pico"' in line:
        row = msgspec.json.decode(line, type=BookRow)
        books.rows[row.id] = row
        books.spent_pico += row.cost_pico
        return
    delivery = msgspec.json.decode(line, type=_Delivery)
    books.rows[delivery.id] = msgspec.structs.replace(books.rows[delivery.id], delivered=delivery.delivered)


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]
