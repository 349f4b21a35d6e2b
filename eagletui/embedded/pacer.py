"""Send many streams at their pace from one task: a timer and a task switch per event would cost more than the event."""

import asyncio
import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

TICK_S: Final = 0.005
"""Events that are due within this time go out together; tokens come 10 ms apart and more."""
BEHIND_BYTES: Final = 64 * 1024
"""A client that has not taken so much is left alone until it has: it must not hold up the others."""


@dataclass(slots=True)
class _Stream:
    response: web.StreamResponse
    transport: asyncio.Transport
    chunks: Iterator[tuple[bytes, int]]
    interval_s: float
    sent: "asyncio.Future[None]"
    waiting: tuple[bytes, int] | None = None
    """The event that is due next."""


@dataclass(slots=True)
class Pacer:
    """The streams of one server."""

    _due: list[tuple[float, int, _Stream]] = field(default_factory=list)
    _number: Iterator[int] = field(default_factory=itertools.count)
    _ticking: asyncio.Task[None] | None = None

    async def send(
        self,
        response: web.StreamResponse,
        transport: asyncio.Transport,
        chunks: Iterator[tuple[bytes, int]],
        interval_s: float,
    ) -> None:
        """Send events, each after the time that its tokens take; returns when all are sent.

        Args:
            response: prepared.
            transport: of its connection.
            chunks: events with their number of tokens.
            interval_s: per token, above 0.

        Raises:
            ConnectionResetError: the client is gone.
        """
        loop = asyncio.get_running_loop()
        stream = _Stream(response, transport, chunks, interval_s, loop.create_future())
        if not self._schedule(stream, loop.time()):
            return
        if self._ticking is None:
            self._ticking = asyncio.create_task(self._tick())
        await stream.sent

    def _schedule(self, stream: _Stream, now: float) -> bool:
        stream.waiting = next(stream.chunks, None)
        if stream.waiting is None:
            return False
        heapq.heappush(self._due, (now + stream.interval_s * stream.waiting[1], next(self._number), stream))
        return True

    async def _tick(self) -> None:
        clock = asyncio.get_running_loop().time
        while self._due:
            await asyncio.sleep(max(TICK_S, self._due[0][0] - clock()))
            now = clock()
            while self._due and self._due[0][0] <= now:
                due_at, _, stream = heapq.heappop(self._due)
                await self._send_one(stream, due_at, now)
        self._ticking = None

    async def _send_one(self, stream: _Stream, due_at: float, now: float) -> None:
        if stream.sent.done():
            return
        if stream.transport.get_write_buffer_size() > BEHIND_BYTES:
            heapq.heappush(self._due, (now + stream.interval_s, next(self._number), stream))
            return
        assert stream.waiting is not None
        try:
            await stream.response.write(stream.waiting[0])
        except ConnectionResetError as error:
            stream.sent.set_exception(error)
            return
        if not self._schedule(stream, due_at):
            stream.sent.set_result(None)
