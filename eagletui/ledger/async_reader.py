"""The ledger reader for an event loop: the same reads, awaited, on one thread of their own."""

import asyncio
import time
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, Self, TypeVar

from eagletui.core.errors import LedgerError
from eagletui.core.money import Books
from eagletui.ledger.filters import SampleFilter
from eagletui.ledger.reader import Attention, LedgerReader
from eagletui.ledger.reader_opinions import ArbiterFigures
from eagletui.ledger.reader_samples import PageEnd, SampleDetail
from eagletui.ledger.reader_search import Found, SearchEnd
from eagletui.ledger.rows import (
    AdjustmentRow,
    CommandRow,
    EndpointRow,
    EventRow,
    FindingRow,
    Level,
    PriceRow,
    RunRow,
    SampleRow,
    ShardRow,
    TickRow,
    VerdictRow,
)
from eagletui.ledger.snapshot import Snapshot, WorkerFigures

Params = ParamSpec("Params")
Result = TypeVar("Result")


class AsyncReader:
    """Reads off the event loop. Queries run one after the other; `interrupt` ends the running one."""

    def __init__(self, reader: LedgerReader, thread: ThreadPoolExecutor) -> None:
        """Take over a reader and its thread; use `open`."""
        self._reader = reader
        self._thread = thread
        self._is_closed = False

    @classmethod
    async def open(cls, path: Path, clock: Callable[[], float] = time.time) -> Self:
        """Open a ledger read-only.

        Raises:
            LedgerError: absent, damaged or of another version.
        """
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ledger-reader")
        try:
            reader = await asyncio.get_running_loop().run_in_executor(thread, LedgerReader, path, clock)
        except BaseException:
            thread.shutdown(wait=False)
            raise
        return cls(reader, thread)

    async def _call(self, method: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs) -> Result:
        if self._is_closed:
            raise LedgerError(f"{self._reader.path} is closed.")
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: method(*args, **kwargs))

    def interrupt(self) -> None:
        """End the query that is running; whoever awaits it gets LedgerError."""
        self._reader.interrupt()

    async def close(self) -> None:
        """End the running query, close the file and the thread. May be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        self._reader.interrupt()
        await asyncio.to_thread(self._thread.shutdown, wait=True, cancel_futures=True)
        self._reader.close()

    async def data_version(self) -> int:
        """See `LedgerReader.data_version`."""
        return await self._call(self._reader.data_version)

    async def run(self) -> RunRow:
        """See `LedgerReader.run`."""
        return await self._call(self._reader.run)

    async def books(self) -> Books:
        """See `LedgerReader.books`."""
        return await self._call(self._reader.books)

    async def snapshot(self) -> Snapshot:
        """See `LedgerReader.snapshot`."""
        return await self._call(self._reader.snapshot)

    async def workers(self) -> tuple[WorkerFigures, ...]:
        """See `LedgerReader.workers`."""
        return await self._call(self._reader.workers)

    async def ticks(self, since: float, every_s: int = 1) -> list[TickRow]:
        """See `LedgerReader.ticks`."""
        return await self._call(self._reader.ticks, since, every_s)

    async def tick_step(self, since: float, most: int) -> int:
        """See `LedgerReader.tick_step`."""
        return await self._call(self._reader.tick_step, since, most)

    async def latencies(self, limit: int) -> list[float]:
        """See `LedgerReader.latencies`."""
        return await self._call(self._reader.latencies, limit)

    async def drift_counts(self) -> dict[str, dict[int, int]]:
        """See `LedgerReader.drift_counts`."""
        return await self._call(self._reader.drift_counts)

    async def page(self, wanted: SampleFilter, after: PageEnd | None, limit: int) -> list[SampleRow]:
        """See `LedgerReader.page`."""
        return await self._call(self._reader.page, wanted, after, limit)

    async def sample_ids(self, wanted: SampleFilter) -> "array[int]":
        """See `LedgerReader.sample_ids`."""
        return await self._call(self._reader.sample_ids, wanted)

    async def search(self, wanted: SampleFilter, after: SearchEnd | None, rows: int) -> Found:
        """See `LedgerReader.search`."""
        return await self._call(self._reader.search, wanted, after, rows)

    async def sample_keys(self, wanted: SampleFilter) -> list[str]:
        """See `LedgerReader.sample_keys`."""
        return await self._call(self._reader.sample_keys, wanted)

    async def rows(self, ids: Sequence[int]) -> list[SampleRow]:
        """See `LedgerReader.rows`."""
        return await self._call(self._reader.rows, ids)

    async def sample(self, sample_key: str) -> SampleDetail | None:
        """See `LedgerReader.sample`."""
        return await self._call(self._reader.sample, sample_key)

    async def events(self, after_id: int = 0, limit: int = 200) -> list[EventRow]:
        """See `LedgerReader.events`."""
        return await self._call(self._reader.events, after_id, limit)

    async def last_events(
        self, limit: int, levels: tuple[Level, ...] = (), before_id: int | None = None
    ) -> list[EventRow]:
        """See `LedgerReader.last_events`."""
        return await self._call(self._reader.last_events, limit, levels, before_id)

    async def attention(self, limit: int = 50) -> list[Attention]:
        """See `LedgerReader.attention`."""
        return await self._call(self._reader.attention, limit)

    async def command(self, command_id: int) -> CommandRow | None:
        """See `LedgerReader.command`."""
        return await self._call(self._reader.command, command_id)

    async def commands_pending(self) -> list[CommandRow]:
        """See `LedgerReader.commands_pending`."""
        return await self._call(self._reader.commands_pending)

    async def endpoints(self) -> list[EndpointRow]:
        """See `LedgerReader.endpoints`."""
        return await self._call(self._reader.endpoints)

    async def prices(self) -> list[PriceRow]:
        """See `LedgerReader.prices`."""
        return await self._call(self._reader.prices)

    async def adjustments(self) -> list[AdjustmentRow]:
        """See `LedgerReader.adjustments`."""
        return await self._call(self._reader.adjustments)

    async def findings(self) -> list[FindingRow]:
        """See `LedgerReader.findings`."""
        return await self._call(self._reader.findings)

    async def verdicts(self) -> list[VerdictRow]:
        """See `LedgerReader.verdicts`."""
        return await self._call(self._reader.verdicts)

    async def shards(self) -> list[ShardRow]:
        """See `LedgerReader.shards`."""
        return await self._call(self._reader.shards)

    async def arbiter_figures(self) -> ArbiterFigures | None:
        """See `LedgerReader.arbiter_figures`."""
        return await self._call(self._reader.arbiter_figures)
