"""File the ends of attempts in the ledger, in batches of at most 64 rows or 100 ms."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from eagletui.engine.dispatch import Landing
from eagletui.engine.ledger_thread import LedgerThread
from eagletui.ledger.orders import Finished, Overrun
from eagletui.ledger.writer import LedgerWriter
from eagletui.tokens.live_check import DIFFERENCE

BATCH_ROWS: Final = 64
"""Take the ledger's thread for 40 ms; an order waits for two or three of these in a burst of ends."""
GATHER_S: Final = 0.02
"""Rows that end within this time share a transaction; well below the promised 100 ms."""

Filed = Callable[[Sequence[Finished], Sequence[Overrun]], None]


class LogLine(NamedTuple):
    """An event that goes with a row."""

    kind: str
    sample_key: str
    message: str


class Filing:
    """A queue of finished attempts and the task that writes them."""

    def __init__(self, ledger: LedgerThread, filed: Filed) -> None:
        """Prepare the queue.

        Args:
            ledger: where to write.
            filed: called after each batch is on disk.
        """
        self._ledger = ledger
        self._filed = filed
        self._rows: list[tuple[Finished, LogLine | None]] = []
        self._arrived = asyncio.Event()
        self.failed = False
        """Nothing is written any more."""

    @property
    def waiting(self) -> int:
        """Rows not on disk yet."""
        return len(self._rows)

    def put(self, finished: Finished, line: LogLine | None = None) -> None:
        """Hand over the end of an attempt."""
        self._rows.append((finished, line))
        self._arrived.set()

    async def run(self) -> None:
        """Write until cancelled."""
        try:
            await self._run()
        finally:
            self.failed = True

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            await asyncio.sleep(GATHER_S)
            self._arrived.clear()
            while self._rows:
                batch = self._rows[:BATCH_ROWS]
                overruns = await self._ledger.do(partial(_write, batch))
                del self._rows[: len(batch)]
                self._filed([finished for finished, _ in batch], overruns)


def _write(batch: Sequence[tuple[Finished, LogLine | None]], writer: LedgerWriter) -> list[Overrun]:
    with writer.transaction(durable=True):
        overruns = writer.finish([finished for finished, _ in batch])
        for _, line in batch:
            if line is not None:
                writer.event("warn", "engine", line.kind, line.message, line.sample_key)
    return overruns


def event_of(landing: Landing) -> LogLine | None:
    """Return what is worth a line in the log."""
    key = landing.flight.ready.sample.key
    if landing.failure is not None:
        return LogLine(landing.failure.kind, key, f"{landing.flight.endpoint.tag}: {landing.failure.detail}")
    if landing.judged is not None and landing.judged.trouble:
        return LogLine("not_rebuilt", key, landing.judged.trouble)
    if landing.judged is not None and landing.judged.encoders_differ:
        return LogLine("encoder", key, f"{DIFFERENCE}. `eagletui rebuild` makes the ids of earlier answers again.")
    return None
