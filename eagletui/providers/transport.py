"""Carry requests over HTTP: httpx's API on aiohttp's transport, bodies kept byte for byte.

Stock httpx cannot hold 800 streams; httpx-aiohttp costs 38 microseconds an event against its 240. A stream is not
parsed here: chunks are appended, and only the end marker and the presence of an event are looked for.
"""

import asyncio
import contextlib
import functools
import json
import re
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import AnyStr, Final, Self

import aiohttp
import httpx
import httpx_aiohttp

from eagletui.core.text import clean_line
from eagletui.providers import errors
from eagletui.providers.base import FailureKind, OnHeaders, ProviderFailure, RawReply, Timeouts
from eagletui.providers.inflate import bounded_body, is_coded

KEEP_ALIVE_S: Final = 4.0
"""Idle connections are closed before common servers (5 s) close them under a request on its way."""
AFTER_DONE_S: Final = 2.0
"""A server that leaves the connection open after the end marker is not waited for longer."""
GATHER_S: Final = 0.5
"""Events of a long stream are read in groups that gather for so long: waking up costs more than reading one."""
GATHER_PART: Final = 0.05
"""Of the time that a stream has taken so far, so that a short one is not held up."""
CROWDED_BYTES: Final = 8 * 1024
"""With so much there at once, more is waiting."""
ERROR_BODY_BYTES: Final = 65_536
ERROR_BODY_S: Final = 10.0
"""The status alone decides; its explanation is not waited for longer."""
GET_TIMEOUT_S: Final = 30.0
GET_BYTES: Final = 32 * 2**20
"""The largest list of models or endpoints is a tenth of this."""
SECRET_CHARACTERS: Final = 12
"""A shorter key is a word such as EMPTY, which an answer may hold; it is left in bodies."""
WORD_CHARACTERS: Final = 8
"""A shorter key may be part of any word, so that in what is told to people it goes only where it stands as a key."""
KNOWN_CHARACTERS: Final = 9
"""Of the beginning of a key that a text was cut in, so many may stand: `sk-or-v1-` is on every key."""


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A whole reply to a GET."""

    status: int
    headers: httpx.Headers
    body: bytes


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


@functools.cache
def _url(text: str) -> httpx.URL:
    return httpx.URL(text)


@functools.cache
def _authorities() -> ssl.SSLContext:
    return httpx.create_ssl_context()


def _trust(base_url: str) -> ssl.SSLContext:
    """Read the known authorities where they are needed; a server without TLS gets a context that trusts nobody."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if base_url.startswith("http://") else _authorities()


class HttpTransport:
    """One connection pool to one provider."""

    def __init__(self, base_url: str, *, key: str, timeouts: Timeouts, headers: dict[str, str]) -> None:
        """Prepare a client; nothing is opened yet.

        Args:
            base_url: up to and including the version part, without a trailing slash.
            key: the API key, or "" for a server without one. It is sent and never shown.
            timeouts: limits of each part of a request.
            headers: sent with every request.
        """
        self._base_url = base_url.rstrip("/")
        self._keys: list[str] = []
        """Every key that was ever sent: a reply to an earlier one may still come."""
        self._secrets: set[bytes] = set()
        self._timeouts = timeouts
        verify = _trust(self._base_url)
        timeout = httpx.Timeout(None, connect=timeouts.connect_s)
        self._connections = httpx_aiohttp.AiohttpTransport(
            verify=verify,
            client=lambda: aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ssl=verify, keepalive_timeout=KEEP_ALIVE_S),
                cookie_jar=aiohttp.DummyCookieJar(),
            ),
        )
        self._client = httpx.AsyncClient(
            transport=self._connections,
            timeout=timeout,
            headers={"Accept-Encoding": "identity", "User-Agent": "eagletui", **headers},
            trust_env=False,
        )
        self._extensions = {"timeout": timeout.as_dict()}
        self.use_key(key)

    def __repr__(self) -> str:
        return f"HttpTransport({self._base_url!r})"

    def use_key(self, key: str) -> None:
        """Send another key from here on; requests under way keep theirs.

        Args:
            key: "" for a server without one. It is sent and never shown.
        """
        self._client.headers.pop("Authorization", None)
        if key:
            self._client.headers["Authorization"] = f"Bearer {key}"
            self._keys.append(key)
        if len(key) >= SECRET_CHARACTERS:
            self._secrets |= {text.encode() for text in (key, json.dumps(key)[1:-1], key.replace("/", "\\/"))}
        self._post_headers = [*self._client.headers.multi_items(), ("Content-Type", "application/json")]

    async def aclose(self) -> None:
        """Close every connection."""
        await self._client.aclose()

    async def get(self, path: str, params: dict[str, str] | None = None) -> HttpReply:
        """Fetch a small JSON document.

        Raises:
            ProviderFailure: no reply; an HTTP error status is a reply.
        """
        body = bytearray()
        try:
            async with asyncio.timeout(GET_TIMEOUT_S):
                async with self._client.stream("GET", self._base_url + path, params=params) as reply:
                    async for chunk in bounded_body(reply, GET_BYTES):
                        body += chunk
        except TimeoutError as error:
            raise ProviderFailure("total_timeout", f"GET {path} had no answer in {GET_TIMEOUT_S:.0f} s.") from error
        except (httpx.HTTPError, httpx.InvalidURL, aiohttp.ClientError) as error:
            raise errors.from_transport(error, headers_seen=False, hide=self._hide) from None
        return HttpReply(reply.status_code, reply.headers, self._scrubbed(bytes(body)))

    def failure(self, reply: HttpReply) -> ProviderFailure:
        """Map an error answer to a GET."""
        return errors.from_status(reply.status, reply.headers, reply.body, self._hide)

    async def post(self, path: str, body: bytes, *, stream: bool, limit_bytes: int, on_headers: OnHeaders) -> RawReply:
        """Send one chat request and receive its body.

        Args:
            path: appended to the base URL.
            body: the JSON body.
            stream: a stream was asked for, so its first event has a deadline of its own.
            limit_bytes: a larger reply is no answer.
            on_headers: awaited before the body is read.

        Returns:
            The reply, with `cut` set where its body ended early.

        Raises:
            ProviderFailure: no reply with status 200 began.
        """
        loop = asyncio.get_running_loop()
        started_at = time.monotonic()
        total = loop.time() + self._timeouts.total_s
        first_event = min(total, loop.time() + self._timeouts.first_event_s) if stream else total
        response: httpx.Response | None = None
        receiver: Receiver | None = None
        try:
            request = httpx.Request(
                "POST",
                _url(self._base_url + path),
                headers=self._post_headers,
                content=body,
                extensions=self._extensions,
            )
            async with Watchdog(first_event) as watchdog:
                # The client's own way knows redirects, cookies and log-ins, which cost as much as the request itself.
                response = await self._connections.handle_async_request(request)
                generation_id = self._generation_id(response.headers)
                await on_headers(generation_id, response.status_code)
                if response.status_code != 200:
                    raise await self._refusal(response)
                receiver = Receiver(response, watchdog, self._timeouts, generation_id, started_at, total, self._hide)
                await receiver.receive(limit_bytes)
        except TimeoutError:
            failure = self._timed_out(loop.time() >= total, stream, receiver)
            if receiver is None:
                raise failure from None
            return self._reply(receiver, None if receiver.done else failure)
        except (httpx.HTTPError, httpx.InvalidURL, aiohttp.ClientError) as error:
            failure = errors.from_transport(error, headers_seen=response is not None, hide=self._hide)
            if receiver is None:
                raise failure from None
            return self._reply(receiver, None if receiver.done else failure)
        finally:
            if response is not None:
                await _close(response)
        return self._reply(receiver, None)

    def _reply(self, receiver: "Receiver", cut: ProviderFailure | None) -> RawReply:
        reply = receiver.reply(cut)
        return replace(reply, body=self._scrubbed(reply.body, is_cut=cut is not None))

    def _generation_id(self, headers: httpx.Headers) -> str | None:
        value = headers.get("x-generation-id")
        return clean_line(self._hide(value), 200) if value else None

    def _scrubbed(self, body: bytes, *, is_cut: bool = False) -> bytes:
        """Take the key out of what will be kept; a server that repeats it has no answer in that place."""
        for secret in self._secrets:
            if secret in body:
                body = body.replace(secret, b"[key]")
            if is_cut:
                body = _without_start(body, secret, b"[key]")
        return body

    async def _refusal(self, response: httpx.Response) -> ProviderFailure:
        body, cut = bytearray(), b""
        try:
            async with asyncio.timeout(ERROR_BODY_S):
                async for chunk in bounded_body(response, ERROR_BODY_BYTES):
                    body += chunk
        except (TimeoutError, httpx.HTTPError, aiohttp.ClientError, ProviderFailure):
            cut = b" (the explanation was cut)"
        kept = self._scrubbed(bytes(body), is_cut=bool(cut)) + cut
        return errors.from_status(response.status_code, response.headers, kept, self._hide)

    def _timed_out(self, total: bool, stream: bool, receiver: "Receiver | None") -> ProviderFailure:
        kind: FailureKind
        if total or not stream:
            kind, limit_s, what = "total_timeout", self._timeouts.total_s, "No whole reply"
        elif receiver is None or receiver.first_event_at is None:
            kind, limit_s, what = "first_event_timeout", self._timeouts.first_event_s, "No first event"
        else:
            kind, limit_s, what = "event_timeout", self._timeouts.event_s, "No further event"
        return ProviderFailure(kind, f"{what} within {limit_s:g} s.", http_status=None if receiver is None else 200)

    def _hide(self, text: str) -> str:
        """Take the key out of words: servers repeat a refused key, and it must not reach the ledger.

        Args:
            text: as it came, before it is cut; where it ends in the beginning of the key, that goes as well.
        """
        for key in self._keys:
            if len(key) < WORD_CHARACTERS:
                text = _as_a_key(key).sub(r"\1[key]", text)
            else:
                text = _without_start(text.replace(key, "[key]"), key, "[key]")
        return text


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
        except BaseException:
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


@functools.cache
def _as_a_key(key: str) -> re.Pattern[str]:
    """Find a key where a text says that it is one: behind `Bearer`, or as the value of a key, a token or the header."""
    named = r"(\bbearer\s+|(?:authorization|token|key(?: provided)?)[\"']?\s*[:=]\s*(?:bearer\s+)?[\"']?)"
    return re.compile(rf"{named}{re.escape(key)}(?!\w)", re.IGNORECASE)


def _without_start(text: AnyStr, secret: AnyStr, mark: AnyStr) -> AnyStr:
    """Take out the beginning of a secret with which a cut text ends."""
    for length in range(len(secret) - 1, KNOWN_CHARACTERS, -1):
        if text.endswith(secret[:length]):
            return text[:-length] + mark
    return text


def _ended(body: bytearray, before: int) -> bool:
    """Tell whether the chunk that begins at `before` completed the end marker.

    Inside an event a line break is escaped, so a line that begins with the marker is the marker.
    """
    at = body.rfind(b"[DONE]", max(0, before - 16))
    if at < 0:
        return False
    line = body[max(0, at - 8) : at].rstrip(b" ")
    return line == b"data:" or line.endswith(b"\ndata:")


async def _close(response: httpx.Response) -> None:
    try:
        await response.aclose()
    except (httpx.HTTPError, aiohttp.ClientError):
        return  # The body was judged already; closing a broken connection has nothing to add.
