"""Receive the body of one reply, byte for byte, within its limits of time.

A stream is not parsed here: chunks are appended, and only the end marker and the presence of an event are looked for.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self

import aiohttp
import httpx
import httpx_aiohttp

from eagletui.core.text import clean_line
from eagletui.providers import errors
from eagletui.providers.base import ProviderFailure, RawReply, Timeouts
from eagletui.providers.inflate import bounded_body, is_coded

AFTER_DONE_S: Final = 2.0
"""A server that leaves the connection open after the end marker is not waited for longer."""
GATHER_S: Final = 0.5
"""Events of a long stream are read in groups that gather for so long: waking up costs more than reading one."""
GATHER_PART: Final = 0.05
"""Of the time that a stream has taken so far, so that a short one is not held up."""
CROWDED_BYTES: Final = 8 * 1024
"""With so much there at once, more is waiting."""


class Watchdog:
    """Ends the enclosed wait when its deadline passes; moving the deadline later costs one assignment."""

    def __init__(self, deadline: float) -> None:
        """Start with a deadline in the loop's time."""
        self._deadline = deadline
        self._timeout = asyncio.timeout(None)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        self._timer = self._loop.call_at(self._deadline, self._look)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._timeout.__aexit__(kind, error, trace)

    def move(self, deadline: float) -> None:
        """Set another deadline."""
        self._deadline = deadline
        if self._timer is not None and deadline < self._timer.when():
            self._timer.cancel()
            self._timer = self._loop.call_at(deadline, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        if now < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._look)
        else:
            self._timer = None
            self._timeout.reschedule(now)


class Receiver:
    """Collects one body and knows how far it came."""

    def __init__(
        self,
        response: httpx.Response,
        watchdog: Watchdog,
        timeouts: Timeouts,
        generation_id: str | None,
        started_at: float,
        total: float,
        hide: errors.Hide,
    ) -> None:
        """Take over a response whose headers arrived.

        Args:
            response: unread.
            watchdog: ends the wait; moved with every event.
            timeouts: limits of each part.
            generation_id: from the headers.
            started_at: when the request was sent, monotonic seconds.
            total: when the whole request must have ended, in the loop's time.
            hide: takes the key out of the words of a web page.
        """
        assert isinstance(response.stream, httpx_aiohttp.transport.AiohttpResponseStream)
        self._response = response
        self._stream = response.stream
        self._watchdog = watchdog
        self._event_s = timeouts.event_s
        self.generation_id = generation_id
        self._started_at = started_at
        self._headers_at = time.monotonic()
        self._total = total
        self._hide = hide
        self._body = bytearray()
        self._media_type = response.headers.get("content-type", "").split(";")[0].strip().lower()
        self.first_event_at: float | None = None
        self.done = False
        """The whole answer is here, whatever happens to the connection now."""

    async def receive(self, limit_bytes: int) -> None:
        """Read to the end of the body.

        Raises:
            ProviderFailure: it is a web page, too large, or compressed in a way that cannot be undone.
        """
        pieces = bounded_body(self._response, limit_bytes)
        if self._media_type == "text/html":
            start = await anext(pieces, b"")
            words = clean_line(self._hide(start.decode("utf-8", "replace")), 120)
            raise ProviderFailure("not_json", f"The reply is a web page, not JSON: {words}", http_status=200)
        if self._media_type != "text/event-stream":
            async for chunk in pieces:
                self._body += chunk
            self.done = True
            return
        began: float | None = None
        now = asyncio.get_running_loop().time
        try:
            async for chunk in pieces:
                if not self._take(chunk):
                    continue
                moment = now()
                began = moment if began is None else began
                if self.done:
                    self._watchdog.move(moment + AFTER_DONE_S)
                    continue
                self._watchdog.move(min(moment + self._event_s, self._total))
                if len(chunk) < CROWDED_BYTES:
                    with self._unheard():
                        await asyncio.sleep(min(GATHER_S, (moment - began) * GATHER_PART))
        except RuntimeError as error:
            # aiohttp's reader says so of a connection that broke in a way it has no error for.
            self._take_unread(limit_bytes)
            raise aiohttp.ClientPayloadError(str(error)) from error
        except BaseException:  # a cancel too: what had arrived is paid for and is kept
            self._take_unread(limit_bytes)
            raise

    @contextlib.contextmanager
    def _unheard(self) -> Iterator[None]:
        """Let events gather in the kernel's buffer: taking each from the socket costs more than reading it."""
        connection = self._stream._aiohttp_response.connection
        socket = None if connection is None else connection.transport
        if socket is None or socket.is_closing():
            yield
            return
        socket.pause_reading()
        try:
            yield
        finally:
            if not socket.is_closing():
                socket.resume_reading()

    def _take_unread(self, limit_bytes: int) -> None:
        """Take what arrived while events gathered, before the connection broke: aiohttp's reader gives it to nobody."""
        if not is_coded(self._response):
            unread = bytes(self._stream._aiohttp_response.content._read_nowait(-1))
            self._take(unread[: max(0, limit_bytes - len(self._body))])

    def _take(self, chunk: bytes) -> bool:
        """Append what arrived, and tell whether it brought news."""
        before = len(self._body)
        self._body += chunk
        if self.done or b"data:" not in chunk:
            return False
        if self.first_event_at is None:
            self.first_event_at = time.monotonic()
        self.done = _ended(self._body, before)
        return True

    def reply(self, cut: ProviderFailure | None) -> RawReply:
        """Return what arrived."""
        if cut is not None:
            cut.http_status = 200
        return RawReply(
            encoding="sse" if self._media_type == "text/event-stream" else "json",
            body=bytes(self._body),
            http_status=200,
            generation_id=self.generation_id,
            started_at=self._started_at,
            headers_at=self._headers_at,
            first_event_at=self.first_event_at,
            ended_at=time.monotonic(),
            cut=cut,
        )


def _ended(body: bytearray, before: int) -> bool:
    """Tell whether the chunk that begins at `before` completed the end marker.

    Inside an event a line break is escaped, so a line that begins with the marker is the marker.
    """
    at = body.rfind(b"[DONE]", max(0, before - 16))
    if at < 0:
        return False
    line = body[max(0, at - 8) : at].rstrip(b" ")
    return line == b"data:" or line.endswith(b"\ndata:")
